"""Connections to a gateway, of which the test says every byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.support.gateway import PATIENCE, Account, RunningGateway


@dataclass(frozen=True)
class RawAnswer:
    """What a gateway has said before it closed the connection, or ended the answer."""

    status: int
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body."""
        told: dict[str, Any] = json.loads(self.body)
        return told


def connect(gateway: RunningGateway) -> socket.socket:
    """A connection to a gateway without TLS."""
    host, port = gateway.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), PATIENCE)


@contextmanager
def connected(gateway: RunningGateway, count: int) -> Iterator[list[socket.socket]]:
    """So many connections to a gateway without TLS."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(gateway)) for _ in range(count)]


def send(connection: socket.socket, data: bytes) -> bool:
    """Send, until the other end has had enough; whether it took everything."""
    with suppress(ConnectionError):
        connection.sendall(data)
        return True
    return False


def received(connection: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def answer_of(connection: socket.socket) -> RawAnswer | None:
    """The next answer with a Content-Length; None if the connection ends instead."""
    with suppress(ConnectionError), connection.makefile("rb") as reader:
        line = reader.readline()
        length = 0
        while (header := reader.readline().strip()) not in {b"", None}:
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if line:
            return RawAnswer(int(line.split()[1]), reader.read(length))
    return None


def head_of(
    account: Account, method: str, path: str, *headers: str, length: int | None = None
) -> bytes:
    """Request line and headers of a request of an account, to the end of them."""
    lines = [
        f"{method} /api/v1/accounts/{account.name}/queues{path} HTTP/1.1",
        "Host: x",
        f"Authorization: Key {account.key}",
        *headers,
        *([] if length is None else [f"Content-Length: {length}"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
