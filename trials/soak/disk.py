"""How a soak may use the disk: no more in the end than what lives. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: A disk that uses so much more at the end of the second half than at its start is still flat.
_DISK_NOISE = 0.2
_DISK_NOISE_BYTES = 4 << 20
_FEWEST_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """What the tables took on disk at some time, and what of it still belongs to somebody."""

    seconds: float
    disk_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Trend:
    """How the disk was used in the second half of a run; growth by the line through it."""

    disk_growth: int
    live_growth: int
    allowed: int
    mean: int

    @property
    def is_flat(self) -> bool:
        """Whether the disk did not grow by more than what lives, and some noise."""
        return self.disk_growth <= self.allowed


def trend_of(samples: Sequence[Sample]) -> Trend | None:
    """How disk use went on in the second half; None if there are too few samples to tell."""
    if not samples:
        return None
    middle = (samples[0].seconds + samples[-1].seconds) / 2
    half = [sample for sample in samples if sample.seconds >= middle]
    if len(half) < _FEWEST_SAMPLES:
        return None
    disk = _growth(half, [sample.disk_bytes for sample in half])
    live = _growth(half, [sample.live_bytes for sample in half])
    mean = int(statistics.fmean(sample.disk_bytes for sample in half))
    noise = _DISK_NOISE_BYTES + int(_DISK_NOISE * mean)
    return Trend(disk, live, max(0, live) + noise, mean)


def _growth(samples: Sequence[Sample], values: Sequence[int]) -> int:
    seconds = [sample.seconds for sample in samples]
    line = statistics.linear_regression(seconds, values)
    return int(line.slope * (seconds[-1] - seconds[0]))
