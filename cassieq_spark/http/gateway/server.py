"""The server: uvicorn, from the start of the application to its graceful shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import SetupError
from cassieq_spark.http.accounts import Accounts
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.connections import Config, Connection, ConnectionLimiter
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.signals import signals_to

#: How long a shutdown waits for requests under way.
_GRACE = timedelta(seconds=30)
_KEEP_ALIVE = timedelta(seconds=75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where and how to serve.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any.
        certificate: PEM file of the server's certificate and those between it and its CA.
        private_key: PEM file of its private key; None: it is in the other file.
        proxies: Addresses and networks of proxies, whose X-Forwarded-For is trusted.
        origins: Origins of pages that may send requests from a browser; ``*`` for any.
        limits: The limits and quotas.
        on_start: Called with the URL when the server listens.
        console: What answers below ``/console``; None: nothing.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str | None = None
    private_key: str | None = None
    proxies: Sequence[str] = ()
    origins: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    on_start: Callable[[str], object] = print
    console: ASGIApp | None = None


class _Server(uvicorn.Server):
    """Limits the time of a TLS handshake; ends long polls when a shutdown begins."""

    def __init__(self, config: uvicorn.Config, serving: Serving, box: list[Gateway]) -> None:
        super().__init__(config)
        self._serving = serving
        self._box = box

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        # With no sockets, uvicorn only starts the application.
        await super().startup(sockets=[])
        serving, config = self._serving, self.config
        make = partial(Connection, config, self.server_state, self.lifespan.state)
        seconds = serving.limits.head_time.total_seconds()
        try:
            server = await asyncio.get_running_loop().create_server(
                make,
                host=serving.host,
                port=serving.port,
                ssl=config.ssl,
                ssl_handshake_timeout=seconds if config.is_ssl else None,
                backlog=config.backlog,
            )
        except OSError as error:
            await self.lifespan.shutdown()
            raise SetupError(
                f"cannot listen on {serving.host}:{serving.port}: {error.strerror or error}"
            ) from error
        self.servers = [server]
        host, port = server.sockets[0].getsockname()[:2]
        scheme = "https" if config.is_ssl else "http"
        shown = f"[{host}]" if ":" in host else host
        serving.on_start(f"{scheme}://{shown}:{port}")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on a signal, without raising it again as uvicorn does."""
        with signals_to(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        for gateway in self._box:
            gateway.stop()
        super().handle_exit(sig, frame)


def serve(client: AsyncClient, accounts: Accounts, serving: Serving) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is under way, in 30 seconds at the most.

    Args:
        client: The client of the queues; this function connects and closes it.
        accounts: The accounts that may use them.
        serving: Where and how.

    Raises:
        OptionError: A proxy is neither an address nor a network.
        SetupError: The address cannot be listened on.
    """
    limiter = ConnectionLimiter(serving.limits, serving.proxies)
    box: list[Gateway] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            gateway = Gateway(client, accounts, serving.limits, limiter)
            box.append(gateway)
            try:
                yield
            finally:
                await gateway.close()

    app = make_app(lambda: box[0], lifespan, serving.origins, serving.console)
    config = Config(
        app,
        ssl_certfile=serving.certificate,
        ssl_keyfile=serving.private_key,
        http=Connection,
        ws="none",
        log_config=None,
        # Malformed requests are counted, and not logged.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(serving.proxies),
        forwarded_allow_ips=list(serving.proxies),
        date_header=False,
        timeout_keep_alive=int(_KEEP_ALIVE.total_seconds()),
        timeout_graceful_shutdown=int(_GRACE.total_seconds()),
    )
    config.limiter = limiter
    server = _Server(config, serving, box)
    try:
        server.run()
    except SystemExit as error:
        raise SetupError("the gateway did not start: the log says why") from error
