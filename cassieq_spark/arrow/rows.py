"""Rows as Spark's source and the client get them: messages, and what the ledger knows of them."""

from __future__ import annotations

from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arrow.framing import HEADERS, STORED

_ROW = [
    ("queue", pa.string(), "STRING"),
    ("monoton", pa.int64(), "BIGINT"),
    ("key", pa.binary(), "BINARY"),
    ("value", pa.binary(), "BINARY"),
    ("headers", HEADERS, "MAP<STRING, STRING>"),
    ("published_at", pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    ("delivery_count", pa.int32(), "INT"),
    ("receipt", pa.string(), "STRING"),
]

_TYPES = {name: type_ for name, type_, _ in _ROW}
#: How many constant columns are kept for further chunks; each takes some kilobytes.
_KEPT = 64


def message_rows(  # noqa: PLR0913 - each is a column of its own, by name
    batch: pa.RecordBatch,
    *,
    queue: str,
    first_monoton: int,
    published_at: datetime,
    delivery_count: int | None,
    include_headers: bool,
    receipt_prefix: str | None = None,
) -> pa.RecordBatch:
    """Make rows of messages that `chunks.decode` returned.

    Args:
        batch: Consecutive messages of one block.
        queue: The queue's name, without its version.
        first_monoton: The monoton of the first message.
        published_at: An aware instant.
        delivery_count: How often they were delivered to the group, now included; None when
            browsing.
        include_headers: Whether to add a column ``headers``.
        receipt_prefix: What their receipts begin with; None for no column ``receipt``.
    """
    count = batch.num_rows
    include_receipts = receipt_prefix is not None
    schema = row_schema(include_headers=include_headers, include_receipts=include_receipts)
    same = {"queue": queue, "published_at": published_at, "delivery_count": delivery_count}
    columns = {name: batch.column(name) for name in STORED.names}
    columns["monoton"] = pc.add(_numbers(count), first_monoton)
    if include_receipts:
        numbers = columns["monoton"].cast(pa.string())
        columns["receipt"] = pc.binary_join_element_wise(receipt_prefix, numbers, "")
    for name, value in same.items():
        columns[name] = _repeated(name, value, count)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@lru_cache(maxsize=_KEPT)
def _numbers(count: int) -> pa.Int64Array:
    """The numbers from 0 on; cached, as most chunks have one of a few sizes."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)


@lru_cache(maxsize=_KEPT)
def _repeated(name: str, value: str | datetime | int | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, _TYPES[name]), count)


@cache
def row_schema(*, include_headers: bool, include_receipts: bool = False) -> pa.Schema:
    """The Arrow schema of the source, exactly as Spark derives it from `row_ddl`."""
    columns = _row(include_headers=include_headers, include_receipts=include_receipts)
    return pa.schema([(name, type_) for name, type_, _ in columns])


def row_ddl(*, include_headers: bool, include_receipts: bool = False) -> str:
    """The schema of the source for Spark: ``queue STRING, monoton BIGINT, ...``; all nullable."""
    columns = _row(include_headers=include_headers, include_receipts=include_receipts)
    return ", ".join(f"{name} {ddl}" for name, _, ddl in columns)


def _row(*, include_headers: bool, include_receipts: bool) -> list[tuple[str, Any, str]]:
    left_out = {"headers"} if not include_headers else set()
    left_out |= {"receipt"} if not include_receipts else set()
    return [column for column in _ROW if column[0] not in left_out]
