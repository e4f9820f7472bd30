"""Which expressions are read, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.schedules.cron import ALIASES, parse_cron
from cassieq_spark.schedules.timing import AtLocalTimes, zone_of

BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 (a local time)


def first(text: str, count: int = 3) -> list[str]:
    return [f"{at:%a %y-%m-%d %H:%M}" for at in islice(parse_cron(text).after(BEGIN), count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 3 * * *", ["Thu 26-01-01 03:00", "Fri 26-01-02 03:00", "Sat 26-01-03 03:00"]),
        ("0 3 * * MON", ["Mon 26-01-05 03:00", "Mon 26-01-12 03:00", "Mon 26-01-19 03:00"]),
        ("0 3 * * 7", ["Sun 26-01-04 03:00", "Sun 26-01-11 03:00", "Sun 26-01-18 03:00"]),
        ("0 3 * * fri-7", ["Fri 26-01-02 03:00", "Sat 26-01-03 03:00", "Sun 26-01-04 03:00"]),
        ("0 3 29 feb *", ["Tue 28-02-29 03:00", "Sun 32-02-29 03:00", "Fri 36-02-29 03:00"]),
        ("0 3 29 2 */7", ["Sun 32-02-29 03:00", "Sun 60-02-29 03:00", "Sun 88-02-29 03:00"]),
        ("50/5,7 22-23/1 1,3 jan,MAY *", ["Thu 26-01-01 22:07"]),
        # One of both, as neither begins with a star.
        ("0 3 13 * 5", ["Fri 26-01-02 03:00", "Fri 26-01-09 03:00", "Tue 26-01-13 03:00"]),
        # Both, as one begins with a star.
        ("0 3 */13 * 5", ["Fri 26-02-27 03:00", "Fri 26-03-27 03:00", "Fri 26-05-01 03:00"]),
        ("@weekly", ["Sun 26-01-04 00:00", "Sun 26-01-11 00:00", "Sun 26-01-18 00:00"]),
    ],
)
def test_an_expression_names_local_times(text: str, expected: list[str]):
    assert first(text, len(expected)) == expected


def test_every_alias_is_an_expression():
    assert [len(first(alias)) for alias in ALIASES] == [3] * len(ALIASES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 3 * *", "4 field(s), not five"),
        ("0 0 3 * * *", "6 field(s), not five"),
        ("@noon", "1 field(s), not five"),
        ("60 3 * * *", "the minute must be from 0 to 59, not 60"),
        ("0 24 * * *", "the hour must be from 0 to 23, not 24"),
        ("0 3 0 * *", "the day of the month must be from 1 to 31, not 0"),
        ("0 3 * 13 *", "the month must be from 1 to 12, not 13"),
        ("0 3 * * 8", "the day of the week must be from 0 to 7, not 8"),
        ("0 3 * mon *", "the month has 'mon', where a number"),
        ("0 3 * * fri-mon", "the day of the week 'fri-mon' ends before it begins"),
        ("*/0 3 * * *", "the step of the minute must be at least 1"),
        ("*/x 3 * * *", "the minute has 'x', where a number"),
        (", 3 * * *", "the minute has '', where a number"),
        ("² 3 * * *", "the minute has '²', where a number"),
        ("-5 3 * * *", "the minute has '', where a number"),
        ("0 3 31 2,4 *", "names no day that exists"),
    ],
)
def test_another_text_is_refused_with_what_is_wrong(text: str, problem: str):
    with pytest.raises(OptionError) as refused:
        parse_cron(text)

    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["Europe/Berlim", "europe/berlin", "", "/etc/passwd", "../UTC"])
def test_a_zone_that_does_not_exist_is_refused(name: str):
    with pytest.raises(OptionError, match="there is no time zone"):
        zone_of(name)


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        # At two the clocks go to three.
        ("30 2 * * *", 29, ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        # One tick for all times that are left out, and for three o'clock.
        ("*/20 2,3 * * *", 29, ["2026-03-29T03:00+02:00", "2026-03-29T03:20+02:00"]),
    ],
)
def test_a_time_that_does_not_exist_is_the_instant_of_the_jump(
    text: str, day: int, expected: list[str]
):
    berlin = zone_of("Europe/Berlin")
    ticks = AtLocalTimes(parse_cron(text), berlin).after(datetime(2026, 3, day, tzinfo=UTC))

    found = [at.astimezone(berlin).isoformat(timespec="minutes") for at in islice(ticks, 2)]

    assert found == expected


@pytest.mark.parametrize("hour", [22, 0, 1])
def test_a_time_that_comes_twice_is_the_first_of_both(hour: int):
    """At three of 25 October the clocks of Berlin go back to two, at one o'clock UTC."""
    after = datetime(2026, 10, 24 + (hour < 22), hour, 15, tzinfo=UTC)
    berlin = zone_of("Europe/Berlin")

    at = next(AtLocalTimes(parse_cron("30 2 * * *"), berlin).after(after))

    first_of_both = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert at == (first_of_both if hour != 1 else datetime(2026, 10, 26, 1, 30, tzinfo=UTC))
