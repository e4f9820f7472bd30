"""Arrow tables of writers as the columns of a queue: by name, and only if each value fits. Pure.

What may become what follows Spark's ANSI store assignment; values are judged more strictly, as
nothing may be lost on the way to a reader. So a fraction does not become an integer, and digits
that a decimal lacks are not rounded away. Only ``float`` and ``double`` round, as they always do.

Columns are converted as a whole. The row that does not fit is looked for only if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from cassieq_spark.arguments import did_you_mean, shown
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.schemas.canonical import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    joined,
    parts,
    type_name,
)

_DATE = pa.date32()
_STRING = pa.string()
#: The instants and dates of the years 1 to 9999, which Spark documents and Python has.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MICROSECONDS_A_DAY = 86_400_000_000
_RANGES = {
    _DATE: (pa.int32(), _FIRST_DAY, _LAST_DAY),
    **dict.fromkeys(
        (TIMESTAMP, TIMESTAMP_NTZ),
        (
            pa.int64(),
            _FIRST_DAY * _MICROSECONDS_A_DAY,
            (_LAST_DAY + 1) * _MICROSECONDS_A_DAY - 1,
        ),
    ),
}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_LONGEST_SHOWN = 60
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_ARROW_REFUSES = (pa.ArrowException, OverflowError, ValueError)


class Check(Enum):
    """How values are judged."""

    #: As a writer's: floats may round, nulls and dates are checked.
    WRITTEN = auto()
    #: As stored ones, which have been checked: what is another value afterwards does not fit.
    EXACT = auto()


WRITTEN, EXACT = Check.WRITTEN, Check.EXACT


class Misfit(Exception):  # noqa: N818 - never leaves this package
    """A value does not fit.

    Attributes:
        path: Of the column or field.
        array: The values of that field, at least one of which does not fit.
        target: The type that they were to have.
        nullable: Whether they may be null.
    """

    def __init__(self, path: str, array: pa.Array, target: pa.DataType, *, nullable: bool) -> None:
        super().__init__(path)
        self.path = path
        self.array = array
        self.target = target
        self.nullable = nullable


def arrow_batches(given: object) -> Iterator[pa.RecordBatch]:
    """Read rows as Arrow batches, as they come: of a table, or of what hands itself over as one.

    So pandas, polars and DuckDB do, and readers of files larger than memory; nothing is copied
    that Arrow can share. The index of a pandas DataFrame is left out, unless it has a name. There
    is always a batch, if without rows, that has the columns.

    Raises:
        SchemaError: It does not, or a batch can't be read.
    """
    # By Arrow's C interface, names would end at a zero byte.
    if isinstance(given, pa.Table):
        return _read(given.to_reader(), given)
    if isinstance(given, pa.RecordBatchReader):
        return _read(given, given)
    if isinstance(given, pa.RecordBatch):
        return iter([_without_index(given)])
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return _read(pa.RecordBatchReader.from_stream(given), given)
        if hasattr(given, "__arrow_c_array__"):
            return iter([_without_index(pa.record_batch(given))])
    except Exception as error:
        raise _unreadable(given, error) from error
    raise SchemaError(
        f"rows must be an Arrow table or something that Arrow can read, such as a DataFrame of "
        f"pandas or polars, not {shown(given)}"
    )


def _read(reader: pa.RecordBatchReader, given: object) -> Iterator[pa.RecordBatch]:
    with reader:
        yield _without_index(pa.RecordBatch.from_pylist([], reader.schema))
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(given, error) from error
            yield _without_index(batch)


def _unreadable(given: object, error: Exception) -> SchemaError:
    return SchemaError(f"{shown(given)} can't be read as an Arrow table: {_first_line(error)}")


def _without_index(given: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the columns that pandas adds for an index without a name."""
    if b"pandas" not in (given.schema.metadata or {}):
        return given
    return given.select([name for name in given.schema.names if not _PANDAS_INDEX.fullmatch(name)])


