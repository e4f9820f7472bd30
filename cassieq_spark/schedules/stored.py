"""Schedules as text: the column ``schedules`` of a queue's row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.model import from_millis, to_millis
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.settings.schedule import KEPT, Of, ScheduleSetting
from cassieq_spark.store.decoded import OF_DECODING

#: Schedules of a queue, and the bytes of all of them together: each reader of the row reads them.
MOST_SCHEDULES, MOST_BYTES = 100, 64 << 10
_MILLISECOND = timedelta(milliseconds=1)
#: What a schedule has beside its settings.
_OWN = ("identity", "paused", "generation")


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
    values: dict[str, Any] = {name: getattr(schedule, name) for name in _OWN}
    values |= {it.name: _millis_of(getattr(schedule, it.name)) for it in KEPT}
    return values | {"since": to_millis(schedule.since)}


def _millis_of(value: Any) -> Any:
    """Times as milliseconds; other values as they are."""
    if isinstance(value, datetime):
        return to_millis(value)
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    return dict(value) if isinstance(value, Mapping) else value


def _read(queue: str, name: str, values: Any) -> Schedule:
    given = {it.name: _of_millis(it, values[it.name]) for it in KEPT if it.name in values}
    given |= {each: values[each] for each in _OWN if each in values}
    found = Schedule(queue, name, since=from_millis(values["since"]), **given)
    # So that what can't be read is found here.
    next(found.timing.after(found.since), None)
    found.value_of(found.since)
    found.number_of(found.since)
    return found


def _of_millis(it: ScheduleSetting, value: Any) -> Any:
    if value is None:
        return None
    if it.of is Of.INSTANT:
        return from_millis(value)
    return value * _MILLISECOND if it.of is Of.DURATION else value
