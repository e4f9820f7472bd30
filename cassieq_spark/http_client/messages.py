"""Messages as a program has them, and as lines of JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import httpx

from cassieq_spark.errors import CassieqError, NotFoundError, OptionError

Headers = Mapping[str, str | None]

_MISSING = 404
_ERRORS = 400
_TEXT, _BASE64 = "text", "base64"


class HttpError(CassieqError):
    """The gateway refused, or failed.

    Attributes:
        status: The status code; 0 if there was no answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """A message that this program holds until it is settled, or ``lease_until``.

    Attributes:
        receipt: By which it is settled.
        value: Its body.
        delivery_count: How often it was delivered to its group, this time included.
        monoton: Its position in the queue.
        key: As put; text comes back as UTF-8.
        headers: As put.
        lease_until: Until when it is surely held, by Cassandra's clock.
    """

    receipt: str
    value: bytes
    delivery_count: int
    monoton: int
    key: bytes | None
    headers: Headers = field(hash=False)
    lease_until: datetime


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer, if it is one of success.

    Raises:
        NotFoundError: There is no such queue or group.
        HttpError: The gateway refused, or failed.
    """
    if answer.status_code < _ERRORS:
        return answer
    try:
        message = answer.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text[:200]
    if answer.status_code == _MISSING:
        raise NotFoundError(message)
    raise HttpError(f"{answer.status_code}: {message}", answer.status_code)


def line_of(value: bytes | str) -> bytes:
    """A message of a batch, as a line of JSON."""
    message, encoding = encoded(value)
    return json.dumps({"message": message, "encoding": encoding}).encode() + b"\n"


def encoded(data: bytes | str) -> tuple[str, str]:
    """Bytes or text as text that can travel, and how it is encoded."""
    if isinstance(data, str):
        return data, _TEXT
    return b64encode(data).decode(), _BASE64


def headers_sent(headers: Headers) -> dict[str, str]:
    """The headers of a message as one header of a request: JSON, which is ASCII.

    Each as a header of its own would lose capitals in names, and spaces around values.
    """
    return {"X-Cassieq-Headers": json.dumps(dict(headers))} if headers else {}


def idempotency_sent(key: str) -> dict[str, bytes]:
    """An idempotency key as a header of a request.

    Raises:
        OptionError: HTTP would change it.
    """
    if key != key.strip() or not key.isprintable() or not key:
        raise OptionError(
            f"idempotency key {key[:60]!r} would not arrive as it is: expected printable text "
            "without spaces around it, such as a UUID"
        )
    return {"Idempotency-Key": key.encode()}


def messages_of(answer: httpx.Response) -> Iterator[HttpMessage]:
    """The messages of an answer, each a line of JSON."""
    for line in answer.content.splitlines():
        told = json.loads(line)
        key = told["key"]
        yield HttpMessage(
            told["popReceipt"],
            _decoded(told["message"], told["encoding"]),
            told["deliveryCount"],
            told["monoton"],
            None if key is None else _decoded(key, told["keyEncoding"]),
            told["headers"],
            datetime.fromisoformat(told["leaseUntil"]),
        )


def _decoded(text: str, encoding: str) -> bytes:
    return text.encode() if encoding == _TEXT else b64decode(text)
