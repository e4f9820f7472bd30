from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cassieq_spark.arrow.typed_framing import layout_of
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.canonical import MOST_LEVELS, canonical
from cassieq_spark.schemas.ddl import parse_ddl, to_ddl
from cassieq_spark.schemas.files import parse_schema, read_schema_file, to_spark_json

#: As Spark 4.3 writes ``a int not null comment 'x', b array<map<string,byte>>, c timestamp_ntz``.
OF_SPARK = (
    '{"type":"struct","fields":['
    '{"name":"a","type":"integer","nullable":false,"metadata":{"comment":"x"}},'
    '{"name":"b","type":{"type":"array","elementType":{"type":"map","keyType":"string",'
    '"valueType":"byte","valueContainsNull":true},"containsNull":true},"nullable":true,'
    '"metadata":{}},{"name":"c","type":"timestamp_ntz","nullable":true,"metadata":{}}]}'
)

AVRO = {
    "type": "record",
    "name": "Trip",
    "namespace": "taxi",
    "doc": "one ride",
    "fields": [
        {"name": "vendor", "type": "string", "doc": "who"},
        {
            "name": "fare",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            ],
        },
        {
            "name": "from",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "zone", "type": "int"}],
            },
        },
        {"name": "to", "type": ["Place", "null"]},
        {"name": "via", "type": {"type": "array", "items": ["null", "taxi.Place"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "other", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "Md5", "size": 16}},
        {
            "name": "price",
            "type": {
                "type": "fixed",
                "name": "Price",
                "size": 8,
                "logicalType": "decimal",
                "precision": 5,
            },
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "daily", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "weekly", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "odd", "type": {"type": "int", "logicalType": "of-our-own"}},
        {"name": "raw", "type": ["bytes"]},
        {"name": "flag", "type": {"type": {"type": "boolean"}}},
    ],
}


def test_sparks_json_is_read_and_written():
    schema = parse_schema(OF_SPARK)

    assert to_ddl(schema) == (
        "a int not null comment 'x', b array<map<string,tinyint>>, c timestamp_ntz"
    )
    assert to_spark_json(schema) == OF_SPARK


def test_an_avro_record_becomes_columns():
    place = "struct<zone:int not null>"
    assert to_ddl(parse_schema(json.dumps(AVRO))).split(", ") == [
        "vendor string not null comment 'who'",
        "fare decimal(10,2)",
        f"from {place} not null",
        f"to {place}",
        f"via array<{place}> not null",
        "tags map<string,bigint not null> not null",
        "kind string not null",
        "other string not null",
        "hash binary not null",
        "price decimal(5,0) not null",
        "id string not null",
        "day date not null",
        "at timestamp not null",
        "daily time(6) not null",
        "weekly time(6) not null",
        "local timestamp_ntz not null",
        "odd int not null",
        "raw binary not null",
        "flag boolean not null",
    ]


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        ("null", "column 'a' is of type null"),
        (["int", "string"], "column 'a' is of type union of int, string"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "use timestamp-micros"),
        ("Other", "column 'a' is of type 'Other', which is not defined"),
        ({"type": "array", "items": "T"}, "column 'a.element' is of type T, which holds itself"),
        ({"type": "bytes", "logicalType": "decimal"}, "a decimal needs a precision"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "precision from 1 to 38"),
        ({"type": "enum"}, "has no name"),
        ({"type": "record", "name": "x"}, "has no list of fields"),
        (5, "column 'a' has no Avro type: 5"),
        ({"type": 5}, "column 'a' has no Avro type: 5"),
    ],
)
def test_avro_types_that_no_queue_has_are_refused(type_: object, told: str):
    record = {"type": "record", "name": "T", "fields": [{"name": "a", "type": type_}]}

    with pytest.raises(OptionError, match=told):
        parse_schema(json.dumps(record))


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        ("varchar(3)", r"column 'a' is of type varchar\(3\), which no queue has: use string"),
        ("decimal(40,2)", "precision from 1 to 38"),
        ("interval year", "use int, of cast"),
        ("nonsense", "'nonsense', which is no type"),
        ({"type": "udt", "class": "Vector"}, r"Vector \(user-defined\)"),
        ({"type": "array", "elementType": "void"}, "column 'a.element' is of type void"),
        (
            {"type": "array", "elementType": "int", "containsNull": 1},
            "containsNull must be true or",
        ),
        (None, "column 'a' has no type"),
    ],
)
def test_spark_types_that_no_queue_has_are_refused(type_: object, told: str):
    given = {"type": "struct", "fields": [{"name": "a", "type": type_, "nullable": True}]}

    with pytest.raises(OptionError, match=told):
        parse_schema(json.dumps(given))


