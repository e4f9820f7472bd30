"""``cassieq node``: a real Cassandra on this machine, in the foreground or the background."""

from __future__ import annotations

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
from cassieq_spark.cli.output import AsJson, print_json, tell
from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.java import find_java
from cassieq_spark.node.release import DEFAULT_RELEASE, Release
from cassieq_spark.node.resolve import resolve_jars
from cassieq_spark.settings.connection import DEFAULT_PORT
from cassieq_spark.terminal import echo

app = typer.Typer(
    help="Run Cassandra on this machine: for trying out, tests and the demo.", no_args_is_help=True
)

NOT_RUNNING = 3

CassandraVersion = Annotated[Release, typer.Option(help="Which Cassandra.")]

_START_TIMEOUT = timedelta(minutes=4)
_STOP_TIMEOUT = timedelta(minutes=1)
_LOOK_SECONDS = 0.5


@app.command()
def up(  # noqa: PLR0913 (one per option)
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=3)] = 1,
    cassandra_version: CassandraVersion = DEFAULT_RELEASE,
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
    as_json: AsJson = False,
) -> None:
    """Start Cassandra, and run it until Ctrl-C."""
    background = Background()
    if detach:
        running = _detach(
            background,
            nodes=nodes,
            release=cassandra_version,
            port=port,
            data_dir=data_dir,
            heap_mb=heap_mb,
        )
        _show(running, "cassieq node down stops it.", as_json=as_json)
        return
    # A polite kill is a Ctrl-C from elsewhere.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(
        nodes=nodes, release=cassandra_version, port=port, data_dir=data_dir, heap_mb=heap_mb
    )
    with ExitStack() as held:
        if kept:
            held.enter_context(background.hold())
        held.enter_context(cluster)
        running = _running(cluster, data_dir)
        if kept:
            background.announce(running)
        _watch(cluster, running, as_json=as_json)
    if not as_json:
        echo("Stopped.")


@app.command()
def down(*, as_json: AsJson = False) -> None:
    """Stop the Cassandra that runs in the background."""
    stopped = Background().stop(timeout=_STOP_TIMEOUT)
    tell(
        "Stopped." if stopped else "No node is running in the background.",
        {"stopped": stopped},
        as_json=as_json,
    )


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Tell whether Cassandra runs in the background, and where; exit code 3 if not."""
    running = Background().running()
    if running:
        _show(running, as_json=as_json)
        return
    tell("No node is running in the background.", {"running": False}, as_json=as_json)
    raise typer.Exit(NOT_RUNNING)


@app.command()
def download(
    *, cassandra_version: CassandraVersion = DEFAULT_RELEASE, as_json: AsJson = False
) -> None:
    """Download Cassandra, as `up` does the first time; nothing to do if it is there."""
    jars = resolve_jars(release=cassandra_version)
    version = cassandra_version.version
    tell(
        f"Cassandra {version} is here: {len(jars)} jars.",
        {"version": version, "jars": len(jars)},
        as_json=as_json,
    )


def _detach(  # noqa: PLR0913 (one per option)
    background: Background,
    *,
    nodes: int,
    release: Release,
    port: int | None,
    data_dir: Path | None,
    heap_mb: int,
) -> Running:
    if background.held:
        raise SetupError(ALREADY)
    # Here and not there, so that the download's progress is seen; and Java first, as it is quick.
    find_java()
    resolve_jars(release=release)
    command = ["-m", "cassieq_spark.cli", "node", "up", "--kept"]
    command += ["--nodes", str(nodes), "--heap-mb", str(heap_mb)]
    command += ["--cassandra-version", release]
    if port:
        command += ["--port", str(port)]
    if data_dir:
        command += ["--data-dir", str(data_dir.absolute())]
    return background.launch(command, timeout=_START_TIMEOUT)


def _watch(cluster: Cluster, running: Running, *, as_json: bool) -> None:
    try:
        _show(running, "Ctrl-C stops it.", as_json=as_json)
        while True:
            for number in range(len(cluster.contact_points)):
                if not cluster.is_running(number):
                    raise SetupError(f"Cassandra has ended by itself: {cluster.describe(number)}")
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        if not as_json:
            echo("Stopping.")


def _running(cluster: Cluster, data_dir: Path | None) -> Running:
    return Running(
        pid=os.getpid(),
        contact_points=cluster.contact_points,
        port=cluster.port,
        data_dir=str(data_dir) if data_dir else None,
    )


def _show(running: Running, *hints: str, as_json: bool) -> None:
    if as_json:
        print_json({"running": True} | asdict(running))
        return
    points = ",".join(f"{point}:{running.port}" for point in running.contact_points)
    kept = f"data in {running.data_dir}" if running.data_dir else "data are temporary"
    echo(f"Cassandra serves at {points} (process {running.pid}, {kept}).")
    if running.port != DEFAULT_PORT:
        echo(f"That is not port {DEFAULT_PORT}: tell others with --contact-points {points}")
    for hint in hints:
        echo(hint)
