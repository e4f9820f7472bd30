from __future__ import annotations

import json
from collections import UserDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cassieq_spark.errors import MessageError, SchemaError, UnreadableError
from cassieq_spark.schemas.ddl import parse_ddl
from cassieq_spark.schemas.from_rows import from_dicts, from_json, parse_json
from cassieq_spark.schemas.to_rows import to_dicts, to_json

ALL = parse_ddl(
    "flag boolean, small tinyint, large bigint, x double, price decimal(10,2), name string, "
    "data binary, day date, at timestamp, local timestamp_ntz, took interval day to second, "
    "opens time(6), "
    "stops array<struct<zone:int,names:map<string,date>>>, counts map<int,float>"
)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ROW = {
    "flag": True,
    "small": -1,
    "large": 2**62,
    "x": 0.1,
    "price": Decimal("12.30"),
    "name": "é",
    "data": b"\xff",
    "day": date(2026, 11, 22),
    "at": NOON.replace(microsecond=500_000),
    "local": NOON.replace(tzinfo=None),
    "took": timedelta(days=-1, microseconds=1),
    "opens": time(8, 30, 0, 7),
    "stops": [{"zone": 1, "names": {"a": date(2026, 1, 1)}}, None],
    "counts": {1: 0.5, 2: None},
}
IN_JSON = {
    "flag": True,
    "small": -1,
    "large": 2**62,
    "x": 0.1,
    "price": "12.30",
    "name": "é",
    "data": "/w==",
    "day": "2026-11-22",
    "at": "2026-11-22T12:00:00.500000Z",
    "local": "2026-11-22T12:00:00",
    "took": "-PT86399.999999S",
    "opens": "08:30:00.000007",
    "stops": [{"zone": 1, "names": {"a": "2026-01-01"}}, None],
    "counts": [{"key": 1, "value": 0.5}, {"key": 2, "value": None}],
}
EMPTY = dict.fromkeys(ALL.names)


def test_dicts_become_columns_and_dicts_again():
    batch = from_dicts([ROW, {}], ALL)

    batch.validate(full=True)
    assert batch.schema == ALL
    assert to_dicts(batch) == [ROW, EMPTY]


def test_json_becomes_columns_and_json_again():
    batch = from_json([parse_json(json.dumps(IN_JSON)), {}], ALL)

    assert to_dicts(batch) == [ROW, EMPTY]
    assert to_json(batch) == [IN_JSON, EMPTY]
    assert to_json(pa.Table.from_batches([batch])) == [IN_JSON, EMPTY]


