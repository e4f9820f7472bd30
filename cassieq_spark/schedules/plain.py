"""Schedules as plain values, for JSON: what commands print, and what the gateway answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.schedules.progress import ScheduleProgress
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.settings.schedule import plain_settings, settings_from_plain, show_instant


def plain_schedule(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain values, without its queue."""
    return {
        "schedule": schedule.name,
        **plain_settings(schedule),
        "paused": schedule.paused,
        "since": show_instant(schedule.since),
        "id": schedule.identity,
        "generation": schedule.generation,
    }


def schedule_of_plain(queue: str, values: Mapping[str, Any]) -> Schedule:
    """Read what `plain_schedule` writes; earlier releases left out the generation.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return Schedule(
        queue,
        values["schedule"],
        values["id"],
        datetime.fromisoformat(values["since"]),
        **settings_from_plain(values),
        paused=values["paused"],
        generation=values.get("generation", 0),
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
