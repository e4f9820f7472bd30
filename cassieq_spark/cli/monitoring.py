"""``cassieq exporter``: exact figures of queues, for Prometheus."""

from __future__ import annotations

import signal
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from cassieq_spark.cli.connection import impatient
from cassieq_spark.cli.options import (
    ADDRESS,
    DEFAULT_EXPORTER,
    EVERY,
    WATCH_PANEL,
    Address,
    OnlyQueues,
    Value,
    command,
)
from cassieq_spark.cli.output import INTERRUPTED
from cassieq_spark.errors import SetupError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.signals import stopped_by_signals
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, log_to_stderr

app = typer.Typer()


@command(app, panel=WATCH_PANEL)
def exporter(
    *,
    connection: ConnectionOptions,
    listen: Annotated[
        Address,
        Value(ADDRESS, "Address to listen on: host:port or [ipv6]:port. It asks for no password."),
    ] = DEFAULT_EXPORTER,
    every: Annotated[
        timedelta, Value(EVERY, "Pause between two readings; a scrape shows the last one.")
    ] = timedelta(seconds=15),
    queue: OnlyQueues = [],  # noqa: B006 (typer copies it)
) -> None:
    """Serve exact figures of queues, groups and repair runs to Prometheus, at /metrics.

    If Cassandra cannot be reached, the exporter continues, and cassieq_up is 0. SIGTERM ends it
    with exit code 0, Ctrl-C with 130.

    Examples:
        cassieq exporter
        cassieq exporter --listen 0.0.0.0:9108 --every 30s
    """
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
        serve(publisher, listen.host, listen.port) as url,
    ):
        echo(f"Metrics at {url}; Ctrl-C ends it.")
        export(publisher, every, stop)
    if stop.signal is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)
