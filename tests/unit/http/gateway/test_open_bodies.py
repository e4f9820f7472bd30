"""Bodies that do not arrive whole, at every route that is no endpoint."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from starlette.types import ASGIApp, Receive, Send
from uvicorn.server import ServerState

from cassieq_spark.client import AsyncClient
from cassieq_spark.console import Console
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.serving import connections
from cassieq_spark.http.serving.connections import Config, ConnectionLimiter, HttpConnection
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.memory import MemoryStore

SECRETS = Secrets(("the-secret-of-gateways-that-tests-start",))
PATIENCE = 20
SOON = timedelta(milliseconds=100)


class Door:
    """A gateway with a console, and those who connect to it."""

    def __init__(self, **limits: object) -> None:
        self.limits = Limits(**limits)  # type: ignore[arg-type]
        self.connections = ConnectionLimiter(self.limits)
        store = MemoryStore()
        accounts = Accounts(store, SECRETS)
        client = AsyncClient.from_store(store)
        self.gateway = Gateway(client, accounts, self.limits, self.connections)
        self.console = Console(store, admin_key=SECRETS.admin_key)
        self.console.watcher.start = lambda: None  # type: ignore[method-assign]
        self._state = ServerState()
        self.app: ASGIApp = make_app(lambda: self.gateway, None, console=self.console)  # type: ignore[arg-type]

    @asynccontextmanager
    async def sent(self, head: str, body: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
        """A request that a client has sent; the client leaves at the end."""
        config = Config(self.app, ws="none", lifespan="off", log_config=None)
        config.limiter = self.connections
        ours, theirs = socket.socketpair()
        make = lambda: HttpConnection(config, self._state, {})  # noqa: E731 (asyncio calls it)
        await asyncio.get_running_loop().connect_accepted_socket(make, theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
            await writer.drain()
            yield reader
        finally:
            writer.close()
            await writer.wait_closed()

    async def until_held(self, count: int) -> None:
        while self.connections.forms.taken != count:  # noqa: ASYNC110 (a pool tells nobody)
            await asyncio.sleep(0)

    async def until_answered(self) -> None:
        while self._state.tasks:  # noqa: ASYNC110 (uvicorn tells nobody)
            await asyncio.sleep(0)

    async def until_left(self) -> None:
        while self._state.connections:  # noqa: ASYNC110 (uvicorn tells nobody)
            await asyncio.sleep(0)

    @property
    def full(self) -> list[HttpConnection]:
        """The connections whose buffers are full of answers."""
        found = self._state.connections
        return [
            each for each in found if isinstance(each, HttpConnection) and each.flow.write_paused
        ]

    async def until_full(self) -> None:
        while not self.full:  # noqa: ASYNC110 (uvicorn tells nobody)
            await asyncio.sleep(0)


def form(length: int, path: str = "/console/login") -> str:
    return f"POST {path} HTTP/1.1\nHost: gateway\nContent-Length: {length}"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), PATIENCE)

    asyncio.run(limited())


@pytest.mark.parametrize("path", ["/console/login", "/console/theme"])
def test_a_form_of_a_stranger_that_stops_is_refused_and_its_connection_closed(path: str):
    async def scenario() -> None:
        async with Door(head_time=SOON).sent(form(5000, path), b"k") as reader:
            answer = await reader.read()

        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"a body must arrive at 16384 bytes a second" in answer
        assert b">Too slow</h1>" in answer

    run(scenario)


def test_a_form_of_a_stranger_has_eight_kilobytes_at_the_most():
    async def scenario() -> None:
        door = Door()
        async with door.sent(form(8193)) as reader:
            announced = await reader.read()
        chunk = b"2001\r\n" + b"k" * 0x2001 + b"\r\n"
        head = "POST /console/login HTTP/1.1\nHost: gateway\nTransfer-Encoding: chunked"
        async with door.sent(head, chunk) as reader:
            sent = await reader.read()

        for answer in (announced, sent):
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b"a form has at most 8192 bytes" in answer

    run(scenario)


def test_the_bytes_of_forms_count_until_they_are_answered():
    async def scenario() -> None:
        # There are ten for forms.
        door = Door(held_bytes=80)
        async with door.sent(form(9), b"key=1234"):
            await door.until_held(8)
            async with door.sent(form(5), b"key=1") as reader:
                refused = await reader.readuntil(b"</html>")
        await door.until_held(0)
        async with door.sent(form(5), b"key=1") as reader:
            taken = await reader.readuntil(b"</html>")

        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in refused.lower()
        assert b"the limit is 10; try again in 1 s" in refused
        assert b">Too many at a time</h1>" in refused
        assert taken.startswith(b"HTTP/1.1 401 ")
        assert door.connections.forms.taken == 0
        refusals = 'cassieq_gateway_refused_total{of="all",quota="formBytes"} 1.0'
        assert refusals in door.gateway.metrics.text().decode()

    run(scenario)


def test_a_client_that_reads_no_answers_loses_its_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_PATIENCE_SECONDS", 0.05)

    async def scenario() -> None:
        door = Door(head_time=timedelta(hours=1))
        request = b"GET /openapi.json HTTP/1.1\r\nHost: gateway\r\n\r\n"
        async with door.sent("GET /openapi.json HTTP/1.1\nHost: gateway", request * 50) as reader:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await door.until_left()

    run(scenario)


def test_a_client_that_reads_slowly_keeps_its_connection_as_long_as_it_reads(
    monkeypatch: pytest.MonkeyPatch,
):
    # So that the answers fill all buffers.
    monkeypatch.setattr(connections, "_MOST_PIPELINED", 50)

    async def scenario() -> None:
        door = Door(body_rate=1)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: gateway\r\n\r\n"
        async with door.sent("GET /openapi.json HTTP/1.1\nHost: gateway", request * 50) as reader:
            await door.until_full()
            (connection,) = door.full
            while connection.transport.get_write_buffer_size() >= connection._unsent:
                await reader.read(1000)

            connection._on_patience()
            assert not connection.transport.is_closing()
            connection._on_patience()
            assert connection.transport.is_closing()

    run(scenario)


def test_a_client_that_reads_its_answers_late_has_all_of_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(connections, "_MOST_PIPELINED", 50)

    async def scenario() -> None:
        door = Door()
        request = b"GET /openapi.json HTTP/1.1\r\nHost: gateway\r\n\r\n"
        last = b"GET /health HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"
        head = "GET /openapi.json HTTP/1.1\nHost: gateway"
        async with door.sent(head, request * 49 + last) as reader:
            await door.until_full()
            answers = await reader.read()

        assert answers.count(b"HTTP/1.1 200 OK") == 51

    run(scenario)


def test_a_client_that_leaves_while_requests_wait_for_their_answers_is_noticed(
    caplog: pytest.LogCaptureFixture,
):
    async def scenario() -> None:
        door = Door(head_time=timedelta(hours=1))
        ask = "GET /ready HTTP/1.1\nHost: gateway"
        get = b"GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n"
        came, seen = asyncio.Event(), asyncio.Event()

        async def app(_: object, receive: Receive, send: Send) -> None:
            await receive()
            came.set()
            assert (await receive())["type"] == "http.disconnect"
            await send({"type": "http.response.start", "status": 200})
            seen.set()

        door.app = app
        async with door.sent(ask, get):
            await came.wait()
        await seen.wait()
        await door.until_answered()

    run(scenario)

    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_stranger_who_leaves_within_a_form_writes_no_error_into_the_log(
    caplog: pytest.LogCaptureFixture,
):
    async def scenario() -> None:
        door = Door()
        async with door.sent(form(9), b"key=1234"):
            await door.until_held(8)
        await door.until_answered()

    run(scenario)

    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/ready"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/console/login"),
        ("GET", "/console/static/console.css"),
        ("GET", "/console/queues/orders"),
        ("POST", "/console/queues/orders/change/pause"),
        ("POST", "/console/logout"),
        ("POST", "/console/nothing"),
        ("POST", "/nothing"),
        ("POST", "/health"),
        ("GET", "/admin/api/v1/accounts"),
        ("POST", "/admin/api/v1/accounts"),
        ("GET", "/api/v1/accounts/shop/queues"),
    ],
)
def test_a_body_that_nobody_reads_keeps_no_connection_open(method: str, path: str):
    async def scenario() -> None:
        head = f"{method} {path} HTTP/1.1\nHost: gateway\nContent-Length: 5000"
        async with Door(head_time=SOON).sent(head, b"k") as reader:
            assert (await reader.read()).startswith(b"HTTP/1.1 ")

    run(scenario)
