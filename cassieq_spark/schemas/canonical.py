"""The Arrow types that a queue's columns may have, and Spark's names for them.

These are the types that PySpark's ``toArrow`` returns. Another Arrow type counts as one of them if
that type has all of its values, or if values that do not fit are found later: a ``large_string``
counts as a string, a ``uint32`` as a bigint, a ``timestamp[ns]`` as a timestamp of whole
microseconds. Spark's times have nanoseconds in Arrow; those of a queue are whole microseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arguments import shown
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.pandas_index import plain_schema

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
INTERVAL = pa.duration("us")
#: The type that Spark has for times of day, though a queue's are whole microseconds.
TIME = pa.time64("ns")

#: The types without parts and parameters, under the names that Spark prints.
ATOMIC: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "interval day to second": INTERVAL,
    "time(6)": TIME,
}
SUPPORTED = (
    ", ".join(ATOMIC) + ", decimal(precision,scale), array<...>, map<...,...> and struct<...>"
)
#: Columns for writers and readers; no queue may have a column with such a name.
RESERVED = ("_key", "_headers", "_delay", "_visible_at", "_unique_id", "_metadata")

MOST_PRECISION = 38
#: Maximum number of columns, fields, elements, keys and values of a schema together.
_MOST_FIELDS = 5_000
#: Maximum number of levels of a column's type: what an array, map or struct holds is one level
#: deeper.
MOST_LEVELS = 16
MOST_NAME_BYTES = 255
MOST_COMMENT_BYTES = 4096

#: Where PySpark keeps a field's metadata, as JSON; a queue keeps only the comment in it.
_METADATA = b"SPARK::metadata::json"
_NAMES = {type_: name for name, type_ in ATOMIC.items()}
#: Types of Spark that no queue has, and the type to write instead. The first function is for use
#: before the write, the second after the read.
INSTEAD_OF_SPARK = {
    "variant": "string, of to_json(...), and parse_json(...) after",
    "geometry": "binary, of st_asbinary(...), and st_geomfromwkb(...) after",
    "geography": "binary, of st_asbinary(...), and st_geogfromwkb(...) after",
    "interval year to month": "int, of cast(... as int), and make_ym_interval(0, ...) after",
    "interval year": "int, of cast(... as int), and make_ym_interval(...) after",
    "interval month": "int, of cast(... as int), and make_ym_interval(0, ...) after",
}
_INSTEAD = (
    (of.is_null, "void: give the column a type"),
    (of.is_uint64, "decimal(20,0)"),
    (of.is_interval, "interval day to second"),
    (of.is_union, "a struct with a column for each type"),
    (of.is_run_end_encoded, "its plain type"),
    (of.is_decimal256, f"decimal with at most {MOST_PRECISION} digits"),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), "the type it is stored as"),
)
_SAME: tuple[tuple[Any, pa.DataType], ...] = (
    (of.is_uint8, pa.int16()),
    (of.is_uint16, pa.int32()),
    (of.is_uint32, pa.int64()),
    (of.is_float16, pa.float32()),
    (of.is_large_string, pa.string()),
    (of.is_string_view, pa.string()),
    (of.is_large_binary, pa.binary()),
    (of.is_binary_view, pa.binary()),
    (of.is_fixed_size_binary, pa.binary()),
    (of.is_date64, pa.date32()),
    (of.is_duration, INTERVAL),
    (of.is_time, TIME),
)


def canonical(schema: pa.Schema) -> pa.Schema:
    """The schema of a queue with the columns of an Arrow schema; metadata is left out.

    Comments are kept. The index of pandas is a column if it has a name.

    Raises:
        SchemaError: The schema has metadata of pandas that can't be read.
        OptionError: A column has a name or a type that no queue can have; the error names the
            column.
    """
    if not isinstance(schema, pa.Schema):
        raise OptionError(f"a schema must be a pyarrow.Schema, not {shown(schema)}")
    fields = [_canonical_field(field, "", 0) for field in plain_schema(schema)]
    return checked(pa.schema(fields))


def checked(schema: pa.Schema) -> pa.Schema:
    """Return a schema of canonical types, after checking its names and size.

    Raises:
        OptionError: No queue can have this schema; the error names the column.
    """
    if not schema.names:
        raise OptionError("a schema must have at least one column")
    for name in schema.names:
        if name.lower() in RESERVED:
            raise OptionError(
                f"column {name!r}: a queue's columns may not be called {', '.join(RESERVED)}, "
                "which say how a message is put: give it another name"
            )
    _check_names(list(schema), "")
    for count, (path, field) in enumerate(walk(list(schema))):
        check_field_count(count + 1)
        if of.is_null(field.type):
            raise refusal(path, "void", "the type that the column will have")
        if of.is_struct(field.type):
            _check_names(list(field.type), path)
        comment = comment_of(field)
        if len(_utf8(comment or "", f"the comment of column {path!r}")) > MOST_COMMENT_BYTES:
            raise OptionError(
                f"column {path!r}: its comment has more than {MOST_COMMENT_BYTES:,} bytes"
            )
    return schema


def check_field_count(count: int) -> None:
    """Refuse more columns, fields, elements, keys and values together than a schema may have."""
    if count > _MOST_FIELDS:
        raise OptionError(f"a schema may have at most {_MOST_FIELDS:,} columns and fields")


def check_depth(depth: int, path: str) -> None:
    """Refuse a type at ``path`` that is nested too deep: ``depth`` types contain it."""
    if depth >= MOST_LEVELS:
        raise OptionError(
            f"column {path[:99]!r}: its type has more than {MOST_LEVELS} levels of arrays, maps "
            "and structs in one another: use fewer, or a string with JSON in it"
        )


def walk(
    fields: list[pa.Field], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, pa.Field]]:
    """All fields with their paths, in the order of the schema, each field before its parts.

    An array of structs has the paths ``a``, ``a.element``, ``a.element.b``.

    Raises:
        OptionError: A type has too many levels.
    """
    for field in fields:
        path = joined(prefix, field.name)
        check_depth(depth, path)
        yield path, field
        yield from walk(parts(field.type), path, depth + 1)


def parts(type_: pa.DataType) -> list[pa.Field]:
    """The fields that a type consists of, named as Spark does; empty if the type is atomic."""
    if of.is_struct(type_):
        return list(type_)
    if of.is_list(type_):
        return [pa.field("element", type_.value_type, type_.value_field.nullable)]
    if of.is_map(type_):
        key = pa.field("key", type_.key_type, nullable=False)
        return [key, pa.field("value", type_.item_type, type_.item_field.nullable)]
    return []


def array_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """The canonical type of an array."""
    return pa.list_(pa.field("element", element, nullable))


def map_of(
    key: pa.DataType, value: pa.DataType, *, path: str, nullable: bool = True
) -> pa.DataType:
    """The canonical type of a map.

    Raises:
        OptionError: A key is a map or contains one; Spark can't look up such keys.
    """
    key_field = pa.field("key", key, nullable=False)
    for _, field in walk([key_field]):
        if of.is_map(field.type):
            raise OptionError(f"column {path!r}: the key of a map can't be or hold a map")
    return pa.map_(key_field, pa.field("value", value, nullable))


def struct_of(fields: list[pa.Field], path: str) -> pa.DataType:
    """The canonical type of a struct.

    Raises:
        OptionError: The struct has no fields.
    """
    if not fields:
        raise OptionError(f"column {path!r}: a struct must have at least one field")
    return pa.struct(fields)


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, where all columns and their parts may be null, except keys of maps."""
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    type_ = field.type
    inner = [_nullable(part) for part in parts(type_)]
    if of.is_struct(type_):
        type_ = pa.struct(inner)
    elif of.is_list(type_):
        type_ = pa.list_(*inner)
    elif of.is_map(type_):
        key, value = inner
        type_ = pa.map_(key.with_nullable(False), value)
    return field.with_nullable(True).with_type(type_)


