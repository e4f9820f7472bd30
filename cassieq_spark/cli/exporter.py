"""``cassieq exporter``: exact figures of all queues, for Prometheus."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from signal import Signals
from typing import Annotated

import typer

from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.output import INTERRUPTED
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.repair.logs import log_to_stderr
from cassieq_spark.repair.stop import stopped_by_signals
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo

app = typer.Typer()

EVERY = duration(timedelta(days=1))
_PATIENCE = timedelta(seconds=5)
_LISTEN = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s]+)):(?P<port>[0-9]{1,5})")
_HIGHEST_PORT = 65_535

Queues = Annotated[
    list[str],
    typer.Option("--queue", help="Only this one; may be repeated.", show_default="all queues"),
]


@app.command()
@with_connection
def exporter(
    *,
    connection: ConnectionOptions,
    listen: Annotated[
        str,
        typer.Option(help="Where to answer: host:port or [ipv6]:port. There is no log-in."),
    ] = "127.0.0.1:9108",
    every: Annotated[
        str, typer.Option(help="Pause between two readings; a scrape shows the last one.")
    ] = "15s",
    queue: Queues = [],  # noqa: B006 (typer copies it)
) -> None:
    """Publish exact figures of queues, groups and sweeps as Prometheus metrics, at /metrics.

    Goes on while Cassandra is away: cassieq_up is 0 then. SIGTERM ends it with exit code 0, Ctrl-C
    with 130.
    """
    host, port = parse_listen(listen)
    pause = parse_every(every)
    try:
        from cassieq_spark.monitoring.exporter import (  # noqa: PLC0415 (an extra)
            Exporter,
            export,
            serve,
        )
    except ModuleNotFoundError as error:
        raise SetupError(
            "the exporter needs prometheus-client: pip install 'cassieq-spark[metrics]'"
        ) from error
    log_to_stderr()
    connect = partial(open_store, impatient(connection))
    with (
        stopped_by_signals() as stop,
        closing(Exporter(connect, queue)) as publisher,
        serve(publisher, host, port) as url,
    ):
        echo(f"Metrics at {url}; Ctrl-C ends it.")
        export(publisher, pause, stop)
    if stop.signal is Signals.SIGINT:
        raise typer.Exit(INTERRUPTED)


def impatient(connection: ConnectionOptions) -> ConnectionOptions:
    """The same, but an error is known soon: the next reading tries again anyway."""
    return replace(connection, request_timeout=_PATIENCE, patience=_PATIENCE)


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of ``--listen``.

    >>> parse_listen("127.0.0.1:9108"), parse_listen("[::1]:0")
    (('127.0.0.1', 9108), ('::1', 0))
    """
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise OptionError(
            f"--listen must be host:port or [ipv6]:port, such as 127.0.0.1:9108, not {text!r}"
        )
    return match["ipv6"] or match["host"], int(match["port"])


def parse_every(text: str) -> timedelta:
    """The value of ``--every``."""
    try:
        return EVERY.parse(text)
    except ValueError as error:
        raise OptionError(f"--every must be {EVERY.name}, not {text!r}") from error
