"""Messages as a program has them, and as the rows of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from cassieq_spark.arguments import bytes_of, check_duration, check_instant, header_pairs
from cassieq_spark.errors import MessageError, OptionError

_HEADERS = pa.map_(pa.string(), pa.string())
#: What a message may have.
COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS)])
_PUBLISHED_AT = "published_at"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Messages and bytes that are put together before they are cut into chunks.
_BATCH_COUNT = 512
_BATCH_BYTES = 1 << 20

Headers = Mapping[str, str | None]
#: When a message is delivered, at the earliest: at an instant, so long after it is published, or,
#: None, at once.
Visible = datetime | timedelta | None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be put.

    Attributes:
        value: Its body; text is stored as UTF-8.
        key: Whatever the program wants to know it by; not looked at by the queue.
        headers: Names with values, for what is about the message rather than in it.
    """

    value: bytes | str
    key: bytes | str | None = None
    headers: Headers | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a queue, as it was put.

    Attributes:
        queue: Name of the queue.
        monoton: Its position there, from 0, without gaps.
        key: As put; text comes back as UTF-8.
        value: As put; text comes back as UTF-8.
        headers: As put; empty if there were none.
        published_at: When it was published, by the coordinator's clock.
    """

    queue: str
    monoton: int
    key: bytes | None
    value: bytes
    headers: Headers = field(hash=False)
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Message(StoredMessage):
    """A message that this program holds, under a lease.

    Attributes:
        group: The consumer group that it was delivered to.
        delivery_count: How often it was delivered to that group, this time included.
        receipt: Text by which it is settled, also by another program.
        lease_until: Until when it is surely held, by the coordinator's clock, unless extended.
    """

    group: str
    delivery_count: int
    receipt: str
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """A message that was found good, ready to be written.

    Attributes:
        key: Or None.
        value: Its body.
        headers: Names with values; None if there are none.
        size: Bytes of all three.
    """

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, str | None], ...] | None
    size: int


def row_of(message: bytes | str | NewMessage, *, limit: int, what: str = "the message") -> Row:
    """Check a message and make it a row.

    Args:
        message: A value, or a message with more than that.
        limit: Most bytes that it may have, with its key and headers.
        what: Which message it is, for errors.

    Raises:
        MessageError: Its value, key or headers are of another type, a header has no name, a text
            is not one that UTF-8 can hold, or it is too large.
    """
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    value = bytes_of(new.value, f"the value of {what}")
    key = None if new.key is None else bytes_of(new.key, f"the key of {what}")
    headers = None if new.headers is None else header_pairs(new.headers, what) or None
    size = len(value) + len(key or b"")
    size += sum(len(text.encode()) for pair in headers or () for text in pair if text)
    if size > limit:
        raise MessageError(
            f"{what} is {size} bytes with its key and headers: the limit is {limit}; put it "
            "elsewhere and a reference to it into the queue"
        )
    return Row(key, value, headers, size)


def schema_of(rows: Sequence[Row]) -> pa.Schema:
    """The columns that some of these rows have: each costs some hundred bytes a chunk."""
    return pa.schema(
        [
            column
            for column in COLUMNS
            if any(getattr(row, column.name) is not None for row in rows)
        ]
    )


def batches_of(rows: Iterable[Row], schema: pa.Schema = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Put rows together into Arrow batches as they come, a bounded number of bytes each."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += row.size
        if len(held) == _BATCH_COUNT or size >= _BATCH_BYTES:
            yield _batch_of(held, schema)
            held, size = [], 0
    if held:
        yield _batch_of(held, schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of batches that were fetched; instants as microseconds since 1970."""
    for batch in batches:
        at = batch.schema.get_field_index(_PUBLISHED_AT)
        # As instants, Arrow would look for a time zone database, which a machine may not have.
        plain = batch.set_column(at, _PUBLISHED_AT, batch.column(at).cast(pa.int64()))
        yield from plain.to_pylist()


def stored_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `StoredMessage` from a row of `rows_of`."""
    return {
        "queue": row["queue"],
        "monoton": row["monoton"],
        "key": row["key"],
        "value": row["value"],
        "headers": dict(row["headers"] or ()),
        "published_at": _EPOCH + timedelta(microseconds=row[_PUBLISHED_AT]),
    }


def size_of(message: StoredMessage) -> int:
    """Bytes of a message that is handed over: value and key, and its headers thrice.

    JSON may take up to six bytes for one of a header, and less than three for one of value or
    key, which go as Base64 before they take more.
    """
    headers = sum(len(name) + len(text or "") for name, text in message.headers.items())
    return len(message.value) + len(message.key or b"") + 3 * headers


def visible_from(delay: timedelta | None, visible_at: datetime | None) -> Visible:
    """When a message is to be delivered: so long after it is published, at an instant, at once.

    Raises:
        OptionError: Both are given, one is out of range, or the instant has no time zone.
    """
    if delay is not None and visible_at is not None:
        raise OptionError("delay and visible_at exclude each other: give one of them")
    if visible_at is not None:
        return check_instant("visible_at", visible_at)
    return None if delay is None else check_duration("delay", delay) or None


def _batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(row, column.name) for row in rows], column.type) for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
