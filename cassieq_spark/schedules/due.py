"""Which ticks of a schedule are to be published now."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import dropwhile
from typing import NamedTuple

from cassieq_spark.schedules.schedule import Schedule

#: A tick that was not published this long after its time is late.
LATE = timedelta(minutes=1)
_MILLISECOND = timedelta(milliseconds=1)


class Tick(NamedTuple):
    """A tick that is to be published.

    Attributes:
        at: Its instant, by which the sink numbers it.
        due_at: When its message is delivered at the earliest.
        missed: How many ticks between the last one that was published and this one are left out.
    """

    at: datetime
    due_at: datetime
    missed: int = 0


class Due(NamedTuple):
    """What is to be done about the ticks that have come.

    Attributes:
        ticks: Those to publish, in order.
        passed: The last tick that has come, published now or before, or left out; None: none has.
    """

    ticks: list[Tick]
    passed: datetime | None


def due_ticks(schedule: Schedule, last: datetime | None, now: datetime) -> Due:
    """Decide which ticks to publish.

    Ticks that are not late are published. Of late ones, only the newest: as many as ``catch_up``
    leaves room for beside those whose time has come without being late. So after an outage at most
    ``catch_up`` messages come, or those of the last minute if they are more.

    Args:
        schedule: The schedule; whether it is paused is not asked.
        last: The last tick that was published; None: none was.
        now: The present.
    """
    late: deque[Tick] = deque(maxlen=schedule.catch_up)
    in_time: list[Tick] = []
    missed, after = _left_out(schedule, schedule.since if last is None else last, now)
    passed = last
    for at in schedule.ticks_after(after):
        tick = Tick(at, schedule.due_at(at))
        # In order: no tick passes another one that its jitter holds back.
        if tick.due_at - schedule.ahead > now:
            break
        passed = at
        if in_time or now - tick.due_at <= LATE:
            in_time.append(tick)
        else:
            late.append(tick)
            missed += 1
    have_come = sum(tick.due_at <= now for tick in in_time)
    room = max(0, schedule.catch_up - have_come)
    kept = list(late)[-room:] if room else []
    found = kept + in_time
    if found:
        found[0] = found[0]._replace(missed=missed - len(kept))
    return Due(found, passed)


def oldest_overdue(schedule: Schedule, last: datetime | None, now: datetime) -> datetime | None:
    """When the oldest tick was due that has come and is missing; None if none is.

    Of a schedule that catches up nothing, a tick that is late is not missing any more.

    Args:
        schedule: The schedule; whether it is paused is not asked.
        last: The last tick that was published; None: none was.
        now: The present.
    """
    after = schedule.since if last is None else last
    if not schedule.catch_up:
        after = max(after, now - LATE - schedule.jitter - _MILLISECOND)
    for at in schedule.ticks_after(after):
        due_at = schedule.due_at(at)
        if due_at > now:
            break  # No tick passes another one.
        if schedule.catch_up or now - due_at <= LATE:
            return due_at
    return None


def next_ticks(schedule: Schedule, last: datetime | None, now: datetime) -> Iterator[datetime]:
    """The ticks that are to come, in order; jitter may put off some that were to have come.

    Args:
        schedule: The schedule; whether it is paused is not asked.
        last: The last tick that was published; None: none was.
        now: The present.
    """
    passed = now - schedule.jitter
    ticks = schedule.ticks_after(passed if last is None else max(passed, last))
    return dropwhile(lambda at: schedule.due_at(at) <= now, ticks)


def _left_out(schedule: Schedule, after: datetime, now: datetime) -> tuple[int, datetime]:
    """Pass over ticks that are left out for certain: how many, and the instant of the last one.

    Equal pauses are computed, as one of a second has 31 million ticks a year. A cron expression
    has at most 1,440 a day; its ticks are looked at one by one.
    """
    first = None if schedule.every is None else next(schedule.ticks_after(after), None)
    if first is None or schedule.every is None:
        return 0, after
    until = now - LATE - schedule.jitter
    until = until if schedule.end is None else min(until, schedule.end - _MILLISECOND)
    # Ticks up to ``until`` are late, however they are put off; the newest may be caught up.
    count = (until - first) // schedule.every + 1 - max(1, schedule.catch_up)
    return (0, after) if count <= 0 else (count, first + (count - 1) * schedule.every)


def published_from(schedule: Schedule, last: datetime | None) -> datetime | None:
    """When the tick after the last one is to be published; None if there is none."""
    at = next(schedule.ticks_after(schedule.since if last is None else last), None)
    return None if at is None else schedule.due_at(at) - schedule.ahead
