"""The console's own server: uvicorn, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from cassieq_spark.console.app import Console
from cassieq_spark.errors import SetupError
from cassieq_spark.signals import signals_to

#: How long an end waits for requests under way, in seconds.
_GRACE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where to serve.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any.
        certificate: PEM file of the server's certificate; None: no encryption.
        private_key: PEM file of its private key; None: it is in the other file.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    certificate: str | None = None
    private_key: str | None = None


def serve(
    make: Callable[[int], Console], serving: Serving, on_start: Callable[[str], object]
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        make: Makes the console, given the port that it has.
        serving: Where.
        on_start: Called with the URL when it listens.

    Raises:
        SetupError: The address cannot be listened on.
    """
    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    console = make(port)
    config = uvicorn.Config(
        console,
        ssl_certfile=serving.certificate,
        ssl_keyfile=serving.private_key,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        # The limits of a form are the console's; a connection holds a request at a time.
        limit_concurrency=200,
        timeout_graceful_shutdown=_GRACE,
    )
    scheme = "https" if serving.certificate else "http"
    shown = f"[{serving.host}]" if ":" in serving.host else serving.host
    console.watcher.start()
    try:
        _Server(config, lambda: on_start(f"{scheme}://{shown}:{port}/")).run([listening])
    finally:
        console.close()
        listening.close()


class _Server(uvicorn.Server):
    """Says when it listens, and ends on a signal without raising it again."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with signals_to(self.handle_exit):
            yield


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
            f"cannot listen on {host}:{port}: {error.strerror or error}; give another address "
            "with --listen"
        ) from error
    return listening
