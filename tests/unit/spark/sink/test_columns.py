from __future__ import annotations

import pytest

from cassieq_spark.errors import SchemaError
from cassieq_spark.model import Order
from cassieq_spark.spark.sink.columns import (
    validate_published,
    validate_replaced,
    validate_settled,
)


def refusal(*fields: tuple[str, str]) -> str:
    with pytest.raises(SchemaError) as caught:
        validate_published(fields)
    return str(caught.value).removeprefix("cannot publish this DataFrame: ")


@pytest.mark.parametrize(
    "fields",
    [
        [("value", "string")],
        [("value", "binary")],
        [("key", "binary"), ("value", "string"), ("headers", "map<string,string>")],
        [("value", "string collate UTF8_LCASE"), ("key", "varchar(10)")],
        [("key", "char(2)"), ("value", "binary")],
        [
            ("value", "string"),
            ("headers", "map<string collate UNICODE_CI,string collate UTF8_LCASE>"),
        ],
        [("value", "string"), ("headers", "map<varchar(3),char(2)>")],
    ],
)
def test_what_fits_is_accepted(fields: list[tuple[str, str]]):
    validate_published(fields)


def test_a_missing_value_is_asked_for():
    assert refusal(("id", "bigint"), ("key", "string")).startswith(
        "a column 'value' is missing (columns: id, key): add it, e.g. to_json(struct(*)) as value"
    )


def test_no_columns_at_all_miss_the_value():
    assert "(columns: none)" in refusal()


def test_an_unknown_column_is_answered_with_the_nearest_one():
    assert refusal(("value", "string"), ("Header", "map<string,string>")) == (
        "unknown column 'Header'; did you mean 'headers'?"
    )


def test_an_unknown_column_near_to_none_belongs_into_the_value():
    assert refusal(("value", "string"), ("tail_number", "string")) == (
        "unknown column 'tail_number'; put it into 'value', or drop it"
    )


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("value", "struct<a:int>", "string or binary: cast it, e.g. to_json(struct(*)) as value"),
        ("key", "bigint", "string or binary: cast it, e.g. cast(id as string) as key"),
        (
            "headers",
            "map<string,int>",
            "map<string,string>: cast it, e.g. map('origin', 'web') as headers",
        ),
    ],
)
def test_a_wrong_type_is_answered_with_how_to_cast_it(name: str, given: str, expected: str):
    fields = {"value": "string"} | {name: given}

    assert refusal(*fields.items()) == f"column {name!r} is {given}, expected {expected}"


def test_a_column_that_is_there_twice_is_refused():
    assert refusal(("value", "string"), ("value", "string")) == (
        "there are 2 columns 'value': keep one of them"
    )


def test_all_problems_are_told_at_once():
    assert refusal(("vlaue", "string"), ("key", "int")).count("; ") == 3


def test_a_column_says_when_a_message_is_delivered_but_not_two():
    value = ("value", "string")
    for type_ in ("interval day to second", "interval second", "int", "double"):
        validate_published([value, ("delay", type_)])
    validate_published([value, ("visible_at", "timestamp")])

    assert "delay' and 'visible_at': keep one" in refusal(
        value, ("delay", "int"), ("visible_at", "timestamp")
    )
    assert refusal(value, ("delay", "interval month")).startswith(
        "column 'delay' is interval month, expected a day-time interval, or a number of seconds"
    )
    assert "'visible_at' is timestamp_ntz, expected timestamp: cast it" in refusal(
        value, ("visible_at", "timestamp_ntz")
    )


@pytest.mark.parametrize("column", [("delay", "int"), ("visible_at", "timestamp")])
def test_a_strictly_ordered_queue_takes_no_delayed_messages(column: tuple[str, str]):
    with pytest.raises(SchemaError, match="strictly ordered, so a delayed message would"):
        validate_published([("value", "string"), column], order=Order.STRICT)


