"""A schedule: a message that is put again and again, at times that are known beforehand."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any, TypedDict, TypeVar

from cassieq_spark.arguments import (
    AT_ONCE,
    check_count,
    check_duration,
    check_instant,
    check_text,
    header_pairs,
    shown,
)
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import OptionError
from cassieq_spark.model import to_millis
from cassieq_spark.schedules.cron import parse_cron
from cassieq_spark.schedules.template import check_template, fields_of, filled_in, show_instant
from cassieq_spark.schedules.timing import AtLocalTimes, Every, Timing, zone_of
from cassieq_spark.settings.kinds import Kind, whole_number
from cassieq_spark.settings.queue import PERIOD

#: The shortest pause between two ticks; each takes a compare-and-set.
SHORTEST = timedelta(seconds=1)
#: The longest time by which a tick is put off or published ahead.
LONGEST_JITTER, LONGEST_AHEAD = timedelta(hours=1), timedelta(hours=1)
#: How many late ticks are published at most, and how many ticks may be counted beforehand.
MOST_CAUGHT_UP, MOST_COUNTED = 1000, 10_000
#: The headers of a tick: its schedule, its time, and how many ticks before it were left out.
SCHEDULE, TICK, MISSED = "schedule", "schedule-tick", "schedule-missed"
_MILLISECOND = timedelta(milliseconds=1)

_FEW = {"none": 0, "last": 1}


def _parse_catch_up(text: str) -> int:
    few = _FEW.get(text.strip().lower())
    return whole_number(0, MOST_CAUGHT_UP).parse(text) if few is None else few


#: How many late ticks are published, as people write it.
CATCH_UP: Kind[int] = Kind(
    f"none, last or a number up to {MOST_CAUGHT_UP}",
    _parse_catch_up,
    lambda number: {each: word for word, each in _FEW.items()}.get(number, str(number)),
    "none|last|NUMBER",
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The body of a message of a schedule; a mapping is stored as JSON.
ScheduledValue = str | Mapping[str, Any]


class ScheduleSettings(TypedDict, total=False):
    """The settings of a schedule; `make_schedule` has their meaning."""

    cron: str | None
    every: timedelta | None
    zone: str
    key: str | None
    headers: Mapping[str, str | None] | None
    start: datetime | None
    end: datetime | None
    count: int | None
    catch_up: int
    jitter: timedelta
    ahead: timedelta


@dataclass(frozen=True, repr=False)
class Schedule(Displayed):
    """A message that is put at each tick.

    Attributes:
        queue: Name of the queue.
        name: Name of the schedule; no other of the queue has it.
        identity: Distinguishes it from schedules of that name that were deleted.
        since: It has no tick up to this instant: when it was created, or last resumed.
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

    @property
    def sink(self) -> str:
        """The name of the sink that publishes the ticks, each once: it never has another one."""
        return f"schedule:{self.name}@{self.identity}"

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


def make_schedule(  # noqa: PLR0913 (each is a property of the schedule, by name)
    queue: str,
    name: str,
    message: ScheduledValue,
    *,
    identity: str,
    now: datetime,
    cron: str | None = None,
    every: timedelta | None = None,
    zone: str = "UTC",
    key: str | None = None,
    headers: Mapping[str, str | None] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    count: int | None = None,
    catch_up: int = 1,
    jitter: timedelta = AT_ONCE,
    ahead: timedelta = AT_ONCE,
) -> Schedule:
    """Make a schedule of settings that somebody has chosen, and check them.

    Args:
        queue: Name of the queue.
        name: Name of the schedule.
        message: The body, with fields of the tick.
        identity: See `Schedule`.
        now: When it is created.
        cron: See `Schedule`; or ``every``.
        every: At least a second. The ticks are counted from ``start``, or from 1970.
        zone: See `Schedule`.
        key: The key of the messages; None: the name of the schedule.
        headers: Headers of the messages.
        start: See `Schedule`.
        end: See `Schedule`.
        count: How many ticks it has, published or not; None: without a limit.
        catch_up: From 0 to 1000.
        jitter: At most an hour.
        ahead: At most an hour.

    Raises:
        OptionError: A setting is not valid, or contradicts another one; or it would never tick.
        MessageError: The headers are not valid.
    """
    if (cron is None) == (every is None):
        raise OptionError("give either cron, such as '0 3 * * *', or every, such as 5 minutes")
    if every is not None:
        every = check_duration("every", every, least=SHORTEST)
        if every % _MILLISECOND:
            raise OptionError(f"every must be whole milliseconds, not {every}")
    zone_of(zone)
    own = dict(header_pairs({} if headers is None else headers, "the message"))
    if taken := own.keys() & {SCHEDULE, TICK, MISSED}:
        raise OptionError(f"the header {min(taken)!r} is set by the schedule: leave it out")
    made = Schedule(
        queue,
        name,
        identity,
        whole(now),
        check_template(text_of(message)),
        name if key is None else check_text("key", key),
        own,
        None if cron is None else check_text("cron", cron),
        every,
        zone,
        None if start is None else whole(check_instant("start", start)),
        None if end is None else whole(check_instant("end", end)),
        check_count("catch_up", catch_up, least=0, most=MOST_CAUGHT_UP),
        _at_most("jitter", jitter, LONGEST_JITTER),
        _at_most("ahead", ahead, LONGEST_AHEAD),
    )
    return _ending(made, count)


def takes_settings(function: _Function) -> _Function:
    """Show, to ``help`` and `inspect`, which settings a function takes as ``**settings``."""
    shown = list(inspect.signature(make_schedule).parameters.values())
    before = inspect.signature(function)
    *own, _ = before.parameters.values()
    names = ScheduleSettings.__annotations__
    settings = [each for each in shown if each.name in names]
    vars(function)["__signature__"] = before.replace(parameters=[*own, *settings])
    return function


def _ending(schedule: Schedule, count: int | None) -> Schedule:
    """The schedule, with the end that follows from a number of ticks.

    Raises:
        OptionError: It would never tick.
    """
    ticks = schedule.ticks_after(schedule.since)
    first = next(ticks, None)
    if first is None:
        raise OptionError(f"schedule {schedule.name!r} ends at {schedule.end}, before it ticks")
    if count is None:
        return schedule
    check_count("count", count, most=MOST_COUNTED)
    last = next(islice(ticks, count - 2, None), None) if count > 1 else first
    if last is None:
        return schedule  # It ends before.
    return replace(schedule, end=last + _MILLISECOND)


def text_of(message: object) -> str:
    """The body of a message as text; of a dict, as JSON.

    Raises:
        OptionError: It is something else.
    """
    if isinstance(message, Mapping):
        try:
            return json.dumps(message)
        except (TypeError, ValueError) as error:
            raise OptionError(f"the message can't be written as JSON: {error}") from error
    if not isinstance(message, str):
        raise OptionError(f"the message must be a text or a dict, not {shown(message)}")
    return check_text("message", message)


def _at_most(name: str, given: object, most: timedelta) -> timedelta:
    found = check_duration(name, given)
    if found > most:
        raise OptionError(f"{name} must be at most {most}, not {found}")
    return found // _MILLISECOND * _MILLISECOND


def whole(at: datetime) -> datetime:
    """An instant in whole milliseconds, as they number the ticks."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
