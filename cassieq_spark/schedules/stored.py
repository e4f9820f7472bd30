"""Schedules as text: the column ``schedules`` of a queue's row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.model import from_millis, to_millis
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.store.decoded import OF_DECODING

#: Schedules of a queue, and the bytes of all of them together: each reader of the row reads them.
MOST_SCHEDULES, MOST_BYTES = 100, 64 << 10
_INSTANTS, _DURATIONS = ("since", "start", "end"), ("every", "jitter", "ahead")
_PLAIN = ("identity", "message", "key", "headers", "cron", "zone", "catch_up", "paused")
_MILLISECOND = timedelta(milliseconds=1)


def to_stored(schedules: Iterable[Schedule]) -> str:
    """The schedules of a queue as text.

    Raises:
        OptionError: There are too many, or they are too long.
    """
    found = {each.name: _written(each) for each in schedules}
    text = json.dumps(found, sort_keys=True, ensure_ascii=False) if found else ""
    size = len(text.encode())
    if len(found) > MOST_SCHEDULES or size > MOST_BYTES:
        raise OptionError(
            f"a queue has {MOST_SCHEDULES} schedules of {MOST_BYTES} bytes together at the most, "
            f"and would have {len(found)} of {size}: delete some, or shorten their messages"
        )
    return text


def from_stored(queue: str, text: str) -> dict[str, Schedule]:
    """The schedules of a queue, by name and in the order of names.

    Raises:
        InvariantError: Somebody has changed them by hand.
    """
    try:
        found: Any = json.loads(text or "{}")
        return {name: _read(queue, name, found[name]) for name in sorted(found)}
    except OF_DECODING as error:
        raise InvariantError(
            f"the schedules of queue {queue!r} can't be read ({type(error).__name__}: {error}); "
            "to go on without them, set the column schedules of its row in the table queue to ''"
        ) from error


def _written(schedule: Schedule) -> Mapping[str, Any]:
    values: dict[str, Any] = {name: getattr(schedule, name) for name in _PLAIN}
    values["headers"] = dict(schedule.headers)
    for name in _INSTANTS:
        at: datetime | None = getattr(schedule, name)
        values[name] = None if at is None else to_millis(at)
    for name in _DURATIONS:
        lasts: timedelta | None = getattr(schedule, name)
        values[name] = None if lasts is None else lasts // _MILLISECOND
    return values


def _read(queue: str, name: str, values: Any) -> Schedule:
    given = {each: values[each] for each in _PLAIN}
    for each in _INSTANTS:
        given[each] = None if values[each] is None else from_millis(values[each])
    for each in _DURATIONS:
        given[each] = None if values[each] is None else values[each] * _MILLISECOND
    found = Schedule(queue, name, **given)
    # So that what can't be read is found here.
    next(found.timing.after(found.since), None)
    found.value_of(found.since)
    return found
