"""``cassieq node``: a real Cassandra on this machine, in the foreground or the background."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.background import ALREADY, Background, Running
from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.java import find_java
from cassieq_spark.node.resolve import resolve_jars

app = typer.Typer(
    help="Run Cassandra on this machine: for trying out, tests and the demo.", no_args_is_help=True
)

NOT_RUNNING = 3

_START_TIMEOUT = timedelta(minutes=4)
_STOP_TIMEOUT = timedelta(minutes=1)
_LOOK_SECONDS = 0.5


@app.command()
def up(  # noqa: PLR0913 (one per option)
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=3)] = 1,
    port: Annotated[
        int | None,
        typer.Option(
            help="CQL port; 9042, or another if that is in use.",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here.", file_okay=False, show_default="nowhere"),
    ] = None,
    heap_mb: Annotated[int, typer.Option(help="Java heap of each node, in MiB.", min=256)] = 512,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background, until `cassieq node down`.")
    ] = False,
    kept: Annotated[bool, typer.Option("--kept", hidden=True)] = False,
) -> None:
    """Start Cassandra, and run it until Ctrl-C."""
    background = Background()
    if detach:
        _detach(background, nodes=nodes, port=port, data_dir=data_dir, heap_mb=heap_mb)
        return
    # A polite kill is a Ctrl-C from elsewhere.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(nodes=nodes, port=port, data_dir=data_dir, heap_mb=heap_mb)
    with ExitStack() as held:
        if kept:
            held.enter_context(background.hold())
        held.enter_context(cluster)
        running = _running(cluster, data_dir)
        if kept:
            background.announce(running)
        _watch(cluster, running)
    typer.echo("Stopped.")


@app.command()
def down() -> None:
    """Stop the Cassandra that runs in the background."""
    stopped = Background().stop(timeout=_STOP_TIMEOUT)
    typer.echo("Stopped." if stopped else "No node is running in the background.")


@app.command()
def status(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False
) -> None:
    """Tell whether Cassandra runs in the background, and where; exit code 3 if not."""
    running = Background().running()
    if as_json:
        known = asdict(running) if running else {}
        typer.echo(json.dumps({"running": running is not None} | known))
    elif running:
        _show(running)
    else:
        typer.echo("No node is running in the background.")
    if not running:
        raise typer.Exit(NOT_RUNNING)


@app.command()
def download() -> None:
    """Download Cassandra, as `up` does the first time; nothing to do if it is there."""
    jars = resolve_jars(java=find_java())
    typer.echo(f"Cassandra is here: {len(jars)} jars.")


def _detach(
    background: Background, *, nodes: int, port: int | None, data_dir: Path | None, heap_mb: int
) -> None:
    if background.held:
        raise SetupError(ALREADY)
    # Here and not there, so that the download's progress is seen.
    resolve_jars(java=find_java())
    command = ["-m", "cassieq_spark.cli", "node", "up", "--kept"]
    command += ["--nodes", str(nodes), "--heap-mb", str(heap_mb)]
    if port:
        command += ["--port", str(port)]
    if data_dir:
        command += ["--data-dir", str(data_dir.absolute())]
    _show(background.launch(command, timeout=_START_TIMEOUT))
    typer.echo("cassieq node down stops it.")


def _watch(cluster: Cluster, running: Running) -> None:
    try:
        _show(running)
        typer.echo("Ctrl-C stops it.")
        while True:
            for number in range(len(cluster.contact_points)):
                if not cluster.is_running(number):
                    raise SetupError(f"Cassandra has ended by itself: {cluster.describe(number)}")
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        typer.echo("Stopping.")


def _running(cluster: Cluster, data_dir: Path | None) -> Running:
    return Running(
        pid=os.getpid(),
        contact_points=cluster.contact_points,
        port=cluster.port,
        data_dir=str(data_dir) if data_dir else None,
    )


def _show(running: Running) -> None:
    points = ",".join(f"{point}:{running.port}" for point in running.contact_points)
    kept = f"data in {running.data_dir}" if running.data_dir else "data are temporary"
    typer.echo(f"Cassandra serves at {points} (process {running.pid}, {kept}).")
