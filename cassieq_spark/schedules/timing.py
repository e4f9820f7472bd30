"""When a schedule ticks: at local times that a cron expression names, or after equal pauses.

A wall clock shows some local times twice, and leaves some out: `first_shown` says which instant
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT, check_text, did_you_mean
from cassieq_spark.errors import OptionError
from cassieq_spark.schedules.cron import Cron

_A_SECOND = timedelta(seconds=1)
#: A file beside the zones that says which one the machine is in.
_OF_THIS_MACHINE = "localtime"


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
        """Yield the ticks after an instant, in order, up to the last instant that we take."""
        at = self.anchor + ((instant - self.anchor) // self.pause + 1) * self.pause
        while at < LAST_INSTANT:
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


def zone_of(name: str) -> tzinfo:
    """The time zone of a name of the IANA database, such as ``Europe/Berlin``.

    Raises:
        OptionError: There is no such zone on this machine, or it is the machine's own.
    """
    if check_text("zone", name) == "UTC":
        return UTC  # Also on a machine without the database.
    if name == _OF_THIS_MACHINE:
        raise OptionError(
            f"the zone {name!r} is another one on each machine: name a zone, such as Europe/Berlin"
        )
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        hint = did_you_mean(name, sorted(available_timezones()), "such as Europe/Berlin or UTC")
        raise OptionError(
            f"there is no time zone {name!r}: {hint}. If it should exist, install the package "
            "tzdata"
        ) from error


def first_shown(local: datetime, zone: tzinfo) -> datetime:
    """The first instant at which a clock on the wall shows this time, or a later one.

    A time that the clocks leave out, as summer time begins, is the instant at which they jump. A
    time that they show twice is the first of the two instants.

    >>> berlin = zone_of("Europe/Berlin")
    >>> first_shown(datetime(2026, 3, 29, 2, 30), berlin).isoformat()
    '2026-03-29T01:00:00+00:00'
    >>> first_shown(datetime(2026, 10, 25, 2, 30), berlin).isoformat()
    '2026-10-25T00:30:00+00:00'
    """
    at = local.replace(tzinfo=zone).astimezone(UTC)
    if wall_time(at, zone) == local:
        return at
    # By the offset after the jump, an instant before it; by the offset before, one after it.
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while at - before > _A_SECOND:
        middle = before + (at - before) // _A_SECOND // 2 * _A_SECOND
        if wall_time(middle, zone) < local:
            before = middle
        else:
            at = middle
    return at


def wall_time(at: datetime, zone: tzinfo) -> datetime:
    """The time that a clock on the wall shows at an instant, as a naive datetime."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)
