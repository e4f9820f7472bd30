from __future__ import annotations

import pickle
import re

import pytest

from cassieq_spark import errors
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    ContentionError,
    ExistsError,
    NotAppliedError,
    OutcomeUnknownError,
    StoreError,
    in_doubt,
)

CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, CassieqError)
]
LINE = re.compile(
    r"(?P<indent>[│├└─ ]*)(?P<name>\w+Error)(?: \((?P<builtin>\w+)\))? +(?P<rest>.*)"
)


def tree_in_docstring() -> dict[str, tuple[str | None, str | None, bool]]:
    """Parent, built-in parent and whether it is retryable, by name."""
    found: dict[str, tuple[str | None, str | None, bool]] = {}
    path: list[str] = []
    for match in filter(None, map(LINE.fullmatch, (errors.__doc__ or "").splitlines())):
        depth = len(match["indent"]) // 4
        path = [*path[:depth], match["name"]]
        retryable = match["rest"].endswith(" retryable")
        found[match["name"]] = (path[-2] if depth else None, match["builtin"], retryable)
    return found


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    classes = {}
    for each in CLASSES:
        ours = [base.__name__ for base in each.__bases__ if base in CLASSES]
        others = [base.__name__ for base in each.__bases__ if base not in (*CLASSES, Exception)]
        classes[each.__name__] = (
            ours[0] if ours else None,
            others[0] if others else None,
            each.retryable,
        )

    assert tree_in_docstring() == classes


@pytest.mark.parametrize("error", CLASSES)
def test_errors_cross_process_borders(error: type[CassieqError]):
    copy = pickle.loads(pickle.dumps(error("the message")))

    assert (type(copy), str(copy)) == (error, "the message")


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_says_what_it_means(error: type[CassieqError]):
    assert error.__doc__


def failing(error: CassieqError, doubtful: list[str]) -> CassieqError:
    """The error that leaves a call of which some requests are doubtful."""
    with pytest.raises(CassieqError) as raised, in_doubt("queue 'q'", doubtful):
        raise error
    return raised.value


@pytest.mark.parametrize("kind", [NotAppliedError, ContentionError, ConnectError])
def test_a_failure_after_a_doubtful_request_is_of_unknown_outcome(kind: type[StoreError]):
    error = kind("too few replicas")

    found = failing(error, ["lost"])

    assert type(found) is OutcomeUnknownError
    assert "queue 'q'" in str(found)
    assert "too few replicas" in str(found)
    assert found.__cause__ is error


@pytest.mark.parametrize(
    ("error", "doubtful"),
    [
        (NotAppliedError("too few replicas"), []),
        (OutcomeUnknownError("no answer"), ["lost"]),
        (ExistsError("it exists"), ["lost"]),
    ],
)
def test_an_error_that_is_true_of_the_whole_call_stays(error: CassieqError, doubtful: list[str]):
    assert failing(error, doubtful) is error
