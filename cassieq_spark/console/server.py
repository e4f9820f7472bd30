"""The console's own server, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from cassieq_spark.arguments import address_of
from cassieq_spark.console.app import Console
from cassieq_spark.errors import SetupError
from cassieq_spark.http.serving.connections import Config, ConnectionLimiter, HttpConnection
from cassieq_spark.http.serving.server import Server
from cassieq_spark.settings.gateway import Limits

#: How long an end waits for running requests, in seconds.
_GRACE = 5
#: The limits of a gateway, but fewer connections: few people look at a console.
_LIMITS = Limits(connections=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleServing:
    """Where to serve.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0 for any free port.
        certificate: PEM file of the server's certificate; None for no encryption.
        private_key: PEM file of its private key; None if the key is in the certificate's file.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    certificate: str | None = None
    private_key: str | None = None


def serve(
    make: Callable[[int], Console], serving: ConsoleServing, on_start: Callable[[str], object]
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        make: Makes the console, given its port.
        serving: Where to serve.
        on_start: Called with the URL when the server listens.

    Raises:
        SetupError: The server cannot listen on the address, or the certificate cannot be read.
    """
    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    console = make(port)
    config = Config(
        console,
        host=serving.host,
        port=port,
        ssl_certfile=serving.certificate,
        ssl_keyfile=serving.private_key,
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        # Anybody could write another address into the log of what was changed.
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
    )
    config.limiter = ConnectionLimiter(_LIMITS)
    console.watcher.start()
    try:
        Server(config, lambda url: on_start(f"{url}/")).run([listening])
    finally:
        console.close()
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise SetupError(
            f"cannot listen on {address_of(host, port)}: {error.strerror or error}; give "
            "another address with --listen"
        ) from error
    return listening
