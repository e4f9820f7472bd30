from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark.arrow import chunks, framing
from cassieq_spark.arrow.chunks import PLAIN, Cutter, cut, decode
from cassieq_spark.errors import MessageError, OptionError, UnreadableError
from cassieq_spark.model import Chunk, Range

HEADERS = pa.map_(pa.string(), pa.string())
EVERYTHING = Range(0, 1 << 40)


def batch(*values: str | bytes | None, **columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values), **columns})


def make_cutter(**settings: Any) -> Cutter:
    defaults = {
        "chunk_size": 4,
        "bucket_size": 8,
        "chunk_bytes": 1 << 20,
        "compression": "none",
        "max_message_bytes": 1 << 20,
    }
    return Cutter(**(defaults | settings))


def chunks_of(*batches: pa.RecordBatch, **settings: Any) -> list[Chunk]:
    return list(cut(batches, make_cutter(**settings)))


def borders(chunks: list[Chunk]) -> list[tuple[int, int, int]]:
    return [(chunk.bucket, chunk.start, chunk.stop) for chunk in chunks]


def test_chunks_begin_at_multiples_of_their_size():
    chunks = chunks_of(batch(*"abcdef"), batch(*"ghijkl"), chunk_size=4)

    assert borders(chunks) == [(0, 0, 4), (0, 4, 8), (1, 8, 12)]


def test_what_is_left_over_makes_a_last_chunk():
    assert borders(chunks_of(batch(*"abcdef"))) == [(0, 0, 4), (0, 4, 6)]


def test_no_messages_make_no_chunks():
    assert chunks_of() == []
    assert chunks_of(pa.record_batch({"value": pa.array([], pa.string())})) == []


def test_a_block_has_so_many_buckets_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunks, "MOST_BUCKETS", 2)

    assert borders(chunks_of(batch(*"x" * 16)))[-1] == (1, 12, 16)
    with pytest.raises(OptionError, match=r"at most 16 messages into one block.*write fewer"):
        chunks_of(batch(*"x" * 17))


def test_bytes_cut_a_chunk_short_and_the_next_ends_at_the_multiple():
    assert borders(chunks_of(batch(*["xx"] * 6), chunk_bytes=6)) == [
        (0, 0, 3),
        (0, 3, 4),
        (0, 4, 6),
    ]


def test_a_message_larger_than_a_chunk_has_one_to_itself():
    chunks = chunks_of(batch("a", "x" * 9, "", "b"), chunk_bytes=5)

    assert borders(chunks) == [(0, 0, 1), (0, 1, 2), (0, 2, 4)]


def test_key_and_headers_count_towards_the_bytes_of_a_chunk():
    two = batch(
        "aa",
        "bb",
        key=pa.array(["k", None]),
        headers=pa.array([[("n", "v")], [("n", None)]], HEADERS),
    )

    assert borders(chunks_of(two, chunk_bytes=8)) == [(0, 0, 2)]
    assert borders(chunks_of(two, chunk_bytes=7)) == [(0, 0, 1), (0, 1, 2)]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_header_without_a_value_counts_with_its_name_even_if_there_are_bytes_behind_it(start):
    # "hidden" belongs to a null, as Arrow allows.
    ends = pa.array([0, 2, 8, 9], pa.int32()).buffers()[1]
    data, valid = pa.py_buffer(b"okhidden!"), pa.py_buffer(b"\x05")
    items = pa.Array.from_buffers(pa.string(), 3, [valid, ends, data], null_count=1)
    headers = pa.MapArray.from_arrays([0, 1, 1, 3], ["name", "empty", "x"], items)
    messages = batch(b"a", b"bc", b"def", headers=headers).slice(start)

    sizes = PLAIN.check(PLAIN.stored(messages), 1 << 20, first_row=0)

    assert items.to_pylist() == ["ok", None, "!"]
    assert sizes.to_pylist() == [1 + 6, 2, 3 + 5 + 2][start:]


def test_headers_of_a_slice_count_for_themselves():
    headers = pa.array([[("long", "x" * 100)], None, [("a", "b"), ("c", "d")], []], HEADERS)
    rows = batch(*"abcd", headers=headers).slice(1)

    assert borders(chunks_of(rows, chunk_bytes=7)) == [(0, 0, 3)]
    assert borders(chunks_of(rows, chunk_bytes=6)) == [(0, 0, 2), (0, 2, 3)]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_messages_come_back_as_they_went_in(compression: str):
    rows = batch(
        "a",
        "b",
        key=pa.array([b"k", None]),
        headers=pa.array([[("n", "v"), ("m", None)], None], HEADERS),
    )

    (chunk,) = chunks_of(rows, compression=compression)

    assert decode(chunk, EVERYTHING).to_pylist() == [
        {"key": b"k", "value": b"a", "headers": [("n", "v"), ("m", None)]},
        {"key": None, "value": b"b", "headers": None},
    ]


