"""Limits of the number of connections, and of the size and time of the head of a request.

httptools accepts a request line and headers of any size, and uvicorn waits for them without limit.
`HttpConnection` is uvicorn's protocol for httptools with limits of both. The console reads its
forms through the `ConnectionLimiter` of the server in which it runs, its own or a gateway's.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, cast

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from cassieq_spark.errors import OptionError
from cassieq_spark.http.serving.bodies import ADMIN, WHOLE, Body, Pool
from cassieq_spark.http.serving.errors import Quota, RefusedError, answer_to, over_quota
from cassieq_spark.settings.gateway import Limits

#: The key under which the scope of a request has `ConnectionLimiter.form`.
FORM = "cassieq-form"

#: Forms have an eighth as many bytes as bodies, and in addition to them. A stranger's form has at
#: most 8 KiB, so the bytes are enough for all connections.
_FORM_SHARE = 8
#: The versions of HTTP that are served.
_VERSIONS = {"1.0", "1.1"}
#: Most requests that a client may send before the answer to the first one, and most headers of all
#: of them: in memory, headers take ten times as many bytes as in the connection.
_MOST_PIPELINED, _MOST_PIPELINED_HEADERS = 20, 200
#: How long the rest of a refused request is read, and how much of it, so that its client sees the
#: answer.
_FAREWELL_SECONDS = 1.0
_FAREWELL_BYTES = 1 << 20
#: Once answers fill the buffers of a connection: the time between two checks that the client takes
#: them at `Limits.body_rate`.
_PATIENCE_SECONDS = 10.0


class Config(uvicorn.Config):
    """The configuration that uvicorn passes to each connection, with the limiter."""

    limiter: ConnectionLimiter


class HttpConnection(HttpToolsProtocol):
    """Reads the requests of one client.

    The connection counts the consecutive bytes that belong to no body and complete nothing. So
    request line, headers, trailers and chunk extensions have one limit, however they arrive. The
    memory of a connection is bounded by this limit and one read of the socket.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, Config)  # noqa: S101 (`serve` makes it)
        self._limiter = config.limiter
        self._limits = config.limiter.limits
        self._host: str | None = None
        # True if headers, or the rest of them, are next.
        self._awaits_head = True
        # Consecutive bytes that were no body and completed nothing; their count with this read.
        self._silent_bytes = self._fed_bytes = 0
        # True if this read brought bytes of a body, or completed something.
        self._moved = False
        # Unanswered requests, oldest first; uvicorn knows only the last one.
        self._unanswered: list[RequestResponseCycle] = []
        # Why the parser was stopped.
        self._refusal: RefusedError | None = None
        # Bytes that came after the refusal.
        self._dropped_bytes = 0
        # When the headers, or the rest of a body that no handler reads, must be complete.
        self._deadline: TimerHandle | None = None
        # When the client must have taken more of the waiting answers.
        self._patience: TimerHandle | None = None
        # The bytes of answers that waited when this time began.
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn does
        """Count the connection; refuse it if too many are open."""
        super().connection_made(transport)
        self._host = self.client[0] if self.client else None
        refusal = self._limiter.enter(self._host)
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, and let every request under way know."""
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        for timer in (self._deadline, self._patience):
            if timer is not None:
                timer.cancel()
        self._limiter.leave(self._host)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait until the client has taken more of the answers, and close if it does not."""
        super().pause_writing()
        self._wait_for_client()

    def resume_writing(self) -> None:
        """Continue: the client has taken the waiting answers."""
        super().resume_writing()
        if self._patience is not None:
            self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse the data; refuse the request if its head is too large."""
        if self._refusal is not None:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _FAREWELL_BYTES:
                self.transport.close()
            return
        self._moved = False
        self._fed_bytes = self._silent_bytes + len(data)
        super().data_received(data)
        if self._moved:
            self._silent_bytes = 0
            return
        self._silent_bytes = self._fed_bytes
        if self._silent_bytes > self._limits.head_bytes:
            self._refuse(self._too_long())
        elif self._awaits_head:
            self._set_deadline()

    def on_headers_complete(self) -> None:
        """Start the request, unless it has too many or too large headers."""
        self._moved, self._awaits_head = True, False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        limits, count = self._limits, len(self.headers)
        if count > limits.header_count:
            quota = Quota("headers", "request", limits.header_count)
            why = f"the request has {count} headers: the limit is {limits.header_count}"
            raise self._stop(RefusedError(why, 431, quota=quota))
        # Most reads are smaller than the limit, and so are the heads in them.
        if self._fed_bytes > limits.head_bytes:
            head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if head > limits.head_bytes:
                raise self._stop(self._too_long())
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts > 1 or self.parser.get_http_version() not in _VERSIONS:
            # A proxy in front may have parsed these bytes as another request.
            raise self._stop(RefusedError("a request is HTTP/1.1 or 1.0, and names one host"))
        if self._is_answering:
            self._check_pipeline()
        self.scope[FORM] = self._limiter.form  # type: ignore[literal-required] # ours
        super().on_headers_complete()
        left = [each for each in self._unanswered if not each.response_complete]
        self._unanswered = [*left, self.cycle]

    def _check_pipeline(self) -> None:
        """Refuse a request that must wait for its turn if too many requests or headers wait."""
        every = [self.headers, *(cycle.scope["headers"] for cycle, _ in self.pipeline)]
        headers = sum(1 for each in every for _ in each)
        for what, waiting, limit in (
            ("pipelined", len(every), _MOST_PIPELINED),
            (
                "pipelinedHeaders",
                headers,
                _MOST_PIPELINED_HEADERS,
            ),
        ):
            if waiting > limit:
                quota = Quota(what, "connection", limit)
                raise self._stop(over_quota(quota, "too many requests wait for their answers"))

    def on_body(self, body: bytes) -> None:
        """Record progress, and handle the data as uvicorn does."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record progress, and complete the request as uvicorn does."""
        self._moved = self._awaits_head = True
        self.scope[WHOLE] = True  # type: ignore[literal-required] # ours
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Limit the time for the rest of a body that no handler reads."""
        super().on_response_complete()
        if not self._awaits_head and self.cycle.response_complete:
            self.cycle.body = bytearray()
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Answer with the reason for which the parser was stopped."""
        self._answer_last(self._refusal or RefusedError(msg))

    def _wait_for_client(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(_PATIENCE_SECONDS, self._on_patience)

    def _on_patience(self) -> None:
        taken = self._unsent - self.transport.get_write_buffer_size()
        if taken < self._limits.body_rate * _PATIENCE_SECONDS:
            self.transport.abort()
        else:
            self._wait_for_client()

    @property
    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _set_deadline(self) -> None:
        if self._deadline is None:
            seconds = self._limits.head_time.total_seconds()
            self._deadline = self.loop.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._refusal is not None or self.transport.is_closing():
            return
        if self._is_answering:
            # The answer under way must be sent first.
            self._set_deadline()
        elif self._awaits_head and self._silent_bytes:
            seconds = int(self._limits.head_time.total_seconds())
            why = f"the headers must be complete within {seconds} s"
            self._refuse(RefusedError(why, 408, quota=Quota("headTime", "request", seconds)))
        else:
            self.transport.close()

    def _too_long(self) -> RefusedError:
        limit = self._limits.head_bytes
        return RefusedError(
            f"request line and headers have more than {limit} bytes, which is the limit",
            431,
            quota=Quota("headBytes", "request", limit),
        )

    def _stop(self, refusal: RefusedError) -> RefusedError:
        """Stop the parser; `send_400_response` answers with the reason."""
        self._refusal = refusal
        return refusal

    def _refuse(self, refusal: RefusedError) -> None:
        self._answer_last(self._stop(refusal))

    def _answer_last(self, refusal: RefusedError) -> None:
        """Answer, and close the connection when the client may have read the answer."""
        self._refusal = refusal
        self._limiter.refuse(refusal)
        if self.transport.is_closing():
            return
        if self._is_answering:
            # The client would take this answer for the answer to the request under way.
            self.transport.close()
            return
        self.transport.write(_as_bytes(refusal))
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.close)


