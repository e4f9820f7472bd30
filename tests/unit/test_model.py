from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid1

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.model import (
    LedgerBlock,
    QueueDefinition,
    Range,
    Ranges,
    block_time,
    block_timestamp,
    from_millis,
    to_millis,
    validate_name,
)

NOW = datetime(2026, 11, 20, 12, 0, 0, 123000, tzinfo=UTC)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (4, 3)])
def test_a_range_runs_forward_from_zero_or_more(start: int, stop: int):
    with pytest.raises(ValueError, match="start <= stop"):
        Range(start, stop)


def test_a_range_knows_its_length_members_and_text():
    assert (len(Range(3, 7)), bool(Range(3, 7)), bool(Range(3, 3))) == (4, True, False)
    assert [at for at in range(10) if at in Range(3, 7)] == [3, 4, 5, 6]
    assert str(Range(3, 7)) == "[3, 7)"


@pytest.mark.parametrize("other", [Range(0, 2), Range(0, 3), Range(7, 9), Range(8, 9)])
def test_ranges_that_do_not_meet_share_nothing(other: Range):
    assert not Range(3, 7) & other
    assert not other & Range(3, 7)


def test_ranges_share_where_they_overlap():
    assert Range(3, 7) & Range(5, 9) == Range(5, 9) & Range(3, 7) == Range(5, 7)
    assert Range(3, 7) & Range(4, 5) == Range(4, 5)


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        (Range(3, 9), [Range(3, 4), Range(4, 8), Range(8, 9)]),
        (Range(4, 8), [Range(4, 8)]),
        (Range(5, 6), [Range(5, 6)]),
        (Range(5, 5), []),
    ],
)
def test_a_range_is_cut_at_multiples(whole: Range, parts: list[Range]):
    assert list(whole.split_at_multiples(4)) == parts


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([], ""),
        ([Range(4, 4)], ""),
        ([Range(5, 9), Range(0, 3)], "0-3,5-9"),
        ([Range(3, 5), Range(0, 3)], "0-5"),
        ([Range(0, 5), Range(3, 9)], "0-9"),
        ([Range(0, 9), Range(3, 5), Range(9, 10)], "0-10"),
        ([Range(0, 3), Range(3, 3), Range(4, 4), Range(5, 9)], "0-3,5-9"),
    ],
)
def test_ranges_are_kept_in_order_and_joined(ranges: list[Range], text: str):
    assert str(Ranges.of(*ranges)) == text
    assert Ranges.parse(text) == Ranges.of(*ranges)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (2, "0, 2"),
        (10, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18"),
        (5000, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 4,990 more"),
    ],
)
def test_the_short_text_of_ranges_names_ten_and_counts_the_others(count: int, text: str):
    assert Ranges.of(*(Range(at, at + 1) for at in range(0, 2 * count, 2))).short == text


def test_text_that_is_not_in_order_is_read_in_order():
    assert Ranges.parse("5-9,0-3,3-4") == Ranges.parse("0-4,5-9")


@pytest.mark.parametrize("text", ["5", "a-b", "3-1", "1-2-3"])
def test_text_that_names_no_ranges_is_refused(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - that it is refused, not how
        Ranges.parse(text)


def test_ranges_know_their_count_members_and_ends():
    ranges = Ranges.parse("0-3,5-9")

    assert (ranges.count, ranges.start, ranges.hull) == (7, 0, Range(0, 9))
    assert [at for at in range(10) if at in ranges] == [0, 1, 2, 5, 6, 7, 8]
    assert list(ranges) == [Range(0, 3), Range(5, 9)]
    assert ranges
    assert not Ranges()
    assert Ranges().count == 0


@pytest.mark.parametrize(
    ("count", "low", "rest"),
    [
        (0, "", "0-3,5-9"),
        (2, "0-2", "2-3,5-9"),
        (3, "0-3", "5-9"),
        (4, "0-3,5-6", "6-9"),
        (7, "0-3,5-9", ""),
        (99, "0-3,5-9", ""),
        (None, "0-3,5-9", ""),
    ],
)
def test_ranges_are_split_by_count(count: int | None, low: str, rest: str):
    parts = Ranges.parse("0-3,5-9").split(count)

    assert parts == (Ranges.parse(low), Ranges.parse(rest))


@pytest.mark.parametrize(
    ("one", "other", "left", "shared"),
    [
        ("0-9", "", "0-9", ""),
        ("", "0-9", "", ""),
        ("0-9", "3-5", "0-3,5-9", "3-5"),
        ("0-3,5-9", "2-6", "0-2,6-9", "2-3,5-6"),
        ("0-3,5-9", "3-5", "0-3,5-9", ""),
        ("0-3,5-9", "0-9", "", "0-3,5-9"),
        ("0-3,5-9,11-12", "1-2,6-7,8-20", "0-1,2-3,5-6,7-8", "1-2,6-7,8-9,11-12"),
        ("4-6", "0-1,2-3,8-9", "4-6", ""),
    ],
)
def test_ranges_are_subtracted_and_shared(one: str, other: str, left: str, shared: str):
    assert str(Ranges.parse(one) - Ranges.parse(other)) == left
    assert str(Ranges.parse(one) & Ranges.parse(other)) == shared
    assert str(Ranges.parse(other) & Ranges.parse(one)) == shared


@pytest.mark.parametrize(
    ("monotons", "offsets"),
    [
        (Range(10, 20), Range(0, 10)),
        (Range(12, 15), Range(2, 5)),
        (Range(0, 12), Range(0, 2)),
        (Range(18, 30), Range(8, 10)),
    ],
)
def test_offsets_count_from_the_first_monoton_of_the_block(monotons: Range, offsets: Range):
    assert LedgerBlock(Range(10, 20), UUID(int=1), NOW).offsets(monotons) == offsets


@pytest.mark.parametrize("monotons", [Range(0, 5), Range(30, 40)])
def test_a_block_has_no_offsets_of_messages_elsewhere(monotons: Range):
    assert not LedgerBlock(Range(10, 20), UUID(int=1), NOW).offsets(monotons)


def test_the_id_of_a_queue_has_its_version():
    assert QueueDefinition("flights", 3).queue_id == "flights@3"


@pytest.mark.parametrize("name", ["a", "9", "A.b_c:d-e", "x" * 200])
def test_names_are_letters_digits_and_a_few_marks(name: str):
    assert validate_name("queue", name) == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a@1", "a/b", "é", "a\n", "x" * 201])
def test_other_names_are_refused_with_the_rule(name: str):
    with pytest.raises(OptionError, match=r"group name .* 1 to 200 letters"):
        validate_name("group", name)


def test_milliseconds_and_instants_are_the_same():
    assert from_millis(to_millis(NOW)) == NOW
    assert to_millis(NOW + timedelta(microseconds=999)) == to_millis(NOW)


def test_the_time_of_a_block_is_that_of_its_id():
    before = datetime.now(UTC) - timedelta(seconds=1)
    block = uuid1()

    assert before < block_time(block) < datetime.now(UTC) + timedelta(seconds=1)
    assert block_time(block).microsecond % 1000 == 0
    assert block_timestamp(block) // 1000 == to_millis(block_time(block))
