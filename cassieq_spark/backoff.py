"""How long to wait before the next attempt: longer each time, and jittered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import timedelta

#: Enough for about a hundred competitors; each attempt that fails means that another one won.
ATTEMPTS = 40
_FIRST_PAUSE = 0.004
_LONGEST_PAUSE = 0.25


def attempts() -> Iterator[int]:
    """Count the attempts at a compare-and-set, and sleep before each but the first."""
    pauses = pauses_within(timedelta.max, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(next(pauses))
        yield attempt


def pauses_within(
    budget: timedelta, *, first: float, longest: float, shortest_part: float = 0.0
) -> Iterator[float]:
    """Seconds to wait before each further attempt, until the budget is spent.

    Args:
        budget: Counts from the first pause on.
        first: Ceiling of the first pause, in seconds; it doubles with each pause.
        longest: The highest ceiling, in seconds.
        shortest_part: Each pause is a random part of its ceiling, at least this one; 1: no jitter.
    """
    end = time.monotonic() + budget.total_seconds()
    ceiling = min(first, longest)
    while (left := end - time.monotonic()) > 0:
        part = random.uniform(shortest_part, 1)  # noqa: S311 jitter, not a secret
        yield min(part * ceiling, left)
        ceiling = min(longest, ceiling * 2)
