"""Schemas and rows of all the types that a typed queue may have."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from tests.support.schemas import identity_of

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLAT: tuple[pa.DataType, ...] = (
    pa.bool_(),
    *_INTEGERS,
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(18, 0),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.duration("us"),
)
_NAMES = ("a", "b", "c", "dd")
_DEPTH = 3


def fields(name: str, types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(lambda type_, nullable: pa.field(name, type_, nullable), types, st.booleans())


def types(depth: int = _DEPTH) -> st.SearchStrategy[pa.DataType]:
    flat = st.sampled_from(FLAT)
    if depth == 1:
        return flat
    inner = types(depth - 1)
    structs = st.integers(1, 3).flatmap(
        lambda count: st.tuples(*(fields(name, inner) for name in _NAMES[:count])).map(pa.struct)
    )
    maps = st.builds(
        pa.map_,
        st.sampled_from([pa.string(), pa.int32(), pa.date32()]),
        fields("value", inner),
    )
    return st.one_of(flat, fields("element", inner).map(pa.list_), maps, structs)


def schemas(depth: int = _DEPTH) -> st.SearchStrategy[pa.Schema]:
    inner = types(depth)
    return st.integers(1, len(_NAMES)).flatmap(
        lambda count: st.tuples(*(fields(name, inner) for name in _NAMES[:count])).map(pa.schema)
    )


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, none of them null at the top."""
    if pt.is_list(type_):
        return st.lists(cells(type_.value_field), max_size=3)
    if pt.is_map(type_):
        pairs = st.tuples(values_of(type_.key_type), cells(type_.item_field))
        return st.lists(pairs, max_size=3, unique_by=identity_of)
    if pt.is_struct(type_):
        return st.fixed_dictionaries({field.name: cells(field) for field in type_.fields})
    return _flat(type_)


def cells(field: pa.Field) -> st.SearchStrategy[Any]:
    values = values_of(field.type)
    return st.none() | values if field.nullable else values


def rows(schema: pa.Schema, most: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({field.name: cells(field) for field in schema})
    return st.lists(row, min_size=1, max_size=most)


def _flat(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pt.is_signed_integer(type_):
        half = 1 << (type_.bit_width - 1)
        return st.integers(-half, half - 1) | st.integers(0, 10)
    if pt.is_decimal128(type_):
        most = 10**type_.precision - 1
        return (st.integers(-most, most) | st.integers(0, 10)).map(
            lambda number: Decimal(f"{number}e-{type_.scale}")
        )
    if pt.is_floating(type_):
        return st.floats(width=type_.bit_width, allow_nan=False)
    if pt.is_timestamp(type_):
        zone = UTC if type_.tz else None
        return st.datetimes().map(lambda at: at.replace(tzinfo=zone)) | st.integers(0, 9).map(
            lambda second: datetime(2026, 1, 1, 0, 0, second, tzinfo=zone)
        )
    return {
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=40) | st.text("ab", max_size=3),
        pa.binary(): st.binary(max_size=40),
        pa.date32(): st.dates() | st.dates(date(2026, 1, 1), date(2026, 1, 9)),
        pa.duration("us"): st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
    }[type_]


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def with_garbage(column: pa.Array, nulls: list[bool]) -> pa.Array:
    """The column with nulls at some places, and what was there still behind them."""
    assert not column.null_count
    assert not column.offset
    bits = pa.array([not each for each in nulls], pa.bool_()).buffers()[1]
    children = []
    buffers = [bits, *column.buffers()[1:2]]
    if pt.is_struct(column.type):
        buffers = [bits]
        children = [column.field(each) for each in range(column.type.num_fields)]
    elif pt.is_map(column.type):
        pair = pa.struct([column.type.key_field, column.type.item_field])
        parts = [column.keys, column.items]
        children = [
            pa.Array.from_buffers(pair, len(column.keys), [None], children=parts),
        ]
    elif pt.is_list(column.type):
        children = [column.values]
    elif pt.is_string(column.type) or pt.is_binary(column.type):
        buffers = [bits, *column.buffers()[1:]]
    return pa.Array.from_buffers(column.type, len(column), buffers, children=children)
