"""The server: uvicorn, from the start of the application to its graceful shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType

from starlette.applications import Starlette
from starlette.types import ASGIApp

from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.http.accounts import Accounts
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.sqs.door import SqsDoor, is_loopback
from cassieq_spark.http.serving.connections import Config, ConnectionLimiter, HttpConnection
from cassieq_spark.http.serving.server import Server
from cassieq_spark.settings.gateway import Limits

#: How long a shutdown waits for requests under way.
_GRACE = timedelta(seconds=30)
_KEEP_ALIVE = timedelta(seconds=75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where and how to serve.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        certificate: PEM file of the server's certificate and the intermediate certificates.
        private_key: PEM file of its private key; None: the key is in the certificate's file.
        proxies: Addresses and networks of proxies, whose X-Forwarded-For is trusted.
        origins: Origins of pages that may send requests from a browser; ``*`` for any.
        limits: The limits and quotas.
        on_start: Called with the URL when the server listens.
        console: Serves the paths below ``/console``; None: there is no console.
        sqs: Serve the clients of SQS, too.
        sqs_url: The base of queue URLs of SQS; None: the address that the request names.
        sqs_unsigned: The account of unsigned SQS requests; None: they are refused.
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
    sqs: bool = False
    sqs_url: str | None = None
    sqs_unsigned: str | None = None

    def __post_init__(self) -> None:
        """Check that only this machine can send requests if they need not be signed.

        Raises:
            OptionError: Other machines can send requests that need not be signed.
        """
        is_alone = is_loopback(self.host) and not self.proxies
        if self.sqs_unsigned is not None and not is_alone:
            raise OptionError(
                "requests of SQS that are not signed are for this machine alone: listen on "
                "127.0.0.1 without a proxy, or leave out --sqs-unsigned"
            )


class _Server(Server):
    """Ends long polls when a shutdown begins."""

    def __init__(
        self, config: Config, on_start: Callable[[str], object], box: list[Gateway]
    ) -> None:
        super().__init__(config, on_start)
        self._box = box

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        for gateway in self._box:
            gateway.stop()
        super().handle_exit(sig, frame)


def serve(client: AsyncClient, accounts: Accounts, serving: Serving) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish requests under way, in at most 30 seconds.

    Args:
        client: The client of the queues; this function connects and closes it.
        accounts: The accounts that may use the queues.
        serving: Where and how to serve.

    Raises:
        OptionError: A proxy is neither an address nor a network.
        SetupError: The address cannot be listened on, or the certificate cannot be read.
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
                if door is not None:
                    await door.close()
                await gateway.close()

    app = make_app(lambda: box[0], lifespan, serving.origins, serving.console)
    door = None
    if serving.sqs:
        door = SqsDoor(app, lambda: box[0], serving.sqs_url, serving.sqs_unsigned)
    config = Config(
        door or app,
        host=serving.host,
        port=serving.port,
        ssl_certfile=serving.certificate,
        ssl_keyfile=serving.private_key,
        http=HttpConnection,
        ws="none",
        log_config=None,
        # Malformed requests are counted but not logged.
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
    server = _Server(config, serving.on_start, box)
    try:
        server.run()
    except SystemExit as error:
        raise SetupError("the gateway did not start: the log says why") from error
