"""Batches of messages: JSON lines or an Arrow IPC stream, read and written."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from cassieq_spark.arrow.streams import Declared, declared
from cassieq_spark.client import Message, NewMessage
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.gateway.requests import (
    MOST_HEADERS,
    MOST_MEMBERS,
    check_members,
    decoded,
    problems,
)
from cassieq_spark.http.gateway.responses import body_of, json_object, message_json
from cassieq_spark.http.gateway.schemas import NewMessageLine
from cassieq_spark.http.members import may_have_members
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.schemas.convert import without_dictionary
from cassieq_spark.schemas.pandas_index import plain_batches, plain_schema

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

HEADERS = pa.map_(pa.string(), pa.string())
#: The columns of an answer besides the value.
METADATA_FIELDS = [
    pa.field("popReceipt", pa.string()),
    pa.field("deliveryCount", pa.int32()),
    pa.field("partition", pa.int32()),
    pa.field("monoton", pa.int64()),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("publishedAt", pa.timestamp("us", "UTC")),
    pa.field("leaseUntil", pa.timestamp("us", "UTC")),
]
#: Types of texts and bytes whose values are not shared.
TEXTS = {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}

_MESSAGES = pa.schema([*METADATA_FIELDS, ("value", pa.binary())])
_UNIQUE_ID = "uniqueId"
_COLUMNS = {"key", "value", "headers", _UNIQUE_ID}
_TYPES = "value, key and uniqueId must be binary or string, headers a map of strings"
_VIEWS = {pa.binary_view(), pa.string_view()}
#: A view is four 32-bit words; the first is its length.
_WORDS_OF_VIEW = 4
#: The bytes that count for a value: in the stream, a value may take one bit, or nothing.
_BYTES_PER_VALUE = 4
#: Most headers of a batch in Arrow, per message of the largest batch.
_HEADERS_PER_MESSAGE = 20
#: Most lines of a batch, per message: some lines may be empty.
_LINES_PER_MESSAGE = 2


def read_lines(body: bytes, most: int) -> list[NewMessage]:
    """Read messages, one in each line that is not empty.

    Raises:
        RefusedError: 400; a line is not JSON, or not a message; or the body has more than ``most``
            messages.
    """
    # Checked before the body is split, because a line takes more memory than its bytes.
    if body.count(b"\n") > _LINES_PER_MESSAGE * most:
        raise RefusedError(f"a batch has 1 to {most} messages, each in a line")
    lines = [line for line in io.BytesIO(body) if line.strip()]
    _check_count(len(lines), most)
    # A small body has no line with too many members.
    if may_have_members(body) > MOST_MEMBERS:
        for number, line in enumerate(lines):
            check_members(line, MOST_MEMBERS, f"line {number} (counted from 0)")
    return [_message_of(number, line) for number, line in enumerate(lines)]


def read_arrow(body: bytes, most: int, most_bytes: int) -> tuple[list[NewMessage], int]:
    """Read messages of an Arrow IPC stream: ``value``, and other columns if given.

    Buffers may be compressed, and columns may be dictionaries or views. Their decoded size is
    computed before they are decoded, from what the stream declares and from lengths.

    Returns:
        The messages, and their approximate size in bytes.

    Raises:
        RefusedError: 400; the body is no such stream, or has other columns, or more than ``most``
            messages. 413; the decoded body has more than ``most_bytes``.
    """
    table, size = open_table(body, most, most_bytes, _check_columns)
    names = table.column_names
    if "headers" in names:
        check_headers(table.column("headers"), most)
    try:
        columns = {
            name: without_dictionary(table.column(name), name)
            .cast(HEADERS if name == "headers" else pa.binary())
            .to_pylist()
            for name in names
        }
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise RefusedError(f"{_TYPES}: {error}") from error
    none = [None] * table.num_rows
    keys, headers, ids = (columns.get(name, none) for name in ("key", "headers", _UNIQUE_ID))
    for row, pairs in enumerate(headers):
        if pairs and len(dict(pairs)) < len(pairs):
            raise RefusedError(f"row {row} (counted from 0) has a header twice")
    messages = [
        NewMessage(value, key, dict(pairs) if pairs else None, unique_id=unique_id)
        for value, key, pairs, unique_id in zip(columns["value"], keys, headers, ids, strict=True)
    ]
    return messages, size


def open_table(
    body: bytes, most: int, most_bytes: int, check: Callable[[pa.Schema], None]
) -> tuple[pa.Table, int]:
    """Decode an untrusted Arrow IPC stream, after its size was computed; see `read_arrow`.

    ``check`` must refuse columns that share values in a way that the computed size ignores: only a
    column itself may be a dictionary or a view of texts or bytes.
    """
    try:
        stream = declared(body)
        check(plain_schema(stream.schema))
        _check_declared(stream, most, most_bytes)
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        if table.num_rows:
            table = pa.Table.from_batches(plain_batches(table.to_batches()))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise RefusedError(f"the body is not an Arrow IPC stream: {error}") from error
    size = max(stream.size, sum(map(_expanded_bytes, table.columns)))
    _check_size(size, most_bytes)
    return table, size


def check_headers(column: pa.ChunkedArray, most: int) -> None:
    """Refuse more headers than a program needs: even an empty header becomes Python objects.

    Args:
        column: The headers of each row.
        most: How many messages a batch may have.

    Raises:
        RefusedError: 400; a row, or all rows together, have too many headers.
    """
    total = 0
    for chunk in column.chunks:
        ends = chunk.offsets
        counts = pc.subtract(ends.slice(1), ends.slice(0, len(chunk)))
        total += pc.sum(counts).as_py() or 0
        if (largest := pc.max(counts).as_py() or 0) > MOST_HEADERS:
            raise RefusedError(
                f"a message has {largest} headers: the limit is {MOST_HEADERS}; put the data "
                "into its value"
            )
    if total > (limit := _HEADERS_PER_MESSAGE * most):
        raise RefusedError(f"the batch has {total} headers: the limit is {limit}; send several")


def is_bytes(kind: pa.DataType) -> bool:
    """True if values of a type are texts or bytes; dictionaries and views are included."""
    if pa.types.is_dictionary(kind):
        return is_bytes(kind.value_type)
    return kind in TEXTS or kind in _VIEWS


def is_headers(kind: pa.DataType) -> bool:
    """True if values of a type are headers."""
    return pa.types.is_map(kind) and {kind.key_type, kind.item_type} <= TEXTS


def write_lines(messages: Iterable[Message], receipts: PopReceipts) -> bytes:
    """Write messages as JSON lines."""
    return b"".join(json_object(message_json(each, receipts)) + b"\n" for each in messages)


def write_arrow(messages: Sequence[Message], receipts: PopReceipts) -> bytes:
    """Write messages as an Arrow IPC stream."""
    rows = [metadata_of(each, receipts) | {"value": body_of(each)} for each in messages]
    return stream_of(pa.RecordBatch.from_pylist(rows, _MESSAGES))


def metadata_of(message: Message, receipts: PopReceipts) -> dict[str, Any]:
    """The fields of a message except its value; see `METADATA_FIELDS`."""
    return {
        "popReceipt": receipts.of(message.receipt),
        "deliveryCount": message.delivery_count,
        "partition": message.partition,
        "monoton": message.monoton,
        "key": message.key,
        "headers": list(message.headers.items()),
        "publishedAt": message.published_at,
        "leaseUntil": message.lease_until,
    }


def stream_of(batch: pa.RecordBatch) -> bytes:
    """Write the rows of a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _message_of(number: int, line: bytes) -> NewMessage:
    try:
        given = NewMessageLine.model_validate_json(line)
    except ValidationError as error:
        where = f"line {number} (counted from 0)"
        raise RefusedError(problems(error, NewMessageLine, "field", where)) from error
    value = decoded(given.message, given.encoding, f"the message of line {number}")
    key = None
    if given.key is not None:
        key = decoded(given.key, given.key_encoding, f"the key of line {number}")
    unique_id = None
    if given.unique_id is not None:
        what = f"uniqueId of line {number}"
        unique_id = decoded(given.unique_id, given.unique_id_encoding, what)
    return NewMessage(value, key, given.headers, unique_id=unique_id)


