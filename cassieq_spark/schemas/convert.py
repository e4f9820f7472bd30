"""Arrow columns of one type as columns of another, if each value fits.

Columns are converted as a whole. Only if a value does not fit, its row is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from cassieq_spark.errors import MessageError
from cassieq_spark.schemas.canonical import (
    MOST_PRECISION,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    canonical_type,
    joined,
    parts,
    type_name,
)
from cassieq_spark.schemas.map_keys import are_keys_twice, as_list, flattened, key_twice

_STRING = pa.string()
#: The instants and dates of the years 1 to 9999, which Spark documents and Python has.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000
_NANOSECONDS = 1000
_INSTANTS = (pa.int64(), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
_RANGES = {
    pa.date32(): (pa.int32(), _FIRST_DAY, _LAST_DAY),
    TIMESTAMP: _INSTANTS,
    TIMESTAMP_NTZ: _INSTANTS,
    TIME: (pa.int64(), 0, 1000 * _DAY - 1),
}
_YEARS = ", which has the years 1 to 9999"
#: What a type lacks that other programs have.
_LIMITS = {
    pa.date32(): _YEARS,
    TIMESTAMP: _YEARS,
    TIMESTAMP_NTZ: _YEARS,
    TIME: ", which has whole microseconds of a day",
}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_LONGEST_SHOWN = 60
_ARROW_REFUSES = (pa.ArrowException, OverflowError, ValueError)


class _Misfit(Exception):  # noqa: N818 - never leaves this module
    """A value does not fit.

    Attributes:
        path: The path of the column or field.
        array: The values of that field, at least one of which does not fit.
        field: The wanted type, and whether the values may be null.
        problem: What else is wrong, for the error; empty if the type says it.
    """

    def __init__(self, path: str, array: pa.Array, field: pa.Field, problem: str = "") -> None:
        super().__init__(path)
        self.problem = problem
        self.path = path
        self.array = array
        self.field = field


def converted(
    column: pa.Array | pa.ChunkedArray,
    field: pa.Field,
    *,
    exact: bool,
    first_row: int = 0,
    advice: str = "",
) -> pa.Array | pa.ChunkedArray:
    """Convert a column to another type; return the same column if it has this type.

    Args:
        column: The column, of a type that `assign` or a safe change of a schema allows.
        field: The name and type of the column, and whether it may have nulls.
        exact: True for stored values, which were checked when they were written: each must remain
            the same value. False for a writer's values, which are checked for nulls and far dates;
            floats may round.
        first_row: The number of the first row in an error.
        advice: What to do about a value that does not fit, for the error.

    Raises:
        MessageError: A value does not fit; the error names the column, both types and the first
            row.
    """
    try:
        if isinstance(column, pa.ChunkedArray):
            chunks = [_convert(chunk, field, field.name, exact) for chunk in column.chunks]
            return pa.chunked_array(chunks, field.type)
        return _convert(column, field, field.name, exact)
    except _Misfit:
        raise MessageError(_located(column, field, exact, first_row) + advice) from None


def left_out(column: pa.Array, target: pa.DataType, path: str) -> Iterator[str]:
    """The paths of fields that `converted` leaves out of a column, although they have values.

    Args:
        column: A stored column, which a safe change of a schema converts to this type.
        target: The wanted type.
        path: The path of the column.
    """
    if not of.is_nested(target) or target.id != column.type.id or target == column.type:
        return
    values = column if of.is_struct(target) else flattened(as_list(column))
    children = [values] if of.is_list(target) else values.flatten()
    wanted = {part.name.lower(): part.type for part in parts(target)}
    for part, child in zip(parts(column.type), children, strict=True):
        inner, type_ = joined(path, part.name), wanted.get(part.name.lower())
        if type_ is not None:
            yield from left_out(child, type_, inner)
        elif child.null_count < len(child):
            yield inner


def without_dictionary(column: pa.Array | pa.ChunkedArray, name: str) -> Any:
    """Return a column of the same values without a dictionary; the same column if it has none.

    Raises:
        OptionError: The values are of a type that no queue has.
        MessageError: A value does not fit the type that a queue has for it.
    """
    if not of.is_dictionary(column.type):
        return column
    plain = canonical_type(column.type.value_type, name)
    return converted(column, pa.field(name, plain), exact=False)


def first_failing(rows: pa.Array | pa.RecordBatch, fails: Callable[[Any], object]) -> int:
    """The first index at which an array or batch fails, by bisection, if it fails as a whole."""
    start, stop = 0, len(rows)
    while stop - start > 1:
        middle = (start + stop) // 2
        if fails(rows.slice(start, middle - start)):
            stop = middle
        else:
            start = middle
    return start


def _located(
    column: pa.Array | pa.ChunkedArray, field: pa.Field, exact: bool, first_row: int
) -> str:
    """A text that says which row of a column does not fit, and which value."""
    start = first_row
    fails = partial(_misfit, field=field, exact=exact)
    for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if fails(array):
            break
        start += len(array)
    row = first_failing(array, fails)
    misfit = fails(array.slice(row, 1))
    if misfit is None or not len(misfit.array):
        return f"column {field.name!r}: its values are too large together"
    part = misfit.field.with_name(field.name)
    fails = partial(_misfit, field=part, exact=exact)
    value = misfit.array.slice(first_failing(misfit.array, fails), 1)
    where = f"column {misfit.path!r}, row {start + row} (counted from 0)"
    target = type_name(part.type)
    if misfit.problem:
        of_value = fails(value) or misfit
        return f"{where}: {of_value.problem} of type {target}"
    if value.null_count:
        return f"{where}: it is null, and must be a value of type {target}"
    limits = _LIMITS.get(part.type, "")
    given = type_name(value.type)
    return f"{where}: {_shown(value)} of type {given} does not fit type {target}{limits}"


def _misfit(array: pa.Array, field: pa.Field, exact: bool) -> _Misfit | None:
    try:
        _convert(array, field, field.name, exact)
    except _Misfit as misfit:
        return misfit
    return None


def _shown(value: pa.Array) -> str:
    """The only value of an array, shortened."""
    if of.is_time(value.type):
        # Python lacks nanoseconds, and takes a time of another day for one of this.
        return str(value.cast(_STRING)[0])
    try:
        python = value[0].as_py()
        text = ascii(python) if isinstance(python, str) else str(python)
    except (ValueError, OverflowError, pa.ArrowException):
        # A date or an instant that Python lacks, as the number that is stored.
        plain = pa.int32() if of.is_date32(value.type) else pa.int64()
        text = "?" if of.is_nested(value.type) else str(value.view(plain)[0])
    return _short(ascii(text)[1:-1])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _convert(
    array: pa.Array, field: pa.Field, path: str, exact: bool, absent: int = 0
) -> pa.Array:
    """Convert an array to another type; ``absent`` of its nulls belong to null structs."""
    target = field.type
    if not field.nullable and array.null_count > absent:
        raise _Misfit(path, array, field)
    if array.type == target and (exact or not _is_checked(target)):
        return array
    if of.is_null(array.type):
        return pa.nulls(len(array), target)
    if of.is_dictionary(array.type):
        return _convert(_decoded(array, field, path, exact), field, path, exact, absent)
    if of.is_struct(target):
        return _struct(array, target, path, exact)
    if of.is_list(target) or of.is_map(target):
        return _list_or_map(array, field, path, exact)
    try:
        values = array if array.type == target else _cast(array, target, exact)
    except _ARROW_REFUSES:
        values = None
    if values is None or (not exact and _is_outside(values)):
        raise _Misfit(path, array, field)
    return values


def _decoded(array: pa.DictionaryArray, field: pa.Field, path: str, exact: bool) -> pa.Array:
    """Values of a dictionary, in the type of the field.

    The entries are converted before they are picked, as Arrow can't pick views, or lists of
    dictionaries. An entry that no row has may fail to fit.
    """
    entry = field.with_nullable(True)
    indices = array.indices
    try:
        entries = _convert(array.dictionary, entry, path, exact)
    except _Misfit:
        used = pc.unique(indices.drop_null())
        fitting = [
            _convert(array.dictionary.slice(at, 1), entry, path, exact) for at in used.to_pylist()
        ]
        entries = pa.concat_arrays([pa.nulls(0, field.type), *fitting])
        indices = pc.index_in(indices, used)
    try:
        return entries.take(indices)
    except _ARROW_REFUSES:
        raise _Misfit(path, array, entry) from None


@lru_cache(maxsize=256)
def _is_checked(type_: pa.DataType) -> bool:
    """True if a writer's values of the type itself may not fit: dates, and nulls in them."""
    return type_ in _RANGES or any(
        not part.nullable or _is_checked(part.type) for part in parts(type_)
    )


