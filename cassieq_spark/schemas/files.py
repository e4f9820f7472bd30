"""Schemas in foreign formats: Spark's JSON, Avro's ``.avsc``, Parquet, and DDL in a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from cassieq_spark.arguments import shown
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.canonical import (
    ATOMIC,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    array_of,
    canonical,
    check_depth,
    check_field_count,
    checked,
    comment_of,
    decimal_of,
    field_of,
    joined,
    map_of,
    refusal,
    struct_of,
    type_name,
)
from cassieq_spark.schemas.ddl import MOST_TEXT, check_length, parse_ddl

_FORMATS = "Spark's DDL, Spark's JSON (schema.json()), Avro's (.avsc), or that of a Parquet file"
_PARQUET = b"PAR1"
_AVRO_DATA = b"Obj\x01"

_OF_SPARK = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "timestamp_ltz": "timestamp",
}
_TO_SPARK = {ours: spark for spark, ours in _OF_SPARK.items() if spark != "timestamp_ltz"}
_DECIMAL = re.compile(r"decimal\((\d{1,3}),\s*(-?\d{1,3})\)", re.ASCII)
#: Types of DataFrames that fit into a type of queues as they are.
_WIDER = (
    (
        re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?"),
        "interval day to second",
    ),
    (re.compile(r"time\(\d\)", re.ASCII), "time(6)"),
    (re.compile(r"(char|varchar)\(\d+\)", re.ASCII), "string"),
)

#: Types whose JSON has a parameter that DDL lacks: ``geometry(SRID:0)``.
_SPATIAL = re.compile(r"(geometry|geography)\(.*\)", re.ASCII)

_AVRO_ATOMIC = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_LOGICAL = {
    ("int", "date"): ATOMIC["date"],
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
    ("int", "time-millis"): TIME,
    ("long", "time-micros"): TIME,
    ("string", "uuid"): pa.string(),
}
_AVRO_REFUSED = {
    "timestamp-nanos": "timestamp-micros",
    "local-timestamp-nanos": "local-timestamp-micros",
    "duration": "long, as a number of microseconds",
}


def read_schema_file(path: str | Path) -> pa.Schema:
    """Read a schema from a file, or the schema of rows in it; the content shows the format.

    Raises:
        OptionError: The file can't be read, has no known format, or has a column that no queue can
            have.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(4 + MOST_TEXT)
    except OSError as error:
        raise OptionError(f"the schema file {path} can't be read: {error.strerror}") from error
    if content.startswith(_AVRO_DATA):
        raise OptionError(
            f"{path} holds rows in Avro, not a schema: give the .avsc file, or one of {_FORMATS}"
        )
    try:
        if content.startswith(_PARQUET):
            from pyarrow import parquet  # noqa: PLC0415 (tasks of a sink import this module)

            return canonical(parquet.read_schema(path))
        return parse_schema(content.decode())
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} holds no schema: expected {_FORMATS}") from error
    except (pa.ArrowException, OSError) as error:
        raise OptionError(f"the Parquet file {path} can't be read: {error}") from error
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from error


def parse_schema(text: str) -> pa.Schema:
    """Read a schema in Spark's DDL, Spark's JSON or Avro's; the text itself shows which.

    Raises:
        OptionError: The text is none of these, or has a column that no queue can have.
    """
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith(("{", "[", '"')):
        return parse_ddl(text)
    check_length(text)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the schema is no JSON: {str(error)[:200]}") from error
    if isinstance(given, dict) and given.get("type") == "struct":
        return parse_spark_json(given)
    return parse_avro(given)


def parse_spark_json(given: dict[str, Any]) -> pa.Schema:
    """Read the output of Spark's ``StructType.json()``, as parsed JSON.

    Raises:
        OptionError: It is something else, or has a column that no queue can have.
    """
    return checked(parse_spark_fields(given))


def parse_spark_fields(given: dict[str, Any]) -> pa.Schema:
    """Read the columns of a DataFrame, which may have any names, from Spark's JSON.

    Columns and their parts may be of Spark's type void, which no queue has.

    Raises:
        OptionError: It is something else, or has a type that no queue can have.
    """
    return pa.schema(_spark_fields(given, "", 0))


def parse_written_fields(given: dict[str, Any]) -> pa.Schema:
    """Read the columns of a written DataFrame from Spark's JSON, with the types that Arrow has.

    Intervals of some of the fields from day to second, TIME, CHAR and VARCHAR get the types that
    they fit into by Spark's store assignment, in which Spark hands over their values.

    Raises:
        OptionError: It is something else, or has a type that no queue can have.
    """
    return parse_spark_fields(_widened(given))


def _widened(given: Any) -> Any:
    """The same JSON with wider types."""
    if isinstance(given, dict):
        kinds = {"type", "elementType", "keyType", "valueType", "fields"}
        return {name: _widened(each) if name in kinds else each for name, each in given.items()}
    if isinstance(given, list):
        return [_widened(each) for each in given]
    if isinstance(given, str):
        for type_, wider in _WIDER:
            if type_.fullmatch(given):
                return wider
    return given


