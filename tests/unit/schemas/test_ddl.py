from __future__ import annotations

import pyarrow as pa
import pytest

from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.schemas.canonical import canonical
from cassieq_spark.schemas.ddl import parse_ddl, parse_stored, to_ddl, to_stored

TRIPS = "vendor string not null, fare decimal(10,2), stops array<struct<zone:int,at:timestamp>>"


def test_a_schema_of_spark_becomes_the_types_of_its_arrow_tables():
    schema = parse_ddl(TRIPS)

    stop = pa.struct([("zone", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    assert schema == pa.schema(
        [
            pa.field("vendor", pa.string(), nullable=False),
            ("fare", pa.decimal128(10, 2)),
            ("stops", pa.list_(pa.field("element", stop))),
        ]
    )
    assert to_ddl(schema) == TRIPS


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("a BYTE, b Short, c INTEGER, d long", "a tinyint, b smallint, c int, d bigint"),
        (
            "a real, b dec, c NUMERIC(5), d dec( 5 , 2 )",
            "a float, b decimal(10,0), c decimal(5,0), d decimal(5,2)",
        ),
        (
            "a timestamp_ltz, b timestamp(6), c timestamp with local time zone",
            "a timestamp, b timestamp, c timestamp",
        ),
        ("a timestamp without time zone", "a timestamp_ntz"),
        ("a interval day to second", "a interval day to second"),
        ("a string collate UTF8_BINARY", "a string"),
        (
            "select int, `a b` int, `c``d` int, 1a int",
            "select int, `a b` int, `c``d` int, `1a` int",
        ),
        (
            "a:int, b struct<c int, d : string not null>",
            "a int, b struct<c:int,d:string not null>",
        ),
        ("struct<a:int,b:array<string>>", "a int, b array<string>"),
        ("struct int", "struct int"),
        ("a int -- why\n, /* /* in */ */ b int", "a int, b int"),
        (r"""a int comment 'it''s' "\u0041\n" r'\n'""", r"a int comment 'it\'sA\n\\n'"),
        (
            "a array<int not null>, b map<int,int not null>",
            "a array<int not null>, b map<int,int not null>",
        ),
    ],
)
def test_names_are_aliases_of_those_that_are_printed(written: str, printed: str):
    assert to_ddl(parse_ddl(written)) == printed
    assert to_ddl(parse_ddl(printed)) == printed


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "after '': expected the name of a column"),
        ("a", "expected the type of column 'a', found the end"),
        ("a int,", "expected the name of a column"),
        ("a int b int", "expected ',' or the end, found 'b'"),
        ("a int) partitioned by (x", r"found '\)'"),
        ("a array<int", "expected '>', found the end"),
        ("a int not", "expected null after not"),
        ("a int comment b", "expected a text in quotes"),
        ("a decimal(x)", "expected a whole number, found 'x'"),
        ("a-b int", "'-' is out of place; put names"),
        ("5s int", "expected the name of a column"),
        ("a int /* x", r"'/\*' has no end"),
        ("a decimal(39,2)", r"column 'a': decimal\(39,2\) must have a precision from 1 to 38"),
        ("a decimal(5,9)", "scale from 0 to its precision"),
        ("a struct<>", "column 'a': a struct must have at least one field"),
        ("a map<map<int,int>,int>", "column 'a': the key of a map can't be or hold a map"),
        ("a array<varchar(3)>", r"column 'a.element' is of type varchar\(3\), .*: use string"),
        ("a struct<b:void>", "column 'a.b' is of type void"),
        ("a variant", "use string, of to_json"),
        ("a geometry(4326)", "use binary, of st_asbinary"),
        ("a int8", "use tinyint .1 byte. or bigint .8 bytes."),
        ("a interval year to month", "use int, of cast"),
        ("a interval month", "use int, of cast"),
        ("a interval hour", "use interval day to second"),
        ("a string collate unicode", "without a collation"),
        ("a time(3)", "expected 6, the only precision of timestamps and times, found '3'"),
        ("a int(3)", "use int without a length"),
        ("a sstring", "'sstring', which is no type: supported are boolean, "),
        ("a int, A string", "names must differ in more than case"),
        ("a struct<b:int,B:int>", "struct 'a' has the names 'b', 'B'"),
        (
            "_key int",
            "may not be called _key, _headers, _delay, _visible_at, _unique_id, _metadata",
        ),
        ("`` int", "a name of 0 bytes"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "its type has more than 16 levels"),
        (", ".join(f"c{n} int" for n in range(5001)), "at most 5,000 columns"),
        ("`" + "a" * 256 + "` int", "a name of 256 bytes"),
    ],
)
def test_what_no_queue_has_is_refused_with_what_to_use_instead(written: str, told: str):
    with pytest.raises(OptionError, match=told):
        parse_ddl(written)


def test_names_in_structs_may_be_those_of_the_writers_columns():
    assert to_ddl(parse_ddl("a struct<_key:int>")) == "a struct<_key:int>"


def test_versions_are_stored_as_a_list_of_texts():
    versions = ("a int", "a bigint, `é` string")

    stored = to_stored(versions)

    assert stored == '["a int", "a bigint, `é` string"]'
    assert parse_stored(stored) == versions


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "{}",
        "[]",
        "[1]",
        '["a int", "b"]',
        '[ "a int"]',
        '["a integer"]',
        '["a int"] x',
        "[" * 9999,
        '["a int"' + ', "a int"' * 1000 + "]",
    ],
)
def test_versions_that_nobody_stores_are_refused(stored: str):
    with pytest.raises(InvariantError, match="the stored schema can't be read"):
        parse_stored(stored)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.float16(), "float"),
        (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.duration("ms"), "interval day to second"),
        (pa.time32("s"), "time(6)"),
        (pa.time64("ns"), "time(6)"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.large_list(pa.uint8()), "array<smallint>"),
        (pa.list_(pa.int8(), 3), "array<tinyint>"),
        (pa.list_view(pa.int8()), "array<tinyint>"),
        (pa.map_(pa.large_string(), pa.int8()), "map<string,tinyint>"),
    ],
)
def test_arrow_types_are_taken_for_those_that_hold_their_values(given: pa.DataType, expected: str):
    assert to_ddl(canonical(pa.schema([("a", given)]))) == f"a {expected}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pa.null(), "use void: give the column a type"),
        (pa.uint64(), "use decimal.20,0."),
        (pa.month_day_nano_interval(), "use interval day to second"),
        (pa.decimal256(40, 2), "at most 38 digits"),
        (pa.decimal128(5, -2), "scale from 0"),
        (pa.dense_union([pa.field("x", pa.int8())]), "a struct with a column"),
        (pa.uuid(), "the type it is stored as"),
        (pa.run_end_encoded(pa.int16(), pa.int8()), "its plain type"),
        (pa.struct([]), "at least one field"),
    ],
)
def test_other_arrow_types_are_refused_with_what_to_use_instead(given: pa.DataType, told: str):
    with pytest.raises(OptionError, match=told):
        canonical(pa.schema([("a", pa.list_(pa.struct([("b", given)])))]))


def test_what_is_no_schema_is_refused():
    with pytest.raises(OptionError, match=r"must be a pyarrow\.Schema"):
        canonical("a int")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="must be a str"):
        parse_ddl(5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="at least one column"):
        canonical(pa.schema([]))
