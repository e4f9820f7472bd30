"""Rounds, medians and ratios. Everything but `hold` and `Budget` is pure."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: The results of a trial, by measure.
Measures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Contest:
    """Trials of several systems, by the name of the system.

    Attributes:
        case: What is measured.
        payload: The kind of messages; empty if the case does not depend on it.
        trials: A trial of each system.
        is_shuffled: False if the trials of a round have an order of their own.
    """

    case: str
    payload: str
    trials: Mapping[str, Callable[[], Measures]]
    is_shuffled: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """The results of one system: a value for each round.

    The name of the ``measure`` has its unit.
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
        """The median of the ratios to another figure, round by round.

        >>> ours = Figure("read", "", "a", "messages/s", (10, 30, 20))
        >>> ours.ratio_to(Figure("read", "", "b", "messages/s", (5, 10, 20)))
        2.0
        """
        return statistics.median(self.ratios_to(other))

    def ratios_to(self, other: Figure) -> list[float]:
        """The ratio to another figure in each round."""
        pairs = zip(self.values, other.values, strict=True)
        return [ours / theirs if theirs else math.inf for ours, theirs in pairs]

    def differences_to(self, other: Figure) -> list[float]:
        """The difference to another figure in each round.

        >>> ours = Figure("start", "", "a", "s", (1.0, 3.0))
        >>> ours.differences_to(Figure("start", "", "b", "s", (0.5, 1.0)))
        [0.5, 2.0]
        """
        return [ours - theirs for ours, theirs in zip(self.values, other.values, strict=True)]


class Budget:
    """Divides time among contests: on a slow machine there are fewer rounds, not fewer contests.

    Args:
        seconds: The time for all contests from now on; None for no limit.
        contests: The number of contests.
        part: The part of the time that may be used.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        seconds: float | None,
        contests: int,
        *,
        part: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds * part
        self._left = contests

    def next(self) -> Callable[[], bool]:
        """Begin a contest; returns a function that tells after each round whether it is over."""
        began, share, rounds = self._clock(), 0.0, 0
        if self._end is not None:
            share = max(0.0, self._end - began) / max(1, self._left)
        self._left -= 1

        def is_over() -> bool:
            nonlocal rounds
            rounds += 1
            # Another round would take more than its share.
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
    """Hold a contest in rounds, each in a random order unless the contest has its own.

    Args:
        contest: The contest.
        rounds: Most rounds.
        chance: Decides the order.
        settle: Called before each trial, to wait for background work of the one before.
        is_over: Called after each round; True if there is no time for another.
    """
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        names = list(contest.trials)
        if contest.is_shuffled:
            chance.shuffle(names)
        for name in names:
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
