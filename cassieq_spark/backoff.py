"""Decides how long to wait before the next attempt: longer each time, and jittered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

#: A caller gives up after this many attempts, or after this many seconds if it has made the
#: minimum by then. Each failed attempt means that another caller won, so only minutes of this are
#: an error.
ATTEMPTS, FEWEST_ATTEMPTS, PATIENCE = 600, 40, 240.0
#: The smallest and the largest mean of a random pause of `Backoff`, in seconds.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.5
#: Factors of the mean after a lost race, and after each call unless the caller says otherwise.
_LONGER, SHORTER = 1.5, 0.93


class Backoff:
    """Paces competing compare-and-sets, and remembers the contention from call to call.

    Each lost race makes the mean pause half again as long, and at least three quarters of the time
    of the attempt, as attempts take longer when many compete. Each paced call makes the pause 7 %
    shorter. So it settles where fewer than one race is lost in five calls, as long as competitors
    pause equally long and the longest pause is long enough. Without memory, each call must find
    out anew how many compete, by losing.

    Threads may share a backoff. A new backoff is calm: it does not wait before the first attempt.

    Source: multiplicative increase and gentle decrease, as in Bharghavan et al., MACAW, SIGCOMM
    1994.
    """

    def __init__(self, shorter: float = SHORTER) -> None:
        self._shorter = shorter
        self._mean = 0.0
        self._ended = 0.0

    @property
    def is_calm(self) -> bool:
        """True if there is no contention to remember."""
        return not self._mean

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Wait before a call if the last call ended a moment ago; a rare call does not wait."""
        left = self._ended + self._pause() - time.monotonic()
        if left > 0:
            time.sleep(left)
        mean = self._shorter * self._mean
        self._mean = mean if mean >= _SHORTEST_PAUSE / 2 else 0.0
        try:
            yield
        finally:
            self._ended = time.monotonic()

    def attempts(self) -> Iterator[int]:
        """Count the attempts at a compare-and-set, and sleep before each except the first."""
        began = 0.0
        for attempt in _numbered():
            if attempt:
                self._lose(time.monotonic() - began)
                time.sleep(self._pause())
            began = time.monotonic()
            yield attempt

    def _lose(self, took: float) -> None:
        mean = _LONGER * max(self._mean, took / 2, _SHORTEST_PAUSE)
        self._mean = min(mean, _LONGEST_PAUSE)

    def _pause(self) -> float:
        return random.uniform(0, 2 * self._mean)  # noqa: S311 jitter, not a secret


def attempts() -> Iterator[int]:
    """Count the attempts at a compare-and-set, and sleep before each except the first.

    This function has no memory, and its pauses are shorter than those of `Backoff`: at most 4 ms
    at first, 500 ms later.
    """
    pauses = pauses_within(timedelta.max, first=2 * _SHORTEST_PAUSE, longest=_LONGEST_PAUSE)
    for attempt in _numbered():
        if attempt:
            time.sleep(next(pauses))
        yield attempt


def _numbered() -> Iterator[int]:
    began = time.monotonic()
    for attempt in range(ATTEMPTS):
        if attempt >= FEWEST_ATTEMPTS and time.monotonic() > began + PATIENCE:
            return
        yield attempt


def pauses_within(
    budget: timedelta, *, first: float, longest: float, shortest_part: float = 0.0
) -> Iterator[float]:
    """Seconds to wait before each further attempt, until the budget is spent.

    Args:
        budget: The time to spend, counted from the first pause on.
        first: Ceiling of the first pause, in seconds; it doubles with each pause.
        longest: The highest ceiling, in seconds.
        shortest_part: Each pause is a random part of its ceiling, at least this one; 1 for no
            jitter.
    """
    end = time.monotonic() + budget.total_seconds()
    ceiling = min(first, longest)
    while (left := end - time.monotonic()) > 0:
        part = random.uniform(shortest_part, 1)  # noqa: S311 jitter, not a secret
        yield min(part * ceiling, left)
        ceiling = min(longest, ceiling * 2)