def to_spark_json(schema: pa.Schema) -> str:
    """Write a canonical schema as Spark's ``StructType.json()`` does."""
    return json.dumps(_struct_to_spark(list(schema)), separators=(",", ":"))


def parse_avro(given: object) -> pa.Schema:
    """Read the schema of an Avro record, as parsed JSON.

    Enums and uuids become strings, fixed becomes binary, and unions with null become nullable.

    Raises:
        OptionError: The schema is no record, or has a field that no queue can have.
    """
    try:
        type_, _ = _Avro().type_of(given, "", "", -1)
    except RecursionError as error:
        raise OptionError("the Avro schema has too many levels of JSON in one another") from error
    if not isinstance(type_, pa.StructType):
        raise OptionError(f"an Avro schema must be a record, not {type_name(type_)}")
    return checked(pa.schema(list(type_)))


def _spark_fields(given: dict[str, Any], path: str, depth: int) -> list[pa.Field]:
    return [_spark_field(field, path, depth) for field in _listed(given, "fields", path)]


def _spark_field(given: object, prefix: str, depth: int) -> pa.Field:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise OptionError(f"a field of {_called(prefix)} has no name: expected {_FORMATS}")
    path = joined(prefix, given["name"])
    type_ = _spark_type(given.get("type"), path, depth)
    metadata = given.get("metadata")
    comment = metadata.get("comment") if isinstance(metadata, dict) else None
    return field_of(
        given["name"],
        type_,
        nullable=_flag(given, "nullable", path) or pa.types.is_null(type_),
        comment=comment if isinstance(comment, str) else None,
    )


def _spark_type(given: object, path: str, depth: int) -> pa.DataType:
    check_depth(depth, path)
    if isinstance(given, str):
        if match := _DECIMAL.fullmatch(given):
            return decimal_of(int(match[1]), int(match[2]), path)
        if given == "decimal":
            return decimal_of(10, 0, path)
        if given == "void":
            return pa.null()
        if (type_ := ATOMIC.get(_OF_SPARK.get(given, given))) is not None:
            return type_
        given = _SPATIAL.sub(r"\1", given)
        # The parser of DDL refuses all other names, and says what to use instead.
        parse_ddl(f"`{path.replace('`', '``')}` {given}")
        raise refusal(path, given)
    if isinstance(given, dict):
        return _spark_nested(given, path, depth + 1)
    raise OptionError(f"column {path!r} has no type: expected {_FORMATS}")


def _spark_nested(given: dict[str, Any], path: str, depth: int) -> pa.DataType:
    kind = given.get("type")
    if kind == "struct":
        return struct_of(_spark_fields(given, path, depth), path)
    if kind == "array":
        element = _spark_type(given.get("elementType"), joined(path, "element"), depth)
        nullable = _flag(given, "containsNull", path) or pa.types.is_null(element)
        return array_of(element, nullable=nullable)
    if kind == "map":
        key = _spark_type(given.get("keyType"), joined(path, "key"), depth)
        value = _spark_type(given.get("valueType"), joined(path, "value"), depth)
        nullable = _flag(given, "valueContainsNull", path) or pa.types.is_null(value)
        if pa.types.is_null(key):
            # Arrow has no such maps, but what `assign` takes for maps. They are empty.
            return pa.list_(pa.struct([("key", key), ("value", value)]))
        return map_of(key, value, path=path, nullable=nullable)
    if kind == "udt":
        raise refusal(path, f"{given.get('class')} (user-defined)", "the type it is stored as")
    raise refusal(path, shown(kind))


def _struct_to_spark(fields: list[pa.Field]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field_to_spark(field) for field in fields]}


def _field_to_spark(field: pa.Field) -> dict[str, Any]:
    comment = comment_of(field)
    return {
        "name": field.name,
        "type": _type_to_spark(field.type),
        "nullable": field.nullable,
        "metadata": {} if comment is None else {"comment": comment},
    }


