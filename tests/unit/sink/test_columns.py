from __future__ import annotations

import pytest

from cassieq_spark.errors import SchemaError
from cassieq_spark.sink.columns import validate_schema


def refusal(*fields: tuple[str, str]) -> str:
    with pytest.raises(SchemaError) as caught:
        validate_schema(fields)
    return str(caught.value).removeprefix("cannot publish this DataFrame: ")


@pytest.mark.parametrize(
    "fields",
    [
        [("value", "string")],
        [("value", "binary")],
        [("key", "binary"), ("value", "string"), ("headers", "map<string,string>")],
        [("value", "string collate UTF8_LCASE"), ("key", "varchar(10)")],
        [("key", "char(2)"), ("value", "binary")],
    ],
)
def test_what_fits_is_accepted(fields: list[tuple[str, str]]):
    validate_schema(fields)


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
