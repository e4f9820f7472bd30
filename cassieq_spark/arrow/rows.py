"""Rows for Spark's source and the client: messages, with what the ledger knows about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, ClassVar

import pyarrow as pa

from cassieq_spark.arrow.framing import HEADERS, STORED
from cassieq_spark.arrow.row_columns import COLUMNS, row_columns
from cassieq_spark.arrow.typed_framing import EXTRA, HEADERS_COLUMN, KEY_COLUMN
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of

_ARROW_TYPES = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "INT": pa.int32(),
    "MAP<STRING, STRING>": HEADERS,
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_TYPES = {name: _ARROW_TYPES[ddl] for name, ddl in COLUMNS.items()}

#: The column that a row of a queue with a schema has in addition to those of the queue.
METADATA = "_metadata"
#: How many constant columns are cached for further chunks; each takes some kilobytes.
_KEPT = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Rows(ABC):
    """Base of `PlainRows` and `TypedRows`."""

    queue: str
    receipt_prefix: str | None = field(default=None, kw_only=True)
    partition: int = field(default=0, kw_only=True)

    @property
    @abstractmethod
    def with_metadata(self) -> bool: ...

    @abstractmethod
    def _joined(self, batch: pa.RecordBatch, metadata: dict[str, pa.Array]) -> pa.RecordBatch: ...

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
            delivery_count: How often the messages were delivered to the group, including this
                time; None when browsing.
        """
        if not self.with_metadata:
            return batch
        import pyarrow.compute as pc  # noqa: PLC0415 (20 ms, before a query has read a message)

        columns = {
            name: _repeated(name, value, batch.num_rows)
            for name, value in (
                ("queue", self.queue),
                ("partition", self.partition),
                ("published_at", published_at),
                ("delivery_count", delivery_count),
            )
        }
        # Not cached: each chunk has another one, and would push the constant columns out.
        first = _of_numbers(pa.int64(), array("q", [first_monoton]))[0]
        columns["monoton"] = pc.add(_numbers(batch.num_rows), first)
        if self.receipt_prefix is not None:
            numbers = columns["monoton"].cast(pa.string())
            prefix, nothing = (
                _repeated("receipt", text, 1)[0] for text in (self.receipt_prefix, "")
            )
            columns["receipt"] = pc.binary_join_element_wise(prefix, numbers, nothing)
        return self._joined(batch, columns)


@dataclass(frozen=True, slots=True)
class PlainRows(_Rows):
    """Rows of a queue whose messages are bytes, as `chunks.decode` returns them.

    Attributes:
        queue: The queue's name, without its version.
        include_headers: True to add a column ``headers``.
        receipt_prefix: The beginning of the receipts; None for no column ``receipt``.
        partition: The queue partition.
    """

    include_headers: bool = True
    columns: ClassVar[None] = None
    with_metadata: ClassVar[bool] = True

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return row_schema(
            include_headers=self.include_headers,
            include_receipts=self.receipt_prefix is not None,
        )

    def _joined(self, batch: pa.RecordBatch, metadata: dict[str, pa.Array]) -> pa.RecordBatch:
        columns = metadata | {name: batch.column(name) for name in STORED.names}
        schema = self.schema
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class TypedRows(_Rows):
    """Rows of a queue with a schema, as `fetch.Decoder` returns them.

    Attributes:
        queue: The queue's name, without its version.
        columns: The wanted columns of the queue.
        with_metadata: True to add the struct ``_metadata``: what the ledger knows about a message,
            its key and its headers.
        receipt_prefix: The beginning of the receipts; None for no ``receipt`` in that struct.
        partition: The queue partition.
    """

    columns: pa.Schema
    with_metadata: bool = True

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        if not self.with_metadata:
            return self.columns
        return self.columns.append(pa.field(METADATA, self._metadata_type))

    @property
    def _metadata_type(self) -> pa.DataType:
        return metadata_type(include_receipts=self.receipt_prefix is not None)

    def _joined(self, batch: pa.RecordBatch, metadata: dict[str, pa.Array]) -> pa.RecordBatch:
        metadata |= {"key": batch.column(KEY_COLUMN), "headers": batch.column(HEADERS_COLUMN)}
        fields = list(self._metadata_type)
        arrays = [metadata[field.name] for field in fields]
        own = [batch.column(name) for name in self.columns.names]
        own.append(pa.StructArray.from_arrays(arrays, fields=fields))
        return pa.RecordBatch.from_arrays(own, schema=self.schema)


#: The rows that a reader wants.
Rows = PlainRows | TypedRows


def rows_of(
    queue: QueueDefinition,
    *,
    receipt_prefix: str | None = None,
    columns: pa.Schema | None = None,
) -> Rows:
    """Rows with all columns of a queue's messages, and with receipts if their prefix is given.

    If ``columns`` are given, the rows have these columns instead of those of the queue's schema.
    """
    if columns is None and queue.schema is not None:
        columns = schema_of(queue.schema)
    return _rows_of(queue, columns, receipt_prefix)


def metadata_rows(queue: QueueDefinition) -> Rows:
    """Rows with what the ledger knows about messages, their keys and headers; of bytes, all."""
    return _rows_of(queue, None if queue.schema is None else pa.schema([]))


def _rows_of(
    queue: QueueDefinition, columns: pa.Schema | None, receipt_prefix: str | None = None
) -> Rows:
    partition = queue.partition or 0
    if columns is None:
        return PlainRows(queue.name, receipt_prefix=receipt_prefix, partition=partition)
    return TypedRows(queue.name, columns, receipt_prefix=receipt_prefix, partition=partition)


def metadata_of(rows: pa.RecordBatch, name: str) -> pa.Array:
    """The metadata of rows of `rows_of` or `metadata_rows`: ``monoton``, ``headers``, ..."""
    if METADATA in rows.schema.names:
        return rows.column(METADATA).field(name)
    return rows.column(name)


def stored_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The messages of rows of `rows_of`, as `fetch.Decoder` returns them."""
    if METADATA not in rows.schema.names:
        return rows.select(STORED.names)
    own = rows.drop_columns([METADATA])
    arrays = [*own.columns, metadata_of(rows, "key"), metadata_of(rows, "headers")]
    return pa.RecordBatch.from_arrays(arrays, [*own.schema.names, *EXTRA.names])


def values_of(rows: pa.RecordBatch) -> list[Any]:
    """The values of rows of `rows_of`: bytes, or dicts of columns.

    Raises:
        UnreadableError: A date or an instant is outside the years 1 to 9999.
    """
    if METADATA in rows.schema.names:
        from cassieq_spark.schemas.to_rows import to_dicts  # noqa: PLC0415 (for clients only)

        return list(to_dicts(rows.drop_columns([METADATA])))
    return list(rows.column("value").to_pylist())


# The functions below make arrays from buffers. To make them from Python's objects, pyarrow would
# import pandas, if it is installed; that takes a new worker 0.25 s of processor time.


@lru_cache(maxsize=_KEPT)
def _numbers(count: int) -> pa.Int64Array:
    """The integers from 0 on; cached, as most chunks have one of a few sizes."""
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
    names = row_columns(include_headers=include_headers, include_receipts=include_receipts)
    return pa.schema([(name, _TYPES[name]) for name in names])


@cache
def metadata_type(*, include_receipts: bool) -> pa.DataType:
    """The type of the column ``_metadata`` of a queue with a schema."""
    names = row_columns(include_headers=True, include_receipts=include_receipts)
    return pa.struct([(name, _TYPES[name]) for name in names if name != "value"])
