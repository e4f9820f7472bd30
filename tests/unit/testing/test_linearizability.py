"""The checker, on histories of which it is known what they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linearizability import Call, find_violation


def register(state: int, call: Call) -> Sequence[int]:
    """A number, compared and set: ``("read",)`` answers it, ``("cas", old, new)`` yes or no."""
    match call.operation:
        case ("read",):
            return [state] if call.result == state else []
        case ("cas", old, new):
            if call.is_pending:
                return [new] if state == old else []
            if call.result == (state == old):
                return [new if call.result else state]
    return []


def read(result: int, called: float, returned: float) -> Call:
    return Call(("read",), result, called, returned)


def cas(old: int, new: int, called: float, returned: float = inf, *, result: bool = True) -> Call:
    return Call(("cas", old, new), result, called, returned)


LINEARIZABLE = {
    "nothing": [],
    "one after another": [read(0, 0, 1), cas(0, 1, 2, 3), read(1, 4, 5)],
    "a read beside a change sees what was": [cas(0, 1, 0, 9), read(0, 1, 2)],
    "or what is": [cas(0, 1, 0, 9), read(1, 1, 2)],
    "of two that want the same one is refused": [
        cas(0, 1, 0, 9),
        cas(0, 2, 0, 9, result=False),
        read(1, 10, 11),
    ],
    "what nobody heard of never happened": [cas(0, 1, 0), read(0, 5, 6), read(0, 7, 8)],
    "or much later": [cas(0, 1, 0), read(0, 5, 6), read(1, 7, 8)],
    "and others may build on it": [cas(0, 1, 0), cas(1, 2, 3, 4), read(2, 5, 6)],
    "in an order that nobody asked in": [cas(1, 2, 0, 9), cas(0, 1, 0, 9), read(2, 10, 11)],
    "calls may touch": [cas(0, 1, 0, 1), read(0, 1, 2)],
}
NOT_LINEARIZABLE = {
    "a value that nobody wrote": [read(7, 0, 1)],
    "a change is forgotten": [cas(0, 1, 0, 1), read(0, 2, 3)],
    "back in time": [cas(0, 1, 0, 9), read(1, 1, 2), read(0, 3, 4)],
    "two win": [cas(0, 1, 0, 9), cas(0, 2, 0, 9)],
    "refused for nothing": [cas(0, 1, 0, 1, result=False)],
    "it happened, and then it had not": [cas(0, 1, 0), read(1, 5, 6), read(0, 7, 8)],
    "it happened twice": [cas(0, 1, 0), cas(1, 0, 2, 3), read(1, 4, 5)],
    "before it was asked": [read(1, 0, 1), cas(0, 1, 2)],
}


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_a_history_that_has_an_order_is_explained(history: list[Call]):
    assert find_violation(history, 0, register) is None


@pytest.mark.parametrize("history", NOT_LINEARIZABLE.values(), ids=NOT_LINEARIZABLE)
def test_a_history_that_has_none_is_found(history: list[Call]):
    assert find_violation(history, 0, register) is not None


def test_a_violation_says_how_far_it_went_and_what_could_not_follow():
    wrong = read(5, 6, 7)

    violation = find_violation([cas(0, 1, 0, 1), cas(1, 2, 2, 3), wrong], 0, register)

    assert violation is not None
    assert (violation.explained, violation.state, violation.stuck) == (2, 2, (wrong,))


def by_trying_all(history: Sequence[Call]) -> bool:
    """What linearizable means, word by word."""
    pending = [call for call in history if call.is_pending]
    answered = [call for call in history if not call.is_pending]
    for count in range(len(pending) + 1):
        for some in permutations(pending, count):
            if any(_explains(order) for order in permutations([*answered, *some])):
                return True
    return False


def _explains(order: Sequence[Call]) -> bool:
    state = 0
    for number, call in enumerate(order):
        if any(later.returned < call.called for later in order[number:]):
            return False
        if not (then := register(state, call)):
            return False
        (state,) = then
    return True


VALUES = st.integers(0, 2)
SPANS = st.tuples(st.integers(0, 8), st.integers(0, 4))
CALLS = st.one_of(
    st.builds(lambda value, span: read(value, span[0], sum(span)), VALUES, SPANS),
    st.builds(
        lambda old, new, span, result: cas(old, new, span[0], sum(span), result=result),
        VALUES,
        VALUES,
        SPANS,
        st.booleans(),
    ),
    st.builds(cas, VALUES, VALUES, st.integers(0, 8)),
)


@given(st.lists(CALLS, max_size=5))
def test_it_says_what_trying_all_orders_says(history: list[Call]):
    assert (find_violation(history, 0, register) is None) == by_trying_all(history)
