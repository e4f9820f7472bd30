from __future__ import annotations

import io
import json
import tracemalloc

import pyarrow as pa
import pytest

from cassieq_spark.client import NewMessage
from cassieq_spark.http.gateway.formats import read_arrow, read_lines
from cassieq_spark.http.serving.errors import RefusedError
from tests.support.arrow_streams import stream_of

MIB = 1 << 20
HEADERS = pa.map_(pa.string(), pa.string())


def one_for_all(count: int, value: str) -> pa.Array:
    """A column whose rows share one value."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int16()), pa.array([value]))


def refused(body: bytes, *, most: int = 10_000, most_bytes: int = 32 * MIB) -> RefusedError:
    pa.default_memory_pool().release_unused()
    before = pa.default_memory_pool().bytes_allocated()
    tracemalloc.start()
    with pytest.raises(RefusedError) as caught:
        read_arrow(body, most, most_bytes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrows = pa.default_memory_pool().bytes_allocated() - before
    assert peak + arrows < 8 * MIB, "memory was taken before it was refused"
    return caught.value


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_a_compressed_body_comes_to_is_checked_before_it_is_decompressed(codec: str):
    body = stream_of(pa.table({"value": [b"\0" * (8 * MIB)] * 8}), compression=codec)
    assert len(body) < 4 * MIB

    assert refused(body).status == 413


def test_a_dictionary_counts_once_for_each_row_that_refers_to_it():
    body = stream_of(pa.table({"value": one_for_all(1_000, "x" * MIB)}), compression="zstd")
    assert len(body) < 1_000

    assert refused(body).status == 413


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_a_view_counts_once_for_each_row_that_refers_to_it(kind: pa.DataType):
    shared = pa.array(["x" * MIB], kind)
    validity, views, data = shared.buffers()
    same = pa.py_buffer(views.to_pybytes()[:16] * 100)
    table = pa.table({"value": pa.Array.from_buffers(kind, 100, [validity, same, data])})

    assert refused(stream_of(table)).status == 413


def test_what_fits_comes_through_however_it_is_encoded():
    columns = (
        pa.array(["a", None, "c"]),
        pa.array(["a", None, "c"], pa.large_binary()),
        pa.array(["a", None, "c"], pa.string_view()),
        pa.array(["a", None, "c"]).dictionary_encode(),
    )
    headers = pa.array([[("h", "1")], None, []], HEADERS)
    expected = [
        NewMessage(value, key, pairs)
        for value, key, pairs in zip(
            [b"0", b"1", b"2"], [b"a", None, b"c"], [{"h": "1"}, None, None], strict=True
        )
    ]

    for key in columns:
        for codec in ("zstd", "lz4", None):
            table = pa.table({"value": ["0", "1", "2"], "key": key, "headers": headers})
            messages, size = read_arrow(stream_of(table, compression=codec), 3, MIB)
            assert messages == expected
            assert size >= 6


def test_a_column_of_another_kind_is_refused_before_anything_is_decoded():
    nested = pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))
    for table in (
        pa.table({"value": pa.nulls(3)}),
        pa.table({"value": ["a"], "headers": pa.array([None], nested)}),
        pa.table({"value": pa.array([["a"]])}),
        pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["value", "value"]),
    ):
        assert refused(stream_of(table)).status == 400


def test_rows_are_counted_before_they_are_decoded():
    body = stream_of(pa.table({"value": [b""] * 100_000}), compression="zstd")

    assert refused(body).status == 400


def test_parts_without_rows_are_not_taken_without_end():
    table = pa.table({"value": [b"a"]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for _ in range(30):
            writer.write_batch(_empty(table))
        writer.write_table(table)

    assert refused(sink.getvalue(), most=10).status == 400


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], table.schema)


def test_lines_are_counted_before_they_are_cut():
    body = b"\n" * (8 * MIB)
    tracemalloc.start()

    with pytest.raises(RefusedError, match="in a line"):
        read_lines(body, 10_000)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


def headers_without_bytes(rows: int, count: int) -> pa.Array:
    """Headers whose names and values are empty: as offsets are zeros, they compress to nothing."""
    offsets = pa.array([row * count for row in range(rows + 1)], pa.int32())
    empty = pa.array([""] * (rows * count))
    return pa.MapArray.from_arrays(offsets, empty, empty)


@pytest.mark.parametrize(("rows", "count"), [(1, 1_000_000), (1_000, 1_000), (10_000, 21)])
def test_headers_are_counted_before_they_become_objects(rows: int, count: int):
    table = pa.table({"value": ["x"] * rows, "headers": headers_without_bytes(rows, count)})
    body = stream_of(table, compression="zstd")
    assert len(body) < 100_000

    error = refused(body)

    assert error.status == 400
    assert "headers: the limit is" in str(error)


def test_a_message_may_have_a_thousand_headers():
    pairs = [(str(number), "v") for number in range(1_000)]
    table = pa.table({"value": ["x"], "headers": pa.array([pairs], HEADERS)})
    line = json.dumps({"message": "x", "headers": dict(pairs)}).encode()

    ((by_arrow,), _), (by_line,) = read_arrow(stream_of(table), 100, MIB), read_lines(line, 100)

    assert by_arrow.headers == by_line.headers == dict(pairs)


def test_values_that_take_a_bit_or_nothing_count_as_bytes():
    body = stream_of(pa.table({"value": pa.array([None] * 10_000, pa.binary())}))

    assert refused(body, most_bytes=39_999).status == 413
    assert len(read_arrow(body, 10_000, MIB)[0]) == 10_000


MEMBERS = ",".join(f'"{number}":1' for number in range(200_000))


@pytest.mark.parametrize(
    "text",
    [
        f'{{"message":"x",{MEMBERS}}}',
        f'{{"message":"x","headers":{{{MEMBERS}}}}}',
        '{"message":"x","y":[' + "1," * 200_000 + "1]}",
        '{"message":"x","y":' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"message":"x",' + '"\\\\":1,' * 200_000 + '"y":1}',
        '{"message":"x" ,' + ' "a" :\n1 ,' * 200_000 + '"y":1}',
    ],
    ids=["fields", "headers", "elements", "depth", "escaped", "spaced"],
)
def test_members_of_json_are_counted_before_they_become_objects(text: str):
    line = text.replace("\n", " ").encode()
    tracemalloc.start()
    with pytest.raises(RefusedError, match="more than 1100 members"):
        read_lines(line, 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * len(line)


def test_a_text_may_have_any_number_of_commas_and_colons():
    inner = json.dumps({f'a"{number},:[': [number, "\\"] for number in range(20_000)})
    line = json.dumps({"message": inner, "key": ",:[" * 1_000, "headers": {",": ":" * 9_999}})

    (message,) = read_lines(line.encode(), 1)

    assert message.value == inner.encode()
