"""Indexes of pandas, which Arrow keeps in metadata, become columns by their names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cassieq_spark.errors import SchemaError
from cassieq_spark.schemas.assign import arrow_batches, assign
from cassieq_spark.schemas.canonical import canonical
from cassieq_spark.schemas.ddl import parse_ddl, to_ddl
from cassieq_spark.schemas.pandas_index import plain_batches, plain_schema

FRAME = pd.DataFrame({"a": [1, 2, 3]})


def read(given: object) -> dict[str, list[Any]]:
    return pa.Table.from_batches(arrow_batches(given)).to_pydict()


@pytest.mark.parametrize(
    ("index", "columns"),
    [
        (pd.RangeIndex(1, 4, name="key"), {"key": [1, 2, 3]}),
        (pd.RangeIndex(4, -2, -2, name="key"), {"key": [4, 2, 0]}),
        (pd.Index([1, 2, 4], name="key"), {"key": [1, 2, 4]}),
        (pd.CategoricalIndex(["x", "y", "x"], name="key"), {"key": ["x", "y", "x"]}),
        (pd.Index([1, 2, 4], name=7), {"7": [1, 2, 4]}),
        (pd.RangeIndex(3, name=7), {"7": [0, 1, 2]}),
        (
            pd.MultiIndex.from_arrays([[1, 2, 3], [4, 5, 6]], names=["key", "more"]),
            {"key": [1, 2, 3], "more": [4, 5, 6]},
        ),
        (pd.MultiIndex.from_arrays([[1, 2, 3], [4, 5, 6]], names=[None, "m"]), {"m": [4, 5, 6]}),
        (pd.RangeIndex(3), {}),
        (pd.Index([1, 2, 4]), {}),
    ],
)
@pytest.mark.filterwarnings("ignore:The DataFrame has non-str index name")
def test_an_index_is_a_column_if_it_has_a_name(index: pd.Index, columns: dict[str, list[Any]]):
    frame = FRAME.set_index(index)

    assert read(frame) == {"a": [1, 2, 3]} | columns
    assert read(pa.Table.from_pandas(frame)) == {"a": [1, 2, 3]} | columns
    assert canonical(pa.Schema.from_pandas(frame)).names == ["a", *columns]


def test_the_values_of_a_range_go_on_in_the_next_batch():
    table = pa.Table.from_pandas(FRAME.set_index(pd.RangeIndex(5, 8, name="key")))
    parts = table.to_batches(max_chunksize=2)

    (*_, first, second) = arrow_batches(pa.RecordBatchReader.from_batches(table.schema, parts))

    assert first.column("key").to_pylist() == [5, 6]
    assert second.column("key").to_pylist() == [7]


def test_a_queue_gets_a_column_for_a_range():
    frame = FRAME.set_index(pd.RangeIndex(3, name="key"))

    assert to_ddl(canonical(pa.Schema.from_pandas(frame))) == "a bigint, key bigint"


@pytest.mark.parametrize("index", [pd.RangeIndex(3, name="a"), pd.Index([1, 2, 4], name="a")])
def test_an_index_that_is_called_like_a_column_is_refused(index: pd.Index):
    rows = pa.Table.from_batches(arrow_batches(FRAME.set_index(index)))

    with pytest.raises(SchemaError, match="there are 2 columns 'a'"):
        assign(rows, parse_ddl("a bigint"))


def test_a_column_that_some_releases_of_arrow_call_like_the_index_is_a_column():
    described = {"columns": [{"field_name": "a", "name": None}], "index_columns": ["a"]}
    schema = pa.schema(
        [("a", pa.int64()), ("a", pa.int64())], metadata={"pandas": json.dumps(described)}
    )

    assert plain_schema(schema) == pa.schema([("a", pa.int64())])
    (found,) = plain_batches([pa.RecordBatch.from_arrays([[1], [5]], schema=schema)])
    assert found.to_pydict() == {"a": [1]}


def test_a_column_that_is_called_as_pandas_calls_an_index_is_a_column():
    frame = pd.DataFrame({"__index_level_0__": [1, 2]}, index=[5, 6])

    assert read(frame) == {"__index_level_0__": [1, 2]}


@pytest.mark.parametrize("rows", [slice(0, 2), slice(1, 3)])
def test_some_rows_of_a_frame_are_refused_if_their_index_is_a_range(rows: slice):
    table = pa.Table.from_pandas(FRAME.set_index(pd.RangeIndex(3, name="key")))[rows]

    with pytest.raises(SchemaError, match=r"'key' .* 3 values for 2 rows: put .* reset_index\(\)"):
        read(table)


def test_more_rows_than_a_range_has_are_refused():
    table = pa.Table.from_pandas(FRAME.set_index(pd.RangeIndex(3, name="key")))

    with pytest.raises(SchemaError, match="3 values for 6 or more rows"):
        read(pa.concat_tables([table, table]).combine_chunks())


@pytest.mark.parametrize(
    "metadata",
    [
        b"{",
        b"[]",
        b"{}",
        b"[" * 100_000,
        {"columns": [], "index_columns": [5]},
        {"columns": [], "index_columns": [{"name": "a", "start": 0, "stop": 1, "step": 0}]},
        {"columns": [], "index_columns": [{"name": "a", "start": 0, "stop": "1", "step": 1}]},
        {"columns": [], "index_columns": [{"name": "a", "start": 0, "stop": 2**70, "step": 1}]},
        {
            "columns": [],
            "index_columns": [{"name": "a", "start": -(2**62), "stop": 2**62, "step": 1}],
        },
        {"columns": [], "index_columns": [{"name": "a", "start": 0, "stop": 1, "step": 1}] * 2},
    ],
)
def test_metadata_that_pandas_does_not_write_is_refused(metadata: Any):
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    table = pa.table({"b": [1]}).replace_schema_metadata({b"pandas": text})

    with pytest.raises(SchemaError, match="metadata of pandas that can't be read"):
        read(table)


def test_a_frame_without_columns_has_its_index_only():
    frame = pd.DataFrame(index=pd.RangeIndex(2, name="key"))

    assert read(frame) == {"key": [0, 1]}


def test_a_range_may_end_where_64_bits_end():
    frame = pd.DataFrame({"a": np.zeros(3)}, index=pd.RangeIndex(2**63 - 4, 2**63 - 1, name="key"))

    assert read(frame)["key"] == [2**63 - 4, 2**63 - 3, 2**63 - 2]
