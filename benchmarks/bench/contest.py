"""Rounds, medians and ratios. Everything but `hold` and `Budget` is pure."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: What a trial has measured, by the name of the measure.
Measures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Contest:
    """Systems that do the same.

    Attributes:
        case: What they do.
        payload: With which messages; empty where that does not matter.
        trials: By the name of the system.
    """

    case: str
    payload: str
    trials: Mapping[str, Callable[[], Measures]]


@dataclass(frozen=True, slots=True)
class Figure:
    """What one system did, round by round.

    Attributes:
        case: See `Contest`.
        payload: See `Contest`.
        system: Who did it.
        measure: What was measured, and its unit.
        values: One for each round.
    """

    case: str
    payload: str
    system: str
    measure: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def ratio_to(self, other: Figure) -> float:
        """How many times the other it is: the median of what the rounds say.

        >>> ours = Figure("read", "", "a", "messages/s", (10, 30, 20))
        >>> ours.ratio_to(Figure("read", "", "b", "messages/s", (5, 10, 20)))
        2.0
        """
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(ours / theirs if theirs else math.inf for ours, theirs in pairs)

    def more_than(self, other: Figure) -> float:
        """How much more than the other it is: the median of what the rounds say.

        >>> ours = Figure("start", "", "a", "s", (1.0, 3.0, 2.0))
        >>> ours.more_than(Figure("start", "", "b", "s", (0.5, 1.0, 1.0)))
        1.0
        """
        pairs = zip(self.values, other.values, strict=True)
        return statistics.median(ours - theirs for ours, theirs in pairs)


class Budget:
    """Deals out time to contests: in a slow hour there are fewer rounds, and never fewer contests.

    Args:
        seconds: For all of them, from now on; None for no limit.
        contests: How many there will be.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        seconds: float | None,
        contests: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self._left = contests

    def next(self) -> Callable[[], bool]:
        """Begin a contest; what is returned is asked after each round whether it is over."""
        began, share, rounds = self._clock(), 0.0, 0
        if self._end is not None:
            share = max(0.0, self._end - began) / max(1, self._left)
        self._left -= 1

        def is_over() -> bool:
            nonlocal rounds
            rounds += 1
            # One round more would take it beyond its share.
            a_round = (self._clock() - began) / rounds
            return self._end is not None and a_round * (rounds + 1) > share

        return is_over


def hold(
    contest: Contest,
    *,
    rounds: int,
    chance: random.Random,
    settle: Callable[[], None],
    is_over: Callable[[], bool] = lambda: False,
) -> list[Figure]:
    """Let all take turns, round by round, each round in an order of its own.

    Args:
        contest: Who does what.
        rounds: How often each of them does it, at most.
        chance: Decides the order.
        settle: Called before each trial: what one left behind is not to slow the next one down.
        is_over: Called after each round: whether there is no time for another.
    """
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in chance.sample(list(contest.trials), len(contest.trials)):
            settle()
            for measure, value in contest.trials[name]().items():
                found[name, measure].append(value)
        if is_over():
            break
    return [
        Figure(contest.case, contest.payload, name, measure, tuple(values))
        for (name, measure), values in sorted(found.items())
    ]


def find(figures: Sequence[Figure], *, case: str, payload: str, measure: str) -> dict[str, Figure]:
    """The figures of one contest and measure, by system."""
    return {
        each.system: each
        for each in figures
        if (each.case, each.payload, each.measure) == (case, payload, measure)
    }
