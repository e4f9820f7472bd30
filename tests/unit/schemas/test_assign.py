from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyspark.sql.types
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from cassieq_spark.errors import MessageError, OptionError, SchemaError
from cassieq_spark.schemas.assign import arrow_batches, assign
from cassieq_spark.schemas.canonical import canonical
from cassieq_spark.schemas.ddl import parse_ddl
from cassieq_spark.schemas.files import parse_spark_fields, parse_spark_json, parse_written_fields

TRIPS = parse_ddl(
    "vendor string not null, fare decimal(10,2), "
    "stops array<struct<zone:int,at:timestamp>>, tags map<string,int>"
)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def assigned(ddl: str, **columns: object) -> list[object]:
    (column,) = assign(pa.table(columns), parse_ddl(ddl)).columns
    return column.to_pylist()


def test_columns_go_by_name_and_missing_ones_are_null():
    table = pa.table({"FARE": [12.3, None], "vendor": ["a", "b"]})

    rows = assign(table, TRIPS)

    assert rows.schema == TRIPS
    assert rows.to_pylist() == [
        {"vendor": "a", "fare": Decimal("12.30"), "stops": None, "tags": None},
        {"vendor": "b", "fare": None, "stops": None, "tags": None},
    ]


def test_columns_of_the_queues_type_are_not_copied():
    text = pa.chunked_array([["a"], ["b"]])

    rows = assign(pa.table({"vendor": text}), TRIPS)

    assert [chunk.buffers()[2].address for chunk in rows.column(0).chunks] == [
        chunk.buffers()[2].address for chunk in text.chunks
    ]


#: A list of entries of a dictionary of maps, which Arrow can't flatten.
MAPS_OF_A_DICTIONARY = pa.ListArray.from_arrays(
    pa.array([0, 3], pa.int32()),
    pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], pa.int8()),
        pa.array([[(True, 1)], [(True, 3)]], pa.map_(pa.bool_(), pa.int32())),
    ),
)


@pytest.mark.parametrize(
    "large",
    [
        pa.array([Decimal(140737384134831)], pa.decimal128(15, 0)),
        pa.array([Decimal(-140737384134831)], pa.decimal128(15, 0)),
        pa.array([5.0129064639523546e36]),
        pa.array([140737384134831]),
    ],
)
def test_a_number_that_overflows_128_bits_in_another_scale_is_refused(large: pa.Array):
    with pytest.raises(MessageError, match="decimal"):
        assigned("a decimal(38,37)", a=large)
    with pytest.raises(MessageError, match="decimal"):
        assigned("a decimal(29,29)", a=large)


def test_a_batch_stays_a_batch():
    assert isinstance(assign(pa.record_batch({"vendor": ["a"]}), TRIPS), pa.RecordBatch)
    assert assign(pa.table({"vendor": pa.array([], pa.string())}), TRIPS).num_rows == 0
    assert assign(pa.table({"vendor": pa.chunked_array([], pa.string())}), TRIPS).num_rows == 0


def test_all_that_is_wrong_with_columns_is_told_at_once():
    table = pa.table({"vendr": ["a"], "fare": ["x"], "tags": [1], "stops": [[{"zon": 1}]]})

    with pytest.raises(SchemaError) as caught:
        assign(table, TRIPS)

    assert str(caught.value) == (
        "these rows do not fit the queue: the queue has no column 'vendr': did you mean 'vendor'?"
        "; column 'vendor' string is missing, and is not null; column 'fare' is of type string, "
        "and the queue's of type decimal(10,2): cast the column before; the queue has no column "
        "'stops.element.zon': did you mean 'zone'?; column 'tags' is of type bigint, and the "
        "queue's of type map<string,int>: cast the column before"
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["vendor", "vendor"], "there are 2 columns 'vendor': 'vendor' and 'vendor'"),
        (["vendor", "Vendor"], "there are 2 columns 'vendor': 'vendor' and 'Vendor'"),
        (["vendor", "x"], "no column 'x': it has 'vendor', 'fare', 'stops', 'tags'"),
    ],
)
def test_names_are_there_once_and_known(names: list[str], told: str):
    with pytest.raises(SchemaError, match=told):
        assign(pa.table([["a"], ["b"]], names=names), TRIPS)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {"vendor": ["a", None]},
            "column 'vendor', row 1 .counted from 0.: it is null, and must be",
        ),
        (
            {"vendor": ["a", "b"], "fare": [1.0, 2.345]},
            "'fare', row 1 .*: 2.345 of type double does not fit type decimal.10,2.",
        ),
        (
            {"vendor": ["a", "b"], "stops": [[{"zone": 1}], [{"zone": 2}, {"zone": 2**40}]]},
            "column 'stops.element.zone', row 1 .*: 1099511627776 of type bigint does not fit",
        ),
        (
            {"vendor": ["a"], "tags": [[{"key": None, "value": 1}]]},
            "column 'tags.key', row 0 .*: it is null",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(columns: dict[str, object], told: str):
    with pytest.raises(MessageError, match=told):
        assign(pa.table(columns), TRIPS)


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "00:00:00.000000001 of type"), (86_400_000_000_000, "out of range: 86400000000000> of")],
)
def test_a_time_that_does_not_fit_is_shown_with_all_of_its_digits(count: int, told: str):
    with pytest.raises(MessageError, match=f"{told} .*, which has whole microseconds of a day"):
        assigned("a time", a=pa.array([count], pa.int64()).view(pa.time64("ns")))


