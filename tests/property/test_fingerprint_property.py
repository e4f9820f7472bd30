"""The fingerprint of a batch depends on what is in it, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cassieq_spark.fingerprint import Fingerprint, Fingerprinting, fingerprint_of

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
    passing = Fingerprinting(parts)
    assert list(passing) == list(parts)
    return passing.found


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


@given(ROWS, ROWS)
def test_other_rows_have_another_fingerprint(rows: list[Row], others: list[Row]):
    assume(sorted(map(repr, rows)) != sorted(map(repr, others)))
    same_headers = [[(each or {}) for *_, each in some] for some in (rows, others)]
    # None and {} are the same: no header. Which row has which header is not told.
    assume(
        sorted(repr(row[:2]) for row in rows) != sorted(repr(row[:2]) for row in others)
        or sorted(repr(kv) for each in same_headers[0] for kv in each.items())
        != sorted(repr(kv) for each in same_headers[1] for kv in each.items())
    )

    assert str(of(batch_of(rows))) != str(of(batch_of(others)))


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_bit_that_changes_anywhere_is_noticed(body: bytes, data: st.DataObject):
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(body)
    changed[at] ^= 1 << bit
    first = (b"before", None, None)

    batches = [batch_of([first, (each, None, None)]) for each in (body, bytes(changed))]

    assert of(batches[0]).hashes != of(batches[1]).hashes


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