def _check_columns(schema: pa.Schema) -> None:
    names = schema.names
    if "value" not in names or not set(names) <= _COLUMNS or len(set(names)) < len(names):
        raise RefusedError(
            "a batch has the columns value, key, headers and uniqueId, not "
            + ", ".join(names)[:200]
        )
    for field in schema:
        if not (is_headers if field.name == "headers" else is_bytes)(field.type):
            raise RefusedError(f"{_TYPES}: {field.name} is {str(field.type)[:100]}")


def _check_declared(stream: Declared, most: int, most_bytes: int) -> None:
    _check_count(stream.rows, most)
    if stream.messages > _LINES_PER_MESSAGE * most:
        raise RefusedError(f"the stream has {stream.messages} parts for {stream.rows} messages")
    _check_size(stream.size, most_bytes)
    if stream.values > (limit := most_bytes // _BYTES_PER_VALUE):
        raise RefusedError(f"the batch has {stream.values} values: the limit is {limit}", 413)


def _expanded_bytes(column: pa.ChunkedArray) -> int:
    """Bytes that a column with shared values would take without sharing; 0 for other columns."""
    if pa.types.is_dictionary(column.type):
        return sum(_of_dictionary(chunk) for chunk in column.chunks)
    if column.type in _VIEWS:
        return sum(_of_views(chunk) for chunk in column.chunks)
    return 0


def _of_dictionary(chunk: pa.DictionaryArray) -> int:
    """Bytes of a dictionary's entries as plain values, and of the rows that refer to entries."""
    entries = chunk.dictionary
    if not is_bytes(entries.type):
        width = int(entries.type.bit_width) // 8 + 1
        return (len(chunk) + len(entries)) * width
    lengths = _lengths(entries)
    rows = pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return int(rows) + (pc.sum(lengths).as_py() or 0)


def _of_views(chunk: pa.Array) -> int:
    return int(pc.sum(_lengths(chunk)).as_py() or 0)


def _lengths(values: pa.Array) -> pa.Int64Array:
    """The length of each text; texts of a view may share bytes."""
    if values.type not in _VIEWS:
        return pc.fill_null(pc.binary_length(values), 0).cast(pa.int64())
    _, views, *_ = values.buffers()
    words = memoryview(views).cast("i")
    first = _WORDS_OF_VIEW * values.offset
    used = words[first : first + _WORDS_OF_VIEW * len(values) : _WORDS_OF_VIEW]
    return pa.array([max(0, length) for length in used], pa.int64())


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise RefusedError(
            f"decoded, the batch has {size} bytes: the limit is {most_bytes}; send several", 413
        )


def _check_count(count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise RefusedError(f"a batch has 1 to {most} messages, not {count}")
