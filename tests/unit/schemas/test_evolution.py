from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from cassieq_spark.errors import InvariantError, MessageError, SchemaError
from cassieq_spark.schemas.ddl import parse_ddl
from cassieq_spark.schemas.evolution import check_change, present


def changes(*ddl: str) -> list[str]:
    *versions, new = map(parse_ddl, ddl)
    return [str(change) for change in check_change(versions, new)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a int", "a int", []),
        ("a int", "z string, a int", ["added 'z' string"]),
        ("a int, z string", "a int", ["dropped 'z'"]),
        ("a int not null", "a int", ["'a' may be null now"]),
        (
            "a tinyint not null",
            "a bigint",
            ["'a' may be null now", "widened 'a' from tinyint to bigint"],
        ),
        ("a int", "a double", ["widened 'a' from int to double"]),
        ("a smallint", "a float", ["widened 'a' from smallint to float"]),
        ("a float", "a double", ["widened 'a' from float to double"]),
        ("a decimal(5,2)", "a decimal(7,4)", ["widened 'a' from decimal(5,2) to decimal(7,4)"]),
        ("a bigint", "a decimal(19,0)", ["widened 'a' from bigint to decimal(19,0)"]),
        ("a int, b int", "b int, a int", ["reordered the columns"]),
        ("a int", "a int comment 'x'", ["commented 'a'"]),
        (
            "a struct<b:int,c:int>",
            "a struct<b:bigint,d:string>",
            ["widened 'a.b' from int to bigint", "added 'a.d' string", "dropped 'a.c'"],
        ),
        (
            "a array<map<int,float not null>>",
            "a array<map<bigint,double>>",
            [
                "widened 'a.element.key' from int to bigint",
                "'a.element.value' may be null now",
                "widened 'a.element.value' from float to double",
            ],
        ),
        ("a struct<b:int,c:int>", "a struct<c:int,b:int>", ["reordered 'a'"]),
        ("a int", "a int, b struct<c:int not null>", ["added 'b' struct<c:int not null>"]),
    ],
)
def test_a_safe_change_is_told(old: str, new: str, told: list[str]):
    assert changes(old, new) == told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a int", "a int not null", "column 'a' may be null, and there may be nulls"),
        ("a int", "a int, b int not null", "column 'b' is new and not null"),
        ("a map<struct<b:int,c:int>,int>", "a map<struct<b:int>,int>", "part of a map's keys"),
        ("a map<struct<b:int>,int>", "a map<struct<b:int,c:int>,int>", "part of a map's keys"),
        ("a int, b int not null", "a int", "column 'b' is not null, so running queries need it"),
        ("a bigint", "a int", "is of type bigint, of which not every value is one of type int"),
        ("a bigint", "a double", "not every value is one of type double"),
        ("a int", "a float", "not every value"),
        ("a bigint", "a decimal(18,0)", "not every value"),
        ("a decimal(5,2)", "a decimal(6,4)", "not every value"),
        ("a decimal(5,2)", "a decimal(8,1)", "not every value"),
        ("a int", "a string", "not every value"),
        ("a timestamp", "a timestamp_ntz", "not every value"),
        ("a array<int>", "a int", "not every value"),
        (
            "a struct<b:array<int>>",
            "a struct<b:array<string>>",
            "column 'a.b.element' is of type int",
        ),
        (
            "fare int, b int",
            "fares int, b int",
            "'fare' seems to be renamed to 'fares': names can't",
        ),
        ("a struct<fare:int>", "a struct<fares:int>", "'a.fare' seems to be renamed to 'fares'"),
        ("Fare int, b int", "fare int, b int", "column 'fare' was called 'Fare' before"),
    ],
)
def test_any_other_change_is_refused_with_the_reason(old: str, new: str, told: str):
    with pytest.raises(SchemaError, match=told):
        changes(old, new)


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(SchemaError, match=r"column 'a' is of type .*column 'b' may be null"):
        changes("a int, b int", "a string, b int not null")


