"""A clock that is told, and block ids that are the same in every run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from cassieq_spark.model import to_millis

_UUID_EPOCH_OFFSET = 0x01B21DD213814000
_numbers = count(1)


class FakeClock:
    """Stands still until it is told to go on; whole milliseconds.

    Attributes:
        now: What time it is.
        ahead: How far the servers' clocks are ahead of that; see `here`.
    """

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return self.now + self.ahead

    def here(self) -> datetime:
        """This process's clock, which is right."""
        return self.now

    def seconds(self) -> float:
        """The same as a number."""
        return self.now.timestamp()

    def advance(self, by: timedelta) -> None:
        self.now += by


class Age:
    """This process's monotonic clock: stands still, so that what is known stays known.

    Attributes:
        seconds: What it shows.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def make_block_id(begun_at: datetime) -> UUID:
    """A block id of its own, begun at this instant."""
    ticks = to_millis(begun_at) * 10_000 + _UUID_EPOCH_OFFSET
    middle, high = (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
    return UUID(fields=(ticks & 0xFFFFFFFF, middle, high | 0x1000, 0x80, 0, next(_numbers)))
