"""I3: every message of a block is in exactly one chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.arrow.chunks import Cutter, cut, decode
from cassieq_spark.model import Chunk, Range

HEADERS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=4),
            "value": st.binary(max_size=20),
            "headers": st.none()
            | st.lists(
                st.tuples(st.text(min_size=1, max_size=3), st.none() | st.text(max_size=3)),
                max_size=2,
                unique_by=lambda pair: pair[0],
            ),
        }
    ),
    max_size=40,
)
LAYOUTS = st.builds(
    lambda chunk_size, chunks_per_bucket, chunk_bytes, compression: {
        "chunk_size": chunk_size,
        "bucket_size": chunk_size * chunks_per_bucket,
        "chunk_bytes": chunk_bytes,
        "compression": compression,
        "max_message_bytes": 1 << 20,
    },
    st.integers(1, 10),
    st.integers(1, 4),
    st.integers(1, 100),
    st.sampled_from(["lz4", "zstd", "none"]),
)
BORDERS = st.lists(st.integers(0, 40), max_size=8)

Message = dict[str, Any]


def batches(messages: Sequence[Message], borders: Sequence[int]) -> list[pa.RecordBatch]:
    """The messages as slices of one batch, cut at ``borders``."""
    whole = pa.RecordBatch.from_pylist(list(messages), schema=SCHEMA)
    edges = [0, *sorted(min(border, len(messages)) for border in borders), len(messages)]
    return [whole.slice(start, stop - start) for start, stop in pairwise(edges)]


def size_of(message: Message) -> int:
    headers = [text.encode() for pair in message["headers"] or () for text in pair if text]
    return len(message["key"] or b"") + len(message["value"]) + sum(map(len, headers))


def read(chunks: Sequence[Chunk], offsets: Range) -> list[Message]:
    return [row for chunk in chunks for row in decode(chunk, offsets).to_pylist()]


@given(messages=MESSAGES, borders=BORDERS, layout=LAYOUTS)
def test_every_message_comes_back_once_and_in_order(
    messages: list[Message], borders: list[int], layout: dict[str, Any]
):
    chunks = list(cut(batches(messages, borders), Cutter(**layout)))

    assert read(chunks, Range(0, len(messages))) == messages
    assert [chunk.stop for chunk in chunks[:-1]] == [chunk.start for chunk in chunks[1:]]


@given(messages=MESSAGES, borders=BORDERS, layout=LAYOUTS)
def test_chunks_keep_to_multiples_and_to_bytes(
    messages: list[Message], borders: list[int], layout: dict[str, Any]
):
    size, limit = layout["chunk_size"], layout["chunk_bytes"]

    chunks = list(cut(batches(messages, borders), Cutter(**layout)))

    for chunk in chunks:
        inside = [size_of(message) for message in messages[chunk.start : chunk.stop]]
        assert chunk.bucket == chunk.start // layout["bucket_size"]
        assert chunk.start // size == (chunk.stop - 1) // size, "crosses a multiple"
        assert sum(inside) <= limit or len(inside) == 1, "too many bytes"
        if chunk.stop % size and chunk.stop < len(messages):
            assert sum(inside) + size_of(messages[chunk.stop]) > limit, "cut short for nothing"


@given(messages=MESSAGES, borders=BORDERS, layout=LAYOUTS)
def test_batches_do_not_matter(
    messages: list[Message], borders: list[int], layout: dict[str, Any]
):
    cut_as_one = [(c.start, c.stop) for c in cut(batches(messages, []), Cutter(**layout))]

    cut_apart = cut(batches(messages, borders), Cutter(**layout))
    assert [(c.start, c.stop) for c in cut_apart] == cut_as_one


@given(messages=MESSAGES, layout=LAYOUTS, ends=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_offsets_are_found_in_chunks_that_start_near_them(
    messages: list[Message], layout: dict[str, Any], ends: tuple[int, int]
):
    start, stop = sorted(min(end, len(messages)) for end in ends)
    chunks = list(cut(batches(messages, []), Cutter(**layout)))

    near = [c for c in chunks if start - start % layout["chunk_size"] <= c.start < stop]

    assert read(near, Range(start, stop)) == messages[start:stop]
