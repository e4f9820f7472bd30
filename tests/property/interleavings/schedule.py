"""Orders of turns: as they are written down, or all of those with few preemptions.

An order is written as runs of turns, ``a3 b2``: three turns of a, two of b. An actor that is named
and can't go on is passed over; when nothing is named any more, they go on to their ends, one after
another. Every run of a stage prints its order in this way, so that it can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from random import Random
from typing import Protocol


class Actor(Protocol):
    """Somebody who takes turns."""

    @property
    def is_able(self) -> bool:
        """Whether there is anything to go on with."""

    def step(self) -> None:
        """Take a turn."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who took a turn, and who could have."""

    chosen: str
    able: tuple[str, ...]


class Play:
    """Actors going on in one order.

    Args:
        actors: By name, of one letter; the first goes first.
        before: Called before each turn, with who takes it.
        after: Called after each turn.

    Attributes:
        choices: Turn by turn.
    """

    def __init__(
        self,
        actors: Mapping[str, Actor],
        *,
        before: Callable[[str], None],
        after: Callable[[], None],
    ) -> None:
        self._actors = actors
        self._before = before
        self._after = after
        self.choices: list[Choice] = []

    def run(self, turns: Iterable[str]) -> None:
        """Take these turns, and then go on to the end, each one for as long as it can."""
        for name in turns:
            self._take(name)
        while able := self._able():
            last = self.choices[-1].chosen if self.choices else able[0]
            self._take(last if last in able else able[0])

    def _take(self, name: str) -> None:
        able = self._able()
        if name not in able:
            return
        self.choices.append(Choice(name, able))
        self._before(name)
        self._actors[name].step()
        self._after()

    def _able(self) -> tuple[str, ...]:
        return tuple(name for name, actor in self._actors.items() if actor.is_able)


def orders(
    run: Callable[[Sequence[str]], Sequence[Choice]],
    preemptions: int,
    *,
    events: Iterable[str],
    most: int | None = None,
) -> Iterator[str]:
    """Run every order in which at most so often a turn is taken from one who could go on.

    As CHESS does it (Musuvathi and others, OSDI 2008): most bugs need two preemptions at the most,
    and the number of orders stays polynomial.

    Args:
        run: Takes the turns that are named, and then goes on as `Play.run` does.
        preemptions: How many.
        events: Actors that may come at any time: turns given to them do not count.
        most: How many orders to run, drawn by chance, the same each time; None: all of them.

    Yields:
        Each order, after it was run; no order twice.
    """
    ahead: list[tuple[str, ...]] = [()]
    chance, done = Random(0), 0
    while ahead and done != most:
        named = ahead.pop(-1 if most is None else chance.randrange(len(ahead)))
        done += 1
        choices = run(named)
        taken = tuple(choice.chosen for choice in choices)
        yield written(taken)
        able = [choice.able for choice in choices]
        for at in range(len(named), len(taken)):
            others = [(*taken[:at], other) for other in able[at] if other != taken[at]]
            ahead += [each for each in others if _preemptions(each, able, events) <= preemptions]


def _preemptions(
    taken: Iterable[str], able: Iterable[tuple[str, ...]], events: Iterable[str]
) -> int:
    turns = [each for each in zip(taken, able, strict=False) if each[0] not in events]
    return sum(last != now and last in could for (last, _), (now, could) in pairwise(turns))


def written(turns: Iterable[str]) -> str:
    """An order in writing.

    >>> written(["a", "a", "b"])
    'a2 b1'
    """
    return " ".join(f"{name}{len(list(run))}" for name, run in groupby(turns))


def read(text: str) -> list[str]:
    """The turns of an order in writing.

    >>> read("a2 b1")
    ['a', 'a', 'b']
    """
    return [run[0] for run in text.split() for _ in range(int(run[1:]))]
