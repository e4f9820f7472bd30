"""Encodes messages, headers and receipts for the HTTP client, and checks them before."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.arguments import (
    bytes_of,
    check_duration,
    check_instant,
    check_many,
    check_text,
    header_pairs,
    shown,
)
from cassieq_spark.consumer.message import Message
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.http import BASE64, TEXT
from cassieq_spark.producer.new_message import Headers, NewMessage, Value
from cassieq_spark.schemas.to_rows import json_text


def delay_sent(delay: timedelta | None, visible_at: datetime | None) -> dict[str, Any]:
    """The earliest delivery of messages, as parameters of a request.

    Raises:
        OptionError: Both arguments are given, or one is out of range.
    """
    if delay is not None and visible_at is not None:
        raise OptionError("give either delay or visible_at")
    if visible_at is not None:
        return {"visibleAt": check_instant("visible_at", visible_at).isoformat()}
    if delay is not None:
        return {"initialInvisibilitySeconds": check_duration("delay", delay).total_seconds()}
    return {}


def body_sent(value: Value, what: str) -> bytes:
    """The body of a message: bytes, text as UTF-8, or a dict of columns as JSON.

    Raises:
        MessageError: The value is of another type, or a column's value has no form in JSON.
    """
    if not isinstance(value, Mapping):
        return bytes_of(value, what)
    try:
        return json_text(dict(value))
    except Exception as error:
        raise MessageError(f"{what} cannot be JSON: {type(error).__name__}") from error


def new_message_sent(message: Value | NewMessage, what: str = "the message") -> dict[str, Any]:
    """A message as fields of JSON.

    Raises:
        MessageError: The argument is not a message, or has a delay of its own.
    """
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    if new.delay is not None or new.visible_at is not None:
        raise MessageError(
            f"{what} has a delay of its own: give one delay for all messages of the call"
        )
    text, encoding = encoded(new.value, f"the value of {what}")
    sent: dict[str, Any] = {"message": text, "encoding": encoding}
    if new.key is not None:
        sent["key"], sent["keyEncoding"] = encoded(new.key, f"the key of {what}")
    if new.unique_id is not None:
        text, encoding = encoded(new.unique_id, f"the unique id of {what}")
        sent |= {"uniqueId": text, "uniqueIdEncoding": encoding}
    if new.headers is not None:
        sent["headers"] = dict(header_pairs(new.headers, what))
    return sent


def lines_sent(messages: Iterable[Value | NewMessage]) -> bytes:
    """The messages of a batch, each a line of JSON.

    Raises:
        MessageError: The argument is not an iterable of messages, or an item is not a message.
    """
    if isinstance(messages, NewMessage | Mapping):
        raise MessageError(
            "messages must be a list of values, such as [message]; for a single value, use put"
        )
    check_many("messages", messages, "a list of values; for a single value, use put")
    sent = (new_message_sent(each, f"message {at} (from 0)") for at, each in enumerate(messages))
    return b"".join(json.dumps(each).encode() + b"\n" for each in sent)


def encoded(data: Value, what: str) -> tuple[str, str]:
    """Encode bytes or text as text for JSON; return the text and its encoding.

    Raises:
        MessageError: The data are neither bytes nor text that UTF-8 can encode.
    """
    plain = body_sent(data, what)
    if isinstance(data, bytes):
        return b64encode(plain).decode(), BASE64
    return plain.decode(), TEXT


def headers_sent(headers: Headers | None) -> dict[str, str]:
    """The headers of a message as one header of a request: JSON, which is ASCII.

    If each had a request header of its own, names would lose capitals, and values the spaces
    around them.

    Raises:
        MessageError: The argument has not the form of headers.
    """
    pairs = () if headers is None else header_pairs(headers, "the message")
    return {"X-Cassieq-Headers": json.dumps(dict(pairs))} if pairs else {}


def idempotency_sent(key: str | None) -> dict[str, bytes | str]:
    """An idempotency key as a header of a request; empty if the key is None.

    Raises:
        OptionError: HTTP would change the key.
    """
    if key is None:
        return {}
    check_text("idempotency_key", key)
    if key != key.strip() or not key.isprintable() or not key:
        raise OptionError(
            f"idempotency key {key[:60]!r} would not arrive unchanged: expected "
            "printable text without spaces around it, such as a UUID"
        )
    return {"Idempotency-Key": key.encode()}


def receipt_of(item: object) -> str:
    """The receipt of a message, or the receipt itself if one is given.

    Raises:
        MessageError: The argument is neither a message nor a receipt.
    """
    given: object = item.receipt if isinstance(item, Message) else item
    if isinstance(given, str) and given.isascii():
        return given
    raise MessageError(
        f"a message or its receipt is needed, not {shown(item)}; give several as arguments of "
        "their own: queue.ack(*messages)"
    )


def json_of(given: Mapping[str, object]) -> bytes:
    """Encode the body of a request as JSON.

    Raises:
        OptionError: A value has no form in JSON.
    """
    try:
        return json.dumps(given, allow_nan=False).encode()
    except Exception as error:
        raise OptionError(
            f"{', '.join(map(ascii, given))}: one of these cannot be JSON"
        ) from error