def test_a_name_may_come_back_only_with_a_type_that_holds_what_is_stored():
    assert changes("a int, b int", "b int", "b int, a bigint") == ["added 'a' bigint"]
    with pytest.raises(
        SchemaError, match="'a' was dropped as int and may not come back as string"
    ):
        changes("a int, b int", "b int", "b bigint", "b bigint, a string")
    with pytest.raises(SchemaError, match=r"'s\.a' was dropped as int and may not come back"):
        changes("s struct<a:int,b:int>", "s struct<b:int>", "s struct<b:int,a:string>")
    with pytest.raises(SchemaError, match="column 'A' was called 'a' before"):
        changes("a int, b int", "b int", "b int, A int")
    # Within a struct that was dropped itself.
    with pytest.raises(SchemaError, match="column 's' was dropped as"):
        changes(
            "s struct<a:int,b:int>, k int",
            "s struct<b:int>, k int",
            "k int",
            "k int, s struct<a:string,b:int>",
        )


def rows(ddl: str, *values: dict[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(values), schema=parse_ddl(ddl))


def test_columns_of_the_same_type_are_not_copied():
    batch = rows("a string, b array<int>, c int", {"a": "x", "b": [1], "c": 1})

    shown = present(batch, batch.schema, parse_ddl("b array<int>, a string, d int"))

    assert shown.column("a").buffers()[2].address == batch.column("a").buffers()[2].address
    assert shown.column("b").buffers()[3].address == batch.column("b").buffers()[3].address
    assert shown.to_pylist() == [{"b": [1], "a": "x", "d": None}]


def test_columns_that_are_not_wanted_need_not_be_there():
    written = parse_ddl("a int, b int, c int")
    batch = rows("a int, c int", {"a": 1, "c": 3})

    assert present(batch, written, parse_ddl("a int")).to_pylist() == [{"a": 1}]
    with pytest.raises(InvariantError, match="'b' was written, and has not been read"):
        present(batch, written, parse_ddl("a int, b int"))


def test_a_wider_value_is_shown_to_an_older_reader_if_it_fits():
    written = "a bigint, b struct<c:double,d:int>"
    wanted = parse_ddl("a int, b struct<c:float>")

    fits = rows(written, {"a": 5, "b": {"c": 0.5, "d": 1}}, {"a": None, "b": None})

    assert present(fits, parse_ddl(written), wanted).to_pylist() == [
        {"a": 5, "b": {"c": 0.5}},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize(
    ("written", "wanted", "row", "told"),
    [
        (
            "a bigint",
            "a int",
            {"a": 2**40},
            r"'a', row 1 .*: 1099511627776 of type bigint does not",
        ),
        ("a double", "a float", {"a": 0.1}, "'a', row 1 .*: 0.1 of type double does not fit"),
        (
            "a double",
            "a int",
            {"a": 0.5},
            "'a', row 1 .*: 0.5 of type double does not fit type int",
        ),
        ("a int", "a int not null", {"a": None}, "'a', row 1 .*: it is null"),
        (
            "b int",
            "a int not null",
            {"b": 1},
            "'a' is not null, and is not there; a newer version",
        ),
        (
            "a array<struct<b:int>>",
            "a array<struct<b:int not null>>",
            {"a": [{"b": 1}, {"b": None}]},
            "'a.element.b', row 1 .*: it is null",
        ),
    ],
)
def test_one_that_does_not_fit_says_to_restart(written, wanted, row, told):
    first = {"a": None, "b": None} if "not null" not in wanted else {"a": 1, "b": 1}
    if "array" in wanted:
        first = {"a": []}
    batch = rows(written, first, row)

    with pytest.raises(MessageError, match=told) as caught:
        present(batch, batch.schema, parse_ddl(wanted))

    assert "restart the query" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
