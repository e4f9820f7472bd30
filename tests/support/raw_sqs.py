"""Requests of SQS byte by byte, signed as somebody likes, also in ways that no client would."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

from cassieq_spark.http.sqs.errors import SqsError
from cassieq_spark.http.sqs.signature import (
    ALGORITHM,
    canonical_request,
    signature_of,
    text_to_sign,
)
from cassieq_spark.http.sqs.wire import Received
from tests.support.gateway import PATIENCE, Account

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
JSON_TYPE, FORM_TYPE = b"application/x-amz-json-1.0", b"application/x-www-form-urlencoded"
REGION = "eu-central-1"
_TIME = "%Y%m%dT%H%M%SZ"
_JSON_PREFIX = "com.amazonaws.sqs#"

#: How the Query protocol calls items, and of maps the key and the value.
ITEMS = {
    "AWSAccountIds": ("AWSAccountId",),
    "Actions": ("ActionName",),
    "AttributeNames": ("AttributeName",),
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributeNames": ("MessageAttributeName",),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributeNames": ("MessageSystemAttributeName",),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name", "Value"),
    "StringListValues": ("StringListValue",),
    "BinaryListValues": ("BinaryListValue",),
    "TagKeys": ("TagKey",),
    "Tags": ("Tag", "Key", "Value"),
    "tags": ("Tag", "Key", "Value"),
}


@dataclass(frozen=True)
class Raw:
    """A request.

    Attributes:
        method, path, query: As they are sent.
        headers: Names in lower case, with values; without ``host`` and ``content-length``.
        body: The body.
    """

    method: str = "POST"
    path: bytes = b"/"
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    @property
    def is_json(self) -> bool:
        """True if the door is to answer in JSON."""
        first = dict(reversed(self.headers))
        kind = first.get(b"content-type", b"").lower()
        return b"x-amz-target" in first or kind.startswith(b"application/x-amz-json")

    def with_headers(self, **values: bytes) -> Raw:
        """The request with other headers, an underscore standing for a hyphen."""
        given = {name.replace("_", "-").encode(): value for name, value in values.items()}
        kept = tuple(each for each in self.headers if each[0] not in given)
        return replace(self, headers=(*kept, *given.items()))

    def received(self, host: str) -> Received:
        """The request as the door has it."""
        headers = [(b"host", host.encode()), *self.headers]
        return Received(self.method, self.path, self.query, headers)


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of the error; empty if the request has succeeded."""
        if self.status < 400:
            return ""
        if self.body.startswith(b"{"):
            return str(json.loads(self.body)["__type"]).removeprefix(_JSON_PREFIX)
        return ET.fromstring(self.body).findtext(f".//{NAMESPACE}Code", "")

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass(frozen=True)
class Signer:
    """How a request is signed.

    Attributes:
        key_id, secret: The key.
        at: When.
        region, service: The scope.
        leaves_out: Names of headers that are not signed.
    """

    key_id: str
    secret: str
    at: datetime | None = None
    region: str = REGION
    service: str = "sqs"
    leaves_out: frozenset[str] = frozenset()

    @classmethod
    def of(cls, account: Account, **given: Any) -> Signer:
        """Signs with the key of an account."""
        return cls(account.name, account.key, **given)

    def signed(self, raw: Raw, host: str) -> Raw:
        """The request with a signature in its headers."""
        at = self._time()
        raw = raw.with_headers(x_amz_date=at.strftime(_TIME).encode())
        received = raw.received(host)
        names = self._names(received)
        digest = hashlib.sha256(raw.body).hexdigest()
        text = canonical_request(received, names, digest)
        signature = self._signature(text, at)
        value = (
            f"{ALGORITHM} Credential={self.key_id}/{self._scope(at)}, "
            f"SignedHeaders={b';'.join(names).decode('latin-1')}, Signature={signature}"
        )
        return raw.with_headers(authorization=value.encode())

    def presigned(self, raw: Raw, host: str, expires: object = 60) -> Raw:
        """The request with a signature in its query."""
        at = self._time()
        names = self._names(raw.received(host))
        more = urlencode(
            {
                "X-Amz-Algorithm": ALGORITHM,
                "X-Amz-Credential": f"{self.key_id}/{self._scope(at)}",
                "X-Amz-Date": at.strftime(_TIME),
                "X-Amz-Expires": expires,
                "X-Amz-SignedHeaders": b";".join(names),
            }
        ).encode()
        raw = replace(raw, query=b"&".join(filter(None, (raw.query, more))))
        digest = hashlib.sha256(raw.body).hexdigest()
        text = canonical_request(raw.received(host), names, digest, is_presigned=True)
        signature = f"&X-Amz-Signature={self._signature(text, at)}"
        return replace(raw, query=raw.query + signature.encode())

    def _time(self) -> datetime:
        return self.at or datetime.now(UTC)

    def _scope(self, at: datetime) -> str:
        return f"{at:%Y%m%d}/{self.region}/{self.service}/aws4_request"

    def _names(self, received: Received) -> tuple[bytes, ...]:
        names = {name for name, _ in received.headers}
        return tuple(sorted(names - {each.encode() for each in self.leaves_out}))

    def _signature(self, request: bytes, at: datetime) -> str:
        scope = self._scope(at)
        return signature_of(self.secret, scope, text_to_sign(at.strftime(_TIME), scope, request))


