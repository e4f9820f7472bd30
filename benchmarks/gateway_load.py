"""Clients of a gateway, all in one process: each sends its next request on an answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Protocol, cast
from urllib.parse import urlsplit

import uvloop

#: Verb, path below the queue, and body.
Request = tuple[str, str, bytes]
BODY = b"x" * 100


@dataclass(slots=True)
class Told:
    """The answers that the clients of a run received.

    Attributes:
        messages: How many messages were put, or got and acked.
        seconds: Of each request, until its answer.
        statuses: The number of answers by status code, of codes from 300 on.
        broken: Connections that the gateway has closed.
    """

    messages: int = 0
    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    broken: int = 0

    def summary(self, elapsed: float) -> dict[str, object]:
        """Messages and requests per second, and the time of a request."""
        cuts = quantiles(self.seconds, n=20) if len(self.seconds) > 1 else [0.0] * 19
        return {
            "messages_per_second": round(self.messages / elapsed, 1),
            "requests_per_second": round(len(self.seconds) / elapsed, 1),
            "median_ms": round(cuts[9] * 1000, 1),
            "p95_ms": round(cuts[18] * 1000, 1),
            "other_statuses": self.statuses,
        }


class Putter:
    """Puts single messages."""

    def first(self) -> Request:
        return "POST", "/messages", BODY

    def next(self, status: int, _: bytes) -> tuple[int, Request]:
        """The number of messages that the answer completes, and the next request."""
        return int(status == 201), self.first()


class BatchPutter:
    _body = b'{"message": "' + BODY + b'"}\n'

    def first(self) -> Request:
        return "POST", "/messages/batch", self._body * 100

    def next(self, status: int, _: bytes) -> tuple[int, Request]:
        return 100 * (status == 201), self.first()


class SqsPutter:
    """Sends messages by SQS, ``count`` with each request; its connection signs them."""

    def __init__(self, count: int = 1) -> None:
        self._count, self.body = count, sqs_body(count)

    def first(self) -> Request:
        return "POST", "", self.body

    def next(self, status: int, _: bytes) -> tuple[int, Request]:
        return self._count * (status == 200), self.first()


def sqs_body(count: int) -> bytes:
    """The body of SendMessage, or of SendMessageBatch, to the queue that the path names."""
    text = BODY.decode()
    if count == 1:
        return json.dumps({"MessageBody": text}).encode()
    entries = [{"Id": str(number), "MessageBody": text} for number in range(count)]
    return json.dumps({"Entries": entries}).encode()


class Getter:
    """Gets a message and acks it, again and again."""

    def __init__(self) -> None:
        self._acks = False

    def first(self) -> Request:
        return "GET", "/messages/next?wait=5", b""

    def next(self, status: int, body: bytes) -> tuple[int, Request]:
        count = int(self._acks and status == 204)
        self._acks = status == 200
        if not self._acks:
            return count, self.first()
        return 0, ("DELETE", f"/messages?popReceipt={json.loads(body)['popReceipt']}", b"")


class BatchGetter:
    """Gets a hundred messages with one request, and acks them with the next."""

    def __init__(self) -> None:
        self._count = 0

    def first(self) -> Request:
        return "POST", "/messages/receive?max=100&wait=5", b""

    def next(self, status: int, body: bytes) -> tuple[int, Request]:
        count, self._count = self._count, 0
        if count or status != 200:
            return count * (status == 200), self.first()
        receipts = [json.loads(line)["popReceipt"] for line in body.splitlines()]
        self._count = len(receipts)
        return 0, ("POST", "/messages/ack", json.dumps({"popReceipts": receipts}).encode())


class Client(Protocol):
    """The requests of one client, one after the other."""

    def first(self) -> Request: ...

    def next(self, status: int, body: bytes, /) -> tuple[int, Request]: ...


class Connected(asyncio.Protocol):
    """One client and its connection."""

    def __init__(self, client: Client, told: Told, queue: str, headers: bytes) -> None:
        self._client, self._told = client, told
        self._queue, self._headers = queue, headers
        self._buffer = b""
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask(self._client.first())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lowered = head.lower()
        at = lowered.find(b"content-length:")
        length = int(lowered[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
        if len(body) < length:
            return
        self._buffer = b""
        status = int(head[9:12])
        self._told.seconds.append(time.perf_counter() - self._asked)
        if status >= 300:
            self._told.statuses[status] = self._told.statuses.get(status, 0) + 1
        count, request = self._client.next(status, body)
        self._told.messages += count
        self._ask(request)

    def connection_lost(self, _: Exception | None) -> None:
        self._told.broken += not self._closed

    @property
    def waits(self) -> float:
        """Seconds for which it has waited for an answer by now."""
        return time.perf_counter() - self._asked

    def _ask(self, request: Request) -> None:
        verb, path, body = request
        self._asked = time.perf_counter()
        self._transport.write(
            b"%s %s%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s"
            % (verb.encode(), self._queue.encode(), path.encode(), self._headers, len(body), body)
        )

    def close(self) -> None:
        self._closed = True
        self._transport.abort()


def load(
    url: str, queue: str, headers: bytes, clients: list[Callable[[], Client]], seconds: float
) -> tuple[Told, float]:
    """Let the clients send requests for some seconds; return the answers and the exact seconds."""
    return uvloop.run(_load(url, queue, headers, clients, seconds))


async def _load(
    url: str, queue: str, headers: bytes, clients: list[Callable[[], Client]], seconds: float
) -> tuple[Told, float]:
    began = time.perf_counter()
    told, connections = await connect(url, queue, headers, clients)
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return told, elapsed


def with_key(key: str) -> bytes:
    """The headers of requests with a key of an account."""
    return f"Authorization: Key {key}\r\n".encode()


async def connect(
    url: str, queue: str, headers: bytes, clients: Sequence[Callable[[], Client]]
) -> tuple[Told, list[Connected]]:
    """Let the clients send requests with these headers until their connections are closed."""
    loop = asyncio.get_running_loop()
    where = urlsplit(url)
    assert where.hostname is not None  # noqa: S101 (bench made it)
    assert where.port is not None  # noqa: S101
    headers = f"Host: {where.netloc}\r\n".encode() + headers
    told = Told()
    connections = []
    for make in clients:
        _, connection = await loop.create_connection(
            lambda make=make: Connected(make(), told, queue, headers),  # type: ignore[misc]
            where.hostname,
            where.port,
        )
        connections.append(connection)
    return told, connections
