"""Rounds, medians and ratios. Everything but `hold` is pure."""

from __future__ import annotations

import random
import statistics
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
        return statistics.median(ours / theirs for ours, theirs in pairs)


def hold(
    contest: Contest, *, rounds: int, chance: random.Random, settle: Callable[[], None]
) -> list[Figure]:
    """Let all take turns, round by round, each round in an order of its own.

    Args:
        contest: Who does what.
        rounds: How often each of them does it.
        chance: Decides the order.
        settle: Called before each trial: what one left behind is not to slow the next one down.
    """
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in chance.sample(list(contest.trials), len(contest.trials)):
            settle()
            for measure, value in contest.trials[name]().items():
                found[name, measure].append(value)
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
