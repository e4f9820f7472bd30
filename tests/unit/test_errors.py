from __future__ import annotations

import pickle
import re

import pytest

from cassieq_spark import errors
from cassieq_spark.errors import CassieqError

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