@pytest.mark.parametrize(
    ("ddl", "given", "expected"),
    [
        ("a int", np.int64(5), 5),
        ("a int", 5.0, 5),
        ("a int", Decimal("5.0"), 5),
        ("a double", 5, 5.0),
        ("a double", Decimal("0.1"), 0.1),
        ("a double", np.float32(0.5), 0.5),
        ("a double", float("inf"), float("inf")),
        ("a decimal(5,2)", 0.57, Decimal("0.57")),
        ("a decimal(5,2)", 7, Decimal("7.00")),
        ("a boolean", np.bool_(True), True),
        ("a binary", memoryview(b"x"), b"x"),
        (
            "a timestamp",
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ("a timestamp", pd.Timestamp("2026-01-01", tz="UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        ("a interval day to second", pd.Timedelta(seconds=1), timedelta(seconds=1)),
        ("a array<int>", np.array([1, 2]), [1, 2]),
        ("a array<int>", (1, None), [1, None]),
        ("a map<string,int>", [("x", 1)], {"x": 1}),
        ("a map<struct<b:int>,int>", [({"b": 1}, 2)], [({"b": 1}, 2)]),
        ("a struct<b:int,c:int>", UserDict({"B": 1}), {"b": 1, "c": None}),
    ],
)
def test_a_value_of_another_kind_is_taken_if_nothing_is_lost(ddl, given, expected):
    assert to_dicts(from_dicts([{"a": given}], parse_ddl(ddl))) == [{"a": expected}]


@pytest.mark.parametrize(
    ("ddl", "given", "told"),
    [
        ("a int not null", None, "it is null, and must be a value of type int"),
        ("a tinyint", 128, "128 of Python's type int does not fit type tinyint"),
        ("a int", True, "True of Python's type bool does not fit type int"),
        ("a int", 1.5, "1.5 of Python's type float does not fit"),
        ("a int", "1", "'1' of Python's type str does not fit"),
        ("a int", Decimal("1e999999999"), "does not fit type int"),
        ("a boolean", 1, "does not fit type boolean"),
        ("a float", 1e39, "does not fit type float"),
        ("a float", 2**24 + 1, "does not fit type float"),
        ("a double", True, "does not fit type double"),
        ("a decimal(5,2)", 1.234, "does not fit type decimal"),
        ("a decimal(5,2)", float("nan"), "does not fit type decimal"),
        ("a decimal(5,2)", 1000, "does not fit type decimal"),
        ("a string", b"x", "does not fit type string"),
        ("a string", "\ud800", "does not fit type string"),
        ("a int", "x" * 999, r"'x{59}\.\.\. of Python's"),
        ("a binary", "x", "does not fit type binary"),
        ("a date", NOON, "does not fit type date"),
        ("a timestamp", NOON.replace(tzinfo=None), "it needs a time zone"),
        ("a timestamp", date(2026, 1, 1), "does not fit type timestamp"),
        ("a timestamp", pd.NaT, "does not fit type timestamp"),
        ("a timestamp", pd.Timestamp(1, unit="ns", tz="UTC"), "has microseconds"),
        (
            "a timestamp",
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))),
            "does not fit",
        ),
        ("a timestamp_ntz", NOON, "it must have no time zone"),
        ("a interval day to second", timedelta.max, "does not fit"),
        ("a time", time(8, tzinfo=UTC), "it must have no time zone"),
        ("a time", NOON, "does not fit type time"),
        ("a array<int>", "abc", "does not fit type array<int>"),
        ("a array<int not null>", [1, None], "column 'a.element', row 1 .*: it is null"),
        ("a map<string,int>", {None: 1}, "column 'a.key', row 1 .*: it is null"),
        ("a map<string,int>", [1], "does not fit type map"),
        ("a struct<b:struct<c:int>>", {"b": {"c": "x"}}, "column 'a.b.c', row 1 "),
        (
            "a struct<b:int>",
            5,
            "column 'a', row 1 .*: 5 of Python's type int does not fit type struct",
        ),
        ("a int", object(), "an object of type object does not fit"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(ddl, given, told):
    good = {"a": 1} if ddl == "a int not null" else {}

    with pytest.raises(MessageError, match=told):
        from_dicts([good, {"a": given}], parse_ddl(ddl))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"vendr": "x"},
            "row 0 .*no column 'vendr': did you mean 'vendor'.*'vendor' string is miss",
        ),
        ({"vendor": "x", "Vendor": "y"}, "there are 2 columns 'vendor'"),
        ({"vendor": "x", 5: 1}, "a name must be a str, not 5"),
        ({"vendor": "x", "at": {"zon": 1}}, r"no column 'at\.zon': did you mean 'zone'"),
    ],
)
def test_names_are_known(row, told):
    with pytest.raises(SchemaError, match=told):
        from_dicts([row], parse_ddl("vendor string not null, at struct<zone:int>"))


class _Broken(UserDict):  # type: ignore[type-arg]
    def __getitem__(self, name: object) -> object:
        raise RuntimeError("no")


@pytest.mark.parametrize("row", [5, None, "a", [1], _Broken({"a": 1})])
def test_a_row_is_a_dict(row):
    with pytest.raises(MessageError, match=r"row 0 .*is no dict of columns"):
        from_dicts([row], parse_ddl("a int"))


@pytest.mark.parametrize("rows", [5, "ab", {"a": 1}, None])
def test_rows_are_many(rows):
    with pytest.raises(MessageError, match="rows must be dicts, one for each message"):
        from_dicts(rows, parse_ddl("a int"))


