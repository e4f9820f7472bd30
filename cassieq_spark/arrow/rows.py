"""Rows as Spark's source and the client get them: messages, and what the ledger knows of them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from cassieq_spark.arrow.framing import HEADERS, STORED
from cassieq_spark.arrow.typed_framing import EXTRA, HEADERS_COLUMN, KEY_COLUMN
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of

_ROW = [
    ("queue", pa.string(), "STRING"),
    ("partition", pa.int32(), "INT"),
    ("monoton", pa.int64(), "BIGINT"),
    ("key", pa.binary(), "BINARY"),
    ("value", pa.binary(), "BINARY"),
    ("headers", HEADERS, "MAP<STRING, STRING>"),
    ("published_at", pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    ("delivery_count", pa.int32(), "INT"),
    ("receipt", pa.string(), "STRING"),
]

#: What a row of a queue with a schema has beside the columns of the queue.
METADATA = "_metadata"
_TYPES = {name: type_ for name, type_, _ in _ROW}
#: How many constant columns are kept for further chunks; each takes some kilobytes.
_KEPT = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Rows(Protocol):
    """What rows a reader wants of messages."""

    @property
    def columns(self) -> pa.Schema | None:
        """The columns of the queue that it wants; None: its messages are bytes."""
        ...

    @property
    def with_extras(self) -> bool:
        """Whether it wants their keys and headers."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    def of(
        self,
        batch: pa.RecordBatch,
        *,
        first_monoton: int,
        published_at: datetime,
        delivery_count: int | None,
    ) -> pa.RecordBatch:
        """Make rows of decoded messages.

        Args:
            batch: Consecutive messages of one block.
            first_monoton: The monoton of the first message.
            published_at: An aware instant.
            delivery_count: How often they were delivered to the group, now included; None when
                browsing.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of a queue whose messages are bytes, as `chunks.decode` returns them.

    Attributes:
        queue: The queue's name, without its version.
        include_headers: Whether to add a column ``headers``.
        receipt_prefix: What their receipts begin with; None for no column ``receipt``.
        partition: Which partition of the queue.
    """

    queue: str
    include_headers: bool = True
    receipt_prefix: str | None = None
    partition: int = 0
    columns: ClassVar[None] = None
    with_extras: ClassVar[bool] = True

    @property
    def schema(self) -> pa.Schema:
        """See `Rows`."""
        return row_schema(
            include_headers=self.include_headers,
            include_receipts=self.receipt_prefix is not None,
        )

    def of(
        self,
        batch: pa.RecordBatch,
        *,
        first_monoton: int,
        published_at: datetime,
        delivery_count: int | None,
    ) -> pa.RecordBatch:
        """See `Rows.of`."""
        schema = self.schema
        columns = _told(
            schema.names,
            batch.num_rows,
            first_monoton,
            {
                "queue": self.queue,
                "partition": self.partition,
                "published_at": published_at,
                "delivery_count": delivery_count,
            },
            self.receipt_prefix,
        )
        columns |= {name: batch.column(name) for name in STORED.names}
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows of a queue with a schema, as `fetch.Decoder` returns them.

    Attributes:
        queue: The queue's name, without its version.
        columns: The columns of the queue that are wanted.
        with_metadata: Whether to add the struct ``_metadata``: what the ledger knows of a message,
            its key and its headers.
        receipt_prefix: What the receipts in it begin with; None for no field ``receipt``.
        partition: Which partition of the queue.
    """

    queue: str
    columns: pa.Schema
    with_metadata: bool = True
    receipt_prefix: str | None = None
    partition: int = 0

    @property
    def with_extras(self) -> bool:
        """See `Rows`."""
        return self.with_metadata

    @property
    def schema(self) -> pa.Schema:
        """See `Rows`."""
        if not self.with_metadata:
            return self.columns
        type_ = metadata_type(include_receipts=self.receipt_prefix is not None)
        return self.columns.append(pa.field(METADATA, type_))

    def of(
        self,
        batch: pa.RecordBatch,
        *,
        first_monoton: int,
        published_at: datetime,
        delivery_count: int | None,
    ) -> pa.RecordBatch:
        """See `Rows.of`."""
        if not self.with_metadata:
            return batch
        fields = list(metadata_type(include_receipts=self.receipt_prefix is not None))
        columns = _told(
            [field.name for field in fields],
            batch.num_rows,
            first_monoton,
            {
                "queue": self.queue,
                "partition": self.partition,
                "published_at": published_at,
                "delivery_count": delivery_count,
            },
            self.receipt_prefix,
        )
        columns |= {"key": batch.column(KEY_COLUMN), "headers": batch.column(HEADERS_COLUMN)}
        arrays = [columns[field.name] for field in fields]
        metadata = pa.StructArray.from_arrays(arrays, fields=fields)
        own = [batch.column(name) for name in self.columns.names]
        return pa.RecordBatch.from_arrays([*own, metadata], schema=self.schema)


def about(queue: QueueDefinition) -> Rows:
    """What the ledger knows of messages, their keys and headers, and no columns of the queue."""
    partition = queue.partition or 0
    if queue.schema is None:
        return PlainRows(queue.name, partition=partition)
    return TypedRows(queue.name, pa.schema([]), partition=partition)


def told(rows: pa.RecordBatch, name: str) -> pa.Array:
    """What rows of `rows_of` or `about` tell beside the values: ``monoton``, ``headers``, ..."""
    if METADATA in rows.schema.names:
        return rows.column(METADATA).field(name)
    return rows.column(name)


def stored_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The messages of rows of `rows_of`, as `fetch.Decoder` returns them."""
    if METADATA not in rows.schema.names:
        return rows.select(STORED.names)
    own = rows.drop_columns([METADATA])
    arrays = [*own.columns, told(rows, "key"), told(rows, "headers")]
    return pa.RecordBatch.from_arrays(arrays, [*own.schema.names, *EXTRA.names])