def _type_to_spark(type_: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_struct(type_):
        return _struct_to_spark(list(type_))
    if pa.types.is_list(type_):
        return {
            "type": "array",
            "elementType": _type_to_spark(type_.value_type),
            "containsNull": type_.value_field.nullable,
        }
    if pa.types.is_map(type_):
        return {
            "type": "map",
            "keyType": _type_to_spark(type_.key_type),
            "valueType": _type_to_spark(type_.item_type),
            "valueContainsNull": type_.item_field.nullable,
        }
    name = type_name(type_)
    return _TO_SPARK.get(name, name)


def _flag(given: dict[str, Any], name: str, path: str) -> bool:
    flag = given.get(name, True)
    if not isinstance(flag, bool):
        raise OptionError(f"column {path!r}: {name} must be true or false, not {shown(flag)}")
    return flag


def _listed(given: dict[str, Any], name: str, path: str) -> list[Any]:
    listed = given.get(name)
    if not isinstance(listed, list):
        raise OptionError(f"{_called(path)} has no list of {name}: expected {_FORMATS}")
    return listed


def _called(path: str) -> str:
    return f"column {path!r}" if path else "the schema"


class _Avro:
    """Reads types, and remembers those with names, as later types may refer to them."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}
        self._fields = 0

    def type_of(
        self, given: object, path: str, namespace: str, depth: int
    ) -> tuple[pa.DataType, bool]:
        """A type, and True if it is nullable; ``depth`` is -1 for the record of all columns."""
        check_depth(depth, path)
        self._fields += 1
        check_field_count(self._fields)
        if isinstance(given, list):
            return self._union(given, path, namespace, depth)
        if isinstance(given, str):
            return self._by_name(given, path, namespace), False
        if not isinstance(given, dict):
            raise OptionError(f"{_called(path)} has no Avro type: {shown(given)}")
        kind = given.get("type")
        if isinstance(kind, (dict, list)):
            return self.type_of(kind, path, namespace, depth)
        if not isinstance(kind, str):
            raise OptionError(f"{_called(path)} has no Avro type: {shown(kind)}")
        return self._complex(given, kind, path, namespace, depth), False

    def _union(
        self, given: list[object], path: str, namespace: str, depth: int
    ) -> tuple[pa.DataType, bool]:
        others = [each for each in given if each not in ("null", {"type": "null"})]
        if len(others) != 1:
            of = ", ".join(_avro_name(each) for each in given)
            raise refusal(path, f"union of {of}", "a union of one type with null")
        type_, nullable = self.type_of(others[0], path, namespace, depth)
        return type_, nullable or len(others) < len(given)

    def _by_name(self, name: str, path: str, namespace: str) -> pa.DataType:
        if (type_ := _AVRO_ATOMIC.get(name)) is not None:
            return type_
        if name == "null":
            raise refusal(path, "null", "a union of a type with null")
        for full in (_full_name(name, namespace), name):
            if full in self._named:
                if (known := self._named[full]) is None:
                    raise refusal(path, f"{full}, which holds itself", "a string, with JSON in it")
                return known
        raise OptionError(f"{_called(path)} is of type {name[:99]!r}, which is not defined")

    def _complex(  # noqa: PLR0911 - one for each kind of type
        self, given: dict[str, Any], kind: str, path: str, namespace: str, depth: int
    ) -> pa.DataType:
        logical = given.get("logicalType")
        if kind in {"record", "error"}:
            return self._record(given, path, namespace, depth)
        if kind == "array":
            element, nullable = self.type_of(
                given.get("items"), joined(path, "element"), namespace, depth + 1
            )
            return array_of(element, nullable=nullable)
        if kind == "map":
            value, nullable = self.type_of(
                given.get("values"), joined(path, "value"), namespace, depth + 1
            )
            return map_of(pa.string(), value, path=path, nullable=nullable)
        if kind == "enum":
            return self._define(given, namespace, pa.string())
        if logical == "decimal" and kind in {"bytes", "fixed"}:
            type_ = _avro_decimal(given, path)
            return self._define(given, namespace, type_) if kind == "fixed" else type_
        if isinstance(logical, str) and logical in _AVRO_REFUSED:
            raise refusal(path, logical, _AVRO_REFUSED[logical])
        if kind == "fixed":
            return self._define(given, namespace, pa.binary())
        if kind == "long" and given.get("spark.sql.catalyst.type") == "interval day to second":
            return INTERVAL
        if isinstance(logical, str) and (kind, logical) in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[kind, logical]
        return self._by_name(kind, path, namespace)

    def _record(self, given: dict[str, Any], path: str, namespace: str, depth: int) -> pa.DataType:
        full = _defined_name(given, namespace)
        within = full.rpartition(".")[0]
        # Until the record is complete, a reference to it means that it contains itself.
        self._named[full] = None
        fields = []
        for field in _listed(given, "fields", path):
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise OptionError(f"a field of {_called(path)} has no name")
            name, doc = field["name"], field.get("doc")
            type_, nullable = self.type_of(
                field.get("type"), joined(path, name), within, depth + 1
            )
            comment = doc if isinstance(doc, str) else None
            fields.append(field_of(name, type_, nullable=nullable, comment=comment))
        self._named[full] = struct_of(fields, path)
        return self._named[full]

    def _define(self, given: dict[str, Any], namespace: str, type_: pa.DataType) -> pa.DataType:
        self._named[_defined_name(given, namespace)] = type_
        return type_


def _avro_decimal(given: dict[str, Any], path: str) -> pa.DataType:
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        raise OptionError(
            f"column {path!r}: a decimal needs a precision; its scale is 0 without one"
        )
    return decimal_of(precision, scale, path)


def _defined_name(given: dict[str, Any], namespace: str) -> str:
    name, own = given.get("name"), given.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str):
        raise OptionError(f"an Avro type {shown(given.get('type'))} has no name")
    return _full_name(name, own)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _avro_name(given: object) -> str:
    kind = given.get("type") if isinstance(given, dict) else given
    return kind[:40] if isinstance(kind, str) else "something"
