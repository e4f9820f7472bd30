"""When a schedule ticks: at local times that a cron expression names, or after equal pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from cassieq_spark.arguments import FIRST_INSTANT
from cassieq_spark.schedules.cron import Cron
from cassieq_spark.schedules.local_time import first_shown, wall_time


@dataclass(frozen=True, slots=True)
class Every:
    """Ticks that follow one another after the same pause.

    Attributes:
        pause: The time from one tick to the next.
        anchor: An instant at which one of them is.
    """

    pause: timedelta
    anchor: datetime = FIRST_INSTANT

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the ticks after an instant, in order, without end."""
        at = self.anchor + ((instant - self.anchor) // self.pause + 1) * self.pause
        while True:
            yield at
            at += self.pause


@dataclass(frozen=True, slots=True)
class AtLocalTimes:
    """Ticks at the local times of a zone that a cron expression names; see `first_shown`."""

    cron: Cron
    zone: tzinfo

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the ticks after an instant, in order."""
        last = instant
        for local in self.cron.after(wall_time(instant, self.zone)):
            at = first_shown(local, self.zone)
            # Times that the clocks leave out are one instant, and those shown again are past.
            if at > last:
                yield at
                last = at


Timing = Every | AtLocalTimes