def values_of(rows: pa.RecordBatch) -> list[Any]:
    """The values of rows of `rows_of`: bytes, or dicts of columns.

    Raises:
        UnreadableError: A date or an instant is not of the years 1 to 9999.
    """
    if METADATA in rows.schema.names:
        from cassieq_spark.schemas.rows import to_dicts  # noqa: PLC0415 (for clients only)

        return list(to_dicts(rows.drop_columns([METADATA])))
    return list(rows.column("value").to_pylist())


def rows_of(queue: QueueDefinition, *, receipt_prefix: str | None = None) -> Rows:
    """All that there is of a queue's messages; their receipts, if they begin with something."""
    partition = queue.partition or 0
    if queue.schema is None:
        return PlainRows(queue.name, receipt_prefix=receipt_prefix, partition=partition)
    columns = schema_of(queue.schema)
    return TypedRows(queue.name, columns, receipt_prefix=receipt_prefix, partition=partition)


def _told(
    names: Sequence[str],
    count: int,
    first_monoton: int,
    same: Mapping[str, str | datetime | int | None],
    receipt_prefix: str | None,
) -> dict[str, pa.Array]:
    """What the ledger knows of consecutive messages."""
    import pyarrow.compute as pc  # noqa: PLC0415 (20 ms, before a query has read a message)

    columns = {name: _repeated(name, value, count) for name, value in same.items()}
    # Not cached: each chunk has another, and would push the constant columns out.
    first = _of_numbers(pa.int64(), array("q", [first_monoton]))[0]
    columns["monoton"] = pc.add(_numbers(count), first)
    if "receipt" in names:
        numbers = columns["monoton"].cast(pa.string())
        prefix, nothing = (_repeated("receipt", text, 1)[0] for text in (receipt_prefix, ""))
        columns["receipt"] = pc.binary_join_element_wise(prefix, numbers, nothing)
    return columns


# Made of buffers: what makes arrays of Python's objects imports pandas, if it is installed. That
# takes a new worker 0.25 s of processor time.


@lru_cache(maxsize=_KEPT)
def _numbers(count: int) -> pa.Int64Array:
    """The numbers from 0 on; cached, as most chunks have one of a few sizes."""
    return _of_numbers(pa.int64(), array("q", range(count)))


@lru_cache(maxsize=_KEPT)
def _repeated(name: str, value: str | datetime | int | None, count: int) -> pa.Array:
    type_ = _TYPES[name]
    match value:
        case None:
            return pa.nulls(count, type_)
        case str():
            text = value.encode()
            ends = array("i", (len(text) * number for number in range(count + 1)))
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * count)]
            return pa.Array.from_buffers(type_, count, buffers)
        case datetime():
            return _of_numbers(type_, array("q", [(value - _EPOCH) // _MICROSECOND]) * count)
    return _of_numbers(type_, array("q" if pa.types.is_int64(type_) else "i", [value]) * count)


def _of_numbers(type_: pa.DataType, numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


@cache
def row_schema(*, include_headers: bool, include_receipts: bool = False) -> pa.Schema:
    """The Arrow schema of the source, exactly as Spark derives it from `row_ddl`."""
    columns = _row(include_headers=include_headers, include_receipts=include_receipts)
    return pa.schema([(name, type_) for name, type_, _ in columns])


@cache
def metadata_type(*, include_receipts: bool) -> pa.DataType:
    """The type of the column ``_metadata`` of a queue with a schema."""
    columns = _row(include_headers=True, include_receipts=include_receipts)
    return pa.struct([(name, type_) for name, type_, _ in columns if name != "value"])


def row_ddl(*, include_headers: bool, include_receipts: bool = False) -> str:
    """The schema of the source for Spark: ``queue STRING, monoton BIGINT, ...``; all nullable."""
    columns = _row(include_headers=include_headers, include_receipts=include_receipts)
    return ", ".join(f"{name} {ddl}" for name, _, ddl in columns)


def _row(*, include_headers: bool, include_receipts: bool) -> list[tuple[str, Any, str]]:
    left_out = {"headers"} if not include_headers else set()
    left_out |= {"receipt"} if not include_receipts else set()
    return [column for column in _ROW if column[0] not in left_out]
