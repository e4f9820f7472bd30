"""Strategies: schemas of queues, rows that they hold, and what may become of a schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import types as of

from cassieq_spark.schemas.canonical import (
    ATOMIC,
    RESERVED,
    array_of,
    field_of,
    map_of,
    parts,
)
from cassieq_spark.schemas.evolution import is_wider

_DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(pa.decimal128, st.just(precision), st.integers(0, precision))
)
ATOMIC_TYPES = st.sampled_from(list(ATOMIC.values())) | _DECIMALS
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
).filter(lambda name: name.lower() not in RESERVED)
#: Names that are not alike.
_LETTERS = tuple(letter * 6 for letter in "abcdefghijklmnopqrstuvwxyz")
_FLOATS = {
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
}


def types(names: st.SearchStrategy[str] = NAMES, depth: int = 3) -> st.SearchStrategy[pa.DataType]:
    """Types with at most so many others around one."""
    if not depth:
        return ATOMIC_TYPES
    inner = types(names, depth - 1)
    keys = inner.filter(lambda type_: not _has_map(type_))
    return st.one_of(
        ATOMIC_TYPES,
        st.builds(lambda type_, null: array_of(type_, nullable=null), inner, st.booleans()),
        st.builds(
            lambda key, value, null: map_of(key, value, path="", nullable=null),
            keys,
            inner,
            st.booleans(),
        ),
        _fields(names, depth - 1).map(pa.struct),
    )


def schemas(names: st.SearchStrategy[str] = NAMES, depth: int = 3) -> st.SearchStrategy[pa.Schema]:
    """Canonical schemas."""
    return _fields(names, depth).map(pa.schema)


def _fields(names: st.SearchStrategy[str], depth: int) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(
        lambda name, type_, null, comment: field_of(name, type_, nullable=null, comment=comment),
        names,
        types(names, depth),
        st.booleans(),
        st.none() | _TEXTS,
    )
    return st.lists(field, min_size=1, max_size=3, unique_by=lambda field: field.name.lower())


def _has_map(type_: pa.DataType) -> bool:
    return of.is_map(type_) or any(_has_map(part.type) for part in parts(type_))


def batches(
    schema: pa.Schema, min_size: int = 0, max_size: int = 4
) -> st.SearchStrategy[pa.RecordBatch]:
    """Rows of a schema."""
    row = st.fixed_dictionaries({field.name: values(field) for field in schema})
    return st.lists(row, min_size=min_size, max_size=max_size).map(
        lambda rows: pa.RecordBatch.from_pylist(rows, schema=schema)
    )


def values(field: pa.Field) -> st.SearchStrategy[Any]:
    """Values of a field, as `to_pylist` has them."""
    strategy = _values(field.type)
    return st.none() | strategy if field.nullable else strategy


def _values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if of.is_struct(type_):
        return st.fixed_dictionaries({part.name: values(part) for part in type_})
    if of.is_list(type_):
        return st.lists(values(parts(type_)[0]), max_size=3)
    if of.is_map(type_):
        key, value = map(values, parts(type_))
        return st.lists(st.tuples(key, value), max_size=2, unique_by=identity_of)
    if of.is_integer(type_):
        end = 1 << (type_.bit_width - 1)
        return st.integers(-end, end - 1) | st.integers(-3, 3)
    if of.is_decimal(type_):
        end = 10**type_.precision
        return st.integers(1 - end, end - 1).map(
            lambda number: Decimal(number).scaleb(-type_.scale, _WIDE)
        )
    return _ATOMIC_VALUES[type_]


def identity_of(pair: tuple[Any, Any]) -> str:
    """What makes an entry of a map another one: 0.0 and -0.0 are the same key of a dict."""
    return repr(pair[0]).replace("-0.0", "0.0")


_WIDE = Context(prec=80)
_ATOMIC_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **_FLOATS,
    pa.bool_(): st.booleans(),
    pa.string(): _TEXTS,
    pa.binary(): st.binary(max_size=6),
    pa.date32(): st.dates(),
    ATOMIC["timestamp"]: st.datetimes(timezones=st.just(UTC)),
    ATOMIC["timestamp_ntz"]: st.datetimes(),
    ATOMIC["time(6)"]: st.times(),
    ATOMIC["interval day to second"]: st.integers(-(2**62), 2**62).map(
        lambda count: timedelta(microseconds=count)
    ),
}


@st.composite
def histories(draw: Callable[..., Any], *, most: int = 4) -> list[pa.Schema]:
    """Versions of a schema, of which each is safe after those before it."""
    fresh = iter(_LETTERS)
    first = draw(schemas(st.sampled_from([digit * 4 for digit in "0123456789"]), depth=2))
    versions = [first]
    for _ in range(draw(st.integers(1, most - 1))):
        versions.append(pa.schema(_changed(draw, list(versions[-1]), fresh)))
    return versions


def _changed(draw: Callable[..., Any], fields: list[pa.Field], fresh: Any) -> list[pa.Field]:
    kept = []
    for field in fields:
        # Something has to be left.
        may_go = field.nullable and len(fields) > 1 and (kept or field is not fields[-1])
        if may_go and draw(st.integers(0, 3)) == 0:
            continue
        kept.append(_changed_field(draw, field, fresh))
    kept = kept or [_changed_field(draw, fields[-1], fresh)]
    if draw(st.booleans()) and (name := next(fresh, None)):
        kept.insert(draw(st.integers(0, len(kept))), pa.field(name, draw(types(NAMES, 1))))
    return kept


def _changed_field(draw: Callable[..., Any], field: pa.Field, fresh: Any) -> pa.Field:
    nullable = field.nullable or draw(st.booleans())
    return pa.field(field.name, _changed_type(draw, field.type, fresh), nullable)


def _changed_type(draw: Callable[..., Any], type_: pa.DataType, fresh: Any) -> pa.DataType:
    if of.is_struct(type_):
        return pa.struct(_changed(draw, list(type_), fresh))
    if of.is_list(type_):
        return pa.list_(_changed_field(draw, parts(type_)[0], fresh))
    if of.is_map(type_):
        key, value = parts(type_)
        return pa.map_(_widened(draw, key), _changed_field(draw, value, fresh))
    return _wider_type(draw, type_)


def _widened(draw: Callable[..., Any], field: pa.Field) -> pa.Field:
    """The key of a map, or a part of one: no field of it may come or go."""
    type_ = field.type
    if of.is_struct(type_):
        return field.with_type(pa.struct([_widened(draw, part) for part in type_]))
    if of.is_list(type_):
        return field.with_type(pa.list_(_widened(draw, parts(type_)[0])))
    return field.with_type(_wider_type(draw, type_))


def _wider_type(draw: Callable[..., Any], type_: pa.DataType) -> pa.DataType:
    wider_types = [other for other in _CANDIDATES if is_wider(type_, other)]
    return draw(st.sampled_from([type_, *wider_types]))


_CANDIDATES = [
    *ATOMIC.values(),
    *(
        pa.decimal128(precision, scale)
        for precision in (5, 12, 38)
        for scale in (0, 2, 10)
        if scale <= precision
    ),
]
