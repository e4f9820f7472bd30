"""Messages as a program has them, and as lines of JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import httpx

from cassieq_spark.errors import CassieqError, NotFoundError

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
        key: As put, if it was text.
        headers: As put.
        lease_until: Until when it is surely held, by Cassandra's clock.
    """

    receipt: str
    value: bytes
    delivery_count: int
    monoton: int
    key: str | None
    headers: Mapping[str, str | None] = field(hash=False)
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
    if isinstance(value, str):
        line = {"message": value}
    else:
        line = {"message": b64encode(value).decode(), "encoding": _BASE64}
    return json.dumps(line).encode() + b"\n"


def messages_of(answer: httpx.Response) -> Iterator[HttpMessage]:
    """The messages of an answer, each a line of JSON."""
    for line in answer.content.splitlines():
        told = json.loads(line)
        text: str = told["message"]
        yield HttpMessage(
            told["popReceipt"],
            text.encode() if told["encoding"] == _TEXT else b64decode(text),
            told["deliveryCount"],
            told["monoton"],
            told["key"],
            told["headers"],
            datetime.fromisoformat(told["leaseUntil"]),
        )