def _as_bytes(refusal: RefusedError) -> bytes:
    answer = answer_to(refusal, "none", {})
    status = HTTPStatus(answer.status_code)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)])


#: The part of an IPv6 address that identifies a subscriber.
_SUBSCRIBER_BITS = 64
_IPV6_BITS = 128
_IPV6 = 6


class ConnectionLimiter:
    """Counts connections, in all and by address, and refuses those beyond the limits.

    Bound to one event loop. Connections of ``proxies``, which are addresses and networks, are not
    limited by address. Forms of the console have bytes of their own: so forms of strangers do not
    keep messages out, and messages do not keep an administrator out.

    Raises:
        OptionError: A proxy is neither an address nor a network.
    """

    def __init__(self, limits: Limits, proxies: Sequence[str] = ()) -> None:
        self.limits = limits
        self._proxies = [_network(each) for each in proxies]
        self._addresses: Counter[str] = Counter()
        size = limits.held_bytes // _FORM_SHARE
        #: The bytes of forms under way.
        self.forms = Pool("formBytes", "bytes of forms under way", size, size, size)
        #: The number of open connections.
        self.count = 0
        #: Called with each refusal.
        self.on_refused: Callable[[Quota], object] = lambda _: None

    def enter(self, host: str | None) -> RefusedError | None:
        """Count a connection until `leave`; return the refusal if a limit is exceeded."""
        self.count += 1
        origin = self._origin(host)
        if origin is not None:
            self._addresses[origin] += 1
            limit = self.limits.address_connections
            if self._addresses[origin] > limit:
                why = (
                    f"{limit} connections from {origin} are open, which is the limit; if that is "
                    "a proxy, start the gateway with --proxy"
                )
                return over_quota(Quota("connections", "address", limit), why)
        limit = self.limits.connections
        if self.count > limit:
            why = f"{limit} connections are open, which is the limit"
            return over_quota(Quota("connections", "all", limit), why, status=503)
        return None

    def leave(self, host: str | None) -> None:
        """Stop counting a connection that was closed; ``host`` is the same as for `enter`."""
        self.count -= 1
        origin = self._origin(host)
        if origin is not None:
            self._addresses[origin] -= 1
            if not self._addresses[origin]:
                del self._addresses[origin]

    @asynccontextmanager
    async def form(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """Read a form of at most ``limit`` bytes, which count until the block ends.

        Raises:
            HTTPException: 408; the form arrives too slowly. 413; the form is too large. 429; all
                forms together are too large.
        """
        body = Body(self.forms, self.limits, request, ADMIN, limit)
        try:
            try:
                content = await body.read()
            except RefusedError as error:
                self.refuse(error)
                raise HTTPException(error.status, str(error), error.headers) from error
            yield content
        finally:
            body.release()

    def refuse(self, error: RefusedError) -> None:
        """Report a refusal."""
        if error.quota is not None:
            self.on_refused(error.quota)

    def _origin(self, host: str | None) -> str | None:
        """The address or network to which a connection counts; None for a proxy, or if unknown."""
        if host is None:
            return None
        address = ip_address(host.partition("%")[0])
        # A socket of both families maps the addresses of IPv4 clients into IPv6.
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in each for each in self._proxies):
            return None
        if address.version == _IPV6:
            shift = _IPV6_BITS - _SUBSCRIBER_BITS
            return str(IPv6Network((int(address) >> shift << shift, _SUBSCRIBER_BITS)))
        return str(address)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise OptionError(
            f"a proxy is an address or a network such as 10.0.0.0/8, not {text!r}"
        ) from error
