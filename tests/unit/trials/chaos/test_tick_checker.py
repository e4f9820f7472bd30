"""The judge of the schedule of a chaos run finds each fault, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.schedules.schedule import make_schedule
from trials.chaos.tick_checker import TickVerdict, judge_ticks, ticks_until

FIVE = ["a", "b", "c", "d", "e"]


def wrong(verdict: TickVerdict) -> dict[str, int]:
    """What is wrong, without the names' beginning."""
    found = asdict(verdict)
    del found["ticks"]
    return {name.removeprefix("ticks_"): count for name, count in found.items() if count}


def test_ticks_that_are_all_there_in_order_are_fine():
    verdict = judge_ticks(FIVE, FIVE)

    assert verdict.is_fine
    assert (verdict.ticks, wrong(verdict)) == (5, {})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("abce", {"lost": 1}),
        ("bcde", {"lost": 1}),
        ("abcd", {"lost": 1}),
        ("abccde", {"doubled": 1}),
        ("abcdea", {"doubled": 1}),
        ("abdce", {"reordered": 1}),
        ("bcdea", {"reordered": 1}),
        ("edcba", {"reordered": 4}),
        ("abcdex", {"invented": 1}),
        ("axxe", {"lost": 3, "invented": 2}),
        ("", {"lost": 5}),
    ],
)
def test_whatever_is_wrong_is_counted(found: str, expected: dict[str, int]):
    verdict = judge_ticks(FIVE, list(found))

    assert wrong(verdict) == expected
    assert not verdict.is_fine


def test_a_run_without_a_tick_is_not_fine():
    assert not judge_ticks([], []).is_fine
    assert ticks_until(schedule(), None) == []


def test_the_ticks_that_must_be_there_are_those_up_to_the_last_one():
    made = schedule()

    found = ticks_until(made, made.since + timedelta(seconds=6))

    assert found == ["2026-11-29T00:00:03Z", "2026-11-29T00:00:06Z"]


def schedule():
    now = datetime(2026, 11, 29, tzinfo=UTC)
    every = timedelta(seconds=3)
    return make_schedule("q", "s", "{{tick}}", identity="1", now=now, every=every)
