from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from cassieq_spark.arrow.chunks import STORED
from cassieq_spark.arrow.row_columns import row_ddl
from cassieq_spark.arrow.rows import PlainRows, row_schema

NOON = datetime(2026, 11, 20, 12, 0, 0, 123000, tzinfo=UTC)


def messages(
    *values: str, headers: list[list[tuple[str, str]] | None] | None = None
) -> pa.RecordBatch:
    """As a chunk is decoded."""
    count = len(values)
    columns = {"key": [None] * count, "value": values, "headers": headers or [None] * count}
    return pa.record_batch(
        [pa.array(columns[column.name], column.type) for column in STORED], schema=STORED
    )


@pytest.mark.parametrize("include_headers", [True, False])
def test_rows_have_the_schema_of_the_source(include_headers: bool):
    stored = messages("a", "b", headers=[[("n", "v")], None])

    rows = PlainRows("orders", include_headers=include_headers).of(
        stored,
        first_monoton=0,
        published_at=NOON,
        delivery_count=None,
    )

    same = {
        "queue": "orders",
        "partition": 0,
        "key": None,
        "published_at": NOON,
        "delivery_count": None,
    }
    expected = [
        same | {"monoton": 0, "value": b"a"} | {"headers": [("n", "v")]},
        same | {"monoton": 1, "value": b"b"} | {"headers": None},
    ]
    for row in [] if include_headers else expected:
        del row["headers"]
    assert rows.schema == row_schema(include_headers=include_headers)
    assert rows.to_pylist() == expected


def test_rows_count_monotons_from_the_first():
    stored = messages(*"abc")

    rows = PlainRows("orders", include_headers=False).of(
        stored.slice(1, 2),
        first_monoton=2**62,
        published_at=NOON,
        delivery_count=3,
    )

    assert rows.column("monoton").to_pylist() == [2**62, 2**62 + 1]
    assert rows.column("delivery_count").to_pylist() == [3, 3]


@pytest.mark.parametrize("include_headers", [True, False])
def test_with_a_prefix_rows_have_receipts_of_their_monotons(include_headers: bool):
    stored = messages(*"abc")

    rows = PlainRows(
        "orders", include_headers=include_headers, receipt_prefix="orders@1/g/token/"
    ).of(
        stored.slice(1, 2),
        first_monoton=2**62 - 1,
        published_at=NOON,
        delivery_count=3,
    )

    assert rows.schema == row_schema(include_headers=include_headers, include_receipts=True)
    assert rows.column("monoton").to_pylist() == [2**62 - 1, 2**62]
    assert rows.column("receipt").to_pylist() == [
        f"orders@1/g/token/{2**62 - 1}",
        f"orders@1/g/token/{2**62}",
    ]


def test_the_receipt_is_the_last_column_and_there_only_if_asked_for():
    with_receipts = row_schema(include_headers=True, include_receipts=True).names

    assert with_receipts == [*row_schema(include_headers=True).names, "receipt"]
    assert row_ddl(include_headers=False, include_receipts=True) == (
        row_ddl(include_headers=False) + ", receipt STRING"
    )


@pytest.mark.parametrize("receipt_prefix", [None, "orders@1/g/token/"])
def test_no_messages_make_no_rows(receipt_prefix: str | None):
    stored = messages("a")

    rows = PlainRows("orders", include_headers=True, receipt_prefix=receipt_prefix).of(
        stored.slice(1, 0),
        first_monoton=7,
        published_at=NOON,
        delivery_count=1,
    )

    include_receipts = receipt_prefix is not None
    assert rows.num_rows == 0
    assert rows.schema == row_schema(include_headers=True, include_receipts=include_receipts)


@pytest.mark.parametrize("include_receipts", [True, False])
@pytest.mark.parametrize("include_headers", [True, False])
def test_spark_expects_the_same_schema(include_headers: bool, include_receipts: bool):
    of_spark = {
        "STRING": types.StringType(),
        "BIGINT": types.LongType(),
        "BINARY": types.BinaryType(),
        "MAP<STRING, STRING>": types.MapType(types.StringType(), types.StringType()),
        "TIMESTAMP": types.TimestampType(),
        "INT": types.IntegerType(),
    }
    schema = types.StructType()
    ddl_of_row = row_ddl(include_headers=include_headers, include_receipts=include_receipts)
    for column in ddl_of_row.replace("G, S", "G,_S").split(", "):
        name, ddl = column.replace("G,_S", "G, S").split(" ", 1)
        schema.add(name, of_spark[ddl])

    expected = to_arrow_schema(schema, timezone="UTC")

    given = row_schema(include_headers=include_headers, include_receipts=include_receipts)
    assert given == expected