def assign(
    given: pa.Table | pa.RecordBatch, schema: pa.Schema, *, first_row: int = 0
) -> pa.Table | pa.RecordBatch:
    """Turn the columns of a writer into those of the queue.

    Columns of the queue's type are not copied. A nullable column that is missing is null.

    Args:
        given: Columns in any order; their names may differ in case. What a stranger has sent is to
            be validated in full before.
        schema: The canonical schema of the queue.
        first_row: How to number the first row in an error.

    Returns:
        A table or a batch, as given, with the queue's columns and as many rows.

    Raises:
        SchemaError: A column is unknown, missing, there twice, or of a type that can't become the
            queue's; names all of them.
        MessageError: A value does not fit; names the column, both types and the first row.
    """
    found, problems = match(given.schema.names, list(schema), "")
    for field in schema:
        if (index := found.get(field.name)) is not None:
            problems += _type_problems(given.schema.field(index).type, field, field.name)
    if problems:
        raise SchemaError("these rows do not fit the queue: " + "; ".join(problems))
    columns = []
    for field in schema:
        index = found.get(field.name)
        column = None if index is None else given.column(index)
        columns.append(_assigned(column, field, given.num_rows, first_row))
    if isinstance(given, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.Table.from_arrays(columns, schema=schema)


def match(
    names: Sequence[str], fields: Sequence[pa.Field], path: str
) -> tuple[dict[str, int], list[str]]:
    """Find the fields of the queue among names that a writer has given.

    Args:
        names: What the writer has.
        fields: What the queue has.
        path: Of the struct whose fields they are; empty for columns.

    Returns:
        For the name of each field that is there, its place among the names; and what is wrong:
        names that are unknown or there twice, fields that are missing and not null.
    """
    if [field.name for field in fields] == list(names):
        return {name: at for at, name in enumerate(names)}, []
    wanted = {field.name.lower(): field.name for field in fields}
    places: dict[str, list[int]] = {}
    problems = []
    for at, name in enumerate(names):
        if (known := wanted.get(name.lower())) is not None:
            places.setdefault(known, []).append(at)
        else:
            problems.append(_unknown(joined(path, name), name, wanted))
    found = {}
    for name, same in places.items():
        if len(same) > 1:
            given = " and ".join(repr(names[each]) for each in same[:3])
            problems.append(f"there are {len(same)} columns {joined(path, name)!r}: {given}")
        found[name] = same[0]
    problems += [
        f"column {joined(path, field.name)!r} {type_name(field.type)} is missing, and is not null"
        for field in fields
        if not field.nullable and field.name not in found
    ]
    return found, problems


def convert(
    array: pa.Array, field: pa.Field, path: str, *, check: Check, absent: int = 0
) -> pa.Array:
    """Turn an array into one of another type; the same array if it has this type.

    Args:
        array: Of a type that `assign` or a safe change allows.
        field: The type, and whether there may be nulls.
        path: Of the field, for errors.
        check: How values are judged.
        absent: The nulls that are there because the struct around them is null.

    Raises:
        Misfit: A value does not fit.
    """
    target = field.type
    if not field.nullable and array.null_count > absent:
        raise Misfit(path, array, target, nullable=False)
    if array.type == target and (check is EXACT or not _is_checked(target)):
        return array
    if of.is_null(array.type):
        return pa.nulls(len(array), target)
    if of.is_dictionary(array.type):
        return convert(array.dictionary_decode(), field, path, check=check, absent=absent)
    if of.is_struct(target):
        return _struct(array, target, path, check)
    if of.is_list(target) or of.is_map(target):
        return _list_or_map(array, target, path, check)
    return _atomic(array, field, path, check)


def locate(
    column: pa.Array | pa.ChunkedArray, field: pa.Field, *, check: Check, first_row: int = 0
) -> str:
    """Say which row of a column does not fit, and which value of it; for errors."""
    start, array = first_row, column
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            if _misfit(chunk, field, check):
                array = chunk
                break
            start += len(chunk)
    row = first_failing(array, lambda part: _misfit(part, field, check) is not None)
    misfit = _misfit(array.slice(row, 1), field, check)
    if misfit is None or not len(misfit.array):
        return f"column {field.name!r}: its values are too large together"
    part = pa.field(field.name, misfit.target, misfit.nullable)
    values = misfit.array
    at = first_failing(values, lambda some: _misfit(some, part, check) is not None)
    value = values.slice(at, 1)
    where = f"column {misfit.path!r}, row {start + row} (counted from 0)"
    target = type_name(misfit.target)
    if value.null_count:
        return f"{where}: it is null, and must be a value of type {target}"
    years = ", which has the years 1 to 9999" if misfit.target in _RANGES else ""
    given = type_name(value.type)
    return f"{where}: {_shown(value)} of type {given} does not fit type {target}{years}"


def _assigned(
    column: pa.Array | pa.ChunkedArray | None, field: pa.Field, count: int, first_row: int
) -> pa.Array | pa.ChunkedArray:
    if column is None:
        return pa.nulls(count, field.type)
    try:
        if isinstance(column, pa.ChunkedArray):
            chunks = [convert(chunk, field, field.name, check=WRITTEN) for chunk in column.chunks]
            return pa.chunked_array(chunks, field.type)
        return convert(column, field, field.name, check=WRITTEN)
    except Misfit:
        raise MessageError(locate(column, field, check=WRITTEN, first_row=first_row)) from None


def _unknown(path: str, name: str, wanted: dict[str, str]) -> str:
    hint = did_you_mean(name, wanted.values(), f"it has {_some(wanted.values())}")
    return f"the queue has no column {path!r}: {hint}"


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:20])) + (", ..." if len(listed) > 20 else "")  # noqa: PLR2004


