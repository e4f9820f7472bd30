"""Rows of queues with a schema, by HTTP: what would take more memory than it says is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pytest

from cassieq_spark.client import Message
from cassieq_spark.errors import SchemaError
from cassieq_spark.http.gateway.tables import read_table, write_table
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.schemas.ddl import schema_of
from tests.support.arrow_streams import stream_of
from tests.support.gateway import RECEIPTS

COLUMNS = schema_of(
    "name string, flags array<string>, at timestamp, spot struct<x:int>, tags map<string,int>"
)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
RECEIPT = "q@1/g/00000000-0000-0000-0000-000000000000/0"
MOST_BYTES = 1 << 20


def refused(columns: dict[str, pa.Array], **options: object) -> RefusedError:
    body = stream_of(pa.table(columns), **options)
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(RefusedError) as caught:
        read_table(body, COLUMNS, 1_000, MOST_BYTES)
    assert pa.default_memory_pool().bytes_allocated() - before < MOST_BYTES
    return caught.value


def no_bytes(count: int) -> pa.Array:
    """A list of elements that take no bytes."""
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))


WORDS = pa.array(["x" * 100])
SHARED = pa.DictionaryArray.from_arrays(pa.array([0] * 900, pa.int16()), WORDS)
MANY = 100_000_000


@pytest.mark.parametrize(
    "columns",
    [
        {"flags": no_bytes(MANY)},
        {"flags": pa.ListArray.from_arrays(pa.array([0, 900]), SHARED)},
        {"flags": pa.array([[True] * 900])},
        {"flags": pa.array([["a"]], pa.list_(pa.string_view()))},
        {"spot": pa.StructArray.from_arrays([SHARED], ["x"])},
        {"spot": pa.array([{"x": True}])},
        {"name": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([["a"]]))},
        {"name": pa.DictionaryArray.from_arrays(pa.array([0]), no_bytes(1))},
        {"name": pa.RunEndEncodedArray.from_arrays(pa.array([900]), WORDS)},
        {"tags": pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string()))},
        {"more": no_bytes(MANY)},
        {"name": pa.array([b"a"], pa.binary(1))},
        {"_headers": pa.array([["a"]])},
        {"_visible_at": pa.array([NOON])},
    ],
)
def test_values_that_share_bytes_or_are_of_another_type_inside_are_refused(columns):
    assert refused(columns).status == 400


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_a_compressed_stream_comes_to_is_checked_before(codec: str):
    assert refused({"name": pa.array(["\0" * (2 << 20)])}, compression=codec).status == 413


def test_a_dictionary_counts_for_each_row():
    words = pa.array(["x" * 10_000])
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 900, pa.int16()), words)

    assert refused({"name": shared}).status == 413


def test_entries_of_a_dictionary_count_even_if_no_row_has_them():
    validity, views, *data = pa.array(["x" * 10_000], pa.string_view()).buffers()
    same = pa.py_buffer(views.to_pybytes()[:16] * 900)
    shared = pa.Array.from_buffers(pa.string_view(), 900, [validity, same, *data])
    unused = pa.DictionaryArray.from_arrays(pa.array([None], pa.int16()), shared)

    assert refused({"name": unused}).status == 413


@pytest.mark.parametrize(
    "columns",
    [
        {"at": pa.array([NOON, None]).dictionary_encode()},
        {
            "name": pa.DictionaryArray.from_arrays(
                pa.array([1, None]), pa.array(["a", "b"], pa.string_view())
            )
        },
        {"NAME": pa.array(["a", None], pa.large_string())},
        {"name": pa.array(["a", "b"], pa.string_view())},
        {"name": pa.nulls(2)},
        {"name": pa.array([True, None]), "at": pa.array([NOON, None], pa.timestamp("ns", "UTC"))},
        {"flags": pa.array([["a"], None], pa.large_list(pa.large_string()))},
        {"spot": pa.array([{"X": 1}, {"X": None}], pa.struct([("X", pa.int32())]))},
        {"tags": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))},
        {"_key": pa.array([b"a", None])},
        {"spot": pa.array(["x", "y"])},
        {"unknown": pa.array([[1], []])},
    ],
)
def test_what_the_client_is_to_judge_passes(columns):
    table, size = read_table(stream_of(pa.table(columns)), COLUMNS, 2, MOST_BYTES)

    assert table.num_rows == 2
    assert size <= MOST_BYTES


def test_the_index_of_a_frame_is_a_column_if_it_has_a_name():
    frame = pd.DataFrame({"name": ["a", "b"]})
    columns = schema_of("name string, trip bigint")
    named = pa.Table.from_pandas(frame.set_index(pd.RangeIndex(1, 3, name="trip")))
    unnamed = pa.Table.from_pandas(frame.set_index(pd.Index([5, 7])))

    table, _ = read_table(stream_of(named), columns, 2, MOST_BYTES)
    other, _ = read_table(stream_of(unnamed), columns, 2, MOST_BYTES)

    assert table.to_pydict() == {"name": ["a", "b"], "trip": [1, 2]}
    assert other.to_pydict() == {"name": ["a", "b"]}


def message(value: dict[str, object]) -> Message:
    return Message("q", 7, b"k", value, {"h": "1"}, NOON, "g", 2, RECEIPT, NOON)


def test_an_answer_has_the_queue_s_columns_in_its_types():
    value = {"name": "a", "flags": ["b"], "at": NOON, "spot": {"x": 1}, "tags": {"c": 2}}
    earlier = {"name": None}

    table = pa.ipc.open_stream(
        write_table([message(value), message(earlier)], RECEIPTS, COLUMNS)
    ).read_all()

    assert table.schema.names == [*COLUMNS.names, "_metadata"]
    assert [table.schema.field(each).type for each in COLUMNS.names] == COLUMNS.types
    first, second = table.to_pylist()
    assert {name: first[name] for name in COLUMNS.names} == value | {"tags": [("c", 2)]}
    assert {second[name] for name in COLUMNS.names} == {None}
    assert first["_metadata"]["monoton"] == 7


def test_messages_of_another_version_with_other_columns_are_not_half_an_answer():
    with pytest.raises(SchemaError, match="dropped"):
        write_table([message({"dropped": 1})], RECEIPTS, COLUMNS)