def _struct(array: pa.Array, target: pa.DataType, path: str, exact: bool) -> pa.Array:
    # Flattened, the fields of a null struct are null, whatever they hold.
    given = array.flatten()
    places = {part.name.lower(): at for at, part in enumerate(array.type)}
    children = []
    for part in target:
        at = places.get(part.name.lower())
        child = pa.nulls(len(array), part.type) if at is None else given[at]
        children.append(_convert(child, part, joined(path, part.name), exact, array.null_count))
    if array.type == target and _are_same(given, children):
        return array
    return _assembled(target, array, [], children)


def _list_or_map(array: pa.Array, field: pa.Field, path: str, exact: bool) -> pa.Array:
    target = field.type
    entries = as_list(array)
    # Flattened, it is without what null lists hold, and what lies outside a slice.
    values = flattened(entries)
    given = values.flatten() if of.is_map(target) else [values]
    children = [
        _convert(each, part, joined(path, part.name), exact)
        for each, part in zip(given, parts(target), strict=True)
    ]
    lengths = pc.fill_null(pc.list_value_length(entries), 0)
    if of.is_map(target) and not exact:
        _check_keys(array, field, lengths, children[0], path)
    if array.type == target and _are_same(given, children):
        return array
    if of.is_map(target):
        children = [pa.StructArray.from_arrays(children, fields=parts(target))]
    try:
        ends = pc.cumulative_sum_checked(lengths.cast(pa.int32()))
    except _ARROW_REFUSES:
        raise _Misfit(path, array, field.with_nullable(True)) from None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return _assembled(target, array, [offsets.buffers()[1]], children)