def _type_problems(  # noqa: PLR0911 - one for each kind of type
    given: pa.DataType, field: pa.Field, path: str
) -> list[str]:
    """What is wrong with a type, and with those that it consists of."""
    target = field.type
    if given == target or of.is_null(given):
        return []
    if of.is_dictionary(given):
        return _type_problems(given.value_type, field, path)
    if of.is_struct(given) and of.is_struct(target):
        found, problems = match([part.name for part in given], list(target), path)
        for part in target:
            if (index := found.get(part.name)) is not None:
                problems += _type_problems(given[index].type, part, joined(path, part.name))
        return problems
    if of.is_list(target) and (element := _element(given)) is not None:
        return _type_problems(element, parts(target)[0], joined(path, "element"))
    if of.is_map(target) and (entry := _entry(given)) is not None:
        key, value = parts(target)
        return [
            *_type_problems(entry[0], key, joined(path, "key")),
            *_type_problems(entry[1], value, joined(path, "value")),
        ]
    if not of.is_nested(target) and _may_become(given, target):
        return []
    hint = _HINTS.get((str(_kind(given)), str(_kind(target))), "cast the column before")
    types = f"is of type {type_name(given)}, and the queue's of type {type_name(target)}"
    return [f"column {path!r} {types}: {hint}"]


def _element(type_: pa.DataType) -> pa.DataType | None:
    is_list = hasattr(type_, "value_field") and not of.is_map(type_)
    return type_.value_type if is_list else None


def _entry(type_: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """The types of keys and values; libraries without maps have lists of structs of the two."""
    if of.is_map(type_):
        return type_.key_type, type_.item_type
    element = _element(type_)
    if element is None or not of.is_struct(element):
        return None
    is_entry = [part.name for part in element] == ["key", "value"]
    return (element[0].type, element[1].type) if is_entry else None


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (of.is_boolean, "boolean"),
    (of.is_integer, "integer"),
    (of.is_floating, "float"),
    (of.is_decimal, "decimal"),
    (lambda type_: of.is_string(type_) or of.is_large_string(type_), "string"),
    (of.is_string_view, "string"),
    (lambda type_: of.is_binary(type_) or of.is_large_binary(type_), "binary"),
    (lambda type_: of.is_binary_view(type_) or of.is_fixed_size_binary(type_), "binary"),
    (of.is_date, "date"),
    (lambda type_: of.is_timestamp(type_) and type_.tz is not None, "timestamp"),
    (of.is_timestamp, "timestamp_ntz"),
    (of.is_duration, "interval"),
)
_NUMBERS = {"integer", "float", "decimal"}
#: What becomes another kind, beside itself and numbers; Spark's others depend on a time zone or on
#: how a value is printed.
_BECOMES = {
    ("boolean", "string"),
    ("integer", "string"),
    ("date", "string"),
    ("date", "timestamp_ntz"),
}
_ZONE = "it depends on a time zone which one it is; cast the column before"
_HINTS = {
    ("timestamp_ntz", "timestamp"): _ZONE,
    ("timestamp", "timestamp_ntz"): _ZONE,
    ("date", "timestamp"): _ZONE,
    ("timestamp", "date"): _ZONE,
    ("timestamp_ntz", "date"): "the time of day would be lost; cast the column before",
    ("string", "binary"): "encode it before",
    ("binary", "string"): "decode it before",
}


@lru_cache(maxsize=256)
def _kind(type_: pa.DataType) -> str | None:
    return next((kind for is_one, kind in _KINDS if is_one(type_)), None)


def _may_become(given: pa.DataType, target: pa.DataType) -> bool:
    before, after = _kind(given), _kind(target)
    if before is None or after is None:
        return False
    return before == after or {before, after} <= _NUMBERS or (before, after) in _BECOMES


@lru_cache(maxsize=256)
def _is_checked(type_: pa.DataType) -> bool:
    """Whether values of the type itself have to be looked at: dates, and nulls in it."""
    return type_ in _RANGES or any(
        not part.nullable or _is_checked(part.type) for part in parts(type_)
    )


def _struct(array: pa.Array, target: pa.DataType, path: str, check: Check) -> pa.Array:
    # What a null struct holds is nobody's value; flattened, it is null.
    children = array.flatten()
    found, _ = match([part.name for part in array.type], list(target), path)
    converted = []
    for part in target:
        index = found.get(part.name)
        child = pa.nulls(len(array), part.type) if index is None else children[index]
        at = joined(path, part.name)
        converted.append(convert(child, part, at, check=check, absent=array.null_count))
    if array.type == target and all(map(_is_same, children, converted)):
        return array
    return _assembled(target, array, [], converted)


