"""Schedules as plain values, for JSON: what commands print, and what the gateway answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.schedules.progress import ScheduleProgress
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.schedules.template import show_instant


def plain_schedule(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain values, without its queue."""
    return {
        "schedule": schedule.name,
        "cron": schedule.cron,
        "every_seconds": _seconds(schedule.every),
        "zone": schedule.zone,
        "message": schedule.message,
        "key": schedule.key,
        "headers": dict(schedule.headers),
        "start": _shown(schedule.start),
        "end": _shown(schedule.end),
        "catch_up": schedule.catch_up,
        "jitter_seconds": _seconds(schedule.jitter),
        "ahead_seconds": _seconds(schedule.ahead),
        "paused": schedule.paused,
        "since": _shown(schedule.since),
        "id": schedule.identity,
    }


def schedule_of_plain(queue: str, values: Mapping[str, Any]) -> Schedule:
    """Read what `plain_schedule` writes.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return Schedule(
        queue,
        values["schedule"],
        values["id"],
        datetime.fromisoformat(values["since"]),
        values["message"],
        values["key"],
        values["headers"],
        values["cron"],
        _duration(values["every_seconds"]),
        values["zone"],
        _instant(values["start"]),
        _instant(values["end"]),
        values["catch_up"],
        timedelta(seconds=values["jitter_seconds"]),
        timedelta(seconds=values["ahead_seconds"]),
        values["paused"],
    )


def plain_progress(progress: ScheduleProgress) -> dict[str, Any]:
    """A schedule, and how far it is, as plain values."""
    return plain_schedule(progress.schedule) | {
        "last": _shown(progress.last),
        "next": [show_instant(at) for at in progress.next],
        "lag_seconds": _seconds(progress.lag),
    }


def progress_of_plain(queue: str, values: Mapping[str, Any]) -> ScheduleProgress:
    """Read what `plain_progress` writes.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return ScheduleProgress(
        schedule_of_plain(queue, values),
        _instant(values["last"]),
        tuple(datetime.fromisoformat(at) for at in values["next"]),
        _duration(values["lag_seconds"]),
    )


def _shown(at: datetime | None) -> str | None:
    return None if at is None else show_instant(at)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _seconds(lasts: timedelta | None) -> float | None:
    return None if lasts is None else lasts.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