def test_files_are_read_by_what_is_in_them(tmp_path: Path):
    pq.write_table(pa.table({"a": pa.array([1], pa.uint16()), "b": [["x"]]}), tmp_path / "rows")
    (tmp_path / "spark").write_text(OF_SPARK)
    (tmp_path / "avro").write_text("\ufeff" + json.dumps(AVRO))
    (tmp_path / "ddl").write_text("a int,\n-- a remark\nb string\n")

    assert to_ddl(read_schema_file(tmp_path / "rows")) == "a int, b array<string>"
    assert to_spark_json(read_schema_file(tmp_path / "spark")) == OF_SPARK
    assert len(read_schema_file(str(tmp_path / "avro")).names) == 19
    assert read_schema_file(tmp_path / "ddl") == parse_ddl("a int, b string")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PAR1 and no more", "the Parquet file .* can't be read"),
        (b"Obj\x01rows", "holds rows in Avro, not a schema"),
        (b"\xff\xfe", "holds no schema: expected Spark's DDL"),
        (b"{", "the schema is no JSON"),
        (b'"int"', "an Avro schema must be a record, not int"),
        (b"a intt", "file: column 'a' is of type 'intt'"),
    ],
)
def test_files_that_hold_no_schema_are_refused(tmp_path: Path, content: bytes, told: str):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(OptionError, match=told):
        read_schema_file(tmp_path / "file")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(OptionError, match="can't be read: No such file"):
        read_schema_file(tmp_path / "none")


def test_a_parquet_file_with_a_type_that_no_queue_has_is_named(tmp_path: Path):
    pq.write_table(pa.table({"a": pa.array([1], pa.uint64())}), tmp_path / "rows")

    with pytest.raises(OptionError, match=r"rows: column 'a' is of type uint64, .*: use decimal"):
        read_schema_file(tmp_path / "rows")


def _in_ddl(levels: int) -> pa.Schema:
    return parse_ddl("a " + "array<" * (levels - 1) + "int" + ">" * (levels - 1))


def _in_maps_and_structs(levels: int) -> pa.Schema:
    type_ = "int"
    for level in range(levels - 1):
        type_ = f"map<string,{type_}>" if level % 2 else f"struct<b:{type_}>"
    return parse_ddl(f"a {type_}")


def _in_keys(levels: int) -> pa.Schema:
    struct = "int"
    for _ in range(levels - 2):
        struct = f"struct<b:{struct}>"
    return parse_ddl(f"a map<{struct},int>" if levels > 1 else "a int")


def _in_arrow(levels: int) -> pa.Schema:
    type_ = pa.int32()
    for _ in range(levels - 1):
        type_ = pa.list_(type_)
    return canonical(pa.schema([("a", type_)]))


def _in_sparks_json(levels: int) -> pa.Schema:
    type_: object = "integer"
    for _ in range(levels - 1):
        type_ = {"type": "array", "elementType": type_, "containsNull": True}
    field = {"name": "a", "type": type_, "nullable": True, "metadata": {}}
    return parse_schema(json.dumps({"type": "struct", "fields": [field]}))


def _in_avro(levels: int) -> pa.Schema:
    type_: object = ["null", "int"]
    for _ in range(levels - 1):
        type_ = ["null", {"type": "array", "items": type_}]
    fields = [{"name": "a", "type": type_}]
    return parse_schema(json.dumps({"type": "record", "name": "Row", "fields": fields}))


def _in_avro_by_names(levels: int) -> pa.Schema:
    fields: list[object] = [{"name": "c0", "type": "int"}]
    for level in range(1, levels):
        inner = f"R{level - 1}" if level > 1 else "int"
        parts = [{"name": "x", "type": inner}]
        type_ = {"type": "record", "name": f"R{level}", "fields": parts}
        fields.append({"name": f"c{level}", "type": type_})
    return parse_schema(json.dumps({"type": "record", "name": "Row", "fields": fields}))


@pytest.mark.parametrize(
    "given",
    [
        _in_ddl,
        _in_maps_and_structs,
        _in_keys,
        _in_arrow,
        _in_sparks_json,
        _in_avro,
        _in_avro_by_names,
    ],
)
def test_a_schema_has_as_many_levels_as_can_be_stored_or_is_refused(
    given: Callable[[int], pa.Schema],
):
    for levels in range(1, MOST_LEVELS + 1):
        assert layout_of(given(levels))
    for levels in range(MOST_LEVELS + 1, 3 * MOST_LEVELS):
        with pytest.raises(OptionError, match=f"its type has more than {MOST_LEVELS} levels"):
            given(levels)


def test_json_that_goes_too_deep_for_an_avro_schema_is_refused():
    type_: object = "int"
    for _ in range(600):
        type_ = [type_]
    record = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": type_}]}

    with pytest.raises(OptionError, match="too many levels of JSON"):
        parse_schema(json.dumps(record))
