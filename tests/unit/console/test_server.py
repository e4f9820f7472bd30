"""What those who reach the console's own server may send, and how slowly."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

_SERVE = """
from datetime import timedelta
from cassieq_spark.console import Console, server
from cassieq_spark.http.serving import connections
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.memory import MemoryStore
server._LIMITS = Limits(head_time=timedelta(milliseconds=500), connections=3)
connections._PATIENCE_SECONDS = 0.2
server.serve(
    lambda port: Console(MemoryStore()),
    server.ConsoleServing(port=0),
    lambda url: print(url, flush=True),
)
"""
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
PATIENCE = 20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a console is that waits for nobody longer than half a second."""
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
        finally:
            process.kill()


def answer_to(port: int, request: bytes) -> bytes:
    """All that the console says until it closes the connection."""
    parts = []
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(request)
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_headers_that_do_not_end_are_refused_in_time(port: int):
    assert answer_to(port, GET).startswith(b"HTTP/1.1 408 ")
    assert answer_to(port, b"") == b""


def test_headers_without_end_are_refused(port: int):
    answer = answer_to(port, GET + b"X: " + b"x" * (40 << 10))

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"which is the limit" in answer
    # It has neither keys nor batches.
    assert b"batch" not in answer


def test_a_request_that_is_malformed_is_not_sent_to_a_description_of_the_gateway(port: int):
    answer = answer_to(port, b"GARBAGE\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"openapi" not in answer


def test_a_form_that_stops_is_refused_in_time(port: int):
    head = b"POST /theme HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"

    answer = answer_to(port, head + b"theme=")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"a body must arrive at 16384 bytes a second" in answer


def test_clients_that_read_no_answers_lose_their_connections(port: int):
    asks = b"GET /static/console.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 90
    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(socket.socket())
            # So that little waits in the kernel.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 600)
            connection.connect(("127.0.0.1", port))
            connection.sendall(asks)

        end = time.monotonic() + PATIENCE
        while not answer_to(port, GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 "):
            assert time.monotonic() < end


def test_there_may_be_so_many_connections(port: int):
    address = ("127.0.0.1", port)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(address))
        assert answer_to(port, b"").startswith(b"HTTP/1.1 503 ")
