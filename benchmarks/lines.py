"""The JSON lines that the small benchmarks print."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import truediv


def show(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


@contextmanager
def timed(name: str, **figures: int) -> Iterator[None]:
    """Show how many seconds the block took."""
    began = time.monotonic()
    yield
    show(what=name, **figures, seconds=round(time.monotonic() - began, 1))


def compared(by_size: Mapping[int, Sequence[float]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Median and 95th percentile of each size, and its ratio to the smallest, round by round."""
    smallest = by_size[min(by_size)]
    for size, times in sorted(by_size.items()):
        figures = {
            "p50_ms": statistics.median(times),
            "p95_ms": sorted(times)[int(0.95 * len(times))],
            "ratio": statistics.median(map(truediv, times, smallest)),
        }
        yield size, {name: round(figure, 2) for name, figure in figures.items()}
