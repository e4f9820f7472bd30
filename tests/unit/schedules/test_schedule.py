"""What a schedule may be, and what its messages are."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.schedules.due import LATE, due_ticks
from cassieq_spark.schedules.progress import progress_of
from cassieq_spark.schedules.schedule import Schedule, make_schedule
from cassieq_spark.schedules.stored import MOST_BYTES, MOST_SCHEDULES, from_stored, to_stored

NOW = datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def made(message: Any = "{}", **settings: Any) -> Schedule:
    settings = settings if "cron" in settings else {"every": 5 * MINUTE} | settings
    return make_schedule("reports", "nightly", message, identity="1f", now=NOW, **settings)


def ticks(schedule: Schedule, count: int = 3) -> list[str]:
    return [f"{at:%d %H:%M:%S}" for at in islice(schedule.ticks_after(schedule.since), count)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["28 12:05:00", "28 12:10:00", "28 12:15:00"]),
        ({"start": NOW - DAY}, ["28 12:05:30", "28 12:10:30", "28 12:15:30"]),
        ({"start": NOW + HOUR}, ["28 13:00:30", "28 13:05:30", "28 13:10:30"]),
        ({"end": NOW + 10 * MINUTE}, ["28 12:05:00", "28 12:10:00"]),
        # The end itself is after the end.
        ({"end": datetime(2026, 11, 28, 12, 10, tzinfo=UTC)}, ["28 12:05:00"]),
        ({"count": 1}, ["28 12:05:00"]),
        ({"count": 2}, ["28 12:05:00", "28 12:10:00"]),
        ({"count": 9, "end": NOW + 10 * MINUTE}, ["28 12:05:00", "28 12:10:00"]),
        (
            {"cron": "0 3 * * *", "zone": "Asia/Kolkata"},
            [f"{day} 21:30:00" for day in (28, 29, 30)],
        ),
        ({"cron": "0 3 * * *", "start": NOW + DAY}, ["30 03:00:00", "01 03:00:00", "02 03:00:00"]),
    ],
)
def test_ticks_begin_after_the_creation_and_lie_between_start_and_end(
    settings: dict[str, Any], expected: list[str]
):
    assert ticks(made(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"every": None}, "give either cron"),
        ({"cron": "0 3 * * *", "every": MINUTE}, "give either cron"),
        ({"every": timedelta(milliseconds=999)}, "every must be from 0:00:01"),
        ({"every": timedelta(seconds=1, microseconds=1)}, "every must be whole milliseconds"),
        ({"every": "5m"}, "every must be a timedelta"),
        ({"cron": "0 3 * *"}, "not five"),
        ({"cron": "0 3 * * *", "zone": "Mars/Olympus"}, "there is no time zone"),
        ({"zone": "Mars/Olympus"}, "there is no time zone"),
        ({"zone": "localtime"}, "is another one on each machine"),
        ({"end": NOW}, "before it ticks"),
        ({"start": NOW + HOUR, "end": NOW + MINUTE}, "before it ticks"),
        ({"start": datetime(2026, 1, 1)}, "start 2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
        ({"count": 0}, "count must be at least 1"),
        ({"count": 10_001}, "count must be at most 10000"),
        ({"catch_up": -1}, "catch_up must be at least 0"),
        ({"catch_up": 1001}, "catch_up must be at most 1000"),
        ({"jitter": HOUR + MINUTE}, "jitter must be from 0:00:00 to 1:00:00"),
        ({"ahead": HOUR + MINUTE}, "ahead must be from 0:00:00 to 1:00:00"),
        ({"key": 5}, "key must be a str"),
        ({"headers": {"schedule": "mine"}}, "the header 'schedule' is set by the schedule"),
        ({"headers": {"cassieq.origin": "x"}}, "reserved"),
        ({"message": b"x"}, "the message must be a text or a dict, not"),
        ({"message": {"at": NOW}}, "the message can't be written as JSON"),
        (
            {"message": "{{tik}}"},
            "the message names {{tik}}, which no tick has: did you mean 'tick'",
        ),
    ],
)
def test_settings_that_are_not_valid_are_refused(settings: dict[str, Any], problem: str):
    with pytest.raises(CassieqError) as refused:
        made(**settings)

    assert problem in str(refused.value)


def test_a_message_has_the_fields_of_its_tick_and_nothing_else():
    schedule = made(
        {
            "of": "{{schedule}} {{queue}}",
            "at": "{{tick}} {{ local }} {{date}} {{unix}}",
            "x": "{y}",
        },
        cron="30 0 * * *",
        zone="Europe/Berlin",
        headers={"lang": "en"},
    )
    tick = datetime(2026, 7, 1, 22, 30, tzinfo=UTC)

    assert json.loads(schedule.value_of(tick)) == {
        "of": "nightly reports",
        "at": "2026-07-01T22:30:00Z 2026-07-02T00:30:00+02:00 2026-07-02 1782945000",
        "x": "{y}",
    }
    assert schedule.headers_of(tick, 3) == {
        "lang": "en",
        "schedule": "nightly",
        "schedule-tick": "2026-07-01T22:30:00Z",
        "schedule-missed": "3",
    }
    assert "schedule-missed" not in schedule.headers_of(tick)


def test_jitter_differs_from_tick_to_tick_and_is_the_same_for_all_runners():
    schedule, same = made(jitter=HOUR), made(jitter=HOUR)
    at = list(islice(schedule.ticks_after(NOW), 50))

    put_off = [schedule.due_at(tick) - tick for tick in at]

    assert put_off == [same.due_at(tick) - tick for tick in at]
    assert len(set(put_off)) == len(at)
    assert min(put_off) < 10 * MINUTE < 50 * MINUTE < max(put_off) < HOUR


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (0, [("12:55", 10)]),
        (1, [("12:55", 10)]),
        (2, [("12:50", 9), ("12:55", 0)]),
        (1000, [("12:05", 0), ("12:10", 0), ("12:15", 0)]),
    ],
)
def test_late_ticks_are_caught_up_as_the_schedule_says(
    catch_up: int, expected: list[tuple[str, int]]
):
    schedule = made(catch_up=catch_up)

    found = due_ticks(schedule, None, datetime(2026, 11, 28, 12, 55, 30, tzinfo=UTC)).ticks

    assert [(f"{tick.at:%H:%M}", tick.missed) for tick in found][:3] == expected


def test_a_tick_is_late_after_a_minute():
    schedule = made(catch_up=0)
    tick = datetime(2026, 11, 28, 12, 5, tzinfo=UTC)

    assert [it.at for it in due_ticks(schedule, None, tick + LATE).ticks] == [tick]
    assert due_ticks(schedule, None, tick + LATE + timedelta(milliseconds=1)) == ([], tick)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [(0, ["12:33"]), (1, ["12:30", "12:33"]), (2, ["12:27", "12:30", "12:33"])],
)
def test_ticks_that_are_published_ahead_do_not_take_the_place_of_late_ones(
    catch_up: int, expected: list[str]
):
    schedule = made(every=3 * MINUTE, ahead=2 * MINUTE, catch_up=catch_up)
    now = datetime(2026, 11, 28, 12, 31, 30, tzinfo=UTC)

    assert [f"{tick.at:%H:%M}" for tick in due_ticks(schedule, None, now).ticks] == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]x", "JSONDecodeError"),
        ('{"nightly": 5}', "TypeError"),
        ('{"nightly": {}}', "KeyError"),
        (to_stored([made()]).replace("300000", "0"), "ZeroDivisionError"),
        (to_stored([made(cron="0 3 * * *")]).replace("0 3 *", "x"), "OptionError"),
    ],
)
def test_schedules_that_somebody_has_changed_by_hand_are_an_error(text: str, why: str):
    with pytest.raises(
        InvariantError, match="the schedules of queue 'reports' can't be read"
    ) as it:
        from_stored("reports", text)

    assert why in str(it.value)


def test_a_queue_has_a_limited_number_of_schedules_and_bytes():
    many = [
        make_schedule("q", f"s{number}", "{}", identity="1", now=NOW, every=MINUTE)
        for number in range(MOST_SCHEDULES + 1)
    ]

    assert len(from_stored("q", to_stored(many[1:]))) == MOST_SCHEDULES
    for too_much in (many, [made("x" * MOST_BYTES)]):
        with pytest.raises(CassieqError, match="delete some, or shorten their messages"):
            to_stored(too_much)


def test_lag_is_how_long_the_oldest_missing_tick_is_overdue():
    schedule = made()
    last = datetime(2026, 11, 28, 12, 5, tzinfo=UTC)

    found = progress_of(schedule, last, last + 13 * MINUTE, 2)

    assert found.lag == 8 * MINUTE
    assert [f"{at:%H:%M}" for at in found.next] == ["12:20", "12:25"]
    assert progress_of(schedule, last, last + 4 * MINUTE, 1).lag is None


def test_lag_of_a_schedule_that_catches_up_nothing_is_that_of_ticks_that_will_come():
    schedule = made(catch_up=0)
    tick = datetime(2026, 11, 28, 12, 5, tzinfo=UTC)

    assert progress_of(schedule, None, tick + LATE, 1).lag == LATE
    assert progress_of(schedule, None, tick + LATE + timedelta(milliseconds=1), 1).lag is None
    assert progress_of(schedule, None, tick + HOUR + LATE / 2, 1).lag == LATE / 2
    assert progress_of(made(catch_up=1), None, tick + HOUR, 1).lag == HOUR
    put_off = made(catch_up=0, jitter=2 * MINUTE)
    due_at = put_off.due_at(tick)
    assert timedelta(0) < due_at - tick < 2 * MINUTE
    assert progress_of(put_off, None, due_at + LATE, 1).lag == LATE
    assert progress_of(put_off, None, due_at + LATE + timedelta(milliseconds=1), 1).lag is None


def test_ticks_that_jitter_holds_back_are_still_to_come():
    schedule = made(every=MINUTE, jitter=HOUR)
    last = next(schedule.ticks_after(NOW))
    held_back = last + MINUTE
    now = schedule.due_at(held_back) - timedelta(seconds=1)

    assert now > held_back + MINUTE
    assert progress_of(schedule, last, now, 1).next == (held_back,)
    assert progress_of(schedule, last, now + timedelta(seconds=1), 1).next != (held_back,)


@pytest.mark.parametrize(("catch_up", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_an_outage_of_thirty_years_is_over_at_once(catch_up: int, expected: int):
    schedule = made(every=timedelta(seconds=1), jitter=HOUR, catch_up=catch_up)
    outage = 30 * 365 * DAY
    end = NOW + outage

    found = due_ticks(replace(schedule, end=end), None, end + DAY)

    assert len(found.ticks) == expected
    assert found.passed == end - timedelta(seconds=1)
    if found.ticks:
        assert found.ticks[-1].at == found.passed
        missed = outage // timedelta(seconds=1) - 1 - expected
        assert [tick.missed for tick in found.ticks] == [missed, *[0] * (expected - 1)]


def test_a_schedule_whose_ticks_go_on_for_longer_than_time_ends_with_it():
    schedule = made(every=365 * DAY, count=10_000)

    assert schedule.end is None
    assert max(schedule.ticks_after(NOW)).year == 9998


def test_a_schedule_shows_itself():
    assert repr(made(end=NOW + DAY)).startswith(
        "<Schedule of reports: name nightly, when every 5m"
    )
    assert "every 5m" not in repr(progress_of(made(), None, NOW, 1))