def _check_keys(
    array: pa.Array, field: pa.Field, lengths: pa.Array, keys: pa.Array, path: str
) -> None:
    """Refuse maps with a duplicated key, also one that is duplicated only after conversion."""
    if are_keys_twice(lengths, keys):
        # The error is of one map, once it is found.
        twice = repr(key_twice(keys.to_pylist())) if len(array) == 1 else ""
        raise _Misfit(path, array, field, f"the key {_short(twice)} appears twice in a map")


def _are_same(before: list[pa.Array], after: list[pa.Array]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=False))


def _assembled(
    target: pa.DataType, array: pa.Array, buffers: list[Any], children: list[pa.Array]
) -> pa.Array:
    """An array of other parts that is null where another array is null."""
    valid = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        target, len(array), [valid, *buffers], array.null_count, 0, children
    )


def _cast(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array | None:
    """The values in another type; None, or an error of Arrow's, if a value does not fit."""
    if of.is_decimal32(array.type) or of.is_decimal64(array.type):
        # Arrow can do less with them: neither limits nor every cast.
        array = array.cast(pa.decimal128(MOST_PRECISION, array.type.scale))
    given = array.type
    if of.is_floating(given) and of.is_floating(target):
        return _rounded(array, target, exact)
    if of.is_decimal(target):
        return _to_decimal(array, target)
    if of.is_decimal(given) and of.is_floating(target):
        # By text: Arrow's own cast is off by one bit now and then.
        return array.cast(_STRING).cast(target)
    return array.cast(target)


def _to_decimal(array: pa.Array, target: pa.Decimal128Type) -> pa.Array | None:
    """Numbers as decimals; None if one is too large, or a float too small.

    Arrow multiplies by a power of ten, and does not notice when 128 bits overflow. A text with
    many zeros after the point becomes any number, as Arrow's table of powers ends before
    (apache/arrow#50964). So both cases are found before the cast.
    """
    bound = Decimal(10) ** (target.precision - target.scale)
    if of.is_floating(array.type):
        sizes = pc.abs(array)
        # A tenth of the last digit: a float may be a little less than the number that it prints.
        is_tiny = pc.and_(pc.greater(sizes, 0), pc.less(sizes, 10.0 ** -(target.scale + 1)))
        if _any(pc.or_(is_tiny, pc.greater_equal(sizes, float(bound)))):
            return None
        # By text: the number that is printed, 0.1 and not 0.1000000000000000055.
        return array.cast(_STRING).cast(target)
    if of.is_integer(array.type):
        array = array.cast(pa.decimal128(_INTEGER_DIGITS[array.type.bit_width], 0))
    if of.is_decimal(array.type):
        limits = pc.min_max(array).as_py()
        if limits["min"] is not None and not -bound < limits["min"] <= limits["max"] < bound:
            return None
    return array.cast(target)


def _rounded(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array | None:
    """Floats as floats of another size; None if one becomes infinite, or another value."""
    rounded = array.cast(target)
    if target.bit_width >= array.type.bit_width:
        return rounded
    if _any(pc.and_(pc.is_inf(rounded), pc.is_finite(array))):
        return None
    if exact:
        same = pc.or_(pc.equal(rounded.cast(array.type), array), pc.is_nan(array))
        return None if _any(pc.invert(same)) else rounded
    return rounded


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


def _is_outside(array: pa.Array) -> bool:
    """True if a date or instant is before the year 1 or after 9999, or a time is invalid."""
    if array.type not in _RANGES:
        return False
    plain, first, last = _RANGES[array.type]
    numbers = array.view(plain)
    limits = pc.min_max(numbers).as_py()
    if limits["min"] is not None and (limits["min"] < first or limits["max"] > last):
        return True
    if array.type != TIME:
        return False
    whole = pc.multiply(pc.divide(numbers, _NANOSECONDS), _NANOSECONDS)
    return _any(pc.not_equal(whole, numbers))
