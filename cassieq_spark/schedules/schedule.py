"""A schedule: a message that is put again and again, at times that are known beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

from cassieq_spark.arguments import AT_ONCE
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import OptionError
from cassieq_spark.model import from_millis, to_millis
from cassieq_spark.schedules.cron import parse_cron
from cassieq_spark.schedules.template import check_template, fields_of, filled_in
from cassieq_spark.schedules.timing import AtLocalTimes, Every, Timing, zone_of
from cassieq_spark.settings.queue import PERIOD
from cassieq_spark.settings.schedule import (
    KEPT,
    SCHEDULE_SETTINGS,
    check_settings,
    show_instant,
)

#: The headers of a tick: its schedule, its time, and how many ticks before it were left out.
SCHEDULE, TICK, MISSED = "schedule", "schedule-tick", "schedule-missed"
_MILLISECOND = timedelta(milliseconds=1)
#: The bits of a tick in its number: milliseconds up to the year 9999. The others of a bigint that
#: is not negative are those of the generation.
_TICK_BITS = 48
MOST_ALTERED = (1 << 63 - _TICK_BITS) - 1
_TIMES = {it.name for it in SCHEDULE_SETTINGS if it.timing}


@dataclass(frozen=True, repr=False)
class Schedule(Displayed):
    """A message that is put at each tick.

    Attributes:
        queue: Name of the queue.
        name: Name of the schedule; no other of the queue has it.
        identity: Distinguishes it from schedules of that name that were deleted.
        since: It has no tick up to this instant: when it was created or last resumed, or when an
            alter last changed its times.
        message: The body, with fields of the tick.
        key: The key of the messages.
        headers: Headers of the messages, in addition to those of the tick.
        cron: When it ticks, as a cron expression; None if it has ``every``.
        every: The time from tick to tick; None if it has ``cron``.
        zone: The time zone of ``cron``, and of the fields of the message.
        start: It has no tick before this instant; None: from its creation on.
        end: It has no tick at or after this instant; None: without end.
        catch_up: How many ticks that are late are published at most.
        jitter: Each tick is put off by a time of its own, shorter than this.
        ahead: How long before its time a tick is published, as a delayed message.
        paused: True if no tick is published.
        generation: How often it was altered. Its ticks come after those of any lower one.
    """

    queue: str
    name: str
    identity: str
    since: datetime
    message: str
    key: str
    headers: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    cron: str | None = None
    every: timedelta | None = None
    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    catch_up: int = 1
    jitter: timedelta = AT_ONCE
    ahead: timedelta = AT_ONCE
    paused: bool = False
    generation: int = 0

    @cached_property
    def timing(self) -> Timing:
        """When it ticks, whatever its start and end are."""
        if self.every is not None:
            return Every(self.every) if self.start is None else Every(self.every, self.start)
        return AtLocalTimes(parse_cron(self.cron or ""), self._zone)

    @cached_property
    def _zone(self) -> tzinfo:
        return zone_of(self.zone)

    def local(self, at: datetime) -> datetime:
        """An instant, in the zone of the schedule."""
        return at.astimezone(self._zone)

    def show(self, at: datetime) -> str:
        """An instant for people: in UTC, and in the zone of the schedule if that is not UTC."""
        local = f" ({self.local(at).isoformat()})" if self.zone != "UTC" else ""
        return f"{show_instant(at)}{local}"

    @property
    def sink(self) -> str:
        """The name of the sink that publishes the ticks, each once: it never has another one."""
        return f"schedule:{self.name}@{self.identity}"

    def number_of(self, tick: datetime) -> int:
        """The number under which its sink publishes a tick: the generation, then the tick.

        So the sink refuses a tick of a lower generation, whatever its time is, once it has a batch
        of a higher one.
        """
        return self.generation << _TICK_BITS | to_millis(tick)

    @property
    def when(self) -> str:
        """When it ticks, for people: ``every 5m``, or ``0 3 * * * Europe/Berlin``."""
        return (
            f"{self.cron} {self.zone}"
            if self.every is None
            else f"every {PERIOD.show(self.every)}"
        )

    def ticks_after(self, instant: datetime) -> Iterator[datetime]:
        """Yield its ticks after an instant, in order."""
        after = max(instant, self.since)
        if self.start is not None:
            after = max(after, self.start - _MILLISECOND)
        for at in self.timing.after(after):
            if self.end is not None and at >= self.end:
                return
            yield at

    def due_at(self, tick: datetime) -> datetime:
        """When the message of a tick is delivered: at the tick, or later by its jitter.

        The same for whoever asks, and different for other ticks and schedules.
        """
        if not self.jitter:
            return tick
        seed = f"{self.identity} {to_millis(tick)}".encode()
        part = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big")
        return tick + _MILLISECOND * (self.jitter // _MILLISECOND * part >> 64)

    def value_of(self, tick: datetime) -> str:
        """The body of the message of a tick."""
        return filled_in(self.message, fields_of(self.name, self.queue, tick, self._zone))

    def headers_of(self, tick: datetime, missed: int = 0) -> dict[str, str | None]:
        """The headers of the message of a tick; ``missed`` ticks before it were left out."""
        found = {**self.headers, SCHEDULE: self.name, TICK: show_instant(tick)}
        return found | ({MISSED: str(missed)} if missed else {})

    def _view(self) -> ObjectView:
        facts = {"name": self.name, "when": self.when, "end": self.end, "paused": self.paused}
        details = {"message": self.message, "start": self.start, "catch_up": self.catch_up}
        return ObjectView("schedules", self.queue, facts, details, usual={"paused": False})


def parts_of_number(number: int) -> tuple[int, datetime | None]:
    """The generation and the tick of a number of `Schedule.number_of`; None for no tick."""
    millis = number % (1 << _TICK_BITS)
    return number >> _TICK_BITS, from_millis(millis) if millis else None


def make_schedule(
    queue: str, name: str, message: object, *, identity: str, now: datetime, **settings: Any
) -> Schedule:
    """Make a schedule of settings that somebody has chosen, and check them.

    Args:
        queue: Name of the queue.
        name: Name of the schedule.
        message: The body, with fields of the tick.
        identity: See `Schedule`.
        now: When it is created.
        settings: See `ScheduleSettings`.

    Raises:
        OptionError: A setting is not valid, or contradicts another one; or it would never tick.
        MessageError: The headers are not valid.
    """
    usual: dict[str, Any] = {it.name: it.default for it in KEPT} | {"key": name}
    given = check_settings({**settings, "message": message})
    count = given.pop("count", None)
    made = Schedule(queue, name, identity, whole(now), **(usual | given))
    _check(made)
    return _ending(made, count, made.since)


def altered_schedule(schedule: Schedule, changes: Mapping[str, Any], now: datetime) -> Schedule:
    """The schedule after changes of its settings; the same one if nothing changes.

    It keeps what makes ticks distinct: its name, its identity, and its key. If it gets other
    times, these begin now. Otherwise a tick that has come, and was not published, is still to be
    published, with the new message.

    Args:
        schedule: The schedule as it is.
        changes: See `ScheduleChanges`.
        now: The time of the change.

    Raises:
        OptionError: A setting is not valid, can't be altered or contradicts another one; or the
            schedule would never tick again.
        MessageError: The headers are not valid.
    """
    given = check_settings(changes, alters=True)
    count, now = given.pop("count", None), whole(now)
    for one, other in (("cron", "every"), ("every", "cron")):
        if given.get(one) is not None:
            given.setdefault(other, None)
    made = replace(schedule, **given)
    _check(made)
    if _TIMES & changes.keys():
        made = _ending(made, count, max(now, schedule.since))
        if _has_other_ticks(schedule, made, now):
            made = replace(made, since=max(now, schedule.since))
    if made == schedule:
        return schedule
    if made.generation == MOST_ALTERED:
        raise OptionError(
            f"schedule {schedule.name!r} was altered {MOST_ALTERED:,} times, which is the most: "
            "delete it, and create another one"
        )
    return replace(made, generation=made.generation + 1)


def _has_other_ticks(before: Schedule, after: Schedule, now: datetime) -> bool:
    """True if a schedule had other ticks up to now, if it had always been as it is after a change.

    It may be True although they are the same.
    """
    has_ended = before.end is not None and before.end <= now
    return (
        before.timing != after.timing
        or before.start != after.start
        or (has_ended and before.end != after.end)
    )


def _check(schedule: Schedule) -> None:
    """Refuse what no single setting shows.

    Raises:
        OptionError: A setting is not valid, or contradicts another one.
    """
    if (schedule.cron is None) == (schedule.every is None):
        raise OptionError("give either cron, such as '0 3 * * *', or every, such as 5 minutes")
    zone_of(schedule.zone)
    if schedule.cron is not None:
        parse_cron(schedule.cron)
    if taken := schedule.headers.keys() & {SCHEDULE, TICK, MISSED}:
        raise OptionError(f"the header {min(taken)!r} is set by the schedule: leave it out")
    check_template(schedule.message)


def _ending(schedule: Schedule, count: int | None, after: datetime) -> Schedule:
    """The schedule, with the end that follows from a number of ticks after an instant.

    Raises:
        OptionError: It would never tick.
    """
    ticks = schedule.ticks_after(after)
    first = next(ticks, None)
    if first is None:
        raise OptionError(f"schedule {schedule.name!r} ends at {schedule.end}, before it ticks")
    if count is None:
        return schedule
    last = next(islice(ticks, count - 2, None), None) if count > 1 else first
    if last is None:
        return schedule  # It ends before.
    return replace(schedule, end=last + _MILLISECOND)


def whole(at: datetime) -> datetime:
    """An instant in whole milliseconds, as they number the ticks."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
