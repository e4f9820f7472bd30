"""What small benchmarks print: lines of JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


def show(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


@contextmanager
def timed(name: str, **figures: int) -> Iterator[None]:
    """Show how long something took."""
    began = time.monotonic()
    yield
    show(what=name, **figures, seconds=round(time.monotonic() - began, 1))


def compared(by_size: Mapping[int, Sequence[float]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Median and 95th percentile of each size, and its ratio to the smallest, round by round."""
    smallest = by_size[min(by_size)]
    for size, times in sorted(by_size.items()):
        ratios = [ours / theirs for ours, theirs in zip(times, smallest, strict=True)]
        yield (
            size,
            {
                "p50_ms": round(statistics.median(times), 2),
                "p95_ms": round(sorted(times)[int(0.95 * len(times))], 2),
                "ratio": round(statistics.median(ratios), 2),
            },
        )
