"""The server: uvicorn with limits, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn

from cassieq_spark.arguments import address_of
from cassieq_spark.errors import SetupError
from cassieq_spark.http.serving.connections import Config, HttpConnection
from cassieq_spark.signals import signals_to


class Server(uvicorn.Server):
    """Serves each client by an `HttpConnection`, limits TLS handshakes, and ends on a signal.

    Args:
        config: What is served, where, and with which limits.
        on_start: Called with the URL, without a path, when the server listens.

    Raises:
        SetupError: The certificate or its private key cannot be read.
    """

    config: Config

    def __init__(self, config: Config, on_start: Callable[[str], object]) -> None:
        super().__init__(config)
        self._on_start = on_start
        try:
            config.load()
        except OSError as error:
            key = config.ssl_keyfile or "in the same file"
            raise SetupError(
                f"certificate {config.ssl_certfile} and its private key, {key}, cannot be used: "
                f"{error.strerror or error}; give PEM files that belong together"
            ) from error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen, on the given socket or at the configured address.

        Raises:
            SetupError: The address cannot be listened on.
        """
        # Without sockets, uvicorn starts only the application.
        await super().startup(sockets=[])
        config = self.config
        seconds = config.limiter.limits.head_time.total_seconds()
        listen = partial(
            asyncio.get_running_loop().create_server,
            partial(HttpConnection, config, self.server_state, self.lifespan.state),
            ssl=config.ssl,
            ssl_handshake_timeout=seconds if config.is_ssl else None,
            backlog=config.backlog,
        )
        try:
            if sockets:
                server = await listen(sock=sockets[0])
            else:
                server = await listen(host=config.host, port=config.port)
        except OSError as error:
            await self.lifespan.shutdown()
            raise SetupError(
                f"cannot listen on {address_of(config.host, config.port)}: "
                f"{error.strerror or error}"
            ) from error
        self.servers = [server]
        port = server.sockets[0].getsockname()[1]
        scheme = "https" if config.is_ssl else "http"
        self._on_start(f"{scheme}://{address_of(config.host, port)}")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on a signal, without raising it again as uvicorn does."""
        with signals_to(self.handle_exit):
            yield