def decimal_of(precision: int, scale: int, path: str) -> pa.DataType:
    """The canonical type of a decimal.

    Raises:
        OptionError: No decimal has such a precision or scale.
    """
    if not (1 <= precision <= MOST_PRECISION and 0 <= scale <= precision):
        raise OptionError(
            f"column {path!r}: decimal({precision},{scale}) must have a precision from 1 to "
            f"{MOST_PRECISION} and a scale from 0 to its precision"
        )
    return pa.decimal128(precision, scale)


def field_of(
    name: str, type_: pa.DataType, *, nullable: bool = True, comment: str | None = None
) -> pa.Field:
    """A field with a comment, kept where PySpark keeps it."""
    metadata = None if comment is None else {_METADATA: json.dumps({"comment": comment}).encode()}
    return pa.field(name, type_, nullable, metadata)


def comment_of(field: pa.Field) -> str | None:
    """The comment of a field; None if there is none."""
    try:
        comment = json.loads((field.metadata or {})[_METADATA])["comment"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return comment if isinstance(comment, str) else None


def refusal(path: str, type_: object, instead: str | None = None) -> OptionError:
    """The error for a type that no column can have."""
    hint = f"use {instead}" if instead else f"supported are {SUPPORTED}"
    return OptionError(f"column {path!r} is of type {type_}, which no queue has: {hint}")


def type_name(type_: pa.DataType) -> str:
    """The name of a type for people, as Spark prints it, or else as Arrow does."""
    if (name := _NAMES.get(type_)) is not None:
        return name
    if of.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if of.is_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    if of.is_map(type_):
        return f"map<{type_name(type_.key_type)},{type_name(type_.item_type)}>"
    if of.is_struct(type_):
        fields = ",".join(f"{field.name}:{type_name(field.type)}" for field in type_)
        return f"struct<{fields}>"
    return str(type_)


def joined(prefix: str, name: str) -> str:
    """The path of a field."""
    return f"{prefix}.{name}" if prefix else name


def canonical_type(type_: pa.DataType, path: str, depth: int = 0) -> pa.DataType:
    """The canonical type that holds the values of an Arrow type.

    Raises:
        OptionError: There is no such type.
    """
    check_depth(depth, path)
    if type_ in _NAMES:
        return type_
    for is_one, instead in _INSTEAD:
        if is_one(type_) and not (of.is_decimal256(type_) and type_.precision <= MOST_PRECISION):
            raise refusal(path, type_, instead)
    for is_one, same in _SAME:
        if is_one(type_):
            return same
    if of.is_decimal(type_):
        return decimal_of(type_.precision, type_.scale, path)
    if of.is_timestamp(type_):
        return TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
    if of.is_dictionary(type_):
        return canonical_type(type_.value_type, path, depth)
    return _canonical_nested(type_, path, depth + 1)


def _canonical_nested(type_: pa.DataType, path: str, depth: int) -> pa.DataType:
    if of.is_struct(type_):
        if tag := next(filter(None, map(_tag_of_spark, type_)), None):
            raise refusal(path, tag, INSTEAD_OF_SPARK[tag])
        return struct_of([_canonical_field(field, path, depth) for field in type_], path)
    if of.is_map(type_):
        key = canonical_type(type_.key_type, joined(path, "key"), depth)
        value = canonical_type(type_.item_type, joined(path, "value"), depth)
        return map_of(key, value, path=path, nullable=type_.item_field.nullable)
    if hasattr(type_, "value_field"):
        element = canonical_type(type_.value_type, joined(path, "element"), depth)
        return array_of(element, nullable=type_.value_field.nullable)
    raise refusal(path, type_)


def _tag_of_spark(field: pa.Field) -> str | None:
    """The type of Spark that is a struct in Arrow, if this field marks such a struct."""
    known = (field.metadata or {}).items()
    return next((tag for tag in INSTEAD_OF_SPARK if (tag.encode(), b"true") in known), None)


def _canonical_field(field: pa.Field, prefix: str, depth: int) -> pa.Field:
    type_ = canonical_type(field.type, joined(prefix, field.name), depth)
    return field_of(field.name, type_, nullable=field.nullable, comment=comment_of(field))


def _check_names(fields: list[pa.Field], path: str) -> None:
    where = f"struct {path!r}" if path else "a schema"
    for field in fields:
        size = len(_utf8(field.name, f"the name of a field of {where}"))
        if not 0 < size <= MOST_NAME_BYTES:
            raise OptionError(
                f"{where} has a name of {size} bytes: it must have from 1 to {MOST_NAME_BYTES}"
            )
    counts = Counter(field.name.lower() for field in fields)
    same = [field.name for field in fields if counts[field.name.lower()] > 1]
    if same:
        raise OptionError(
            f"{where} has the names {', '.join(map(repr, same[:5]))}: names must differ in more "
            "than case, as Spark ignores it"
        )


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"{what} is no text that UTF-8 can hold: {error.reason}") from error