@pytest.mark.parametrize(
    "rows",
    [
        pa.record_batch(
            {
                "value": pa.array(["a"], pa.large_string()),
                "key": pa.array([b"k"], pa.large_binary()),
                "headers": pa.array([[("n", "v")]], pa.map_(pa.large_string(), pa.large_string())),
            }
        ),
        pa.record_batch(
            {
                "headers": pa.array([[("n", "v")]], HEADERS),
                "key": pa.array(["k"]),
                "value": pa.array([b"a"]),
            }
        ),
    ],
    ids=["large types", "another order of columns"],
)
def test_types_and_order_are_made_the_same(rows: pa.RecordBatch):
    (chunk,) = chunks_of(rows)

    assert decode(chunk, EVERYTHING).to_pylist() == [
        {"key": b"k", "value": b"a", "headers": [("n", "v")]}
    ]


def test_columns_that_the_dataframe_does_not_have_are_not_stored_and_read_as_null():
    (chunk,) = chunks_of(batch("a"))

    assert list(framing.decode(chunk.data, 1)) == ["value"]
    assert decode(chunk, EVERYTHING).to_pylist() == [{"key": None, "value": b"a", "headers": None}]


def test_columns_in_which_no_message_of_a_chunk_has_anything_are_not_stored():
    keys = pa.array([None] * 4 + ["k", None])
    headers = pa.array([None] * 6, HEADERS)
    bare, with_key = chunks_of(batch(*"abcdef", key=keys, headers=headers))

    assert bare.data == chunks_of(batch(*"abcd"))[0].data
    assert with_key.data == chunks_of(batch("e", "f", key=keys[4:]))[0].data


def test_a_chunk_gives_only_the_messages_that_are_asked_for():
    (_, second) = chunks_of(batch(*"abcdefgh"))

    assert decode(second, Range(5, 7)).column("value").to_pylist() == [b"f", b"g"]
    assert decode(second, Range(0, 5)).column("value").to_pylist() == [b"e"]
    assert decode(second, Range(0, 3)).num_rows == 0


def test_a_chunk_does_not_carry_the_rest_of_its_batch():
    headers = pa.array([[("n", "x" * 1000)]] * 1000, HEADERS)

    chunks = chunks_of(batch(*["v" * 1000] * 1000, headers=headers))

    assert max(len(chunk.data) for chunk in chunks) < 4 * 2001 + 1500


def test_what_waits_for_the_next_batch_does_not_keep_its_batch_alive():
    cutter = make_cutter()
    before = pa.total_allocated_bytes()

    chunks = list(cutter.feed([batch(*["v" * 1000] * 1001)]))
    kept_bytes = pa.total_allocated_bytes() - before
    chunks += [*cutter.feed([batch("w")]), *cutter.finish()]

    assert kept_bytes < 2400
    assert decode(chunks[-1], EVERYTHING).column("value").to_pylist() == [b"v" * 1000, b"w"]


def test_a_null_value_is_refused_by_the_row_it_is_in():
    cutter = make_cutter(chunk_size=4, bucket_size=4)
    chunks = cut([batch(*"abcd"), batch("e", None)], cutter)
    assert next(chunks).stop == 4

    with pytest.raises(MessageError, match=r"^row 5 .* 'value' must not be null$"):
        next(chunks)


def test_a_message_too_large_is_refused_with_its_size_and_the_limit():
    rows = batch("a", "bb", key=pa.array(["k", "kkk"]))

    assert chunks_of(rows, max_message_bytes=5)
    with pytest.raises(MessageError, match=r"^row 1 .* is 5 bytes .* is 4 .*maxMessageBytes"):
        chunks_of(rows, max_message_bytes=4)


@pytest.mark.parametrize(
    "settings", [{"chunk_size": 3}, {"chunk_size": 0}, {"bucket_size": 0}, {"chunk_bytes": 0}]
)
def test_sizes_that_do_not_fit_each_other_are_refused_at_once(settings: dict[str, int]):
    sizes = {"chunk_size": 4, "bucket_size": 8, "chunk_bytes": 1} | settings

    with pytest.raises(OptionError, match="multiple of the chunk size"):
        make_cutter(**sizes)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xff" * 64])
def test_a_chunk_that_is_no_frame_is_unreadable(data: bytes):
    with pytest.raises(UnreadableError):
        decode(Chunk(0, 4, 8, data), EVERYTHING)


def test_a_chunk_with_another_number_of_messages_is_unreadable():
    (chunk,) = chunks_of(batch("a"))

    with pytest.raises(UnreadableError, match="has 1 messages, and its row says 2"):
        decode(Chunk(0, 0, 2, chunk.data), EVERYTHING)


def test_a_chunk_has_no_more_messages_than_a_frame_takes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(framing, "MOST_MESSAGES", 3)

    assert borders(chunks_of(batch(*"abcdefgh"))) == [(0, 0, 3), (0, 3, 4), (0, 4, 7), (0, 7, 8)]
