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
    return repr(_in_order(pair[0])).replace("-0.0", "0.0")


def _in_order(value: Any) -> Any:
    """The value with the fields of its structs in order: two orders are one key."""
    if isinstance(value, dict):
        return sorted((name, _in_order(each)) for name, each in value.items())
    return [_in_order(each) for each in value] if isinstance(value, list | tuple) else value


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
    """Versions of a schema, each safe after those before it; what was dropped may come back."""
    first = draw(schemas(st.sampled_from([digit * 4 for digit in "0123456789"]), depth=2))
    versions = [first]
    change = _Change(draw)
    for _ in range(draw(st.integers(1, most - 1))):
        versions.append(pa.schema(change.fields(list(versions[-1]), ())))
    return versions


class _Change:
    """Makes version after version of one schema.

    Args:
        draw: What chooses.
    """

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw
        self._fresh = iter(_LETTERS)
        #: What was dropped, by the path of what it was in: it may come back.
        self._gone: dict[tuple[str, ...], list[pa.Field]] = {}

    def fields(self, fields: list[pa.Field], path: tuple[str, ...]) -> list[pa.Field]:
        gone = self._gone.setdefault(path, [])
        back = [field for field in gone if self._draw(st.booleans())]
        kept, dropped = [], []
        for field in fields:
            # Something has to be left.
            may_go = field.nullable and len(fields) > 1 and (kept or field is not fields[-1])
            if may_go and self._draw(st.integers(0, 3)) == 0:
                dropped.append(field)
            else:
                kept.append(self._field(field, path))
        for field in back:
            gone.remove(field)
            again = self._field(field, path).with_nullable(True)
            kept.insert(self._draw(st.integers(0, len(kept))), again)
        gone += dropped
        if self._draw(st.booleans()) and (name := next(self._fresh, None)):
            added = pa.field(name, self._draw(types(NAMES, 1)))
            kept.insert(self._draw(st.integers(0, len(kept))), added)
        return kept

    def _field(self, field: pa.Field, path: tuple[str, ...]) -> pa.Field:
        nullable = field.nullable or self._draw(st.booleans())
        return pa.field(field.name, self._type(field.type, (*path, field.name)), nullable)

    def _type(self, type_: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
        if of.is_struct(type_):
            return pa.struct(self.fields(list(type_), path))
        if of.is_list(type_):
            return pa.list_(self._field(parts(type_)[0], path))
        if of.is_map(type_):
            key, value = parts(type_)
            return pa.map_(_widened(self._draw, key), self._field(value, path))
        return _wider_type(self._draw, type_)


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
