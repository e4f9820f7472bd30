"""Frames of pandas and polars come back from a queue as they were, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.schemas.canonical import canonical
from cassieq_spark.store.memory import MemoryStore

#: Values without nulls, and the types of pandas, Arrow and polars that hold them.
_COLUMNS: tuple[tuple[st.SearchStrategy[Any], tuple[str, ...], tuple[pl.DataType, ...]], ...] = (
    (
        st.integers(0, 127),
        ("int8", "Int16", "uint32", "int64", "int64[pyarrow]", "category", "float64"),
        (pl.Int8(), pl.UInt32(), pl.Int64()),
    ),
    (
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
        ("object", "string", "str", "category"),
        (pl.String(), pl.Categorical()),
    ),
    (st.booleans(), ("bool", "boolean", "bool[pyarrow]"), (pl.Boolean(),)),
    (
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 (Hypothesis takes such)
        ("datetime64[us, UTC]", "timestamp[us, UTC][pyarrow]", "category"),
        (pl.Datetime("us", "UTC"),),
    ),
)


@st.composite
def _series(draw: Callable[..., Any], count: int) -> tuple[list[Any], str, pl.DataType]:
    strategy, kinds, others = draw(st.sampled_from(_COLUMNS))
    values = draw(st.lists(strategy, min_size=count, max_size=count))
    return values, draw(st.sampled_from(kinds)), draw(st.sampled_from(others))


@st.composite
def _index(draw: Callable[..., Any], count: int, names: list[str]) -> tuple[pd.Index, Any]:
    """An index, and the columns that it is to become."""
    kind = draw(st.sampled_from(["range", "plain", "levels"]))
    if kind == "range":
        start, step = draw(st.integers(-5, 5)), draw(st.sampled_from([1, 3, -2]))
        name = draw(st.none() | st.sampled_from(names))
        index = pd.RangeIndex(start, start + step * count, step, name=name)
        return index, {} if name is None else {name: list(index)}
    levels = [draw(_series(count)) for _ in range(1 if kind == "plain" else 2)]
    given_names = draw(
        st.lists(
            st.none() | st.sampled_from(names),
            min_size=len(levels),
            max_size=len(levels),
        ).filter(lambda drawn: len({*drawn}) == len(drawn))
    )
    indexes = [
        pd.Index(pd.Series(values, dtype=kind), name=name)
        for (values, kind, _), name in zip(levels, given_names, strict=True)
    ]
    index = indexes[0] if kind == "plain" else pd.MultiIndex.from_arrays(indexes)
    named = zip(given_names, levels, strict=True)
    return index, {name: values for name, (values, _, _) in named if name is not None}


def _read_back(frame: Any, schema: pa.Schema) -> list[dict[str, Any]]:
    client = Client.from_store(MemoryStore())
    client.create_queue("q", schema=schema)
    if len(frame):
        client.put_many("q", frame)
    rows = [each.value for each in client.peek("q", max=100)]
    assert all(isinstance(row, dict) for row in rows)
    return rows


def _rows(columns: dict[str, list[Any]], count: int) -> list[dict[str, Any]]:
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


@given(st.data(), st.integers(1, 4))
def test_a_frame_of_pandas_comes_back_with_its_indexes(data: st.DataObject, count: int):
    columns = {name: data.draw(_series(count)) for name in ("a", "b")}
    index, indexed = data.draw(_index(count, ["u", "v"]))
    series = {
        name: pd.Series(values, dtype=kind, index=index)
        for name, (values, kind, _) in columns.items()
    }
    frame = pd.DataFrame(series, index=index)
    expected = {name: values for name, (values, _, _) in columns.items()} | indexed

    rows = _read_back(frame, canonical(pa.Schema.from_pandas(frame)))

    assert rows == _rows(expected, count)


@given(st.data(), st.integers(1, 4))
def test_a_frame_of_polars_comes_back(data: st.DataObject, count: int):
    columns = {name: data.draw(_series(count)) for name in ("a", "b")}
    frame = pl.DataFrame(
        {name: pl.Series(values, dtype=kind) for name, (values, _, kind) in columns.items()}
    )
    schema = pa.RecordBatchReader.from_stream(frame).schema

    rows = _read_back(frame, canonical(schema))

    assert rows == _rows({name: values for name, (values, _, _) in columns.items()}, count)
