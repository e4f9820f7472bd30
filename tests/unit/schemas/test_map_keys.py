"""A key that a map has twice is refused, and read by one rule if an earlier release stored it."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark.arrow.typed_chunks import TypedForm, decode
from cassieq_spark.errors import MessageError
from cassieq_spark.model import Chunk, Range
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.ddl import parse_ddl
from cassieq_spark.schemas.from_rows import from_dicts, from_json, parse_json
from cassieq_spark.schemas.map_keys import has_key_twice, with_last_keys

TAGS = "a map<string,int>"


def column(values: list[Any], type_: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(values, type_)})


def map_of(key: pa.DataType) -> pa.DataType:
    return pa.map_(key, pa.int32())


FEW = [[("x", 1), ("y", 2)], None, [], [("x", 3)]]
TWICE = [("x", 1), ("y", 2), ("x", 3)]


@pytest.mark.parametrize(
    ("ddl", "keys", "type_"),
    [
        ("string", ["x", "y", "x"], pa.string()),
        ("string", ["x", "y", "x"], pa.large_string()),
        ("bigint", [1, 2, 1], pa.int64()),
        ("double", [0.0, 1.0, -0.0], pa.float64()),
        ("double", [math.nan, 1.0, math.nan], pa.float64()),
        ("float", [1 + 2**-40, 2.0, 1.0], pa.float64()),
        ("decimal(3,1)", [Decimal("1.5"), Decimal("2.5"), Decimal("1.50")], pa.decimal128(5, 2)),
        ("array<int>", [[1], [2], [1]], pa.list_(pa.int32())),
        (
            "struct<b:double>",
            [{"b": 0.0}, {"b": 1.0}, {"b": -0.0}],
            pa.struct([("b", pa.float64())]),
        ),
        ("boolean", [True, False, True], pa.bool_()),
        ("binary", [b"x", b"y", b"x"], pa.binary()),
    ],
)
def test_a_key_that_is_there_twice_is_refused_by_its_row(
    ddl: str, keys: list[Any], type_: pa.DataType
):
    schema = parse_ddl(f"a map<{ddl},int>")
    fits = [[(keys[0], 1), (keys[1], 2)], None, [], [(keys[0], 1)]]
    wrong = [(key, number) for number, key in enumerate(keys)]
    batch = column([*fits, wrong], map_of(type_))

    with pytest.raises(MessageError, match=r"column 'a', row 4 .*: the key .* appears twice"):
        assign(batch, schema)
    assert assign(batch.slice(0, 4), schema).num_rows == 4


def test_the_error_names_the_key():
    with pytest.raises(MessageError, match=r"row 1 .*: the key 'x' appears twice in a map"):
        assign(column([FEW[0], TWICE], map_of(pa.string())), parse_ddl(TAGS))


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": {"b": [{"key": [1], "value": 1}, {"key": [1], "value": 2}]}},
        {"a": {"b": [[[1], 1], [[1], 2]]}},
    ],
)
def test_dicts_and_json_with_a_key_twice_are_refused(wrong: dict[str, Any]):
    schema = parse_ddl("a struct<b:map<array<int>,int>>")

    for read in (from_dicts, from_json):
        with pytest.raises(MessageError, match=r"'a.b', row 0 .*the key .* appears twice"):
            read([wrong], schema)


def test_texts_of_json_that_are_the_same_instant_are_the_same_key():
    schema = parse_ddl("a map<timestamp,int>")
    row = (
        '{"a": [{"key": "2026-11-27T12:00:00Z", "value": 1},'
        ' {"key": "2026-11-27T13:00:00+01:00", "value": 2}]}'
    )

    with pytest.raises(MessageError, match="appears twice"):
        from_json([parse_json(row)], schema)


def test_maps_in_other_values_are_checked():
    inner = map_of(pa.string())
    for ddl, type_, value in [
        ("a array<map<string,int>>", pa.list_(inner), [TWICE]),
        ("a struct<b:map<string,int>>", pa.struct([("b", inner)]), {"b": TWICE}),
        ("a map<int,map<string,int>>", pa.map_(pa.int32(), inner), [(1, TWICE)]),
    ]:
        with pytest.raises(MessageError, match="the key 'x' appears twice"):
            assign(column([value], type_), parse_ddl(ddl))


def test_a_map_that_is_null_may_hide_anything():
    hidden = pa.MapArray.from_arrays(
        pa.array([0, 3, 4], pa.int32()),
        pa.array(["x", "x", "x", "x"]),
        pa.array([1, 2, 3, 4], pa.int32()),
        mask=pa.array([True, False]),
    )

    assert assign(pa.record_batch({"a": hidden}), parse_ddl(TAGS)).column("a").to_pylist() == [
        None,
        [("x", 4)],
    ]


def test_the_last_value_of_a_key_is_read():
    struct = pa.struct([("b", map_of(pa.string()))])
    stored = pa.array([{"b": TWICE}, None, {"b": None}, {"b": FEW[0]}], struct)

    assert has_key_twice(stored)
    assert with_last_keys(stored).to_pylist() == [
        {"b": [("x", 3), ("y", 2)]},
        None,
        {"b": None},
        {"b": FEW[0]},
    ]
    assert with_last_keys(stored[1:]).to_pylist() == stored[1:].to_pylist()


def test_a_stored_map_with_a_key_twice_is_read_with_its_last_value():
    schema = parse_ddl(TAGS)
    form = TypedForm(schema, 1)
    data = form.encode(column([TWICE, FEW[0]], map_of(pa.string())).cast(schema), "none")

    _, rows = decode(Chunk(0, 0, 2, data), Range(0, 2), lambda _: schema)

    assert rows.column("a").to_pylist() == [[("x", 3), ("y", 2)], FEW[0]]