@pytest.mark.parametrize(
    ("operation", "columns"),
    [
        ("ack", []),
        ("release", [("delay", "interval second")]),
        ("extend", [("seconds", "bigint")]),
        ("reject", [("reason", "string")]),
        ("replace", [("value", "binary"), ("key", "string")]),
        ("replace", [("value", "string"), ("delay", "interval second")]),
        ("each", [("operation", "string"), ("delay", "int"), ("reason", "string")]),
    ],
)
def test_settling_takes_the_columns_of_its_operation(
    operation: str, columns: list[tuple[str, str]]
):
    validate_settled([("receipt", "string"), *columns], operation)


METADATA = ("_metadata", "struct<queue:string,monoton:bigint,receipt:string>")
FARE = ("fare", "decimal(10,2)")
RECEIPT = ("receipt", "string")


@pytest.mark.parametrize(
    ("fields", "own", "rows"),
    [
        ([FARE, METADATA], ["fare"], ["fare"]),
        ([RECEIPT, FARE], ["fare"], ["fare"]),
        ([RECEIPT, FARE, METADATA], ["fare", "Receipt"], ["receipt", "fare"]),
        ([FARE, ("_KEY", "string"), METADATA, ("_delay", "int")], ["fare"], ["fare"]),
        ([METADATA, ("x", "int")], ["fare"], ["x"]),
    ],
)
def test_rows_replace_messages_by_the_receipts_that_they_have(
    fields: list[tuple[str, str]], own: list[str], rows: list[str]
):
    assert validate_replaced(fields, own) == rows


@pytest.mark.parametrize(
    ("fields", "own", "problem"),
    [
        ([FARE], ["fare"], "its receipts are missing: keep the column '_metadata'"),
        ([FARE, RECEIPT], ["fare", "receipt"], "its receipts are missing"),
        ([FARE, RECEIPT, METADATA], ["fare"], "keep one of the columns 'receipt' and '_metadata'"),
        ([("_metadata", "struct<queue:string>")], ["fare"], "'_metadata' has no receipt"),
        ([("_metadata", "struct<receipts:string>")], ["fare"], "'_metadata' has no receipt"),
        ([("receipt", "int")], ["fare"], "'receipt' is int, expected string"),
        ([RECEIPT, ("_delay", "string")], ["fare"], "'_delay' is string, expected"),
        ([RECEIPT, ("_visible_at", "timestamp")], ["fare"], "unknown column '_visible_at'"),
        ([RECEIPT, ("_key", "string"), ("_Key", "string")], ["fare"], "2 columns '_key'"),
    ],
)
def test_rows_without_receipts_or_with_other_columns_replace_nothing(
    fields: list[tuple[str, str]], own: list[str], problem: str
):
    with pytest.raises(SchemaError, match=problem):
        validate_replaced(fields, own)


@pytest.mark.parametrize(
    ("operation", "columns", "message"),
    [
        ("ack", ["id"], "a column 'receipt' is missing"),
        ("ack", ["receipt", "delay"], "unknown column 'delay'; drop it"),
        ("release", ["receipt", "delays"], "'delays'; did you mean 'delay'"),
        ("replace", ["receipt"], "a column 'value' is missing"),
        ("each", ["receipt", "reason"], "a column 'operation' is missing"),
        ("reject", ["receipt", "receipt"], "there are 2 columns 'receipt'"),
        ("extend", ["receipt", "seconds"], "'seconds' is string, expected a whole number"),
    ],
)
def test_settling_by_other_columns_is_refused(operation: str, columns: list[str], message: str):
    with pytest.raises(SchemaError, match=message):
        validate_settled([(name, "string") for name in columns], operation)


def test_rows_of_a_read_are_refused_with_what_to_select():
    columns = ["queue", "partition", "monoton", "key", "value", "published_at", "delivery_count"]

    with pytest.raises(SchemaError, match=r"those of a read.*df.select\('key', 'value'\)"):
        validate_published([(name, "string") for name in columns])