def _list_or_map(array: pa.Array, target: pa.DataType, path: str, check: Check) -> pa.Array:
    entries = _as_list(array)
    # Without what null lists hold, and what lies outside a slice.
    values = entries.flatten()
    if of.is_map(target):
        key, value = parts(target)
        flat = values.flatten()
        converted = [
            convert(flat[0], key, joined(path, "key"), check=check),
            convert(flat[1], value, joined(path, "value"), check=check),
        ]
        same = all(map(_is_same, flat, converted))
        child = pa.StructArray.from_arrays(converted, fields=[key, value])
    else:
        child = convert(values, parts(target)[0], joined(path, "element"), check=check)
        same = child is values
    if same and array.type == target:
        return array
    lengths = pc.if_else(pc.is_null(entries), 0, pc.list_value_length(entries))
    try:
        ends = pc.cumulative_sum_checked(lengths.cast(pa.int32()))
    except _ARROW_REFUSES:
        raise Misfit(path, array, target, nullable=True) from None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return _assembled(target, array, [offsets.buffers()[1]], [child])


def _as_list(array: pa.Array) -> pa.Array:
    """A map as a list of structs of key and value, of the same buffers."""
    if not of.is_map(array.type):
        return array
    entries = pa.StructArray.from_arrays(
        [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
    )
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        array.buffers()[:2],
        array.null_count,
        array.offset,
        [entries],
    )


def _is_same(before: pa.Array, after: pa.Array) -> bool:
    return after is before


def _assembled(
    target: pa.DataType, array: pa.Array, buffers: list[Any], children: list[pa.Array]
) -> pa.Array:
    """An array of other parts that is null where another array is."""
    valid = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        target, len(array), [valid, *buffers], array.null_count, 0, children
    )


def _atomic(array: pa.Array, field: pa.Field, path: str, check: Check) -> pa.Array:
    target = field.type
    try:
        converted = array if array.type == target else _cast(array, target, check)
    except _ARROW_REFUSES:
        converted = None
    if converted is None or (check is WRITTEN and _is_outside(converted)):
        raise Misfit(path, array, target, nullable=field.nullable)
    return converted


def _cast(array: pa.Array, target: pa.DataType, check: Check) -> pa.Array | None:
    """The values as those of another type; None, or an error of Arrow's, if one does not fit."""
    given = array.type
    if of.is_floating(given) and of.is_floating(target):
        return _rounded(array, target, check)
    if of.is_decimal(target):
        return _to_decimal(array, target)
    if of.is_decimal(given) and of.is_floating(target):
        # By text: Arrow's own cast is off by one bit now and then.
        return array.cast(_STRING).cast(target)
    return array.cast(target)


def _to_decimal(array: pa.Array, target: pa.Decimal128Type) -> pa.Array | None:
    """Numbers as decimals.

    Arrow multiplies by a power of ten, and does not notice when 128 bits overflow. So what is too
    large is refused before.
    """
    bound = Decimal(10) ** (target.precision - target.scale)
    if of.is_floating(array.type):
        if _any(pc.greater_equal(pc.abs(array), float(bound))):
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


def _rounded(array: pa.Array, target: pa.DataType, check: Check) -> pa.Array | None:
    converted = array.cast(target)
    if target.bit_width >= array.type.bit_width:
        return converted
    if _any(pc.and_(pc.is_inf(converted), pc.is_finite(array))):
        return None
    if check is EXACT:
        same = pc.or_(pc.equal(converted.cast(array.type), array), pc.is_nan(array))
        return None if _any(pc.invert(same)) else converted
    return converted


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


def _is_outside(array: pa.Array) -> bool:
    """Whether a date or an instant is before the year 1 or after 9999."""
    if array.type not in _RANGES:
        return False
    plain, first, last = _RANGES[array.type]
    limits = pc.min_max(array.view(plain)).as_py()
    return limits["min"] is not None and (limits["min"] < first or limits["max"] > last)


def _misfit(array: pa.Array, field: pa.Field, check: Check) -> Misfit | None:
    try:
        convert(array, field, field.name, check=check)
    except Misfit as misfit:
        return misfit
    return None


def first_failing(rows: pa.Array | pa.RecordBatch, fails: Callable[[Any], bool]) -> int:
    """The first place at which an array or batch fails, by bisection, if it fails as a whole."""
    start, stop = 0, len(rows)
    while stop - start > 1:
        middle = (start + stop) // 2
        if fails(rows.slice(start, middle - start)):
            stop = middle
        else:
            start = middle
    return start


def _shown(value: pa.Array) -> str:
    try:
        text = ascii(value[0].as_py()) if _kind(value.type) == "string" else str(value[0].as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        # A date or an instant that Python lacks, as the number that is stored.
        plain = pa.int32() if value.type == _DATE else pa.int64()
        text = "?" if of.is_nested(value.type) else str(value.view(plain)[0])
    text = ascii(text)[1:-1]
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
