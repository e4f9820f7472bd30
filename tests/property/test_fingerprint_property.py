"""The fingerprint of a batch depends on what is in it, and on nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cassieq_spark.arrow.fingerprint import Fingerprint, fingerprint_of

Row = tuple[bytes, bytes | None, dict[str, str | None] | None]

#: Short, longer than a word, and such as differ in little.
TEXTS = st.text("ab0", max_size=20)
BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"", b"\0", b"\0\0", b"a" * 8, b"a" * 16, b"a" * 64, b'{"id": 1, "ref": 1}']
)
HEADERS = st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)
ROWS = st.lists(st.tuples(BODIES, st.none() | BODIES, HEADERS), max_size=12)
_MAP = pa.map_(pa.string(), pa.string())


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    values, keys, headers = zip(*rows, strict=True) if rows else ((), (), ())
    entries = [None if each is None else list(each.items()) for each in headers]
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "headers": pa.array(entries, _MAP),
        }
    )


def of(*parts: pa.RecordBatch) -> Fingerprint:
    return sum(map(fingerprint_of, parts), Fingerprint())


@given(ROWS, st.data())
def test_order_and_division_do_not_matter(rows: list[Row], data: st.DataObject):
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    whole = batch_of(shuffled)

    sliced = [whole.slice(start, stop - start) for start, stop in bounds]
    rebuilt = [batch_of([row]) for row in shuffled]

    assert of(*sliced) == of(*rebuilt) == of(batch_of(rows))
    assert sum(map(fingerprint_of, sliced), Fingerprint()) == of(batch_of(rows))


def _content(rows: Sequence[Row]) -> list[str]:
    # None and {} are the same: no header. The order of headers is not told.
    return sorted(repr((*row[:2], sorted((row[2] or {}).items(), key=repr))) for row in rows)


@given(ROWS, ROWS)
def test_other_rows_have_another_fingerprint(rows: list[Row], others: list[Row]):
    assume(_content(rows) != _content(others))

    assert str(of(batch_of(rows))) != str(of(batch_of(others)))


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_bit_that_changes_anywhere_is_noticed(body: bytes, data: st.DataObject):
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(body)
    changed[at] ^= 1 << bit
    first = (b"before", None, None)

    batches = [batch_of([first, (each, None, None)]) for each in (body, bytes(changed))]

    assert of(batches[0]).hashes != of(batches[1]).hashes


@pytest.mark.parametrize("before", range(9))
def test_a_field_that_occurs_twice_is_noticed_whatever_the_row_begins_behind(before: int):
    # The rows of a batch that a rewound query plans, and those of the batch that it replays.
    batches = [
        batch_of([(b"x" * before, None, None), *((_twice(each), None, None) for each in ids)])
        for ids in (range(5000, 5010), range(5010, 5020))
    ]

    assert of(batches[0]).hashes != of(batches[1]).hashes


def _twice(number: int) -> bytes:
    return b'{"id":"%08d","rr":"%08d","amount":5}' % (number, number)


@given(st.binary(min_size=9, max_size=64), st.data())
def test_two_words_that_change_places_are_noticed(body: bytes, data: st.DataObject):
    one = data.draw(st.integers(0, len(body) - 9))
    size = data.draw(st.integers(1, min(8, (len(body) - one) // 2)))
    other = data.draw(st.integers(one + size, len(body) - size))
    swapped = bytearray(body)
    swapped[one : one + size], swapped[other : other + size] = (
        body[other : other + size],
        body[one : one + size],
    )
    assume(swapped != body)

    found = [of(batch_of([(each, None, None)])) for each in (body, bytes(swapped))]

    assert found[0].hashes != found[1].hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"from":"00000001","tt":"00000002"}', b'{"from":"00000002","tt":"00000001"}'),
        # Two numbers that differ in their sign, which is the highest bit of a word.
        (struct.pack("<dd", 1.5, -1.5), struct.pack("<dd", -1.5, 1.5)),
    ],
)
def test_two_fields_that_are_exchanged_are_noticed(one: bytes, other: bytes):
    assert of(batch_of([(one, None, None)])) != of(batch_of([(other, None, None)]))


@given(BODIES, BODIES, HEADERS, HEADERS)
def test_headers_and_keys_belong_to_their_rows(
    one: bytes, other: bytes, headers: dict[str, str | None], others: dict[str, str | None]
):
    assume(one != other)
    swapped = [
        (
            batch_of([(one, a, None), (other, b, None)]),
            batch_of([(one, None, c), (other, None, d)]),
        )
        for a, b, c, d in ((one, other, headers, others), (other, one, others, headers))
    ]

    assert of(swapped[0][0]) != of(swapped[1][0])
    assert (of(swapped[0][1]) == of(swapped[1][1])) == ((headers or {}) == (others or {}))


@given(ROWS)
def test_the_size_is_that_of_values_keys_and_headers(rows: list[Row]):
    size = sum(
        len(value)
        + len(key or b"")
        + sum(len(name) + len(item or "") for name, item in (headers or {}).items())
        for value, key, headers in rows
    )

    found = of(batch_of(rows))

    assert (found.rows, found.size) == (len(rows), size)


@given(st.lists(st.none() | TEXTS, max_size=12), st.data())
def test_text_and_bytes_and_their_large_kinds_are_the_same(
    texts: list[str | None], data: st.DataObject
):
    start = data.draw(st.integers(0, len(texts)))
    kinds: list[Any] = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]

    found = {
        fingerprint_of(pa.record_batch({"key": pa.array(texts, kind)}).slice(start))
        for kind in kinds
    }

    assert len(found) == 1


def test_a_column_counts_by_its_name_and_null_is_not_empty():
    value, key, null, empty = (
        fingerprint_of(pa.record_batch({name: pa.array([each], pa.binary())}))
        for name, each in (("value", b"x"), ("key", b"x"), ("key", None), ("key", b""))
    )

    assert len({value, key, null, empty}) == 4


def test_a_row_of_garbage_behind_a_null_is_not_looked_at():
    clean = pa.array([b"a", None, b"c"], pa.binary())
    mask = pa.array([False, True, False]).buffers()[1]
    _, ends, data = pa.array([b"a", b"garbage", b"c"], pa.binary()).buffers()
    is_valid = pa.array([True, False, True]).buffers()[1]
    assert mask is not None
    dirty = pa.Array.from_buffers(pa.binary(), 3, [is_valid, ends, data])

    batches = [pa.record_batch({"key": each}) for each in (clean, dirty)]

    assert fingerprint_of(batches[0]) == fingerprint_of(batches[1])


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65])
def test_the_column_time_of_delivery_is_left_out(count: int):
    values = pa.array([b"x" * count], pa.binary())

    plain = pa.record_batch({"value": values})
    later = pa.record_batch({"value": values, "delay": pa.array([10])})

    assert fingerprint_of(plain) == fingerprint_of(later)