def test_rows_are_counted_over_chunks():
    chunks = pa.chunked_array([[1, 2], [3], [4, 2**40, 5]])

    with pytest.raises(MessageError, match="row 4 "):
        assign(pa.table({"a": chunks}), parse_ddl("a int"))


@pytest.mark.parametrize(
    ("ddl", "given", "expected"),
    [
        ("a tinyint", pa.array([127], pa.int64()), 127),
        ("a int", pa.array([3.0]), 3),
        ("a int", pa.array([Decimal("3.00")]), 3),
        ("a float", pa.array([0.1]), 0.10000000149011612),
        ("a double", pa.array([Decimal("0.57")]), 0.57),
        ("a decimal(5,2)", pa.array([0.57]), Decimal("0.57")),
        ("a decimal(5,2)", pa.array([0.57], pa.float32()), Decimal("0.57")),
        ("a decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
        ("a decimal(2,2)", pa.array([0.01], pa.float32()), Decimal("0.01")),
        ("a decimal(5,1)", pa.array([Decimal("3.10")]), Decimal("3.1")),
        ("a decimal(9,3)", pa.array([Decimal("3.10")], pa.decimal32(4, 2)), Decimal("3.100")),
        ("a bigint", pa.array([Decimal("3.0")], pa.decimal32(4, 1)), 3),
        ("a string", pa.array([3]), "3"),
        ("a string", pa.array([True]), "true"),
        ("a string", pa.array([date(2026, 1, 2)]), "2026-01-02"),
        ("a timestamp_ntz", pa.array([date(2026, 1, 2)]), datetime(2026, 1, 2)),  # noqa: DTZ001
        ("a timestamp", pa.array([NOON]).cast(pa.timestamp("ns", "Asia/Tokyo")), NOON),
        ("a int", pa.array([None]), None),
        ("a time", pa.array([45_000], pa.time32("s")), time(12, 30)),
        ("a time", pa.array([45_000_000_001], pa.time64("us")), time(12, 30, 0, 1)),
        ("a time", pa.array([45_000_000_001_000], pa.time64("ns")), time(12, 30, 0, 1)),
        ("a string", pa.array(["x"]).dictionary_encode(), "x"),
        ("a array<int>", pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
        ("a array<int>", pa.array([[1, 2]], pa.list_view(pa.int8())), [1, 2]),
        ("a array<map<boolean,int>>", MAPS_OF_A_DICTIONARY, [[(True, 3)], None, [(True, 1)]]),
    ],
)
def test_a_value_becomes_one_of_another_type_if_nothing_is_lost(ddl, given, expected):
    assert assigned(ddl, a=given) == [expected]


@pytest.mark.parametrize(
    ("ddl", "given"),
    [
        ("a tinyint", pa.array([128])),
        ("a int", pa.array([3.5])),
        ("a int", pa.array([float("nan")])),
        ("a int", pa.array([Decimal("3.5")])),
        ("a float", pa.array([1e39])),
        ("a double", pa.array([2**53 + 1])),
        ("a decimal(5,2)", pa.array([1000])),
        ("a decimal(5,2)", pa.array([Decimal("1.234")])),
        ("a decimal(5,2)", pa.array([float("inf")])),
        # Of their texts, Arrow makes 0.
        ("a decimal(38,0)", pa.array([1e-39])),
        ("a decimal(2,2)", pa.array([-1e-77])),
        ("a timestamp", pa.array([1], pa.timestamp("ns", "UTC"))),
        ("a timestamp", pa.array([2**62], pa.timestamp("us", "UTC"))),
        ("a timestamp", pa.array([-(2**62)], pa.timestamp("us", "UTC"))),
        ("a date", pa.array([2**30], pa.date32())),
        ("a array<date>", pa.array([[2**30]], pa.list_(pa.date32()))),
        ("a bigint", pa.array([2**63], pa.uint64())),
        ("a time", pa.array([1], pa.time64("ns"))),
        ("a time", pa.array([86_400_000_000_000], pa.int64()).view(pa.time64("ns"))),
        ("a time", pa.array([-1000], pa.int64()).view(pa.time64("ns"))),
        ("a array<time>", pa.array([[1]], pa.list_(pa.time64("ns")))),
    ],
)
def test_and_does_not_fit_if_something_is(ddl, given):
    with pytest.raises(MessageError, match=r"row 0 .*does not fit type"):
        assigned(ddl, a=given)


@pytest.mark.parametrize(
    ("ddl", "given", "told"),
    [
        ("a string", [1.5], "double, and the queue's of type string: cast"),
        ("a int", ["1"], "cast the column"),
        ("a int", [True], "cast the column"),
        ("a timestamp", [datetime(2026, 1, 1)], "depends on a time zone"),  # noqa: DTZ001
        ("a date", [NOON], "depends on a time zone"),
        ("a string", [b"x"], "decode it before"),
        ("a binary", ["x"], "encode it before"),
        ("a int", [[1]], "array<bigint>, and the queue's of type int"),
        (
            "a map<string,int>",
            [{"x": 1}],
            "struct<x:bigint>, and the queue's of type map<string,int>",
        ),
        ("a int", pa.array([1], pa.time64("us")), r"time64\[us\]"),
        ("a decimal(5,2)", pa.nulls(1, pa.decimal128(3, 4)), "a scale from 0 to its precision"),
        ("a decimal(5,2)", pa.nulls(1, pa.decimal128(3, -1)), "a scale from 0 to its precision"),
    ],
)
def test_other_types_are_refused(ddl, given, told):
    with pytest.raises(SchemaError, match=told):
        assigned(ddl, a=given)


def test_what_null_structs_and_lists_hold_is_nobodys_value():
    struct = pa.StructArray.from_arrays(
        [pa.array([2**40, 1])], names=["b"], mask=pa.array([True, False])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([2**40, 1]), mask=pa.array([True, False])
    )
    holed = pa.StructArray.from_arrays(
        [pa.array([None, 1], pa.int32())], names=["b"], mask=pa.array([True, False])
    )

    assert assigned("a struct<b:int>", a=struct) == [None, {"b": 1}]
    assert assigned("a array<int>", a=lists) == [None, [1]]
    assert assigned("a struct<b:int not null>", a=holed) == [None, {"b": 1}]


def read(given: object) -> pa.Table:
    return pa.Table.from_batches(arrow_batches(given))


def test_frames_of_others_are_read_as_arrow():
    frame = pd.DataFrame({"vendor": ["a", "b"], "fare": [1.5, None]})

    rows = assign(read(frame), TRIPS)

    assert rows.column("vendor").to_pylist() == ["a", "b"]
    assert rows.column("fare").to_pylist()[0] == Decimal("1.50")


def test_only_an_index_with_a_name_is_a_column():
    frame = pd.DataFrame({"a": [1, 2, 3]})
    schema = parse_ddl("a int, key string")

    unnamed = assign(read(frame[frame.a > 1]), schema)
    named = assign(read(frame.set_index(pd.Index(["x", "y", "z"], name="key"))), schema)

    assert unnamed.column("key").to_pylist() == [None, None]
    assert named.column("key").to_pylist() == ["x", "y", "z"]


@pytest.mark.parametrize("given", [5, "a", [{"a": 1}], None])
def test_what_arrow_cannot_read_is_refused(given: object):
    with pytest.raises(SchemaError, match="rows must be an Arrow table"):
        arrow_batches(given)


@pytest.mark.parametrize(
    ("ddl", "column", "expected"),
    [
        ("a array<int>", pa.array([[None], [], None], pa.list_(pa.null())), [[None], [], None]),
        ("a struct<b:int>", pa.array([{"b": None}], pa.struct([("b", pa.null())])), [{"b": None}]),
        ("a map<string,int>", pa.MapArray.from_arrays([0, 0], pa.nulls(0), pa.nulls(0)), [[]]),
        (
            "a map<string,array<int>>",
            pa.array([[("x", [None])]], pa.map_(pa.string(), pa.list_(pa.null()))),
            [[("x", [None])]],
        ),
    ],
)
def test_nulls_of_no_type_become_nulls_of_any_type(
    ddl: str, column: pa.Array, expected: list[object]
):
    assert assigned(ddl, a=column) == expected


def test_columns_of_a_data_frame_may_be_of_type_void():
    fields = [
        {"name": "a", "type": "void"},
        {"name": "b", "type": {"type": "array", "elementType": "void", "containsNull": False}},
        {
            "name": "c",
            "type": {
                "type": "map",
                "keyType": "void",
                "valueType": "void",
                "valueContainsNull": False,
            },
        },
        {"name": "d", "type": {"type": "struct", "fields": [{"name": "e", "type": "void"}]}},
    ]
    given = {"type": "struct", "fields": fields}

    schema = parse_spark_fields(given)

    assign(schema.empty_table(), parse_ddl("a int, b array<int>, c map<int,int>, d struct<e:int>"))
    with pytest.raises(OptionError, match="'a' is of type void"):
        parse_spark_json(given)


@pytest.mark.parametrize(
    ("type_", "wider"),
    [
        ("interval day", "interval day to second"),
        ("interval hour to second", "interval day to second"),
        ("char(5)", "string"),
        ("varchar(5)", "string"),
        ("time(0)", "time(6)"),
        ("time(9)", "time(6)"),
    ],
)
def test_types_of_a_data_frame_are_read_as_those_they_fit_into(type_: str, wider: str):
    element = {"type": "array", "elementType": type_, "containsNull": True}
    fields = [{"name": "a", "type": type_}, {"name": "b", "type": element}]
    given = {"type": "struct", "fields": fields}

    assert parse_written_fields(given) == parse_ddl(f"a {wider}, b array<{wider}>")
    with pytest.raises(
        OptionError, match=f"'a' is of type {re.escape(type_)}, which no queue has|found '[09]'"
    ):
        parse_spark_json(given)


#: Spark's types that can't be columns of a queue, and how their refusal ends.
_REFUSED = [
    (VariantType(), "variant, which no queue has: use string, of to_json"),
    (YearMonthIntervalType(), "interval year to month, which no queue has: use int, of cast"),
    (YearMonthIntervalType(0, 0), "interval year, which no queue has: use int, of cast"),
    (YearMonthIntervalType(1, 1), "interval month, which no queue has: use int, of cast"),
    (CalendarIntervalType(), "interval, which no queue has: use interval day to second"),
    (GeometryType(0), "geometry, which no queue has: use binary, of st_asbinary"),
    (GeometryType("ANY"), "geometry, which no queue has: use binary, of st_asbinary"),
    (GeographyType(4326), "geography, which no queue has: use binary, of st_asbinary"),
    (GeographyType("ANY"), "geography, which no queue has: use binary, of st_asbinary"),
]


@pytest.mark.parametrize(("type_", "told"), _REFUSED)
def test_types_of_a_data_frame_that_no_queue_has_are_refused_with_what_to_write_instead(
    type_: DataType, told: str
):
    inside = StructType([StructField("b", ArrayType(type_))])
    for schema, path in (
        (StructType([StructField("a", type_)]), "a"),
        (StructType([StructField("a", inside)]), "a.b.element"),
    ):
        with pytest.raises(OptionError, match=re.escape(f"column '{path}' is of type {told}")):
            parse_written_fields(schema.jsonValue())
        with pytest.raises(OptionError, match=re.escape(f"column '{path}' is of type {told}")):
            parse_spark_json(schema.jsonValue())


@pytest.mark.parametrize("type_", [VariantType(), GeometryType(0), GeographyType(4326)])
def test_types_that_are_structs_in_arrow_are_no_structs_of_a_queue(type_: DataType):
    given = to_arrow_schema(StructType([StructField("a", ArrayType(type_))]))

    with pytest.raises(OptionError, match=f"'a.element' is of type {type_.typeName()}, which no"):
        canonical(given)


def test_each_type_of_spark_is_a_column_or_is_refused():
    abstract = {"AnsiInterval", "AnyTime", "Atomic", "Data", "Datetime", "Fractional"}
    abstract |= {"Integral", "Numeric", "Spatial", "UserDefined"}
    concrete = {
        name.removesuffix("Type")
        for name, kind in vars(pyspark.sql.types).items()
        if name.endswith("Type") and isinstance(kind, type) and issubclass(kind, DataType)
    } - abstract
    refused = {type(type_).__name__.removesuffix("Type") for type_, _ in _REFUSED}
    taken = parse_written_fields(_TAKEN.jsonValue())

    assert {type(field.dataType).__name__.removesuffix("Type") for field in _TAKEN} == (
        concrete - refused
    )
    assert len(taken) == len(_TAKEN)


_TAKEN = StructType(
    [
        StructField(f"c{number}", type_)
        for number, type_ in enumerate(
            [
                *(NullType(), BooleanType(), ByteType(), ShortType(), IntegerType(), LongType()),
                *(FloatType(), DoubleType(), DecimalType(5, 2), StringType("UNICODE_CI")),
                *(CharType(3), VarcharType(3), BinaryType(), DateType(), TimestampType()),
                *(
                    TimestampNTZType(),
                    TimeType(9),
                    DayTimeIntervalType(1, 2),
                    ArrayType(LongType()),
                ),
                MapType(StringType("UTF8_LCASE"), LongType()),
                StructType([StructField("x", LongType())]),
            ]
        )
    ]
)
