"""Is a history linearizable: could each call have happened at one moment between its ends?

The search of Wing and Gong, remembering what was seen as Lowe does: states that are reached by the
same calls, in whatever order, are gone on from once. It is small enough to be read, and here,
because nothing of the kind is on PyPI: Porcupine is a program in Go, Knossos one in Clojure, and
both would have to be given histories and a specification in their own language. Compare-and-sets
keep the search narrow: few of those that run at the same time can be next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an object that several share.

    Attributes:
        operation: What was asked.
        result: What was answered; of no meaning if ``returned`` is infinite.
        called: When it began.
        returned: When the answer came; infinite if none did: it happens any time later, or never.
    """

    operation: Any
    result: Any
    called: float
    returned: float = inf

    @property
    def is_pending(self) -> bool:
        """Whether nobody knows what became of it."""
        return self.returned == inf


@dataclass(frozen=True, slots=True)
class Violation:
    """How far a history can be explained.

    Attributes:
        explained: The most calls that have an order.
        state: What there is after them.
        stuck: Those of which one would have to come next, and none can.
    """

    explained: int
    state: Any
    stuck: tuple[Call, ...]


def find_violation(
    history: Iterable[Call], initial: State, step: Callable[[State, Call], Sequence[State]]
) -> Violation | None:
    """Look for an order of the calls which explains every answer.

    Args:
        history: The calls.
        initial: What there was before them.
        step: What there may be after a call, given what there was before; nothing, if its answer
            is then impossible. For a pending call only what it would change.

    Returns:
        None: there is one.
    """
    calls = sorted(history, key=lambda call: call.called)
    answered = [call for call in calls if not call.is_pending]
    pending = [call for call in calls if call.is_pending]
    every = answered + pending
    furthest = Violation(-1, initial, ())
    ahead: list[tuple[int, int, State]] = [(0, 0, initial)]
    seen = {(0, initial)}
    while ahead:
        done, count, state = ahead.pop()
        if count == len(answered):
            return None
        possible = _next_of(done, answered, pending)
        if count > furthest.explained:
            stuck = tuple(every[number] for number in possible if number < len(answered))
            furthest = Violation(count, state, stuck)
        for number in possible:
            for then in step(state, every[number]):
                key = (done | 1 << number, then)
                if key not in seen:
                    seen.add(key)
                    ahead.append((key[0], count + (number < len(answered)), then))
    return furthest


def _next_of(done: int, answered: Sequence[Call], pending: Sequence[Call]) -> list[int]:
    """The calls that may come next, by number: begun before any that is left has returned."""
    found: list[int] = []
    horizon = inf
    lowest = (~done & (done + 1)).bit_length() - 1
    for number in range(lowest, len(answered)):
        call = answered[number]
        if call.called > horizon:
            break
        if not done >> number & 1:
            found.append(number)
            horizon = min(horizon, call.returned)
    # What is known last: the stack takes that first, and most that is unknown never happened.
    begun = [
        number
        for number, call in enumerate(pending, len(answered))
        if call.called <= horizon and not done >> number & 1
    ]
    return begun + found[::-1]
