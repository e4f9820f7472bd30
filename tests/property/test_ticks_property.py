"""Ticks of schedules, against a walk from minute to minute with a clock on the wall.

The oracle knows nothing of zones but what the wall shows at an instant. It looks at each minute,
and ticks if the wall shows a time that it has not shown before, or has just jumped past one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.schedules.cron import parse_cron
from cassieq_spark.schedules.due import LATE, due_ticks, published_from
from cassieq_spark.schedules.progress import progress_of
from cassieq_spark.schedules.schedule import Schedule, make_schedule
from cassieq_spark.schedules.stored import from_stored, to_stored
from cassieq_spark.schedules.timing import AtLocalTimes, Every

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BETWEEN = datetime(1971, 1, 1), datetime(2100, 1, 1)  # noqa: DTZ001 (as Hypothesis wants them)
#: A zone, and a day near which its clocks do something.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
    # Midnight itself does not exist, or comes twice.
    ("America/Sao_Paulo", datetime(2018, 11, 4, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, tzinfo=UTC)),
    # Half an hour.
    ("Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 6, 1, tzinfo=UTC)),
    # A day that does not exist, and one that came twice.
    ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, tzinfo=UTC)),
    ("America/Juneau", datetime(1983, 10, 30, tzinfo=UTC)),
    # Summer time is interrupted for Ramadan.
    ("Africa/Casablanca", datetime(2026, 2, 15, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 3, 22, tzinfo=UTC)),
    ("UTC", datetime(2024, 2, 28, tzinfo=UTC)),
]


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> tuple[str, frozenset[int]]:
    """A field of an expression, and the values that it stands for."""
    values = st.integers(least, most)
    kind = draw(st.sampled_from(["*", "*/n", "a", "a-b", "a-b/n", "a/n", "a,b"]))
    first, last = sorted((draw(values), draw(values)))
    step = draw(st.integers(1, 20))
    return {
        "*": ("*", frozenset(range(least, most + 1))),
        "*/n": (f"*/{step}", frozenset(range(least, most + 1, step))),
        "a": (f"{first}", frozenset([first])),
        "a-b": (f"{first}-{last}", frozenset(range(first, last + 1))),
        "a-b/n": (f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))),
        "a/n": (f"{first}/{step}", frozenset(range(first, most + 1, step))),
        "a,b": (f"{first},{last}", frozenset([first, last])),
    }[kind]


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, list[tuple[str, frozenset[int]]]]:
    """An expression that names a day that exists, and its fields."""
    minute, hour = draw(fields(0, 59)), draw(fields(0, 23))
    day, weekday = draw(fields(1, 31)), draw(fields(0, 7))
    month = ("*", frozenset(range(1, 13)))
    found = [minute, hour, day, month, weekday]
    return " ".join(text for text, _ in found), found


def names(local: datetime, found: list[tuple[str, frozenset[int]]]) -> bool:
    """Whether an expression names a local time, as the manual of cron says it."""
    (_, minutes), (_, hours), (day, days), (_, months), (weekday, weekdays) = found
    is_day = local.day in days
    is_weekday = local.isoweekday() in weekdays or local.isoweekday() % 7 in weekdays
    fits = (is_day and is_weekday) if "*" in {day[0], weekday[0]} else (is_day or is_weekday)
    return fits and (local.minute in minutes and local.hour in hours and local.month in months)


def walked(
    found: list[tuple[str, frozenset[int]]], zone: str, begin: datetime, end: datetime
) -> list[datetime]:
    """The ticks after an instant, up to another one; ``begin`` is not near a change."""
    ticks, wall = [], ZoneInfo(zone)
    at, latest = begin, begin.astimezone(wall).replace(tzinfo=None)
    while at < end:
        at += MINUTE
        shown = at.astimezone(wall).replace(tzinfo=None)
        is_tick = False
        while latest < shown:
            latest += MINUTE
            is_tick |= names(latest, found)
        ticks += [at] if is_tick else []
    return ticks


@given(expressions(), st.sampled_from(CHANGES), st.integers(0, 3 * 24 * 60))
def test_ticks_are_when_the_wall_first_shows_their_time_or_jumps_past_it(
    expression: tuple[str, list[tuple[str, frozenset[int]]]],
    change: tuple[str, datetime],
    begin: int,
):
    (text, found), (zone, day) = expression, change
    start, end = day - 2 * DAY, day + 2 * DAY
    after = start + begin * MINUTE

    timing = AtLocalTimes(parse_cron(text), ZoneInfo(zone))
    ticks = list(takewhile(lambda at: at <= end, timing.after(after)))

    assert ticks == [at for at in walked(found, zone, start, end) if at > after]


@given(
    st.timedeltas(timedelta(seconds=1), timedelta(days=9)),
    st.datetimes(*BETWEEN, timezones=st.just(UTC)),
    st.datetimes(*BETWEEN, timezones=st.just(UTC)),
)
def test_equal_pauses_are_counted_from_their_anchor(
    pause: timedelta, anchor: datetime, after: datetime
):
    ticks = Every(pause, anchor).after(after)

    first, second = next(ticks), next(ticks)

    assert after < first <= after + pause
    assert (first - anchor) % pause == timedelta(0)
    assert second - first == pause


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    begin = datetime(2026, 10, 24, 12, tzinfo=UTC)
    when = draw(
        st.sampled_from(
            [
                {"every": timedelta(seconds=7)},
                {"every": timedelta(minutes=1), "start": begin + timedelta(minutes=3, seconds=5)},
                {"cron": "*/10 * * * *", "zone": "Europe/Berlin"},
                {"cron": "30 2 * * *", "zone": "Europe/Berlin", "start": begin + DAY},
            ]
        )
    )
    return make_schedule(
        "q",
        "s",
        "{}",
        identity="1",
        now=begin,
        catch_up=draw(st.integers(0, 5) | st.just(1000)),
        jitter=draw(st.sampled_from([timedelta(0), timedelta(seconds=90)])),
        ahead=draw(st.sampled_from([timedelta(0), timedelta(seconds=90)])),
        end=draw(st.none() | st.just(begin + timedelta(minutes=59)))
        if "zone" not in when
        else None,
        **when,  # type: ignore[arg-type]
    )


@given(schedules(), st.data())
def test_what_is_due_is_all_that_is_in_time_and_no_more_late_ticks_than_wanted(
    schedule: Schedule, data: st.DataObject
):
    now = schedule.since + data.draw(st.timedeltas(timedelta(0), timedelta(hours=2)))
    every = list(
        takewhile(lambda at: at <= now + MINUTE * 3, schedule.ticks_after(schedule.since))
    )
    last = data.draw(st.none() | st.sampled_from(every)) if every else None

    ticks, passed = due_ticks(schedule, last, now)

    come = list(
        takewhile(
            lambda at: schedule.due_at(at) - schedule.ahead <= now,
            (at for at in every if last is None or at > last),
        )
    )
    published = [tick.at for tick in ticks]
    late = [at for at in come if now - schedule.due_at(at) > LATE]
    if not schedule.jitter:
        assert set(come) - set(late) <= set(published)
        assert len(set(late) & set(published)) <= schedule.catch_up
    assert published == come[len(come) - len(published) :]
    if ticks:
        assert sum(tick.missed for tick in ticks) == len(come) - len(published)
    assert passed == (come[-1] if come else last)
    if schedule.catch_up == 1000:
        assert published == come
    after = published_from(schedule, passed)
    assert after is None or after > now


@given(schedules(), st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_lag_is_shown_while_there_is_something_to_publish_and_what_is_next_comes_after_it(
    schedule: Schedule, passes: timedelta
):
    schedule, now = replace(schedule, ahead=timedelta(0)), schedule.since + passes

    progress = progress_of(schedule, None, now, 1)

    ticks, passed = due_ticks(schedule, None, now)
    assert (progress.lag is None) == (not ticks)
    expected = next(schedule.ticks_after(schedule.since if passed is None else passed), None)
    assert progress.next == (() if expected is None else (expected,))


@given(schedules(), st.datetimes(*BETWEEN, timezones=st.just(UTC)))
def test_jitter_puts_a_tick_off_by_less_than_it_says(schedule: Schedule, tick: datetime):
    put_off = schedule.due_at(tick) - tick

    assert timedelta(0) <= put_off < max(schedule.jitter, timedelta(milliseconds=1))


@given(st.lists(schedules(), max_size=1))
def test_stored_schedules_are_read_as_they_were(found: list[Schedule]):
    assert list(from_stored("q", to_stored(found)).values()) == found
