"""Arrow tables of writers as the columns of a queue: by name, and only if each value fits.

Which type may become which other type follows Spark's ANSI store assignment. Values are checked
more strictly, as nothing may be lost on the way to a reader: a fraction does not become an
integer, and digits that a decimal lacks are not rounded away. Only ``float`` and ``double`` round,
as always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arguments import did_you_mean, shown
from cassieq_spark.errors import SchemaError
from cassieq_spark.schemas.canonical import joined, parts, type_name
from cassieq_spark.schemas.convert import converted
from cassieq_spark.schemas.pandas_index import plain_batches


def arrow_batches(given: object) -> Iterator[pa.RecordBatch]:
    """Read rows as Arrow batches, one after the other, from a table or a similar object.

    DataFrames of pandas and polars, results of DuckDB and readers of files larger than memory can
    be read like a table; nothing is copied that Arrow can share. The index of a pandas DataFrame
    is left out, unless it has a name. At least one batch is yielded, possibly without rows.

    Raises:
        SchemaError: The object can't be read like a table, or a batch can't be read.
    """
    return plain_batches(_batches(given))


def _batches(given: object) -> Iterator[pa.RecordBatch]:
    # Not by Arrow's C interface, in which names end at a zero byte.
    if isinstance(given, pa.Table):
        return _read(given.to_reader(), given)
    if isinstance(given, pa.RecordBatchReader):
        return _read(given, given)
    if isinstance(given, pa.RecordBatch):
        return iter([given])
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return _read(pa.RecordBatchReader.from_stream(given), given)
        if hasattr(given, "__arrow_c_array__"):
            return iter([pa.record_batch(given)])
    except Exception as error:
        raise _unreadable(given, error) from error
    raise SchemaError(
        f"rows must be an Arrow table or something that Arrow can read, such as a DataFrame of "
        f"pandas or polars, not {shown(given)}"
    )


def _read(reader: pa.RecordBatchReader, given: object) -> Iterator[pa.RecordBatch]:
    with reader:
        # Arrow's own makers of empty batches lack some types, such as dictionaries of timestamps.
        empty = [pa.nulls(0, field.type) for field in reader.schema]
        yield pa.RecordBatch.from_arrays(empty, schema=reader.schema)
        try:
            yield from reader
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(given, error) from error


def _unreadable(given: object, error: Exception) -> SchemaError:
    reason = str(error).split("\n")[0][:200]
    return SchemaError(
        f"{shown(given)} can't be read as an Arrow table: {type(error).__name__}: {reason}"
    )


def assign(
    given: pa.Table | pa.RecordBatch, schema: pa.Schema, *, first_row: int = 0
) -> pa.Table | pa.RecordBatch:
    """Turn the columns of a writer into those of the queue.

    Columns of the queue's type are not copied. A nullable column that is missing is null.

    Args:
        given: Columns in any order; their names may differ in case. The caller must fully validate
            untrusted data before.
        schema: The canonical schema of the queue.
        first_row: The number of the first row in an error.

    Returns:
        A table or a batch, as given, with as many rows and the queue's columns.

    Raises:
        SchemaError: A column is unknown, duplicated or missing, or has a type that can't become
            that of the queue; the error names all such columns.
        MessageError: A value does not fit; the error names the column, both types and the first
            row.
    """
    found, problems = match(given.schema.names, list(schema), "")
    for field in schema:
        if (index := found.get(field.name)) is not None:
            problems += _type_problems(given.schema.field(index).type, field, field.name)
    if problems:
        raise SchemaError("these rows do not fit the queue: " + "; ".join(problems))
    columns = []
    for field in schema:
        if (index := found.get(field.name)) is None:
            columns.append(pa.nulls(given.num_rows, field.type))
        else:
            column = given.column(index)
            columns.append(converted(column, field, exact=False, first_row=first_row))
    kind = pa.RecordBatch if isinstance(given, pa.RecordBatch) else pa.Table
    return kind.from_arrays(columns, schema=schema)


def match(
    names: Sequence[str], fields: Sequence[pa.Field], path: str
) -> tuple[dict[str, int], list[str]]:
    """Find the fields of the queue among the names that a writer has given.

    Args:
        names: The names of the writer.
        fields: The columns of the queue, or the fields of a struct.
        path: The path of the struct that has these fields; empty for columns.

    Returns:
        For each field that was found, its index among the names; and the problems: names that are
        unknown or duplicated, fields that are missing and not null.
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
            problems.append(_unknown(joined(path, name), name, list(wanted.values())))
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


def _unknown(path: str, name: str, known: list[str]) -> str:
    listed = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")  # noqa: PLR2004
    return f"the queue has no column {path!r}: {did_you_mean(name, known, f'it has {listed}')}"


def _type_problems(  # noqa: PLR0911 - one for each kind of type
    given: pa.DataType, field: pa.Field, path: str
) -> list[str]:
    """The problems of a type, and of the types of its parts."""
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
    if of.is_decimal(given) and not 0 <= given.scale <= given.precision:
        # Arrow's own casts and texts of such numbers are wrong now and then.
        wanted = "a scale from 0 to its precision; cast the column before"
        return [f"column {path!r} is of type {type_name(given)}: a decimal must have {wanted}"]
    if not of.is_nested(target) and _may_become(given, target):
        return []
    hint = _HINTS.get((str(_kind(given)), str(_kind(target))), "cast the column before")
    types = f"is of type {type_name(given)}, and the queue's of type {type_name(target)}"
    return [f"column {path!r} {types}: {hint}"]


def _element(type_: pa.DataType) -> pa.DataType | None:
    is_list = hasattr(type_, "value_field") and not of.is_map(type_)
    return type_.value_type if is_list else None


def _entry(type_: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """The types of keys and values of a map, or of a list of such pairs.

    Libraries without maps use lists of structs with a key and a value.
    """
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
    (of.is_time, "time"),
)
_NUMBERS = {"integer", "float", "decimal"}
#: Which kind may become which other kind, apart from numbers. Spark allows more, but those depend
#: on a time zone or on how a value is printed.
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
