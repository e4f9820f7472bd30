"""What may happen in a history, drawn by Hypothesis, or by a random number generator alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from cassieq_spark.dead_letters.stopped import Resume
from tests.property.features.history import LEASE, MINUTES, NOTHING, SECOND

LEAST_STEPS, MOST_STEPS = 40, 80


@dataclass(frozen=True)
class Step:
    """A method of `History`, and its arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Some:
    """A list of one to ``most`` of these."""

    choices: Sequence[Any]
    most: int


#: The choices of an argument.
Choices = Sequence[Any] | Some
EITHER = [False, True]
LIMITS = [None, MINUTES, MINUTES]
DELAYS = [NOTHING, SECOND, 2 * LEASE]
LENGTHS = [SECOND, LEASE, 3 * LEASE]
FATES = [
    "ack",
    "extend",
    "extend",
    "extend",
    "release",
    "release later",
    "reject",
    "replace",
    "replace",
]
WHICH = Some(range(6), 4)
IDS = Some(["x", "y", None, None], 4)
#: What each queue has; those with an order alone may stop at dead messages.
QUEUE: Mapping[str, Choices] = {
    "typed": EITHER,
    "partitions": [1, 3],
    "in_order": EITHER,
    "strict": EITHER,
    "stops": EITHER,
    "drops": [False, False, False, False, True],
    "max_deliveries": [3, 2, 6],
    "expire_after": LIMITS,
    "keep_settled": LIMITS,
    "delay": [None, None, 2 * LEASE],
    "several": EITHER,
}
#: By method of `History`: out of how many times, and with which arguments.
STEPS: Mapping[str, tuple[int, Mapping[str, Choices]]] = {
    "time_passes": (3, {"by": [NOTHING, SECOND, LEASE, LEASE + SECOND, 2 * LEASE, 2 * MINUTES]}),
    "put": (
        4,
        {
            "keys": Some(["a", "b", "c", None], 4),
            "ids": IDS,
            "delay": DELAYS,
            "by_http": EITHER,
        },
    ),
    "put_under_a_key": (
        2,
        {"keys": Some("abc", 3), "ids": IDS, "name": "xy", "delay": DELAYS, "by_http": EITHER},
    ),
    "put_a_version": (
        2,
        {
            "keys": Some("abc", 3),
            "ids": IDS,
            "back": [0, 0, 1, 2],
            "changed": [False, False, True],
            "delay": DELAYS,
        },
    ),
    "receive": (4, {"most": range(1, 7), "by_http": EITHER}),
    "receive_again": (3, {"most": range(1, 7)}),
    "settle": (6, {"fate": FATES, "which": WHICH, "by": LENGTHS, "by_http": EITHER}),
    "trigger": (4, {"limit": [None, 1, 3]}),
    "record": (6, {"fates": Some(FATES, 3), "which": WHICH, "by": LENGTHS}),
    "crash": (2, {}),
    "stop": (1, {}),
    "seek": (2, {"to": ["earliest", "latest", *range(8)]}),
    "alter": (
        3,
        {
            "what": ["add", "add", "drop", "expire", "keep", "on dead", "deliveries"],
            "number": [0, 1],
        },
    ),
    "put_beside": (2, {"keys": Some(["a", "b", None], 4)}),
    "write_to_both": (
        2,
        {"keys": Some("abc", 4), "which": Some([0, 1], 4), "again": [False, False, True]},
    ),
    "make_anew": (1, {}),
    "alter_beside": (1, {"adds": EITHER}),
    "redrive": (3, {"by_http": EITHER}),
    "resume": (3, {"how": list(Resume), "by_http": EITHER}),
    "purge": (1, {"by_http": EITHER}),
    "repair": (4, {"after": [NOTHING, NOTHING, 2 * MINUTES]}),
}
_NAMES = [name for name, (weight, _) in STEPS.items() for _ in range(weight)]


def _strategy(choices: Choices) -> st.SearchStrategy[Any]:
    if isinstance(choices, Some):
        return st.lists(st.sampled_from(choices.choices), min_size=1, max_size=choices.most)
    return st.sampled_from(choices)


def _named(choices: Mapping[str, Choices]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: _strategy(each) for name, each in choices.items()})


QUEUES = _named(QUEUE)
HISTORIES = st.lists(
    st.sampled_from(_NAMES).flatmap(
        lambda name: st.builds(Step, st.just(name), _named(STEPS[name][1]))
    ),
    min_size=LEAST_STEPS,
    max_size=MOST_STEPS,
)


def drawn(random: Random) -> tuple[dict[str, Any], list[Step]]:
    """A queue and the steps of a history, each independent of all others.

    Hypothesis makes many of its examples from earlier ones.
    """
    names = random.choices(_NAMES, k=random.randint(LEAST_STEPS, MOST_STEPS))
    steps = [Step(name, _draw(random, STEPS[name][1])) for name in names]
    return _draw(random, QUEUE), steps


def _draw(random: Random, choices: Mapping[str, Choices]) -> dict[str, Any]:
    return {name: _pick(random, each) for name, each in choices.items()}


def _pick(random: Random, choices: Choices) -> Any:
    if isinstance(choices, Some):
        return random.choices(choices.choices, k=random.randint(1, choices.most))
    return random.choice(choices)