def raw_json(operation: str, given: Any) -> Raw:
    """A request in AWS JSON 1.0, unsigned."""
    target = f"AmazonSQS.{operation}".encode()
    headers = ((b"content-type", JSON_TYPE), (b"x-amz-target", target))
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    return Raw(headers=headers, body=body)


def raw_form(operation: str, given: Mapping[str, Any]) -> Raw:
    """A request in the Query protocol, unsigned."""
    pairs = [("Action", operation), ("Version", "2012-11-05"), *flat(operation, given)]
    body = "&".join(
        f"{quote(name, '.')}={quote(value, errors='replace')}" for name, value in pairs
    )
    return Raw(headers=((b"content-type", FORM_TYPE),), body=body.encode())


def flat(operation: str, given: Any, begin: str = "") -> list[tuple[str, str]]:
    """An input as the parameters of a form."""
    if not isinstance(given, dict):
        return [(begin.removesuffix("."), _text(given))]
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        item, *of_map = ITEMS.get(name, (f"{operation}RequestEntry",))
        if isinstance(value, list):
            for number, each in enumerate(value, 1):
                found += flat(operation, each, f"{begin}{item}.{number}.")
        elif of_map and isinstance(value, dict):
            for number, (key, each) in enumerate(value.items(), 1):
                found.append((f"{begin}{item}.{number}.{of_map[0]}", key))
                found += flat(operation, each, f"{begin}{item}.{number}.{of_map[1]}.")
        else:
            found += flat(operation, value, f"{begin}{name}.")
    return found


def send(url: str, raw: Raw, *, local: str = "", patience: float = PATIENCE) -> Told:
    """Send a request by a connection of its own, from another local address if one is given."""
    with connected(url, raw, local=local, patience=patience) as connection:
        with suppress(ConnectionError):
            # What refuses a body does not read it.
            connection.sendall(raw.body)
        answer = HTTPResponse(connection, method=raw.method)
        answer.begin()
        return Told(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


def connected(url: str, raw: Raw, *, local: str = "", patience: float = PATIENCE) -> socket.socket:
    """A connection on which the head of a request was sent."""
    where = urlsplit(url)
    lines = [
        raw.method.encode()
        + b" "
        + raw.path
        + (b"?" + raw.query if raw.query else b"")
        + b" HTTP/1.1",
        b"host: " + dict(raw.headers).get(b"host", where.netloc.encode()),
        b"content-length: %d" % len(raw.body),
        b"connection: close",
        *(name + b": " + value for name, value in raw.headers if name != b"host"),
    ]
    connection = socket.create_connection(
        (where.hostname or "", where.port or 80), patience, (local, 0) if local else None
    )
    connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
    return connection


def host_of(url: str) -> str:
    """The header Host of requests to a URL."""
    return urlsplit(url).netloc


def errors() -> list[type[SqsError]]:
    """All errors that the door may answer with."""
    return list(SqsError.__subclasses__())


def long_ago(**before: float) -> datetime:
    """A time before now."""
    return datetime.now(UTC) - timedelta(**before)


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return value if isinstance(value, str) else str(value)
