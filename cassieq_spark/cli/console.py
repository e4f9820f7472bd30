"""``cassieq console``: the web console, on a server of its own."""

from __future__ import annotations

import webbrowser
from contextlib import closing
from typing import Annotated

import typer

from cassieq_spark.cli.connection import impatient
from cassieq_spark.cli.gateway import read_secrets
from cassieq_spark.cli.options import (
    ADDRESS,
    DEFAULT_CONSOLE,
    WATCH_PANEL,
    Address,
    Value,
    command,
)
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, log_to_stderr

app = typer.Typer()

_READS = 100


@command(app, panel=WATCH_PANEL)
def console(  # noqa: PLR0913 (one per option)
    *,
    connection: ConnectionOptions,
    listen: Annotated[
        Address,
        Value(
            ADDRESS,
            "Address to listen on: host:port or [ipv6]:port; others than loopback need --secret.",
        ),
    ] = DEFAULT_CONSOLE,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Offer changes: seek, redrive, pause, create, alter, purge, delete; each is "
            "asked twice.",
        ),
    ] = False,
    secret: Annotated[
        str | None,
        typer.Option(
            help="Where the secret of the gateways is; users log in with the key that "
            "'cassieq gateway admin-key' prints for it.",
            show_default="no log-in",
        ),
    ] = None,
    tls_cert_file: Annotated[
        str | None,
        typer.Option(help="PEM file of the server's certificate.", show_default="no encryption"),
    ] = None,
    tls_key_file: Annotated[
        str | None,
        typer.Option(help="PEM file of its private key.", show_default="in the certificate file"),
    ] = None,
    reads_per_second: Annotated[
        int,
        typer.Option(
            help="Most reads a second that it sends to Cassandra in the background.", min=1
        ),
    ] = _READS,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open it in the browser of this machine.")
    ] = False,
) -> None:
    """Show queues, messages, dead letters and repair runs in a browser, until Ctrl-C or SIGTERM.

    The console only looks, unless --allow-changes is given. On the loopback address there is no
    log-in.

    Examples:
        cassieq console --open
        cassieq console --allow-changes
    """
    try:
        from cassieq_spark.console import Console, serve  # noqa: PLC0415 (an extra)
        from cassieq_spark.console.access import hosts_of, is_loopback  # noqa: PLC0415 (the same)
        from cassieq_spark.console.server import ConsoleServing  # noqa: PLC0415 (the same)
    except ModuleNotFoundError as error:
        raise SetupError(
            "the console needs more packages: pip install 'cassieq-spark[console]'"
        ) from error
    if secret is None and not is_loopback(listen.host):
        raise OptionError(
            f"at {listen.host} other machines could reach the console, so it needs a log-in: give "
            "--secret, the secret of the gateways, or listen on 127.0.0.1"
        )
    key = None if secret is None else read_secrets(secret).admin_key
    if key is not None and tls_cert_file is None and not is_loopback(listen.host):
        echo(
            "Warning: without --tls-cert-file the key is sent in the clear; put a proxy with TLS "
            "before the console.",
            err=True,
        )
    log_to_stderr()
    # Somebody who looks prefers an error to a long wait for the end of an outage.
    with closing(open_store(impatient(connection))) as store:

        def make(at: int) -> Console:
            return Console(
                store,
                title=connection.keyspace,
                admin_key=key,
                allow_changes=allow_changes,
                hosts=hosts_of(listen.host, at),
                # Browsers share cookies between the ports of a machine.
                cookie=f"cassieq-console-{at}",
                reads_per_second=reads_per_second,
            )

        def tell(url: str) -> None:
            how = "changes are allowed" if allow_changes else "it only looks"
            echo(f"Console at {url} ({how}); Ctrl-C ends it.")
            if open_browser:
                webbrowser.open(url)

        serve(
            make,
            ConsoleServing(
                host=listen.host,
                port=listen.port,
                certificate=tls_cert_file,
                private_key=tls_key_file,
            ),
            tell,
        )
