"""Which messages are left out, as one with their unique id is there."""

from __future__ import annotations

from uuid import UUID

import pytest

from cassieq_spark.ledger.unique import ID_BYTES, NO_ID, digests_of, sift
from cassieq_spark.model import Kept, PendingBlock, Range, Ranges, UniquePer


def block(number: int, ids: str) -> PendingBlock:
    """A block of messages with these ids, each a letter; ``-`` for none."""
    digests = [NO_ID if each == "-" else each.encode() * ID_BYTES for each in ids]
    return PendingBlock(UUID(int=number), len(ids), ids=b"".join(digests))


def known(**monotons: int) -> dict[bytes, int]:
    return {name.encode() * ID_BYTES: at for name, at in monotons.items()}


def test_blocks_without_ids_are_published_whole_and_leave_no_row():
    plain = PendingBlock(UUID(int=1), 3)

    found = sift([plain, plain], 7, known())

    assert [part.kept for part in found.parts] == [None, None]
    assert (found.count, found.repeats, found.ids) == (6, {}, b"")


@pytest.mark.parametrize(
    ("ids", "published", "kept", "repeats"),
    [
        ("abc", {}, [None], {}),
        ("aab-", {}, ["0-1,2-4"], {1: 10}),
        ("abc", {"a": 3}, ["1-3"], {0: 3}),
        ("a--a", {"a": 3}, ["1-3"], {0: 3, 3: 3}),
        ("ab", {"a": 3, "b": 4}, [], {0: 3, 1: 4}),
        ("--", {"a": 3}, [None], {}),
        ("abab", {"b": 9}, ["0-1"], {1: 9, 2: 10, 3: 9}),
    ],
)
def test_of_each_id_the_first_message_is_published(
    ids: str, published: dict[str, int], kept: list[str | None], repeats: dict[int, int]
):
    pending = block(1, ids)

    found = sift([pending], 10, known(**published))

    expected = [None if it is None else Kept(Ranges.parse(it), len(ids)) for it in kept]
    assert [part.kept for part in found.parts] == expected
    assert found.repeats == repeats
    assert len(found.ids) == ID_BYTES * found.count if found.parts else not found.ids


def test_an_id_of_an_earlier_block_of_the_write_is_repeated():
    found = sift([block(1, "ab"), PendingBlock(UUID(int=2), 2), block(3, "bc")], 0, known())

    assert found.repeats == {4: 1}
    assert found.count == 5
    assert found.ids == (block(1, "ab").ids + NO_ID * 2 + block(3, "c").ids)


@pytest.mark.parametrize("per", UniquePer)
def test_a_key_does_not_run_into_an_id(per: UniquePer):
    one, other = digests_of([b"bc"], [b"a"], per), digests_of([b"c"], [b"ab"], per)

    assert len({one, other, NO_ID}) == 3
    no_key, without = digests_of([b"a"], [b""], per), digests_of([b"a"], [None], per)
    assert (no_key == without) is (per is UniquePer.QUEUE)


@pytest.mark.parametrize("per", UniquePer)
def test_a_message_without_an_id_has_a_digest_that_says_so(per: UniquePer):
    keys = [b"k", b"k", None]

    found = digests_of([b"a", None, b"a"], keys, per)

    assert found[ID_BYTES : 2 * ID_BYTES] == NO_ID
    assert found == b"".join(
        NO_ID if each is None else digests_of([each], [key], per)
        for each, key in zip([b"a", None, b"a"], keys, strict=True)
    )
    assert digests_of([b"a", None], None, per) == digests_of([b"a", None], [None, None], per)


def test_what_is_kept_of_a_block_is_found_by_number_and_by_offset():
    kept = Kept(Ranges.of(Range(2, 4), Range(5, 6), Range(8, 11)), 12)
    offsets = [2, 3, 5, 8, 9, 10]

    assert [kept.offset_of(number) for number in range(6)] == offsets
    assert kept.offset_of(6) == 11
    assert [kept.before(offset) for offset in range(13)] == [
        sum(each < offset for each in offsets) for offset in range(13)
    ]
