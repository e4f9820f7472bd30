from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.dead_letters.letters import (
    DeadLetter,
    Filter,
    group_letters,
    read_letter,
    redriven_headers,
)
from cassieq_spark.model import Ranges
from tests.unit.dead_letters.dead_queue import headers_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LETTER = DeadLetter(7, "orders", "g", "Too often", NOON)


def test_a_letter_is_what_its_headers_say():
    read = read_letter(3, headers_of(3, "orders", reason="it hurts"))

    of_before = {"deliveries": 5, "published_at": NOON}
    assert read == DeadLetter(3, "orders", "g", "it hurts", NOON + 3 * HOUR, **of_before)  # type: ignore[arg-type]


@pytest.mark.parametrize("headers", [None, [], [("own", "x")], [("xcassieq.origin-queue", "q")]])
def test_a_message_without_such_headers_is_no_dead_letter(headers: list[tuple[str, str]] | None):
    assert read_letter(3, headers) == DeadLetter(3)


@pytest.mark.parametrize("text", ["soon", "", "2026-11-20T12:00:00", None])
def test_an_instant_that_is_none_is_not_told(text: str | None):
    headers = [("cassieq.origin-queue", "orders"), ("cassieq.dead-lettered-at", text)]

    assert read_letter(3, headers) == DeadLetter(3, "orders")


def test_a_letter_says_where_its_message_was_published():
    headers = [("cassieq.first-position", "acme:orders@2.3/42")]

    letter = read_letter(3, headers)

    position = letter.first_position
    assert position is not None
    assert (letter.first_queue, position, position.partition, position.version) == (
        "acme:orders",
        42,
        3,
        2,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "orders/42",
        "orders@2/",
        "orders@2/-1",
        "orders@2/4_2",
        "@2/1",
        "x@1/" + "9" * 19,
        None,
    ],
)
def test_a_position_that_is_none_is_not_told(text: str | None):
    assert read_letter(3, [("cassieq.first-position", text)]) == DeadLetter(3)


def test_what_goes_back_has_its_own_headers_and_a_count():
    own = [("own", "x"), ("null", None), ("twice", "1"), ("twice", "2")]

    back = redriven_headers([*own, *headers_of(3, "orders")[1:]])

    assert back == [*own, ("cassieq.redrives", "1")]
    assert redriven_headers([*back, ("cassieq.reason", "again")]) == [
        *own,
        ("cassieq.redrives", "2"),
    ]


@pytest.mark.parametrize("count", [None, "", "-1", "many", "\u00b2"])
def test_a_count_that_is_none_begins_anew(count: str | None):
    assert redriven_headers([("cassieq.redrives", count)]) == [("cassieq.redrives", "1")]


@pytest.mark.parametrize(
    ("criteria", "takes"),
    [
        (Filter(), True),
        (Filter(origin="orders", group="g", reason="too OFTEN"), True),
        (Filter(origin="payments"), False),
        (Filter(group="h"), False),
        (Filter(reason="often too"), False),
        (Filter(since=NOON), True),
        (Filter(since=NOON + HOUR), False),
        (Filter(until=NOON), False),
        (Filter(until=NOON + HOUR), True),
    ],
)
def test_a_filter_takes_what_fits_all_of_it(criteria: Filter, takes: bool):
    assert criteria.takes(LETTER) is takes


@pytest.mark.parametrize(
    "criteria",
    [Filter(origin="orders"), Filter(group="g"), Filter(reason="x"), Filter(since=NOON)],
)
def test_what_a_message_does_not_tell_is_not_what_is_asked_for(criteria: Filter):
    assert not criteria.takes(DeadLetter(7))
    assert not Filter(until=NOON).takes(DeadLetter(7))


def test_letters_are_piled_up_by_origin_and_reason():
    letters = [
        DeadLetter(0, "payments", "g", "b", NOON),
        DeadLetter(1, "orders", "g", "b", NOON + HOUR),
        DeadLetter(2, "orders", "g", "b", NOON),
        DeadLetter(3),
        DeadLetter(4, "orders", "g", "a"),
        DeadLetter(5, "orders", "g", "b", NOON + 2 * HOUR),
    ]

    groups = group_letters(letters, Filter())

    told = [(group.origin_queue, group.reason, str(group.monotons)) for group in groups]
    assert told == [
        (None, None, "3-4"),
        ("orders", "a", "4-5"),
        ("orders", "b", "1-3,5-6"),
        ("payments", "b", "0-1"),
    ]
    assert (groups[2].first, groups[2].last) == (NOON, NOON + 2 * HOUR)
    assert (groups[1].first, groups[1].last) == (None, None)


def test_a_limit_takes_the_first_ones_and_reads_no_further():
    letters = iter([DeadLetter(at, "orders", "g", "ab"[at % 2]) for at in range(10)])

    groups = group_letters(letters, Filter(reason="b"), limit=3)

    assert [group.monotons for group in groups] == [Ranges.parse("1-2,3-4,5-6")]
    assert next(letters).monoton == 6


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("deliveries", "3", {"deliveries": 3}),
        ("deliveries", "-1", {}),
        ("deliveries", "9" * 5_000, {}),
        ("deliveries", None, {}),
        ("first-delivered-at", "2026-11-20T12:00:00Z", {"first_delivered_at": NOON}),
        ("published-at", "2026-11-20T12:00:00", {}),
        ("published-at", "yesterday", {}),
    ],
)
def test_what_another_program_has_written_wrongly_is_as_if_it_were_not_there(
    name: str, value: str | None, read: dict[str, object]
):
    headers = [("cassieq.origin-queue", "orders"), (f"cassieq.{name}", value)]

    assert read_letter(3, headers) == replace(DeadLetter(3, "orders"), **read)  # type: ignore[arg-type]
