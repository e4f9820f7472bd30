"""Batches of messages as bodies: a line of JSON for each, or an Arrow IPC stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from cassieq_spark.client import Message, NewMessage
from cassieq_spark.gateway.answers import message_json, pop_receipt
from cassieq_spark.gateway.headers import decoded
from cassieq_spark.gateway.payloads import NewMessageLine
from cassieq_spark.gateway.refusals import RefusedError

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

_HEADERS = pa.map_(pa.string(), pa.string())
_MESSAGES = pa.schema(
    [
        ("popReceipt", pa.string()),
        ("deliveryCount", pa.int32()),
        ("monoton", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("publishedAt", pa.timestamp("us", "UTC")),
        ("leaseUntil", pa.timestamp("us", "UTC")),
    ]
)
_COLUMNS = {"key", "value", "headers"}


def read_lines(body: bytes, most: int) -> list[NewMessage]:
    """Messages, each a line of JSON; empty lines are none.

    Raises:
        RefusedError: 400; a line is not JSON, or not a message; or there are more than ``most``.
    """
    lines = [line for line in body.splitlines() if line.strip()]
    _check_count(len(lines), most)
    return [_message_of(number, line) for number, line in enumerate(lines)]


def read_arrow(body: bytes, most: int) -> list[NewMessage]:
    """Messages of an Arrow IPC stream: column ``value``, perhaps ``key`` and ``headers``.

    Raises:
        RefusedError: 400; it is none, its columns are others, or there are more than ``most``.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise RefusedError(f"the body is no Arrow IPC stream: {error}") from error
    names = set(table.column_names)
    if "value" not in names or not names <= _COLUMNS or len(names) < table.num_columns:
        raise RefusedError(
            f"a batch has the columns value, key and headers, not {', '.join(table.column_names)}"
        )
    _check_count(table.num_rows, most)
    try:
        casts = {"value": pa.binary(), "key": pa.binary(), "headers": _HEADERS}
        columns = {name: table.column(name).cast(casts[name]).to_pylist() for name in names}
    except pa.ArrowException as error:
        raise RefusedError(
            f"value and key must be binary or string, headers a map of strings: {error}"
        ) from error
    keys = columns.get("key", [None] * table.num_rows)
    headers = columns.get("headers", [None] * table.num_rows)
    for row, pairs in enumerate(headers):
        if pairs and len(dict(pairs)) < len(pairs):
            raise RefusedError(f"row {row} (counted from 0) has a header twice")
    return [
        NewMessage(value, key, dict(pairs) if pairs else None)
        for value, key, pairs in zip(columns["value"], keys, headers, strict=True)
    ]


def write_lines(messages: Iterable[Message]) -> bytes:
    """Messages, each a line of JSON."""
    return b"".join(json.dumps(message_json(each)).encode() + b"\n" for each in messages)


def write_arrow(messages: Sequence[Message]) -> bytes:
    """Messages as an Arrow IPC stream."""
    rows: list[dict[str, Any]] = [
        {
            "popReceipt": pop_receipt(each.receipt),
            "deliveryCount": each.delivery_count,
            "monoton": each.monoton,
            "key": each.key,
            "value": each.value,
            "headers": list(each.headers.items()),
            "publishedAt": each.published_at,
            "leaseUntil": each.lease_until,
        }
        for each in messages
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _MESSAGES) as writer:
        writer.write_table(pa.Table.from_pylist(rows, _MESSAGES))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _message_of(number: int, line: bytes) -> NewMessage:
    try:
        given = NewMessageLine.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise RefusedError(
            f"line {number} (counted from 0) is no message: {where}: {first['msg']}"
        ) from error
    value = decoded(given.message, given.encoding, f"the message of line {number}")
    key = given.key
    if key is not None:
        return NewMessage(
            value, decoded(key, given.key_encoding, f"the key of line {number}"), given.headers
        )
    return NewMessage(value, None, given.headers)


def _check_count(count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise RefusedError(f"a batch has 1 to {most} messages, not {count}")