@pytest.mark.parametrize(
    ("ddl", "text", "expected"),
    [
        (
            "a decimal(38,18)",
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        ("a decimal(5,2)", '"1.50"', Decimal("1.50")),
        ("a double", '"NaN"', "nan"),
        ("a double", '"-Infinity"', float("-inf")),
        ("a double", "1e2", 100.0),
        ("a int", "1e2", 100),
        ("a timestamp", '"2026-11-22T14:00:00+02:00"', NOON),
        ("a timestamp", '"2026-11-22 12:00:00.000000000z"', NOON),
        ("a timestamp_ntz", '"2026-11-22T12:00"', NOON.replace(tzinfo=None)),
        ("a time", '"08:30"', time(8, 30)),
        ("a time", '"08:30:00.500000000"', time(8, 30, 0, 500_000)),
        ("a interval day to second", '"P1DT2H3M4.5S"', timedelta(1, 4.5, 0, 0, 3, 2)),
        ("a map<string,int>", '[{"key": "x", "value": 1}]', {"x": 1}),
    ],
)
def test_json_is_read_without_loss(ddl, text, expected):
    batch = from_json([parse_json(f'{{"a": {text}}}')], parse_ddl(ddl))

    value = to_dicts(batch)[0]["a"]

    assert str(value) == "nan" if expected == "nan" else value == expected


@pytest.mark.parametrize(
    ("ddl", "text", "told"),
    [
        ("a int", "1e999999999", "does not fit type int"),
        ("a double", "1e400", "does not fit type double"),
        ("a double", '"nan"', "does not fit type double"),
        ("a decimal(5,2)", "1.234", "does not fit type decimal"),
        ("a decimal(5,2)", '"x"', "does not fit type decimal"),
        ("a decimal(5,2)", '"NaN"', "does not fit type decimal"),
        ("a binary", '"?"', "does not fit type binary in Base64"),
        ("a binary", '"é"', "does not fit type binary in Base64"),
        ("a date", '"2026-13-01"', "does not fit type date"),
        ("a date", '"20261122"', "e.g. '2026-11-22'"),
        ("a timestamp", '"2026-11-22T12:00:00"', "e.g. '2026-11-22T12:00:00.5Z'"),
        ("a timestamp", '"2026-11-22T12:00:00.0000001Z"', "has microseconds"),
        ("a timestamp", '"2026-11-22T25:00:00Z"', "does not fit type timestamp"),
        ("a timestamp", '"0001-01-01T00:00:00+02:00"', "does not fit type timestamp"),
        ("a timestamp", "1", "does not fit type timestamp"),
        ("a timestamp_ntz", '"2026-11-22T12:00:00Z"', "e.g. '2026-11-22T12:00:00.5'"),
        ("a interval day to second", '"PT"', "e.g. 'PT1.5S'"),
        ("a time", '"8:30"', "e.g. '12:00:00.5'"),
        ("a time", '"08:30Z"', "e.g. '12:00:00.5'"),
        ("a time", '"24:00:00"', "does not fit type time"),
        ("a time", '"08:30:00.0000001"', "which has microseconds"),
        ("a time", "5", "e.g. '12:00:00.5'"),
        ("a interval day to second", '"P1Y"', "e.g. 'PT1.5S'"),
        ("a interval day to second", '"P999999999DT9999999999H"', "does not fit"),
    ],
)
def test_json_that_does_not_fit_is_refused(ddl, text, told):
    with pytest.raises(MessageError, match=told):
        from_json([parse_json(f'{{"a": {text}}}')], parse_ddl(ddl))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "this is no JSON"),
        (b"\xff", "this is no JSON"),
        ("[" * 100_000, "this is no JSON"),
        ('{"a": NaN}', 'write it as the text "NaN"'),
        ('{"a": 1, "a": 2}', "the name 'a' appears twice"),
        ("1" * 5000, "this is no JSON"),
        ("1e99999999999999999999", "this is no JSON"),
    ],
)
def test_what_is_no_json_is_refused(text, told):
    with pytest.raises(MessageError, match=told):
        parse_json(text)


def test_floats_that_json_lacks_are_texts():
    batch = from_dicts(
        [{"a": [float("nan"), float("inf"), -float("inf")]}], parse_ddl("a array<float>")
    )

    assert to_json(batch) == [{"a": ["NaN", "Infinity", "-Infinity"]}]


def test_instants_that_python_lacks_are_unreadable():
    batch = pa.record_batch({"a": pa.array([2**62], pa.timestamp("us", "UTC"))})

    with pytest.raises(UnreadableError, match="column 'a' has a value that Python lacks"):
        to_dicts(batch)
