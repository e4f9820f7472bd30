"""How often and how patiently a lost compare-and-set is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

#: Enough for some hundred competitors; each loss means that another one won.
ATTEMPTS = 40
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25


def pauses() -> Iterator[int]:
    """Count the attempts, pausing before each but the first: jittered, and longer each time."""
    for attempt in range(ATTEMPTS):
        if attempt:
            ceiling = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)
            time.sleep(random.uniform(0, ceiling))  # noqa: S311 jitter, not a secret
        yield attempt
