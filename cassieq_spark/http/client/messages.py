"""Messages of the HTTP client: as objects, and as JSON of requests and answers."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from cassieq_spark.arguments import bytes_of, check_text, header_pairs, shown
from cassieq_spark.display import Displayed, View
from cassieq_spark.errors import CassieqError, MessageError, NotFoundError, OptionError

Headers = Mapping[str, str | None]

_MISSING = 404
_ERRORS = 400
_TEXT, _BASE64 = "text", "base64"


class HttpError(CassieqError):
    """The gateway refused a request, or failed.

    Attributes:
        status: The status code; 0 if there was no answer. With 0 and 504 the outcome is unknown.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, repr=False)
class HttpMessage(Displayed):
    """A message that is leased to this program.

    Attributes:
        receipt: Settles it.
        value: The body.
        delivery_count: How often it was delivered to its group, this time included.
        monoton: Its position in its partition of the queue.
        key: The key; text comes back as UTF-8.
        headers: The headers.
        lease_until: The lease does not end before this time, by Cassandra's clock.
        partition: The partition that it is in, from 0.
    """

    receipt: str
    value: bytes
    delivery_count: int
    monoton: int
    key: bytes | None
    headers: Headers = field(hash=False)
    lease_until: datetime
    partition: int = 0

    def _view(self) -> View:
        facts = {
            "partition": self.partition,
            "monoton": str(self.monoton),
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "delivery_count": self.delivery_count,
            "lease_until": self.lease_until,
        }
        details = {"receipt": self.receipt}
        return View("messages", "", facts, details, usual={"partition": 0, "headers": {}})


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer, if it reports success.

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


def line_of(value: bytes | str, what: str = "a value") -> bytes:
    """A message of a batch, as a line of JSON.

    Raises:
        MessageError: It is neither bytes nor text that UTF-8 can hold.
    """
    message, encoding = encoded(value, what)
    return json.dumps({"message": message, "encoding": encoding}).encode() + b"\n"


def encoded(data: bytes | str, what: str) -> tuple[str, str]:
    """Bytes or text as text for JSON, and its encoding.

    Raises:
        MessageError: It is neither bytes nor text that UTF-8 can hold.
    """
    plain = bytes_of(data, what)
    if isinstance(data, str):
        return str.__str__(data), _TEXT
    return b64encode(plain).decode(), _BASE64


def headers_sent(headers: Headers | None) -> dict[str, str]:
    """The headers of a message as one header of a request: JSON, which is ASCII.

    As headers of their own they would lose capitals in names, and spaces around values.

    Raises:
        MessageError: They are not headers.
    """
    pairs = () if headers is None else header_pairs(headers, "the message")
    return {"X-Cassieq-Headers": json.dumps(dict(pairs))} if pairs else {}


def receipt_of(item: HttpMessage | str) -> str:
    """The receipt of a message, or the receipt itself.

    Raises:
        MessageError: It is neither.
    """
    given: object = item.receipt if isinstance(item, HttpMessage) else item
    if isinstance(given, str) and given.isascii():
        return given
    raise MessageError(
        f"a message or its receipt is needed, not {shown(item)}; give several as arguments of "
        "their own: queue.ack(*messages)"
    )


def json_of(given: Mapping[str, object]) -> bytes:
    """The body of a request.

    Raises:
        OptionError: A value cannot be JSON.
    """
    try:
        return json.dumps(given, allow_nan=False).encode()
    except Exception as error:
        raise OptionError(
            f"{', '.join(map(ascii, given))}: one of these cannot be JSON"
        ) from error


def object_of(answer: httpx.Response, *names: str) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises:
        HttpError: The answer is not a gateway's.
    """
    try:
        found: Any = answer.json()
    except ValueError as error:
        raise _strange(answer) from error
    if not isinstance(found, dict) or not found.keys() >= set(names):
        raise _strange(answer)
    return found


def idempotency_sent(key: str) -> dict[str, bytes]:
    """An idempotency key as a header of a request.

    Raises:
        OptionError: HTTP would change the key.
    """
    check_text("idempotency_key", key)
    if key != key.strip() or not key.isprintable() or not key:
        raise OptionError(
            f"idempotency key {key[:60]!r} would not arrive unchanged: expected "
            "printable text without spaces around it, such as a UUID"
        )
    return {"Idempotency-Key": key.encode()}


def messages_of(answer: httpx.Response) -> list[HttpMessage]:
    """The messages of an answer, each a line of JSON.

    Raises:
        HttpError: The answer is not a gateway's.
    """
    try:
        return [_message_of(json.loads(line)) for line in answer.content.splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise _strange(answer) from error


def _message_of(found: Mapping[str, Any]) -> HttpMessage:
    key = found["key"]
    return HttpMessage(
        found["popReceipt"],
        _decoded(found["message"], found["encoding"]),
        found["deliveryCount"],
        found["monoton"],
        None if key is None else _decoded(key, found["keyEncoding"]),
        found["headers"],
        datetime.fromisoformat(found["leaseUntil"]),
        found["partition"],
    )


def _decoded(text: str, encoding: str) -> bytes:
    return text.encode() if encoding == _TEXT else b64decode(text)


def _strange(answer: httpx.Response) -> HttpError:
    return HttpError(
        f"{answer.status_code}: the answer does not come from a gateway; check the URL",
        answer.status_code,
    )
