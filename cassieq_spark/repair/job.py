"""The repair job: arguments in, a sweep, a report and an exit status out."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    MissingSchemaError,
    OptionError,
    QueueStateError,
    SetupError,
)
from cassieq_spark.options.kinds import Kind, duration
from cassieq_spark.queues import list_queues
from cassieq_spark.repair.report import Report
from cassieq_spark.repair.scan import DriverScan, Scan
from cassieq_spark.repair.sweep import (
    DEFAULT_WRITE_TIMEOUT,
    SCANNING,
    Step,
    Watch,
    run_once,
)
from cassieq_spark.store import open_store
from cassieq_spark.store.connection import DEFAULT_KEYSPACE, DEFAULT_PORT, ConnectionOptions
from cassieq_spark.store.protocol import Store

WHOLE = 0
LOSS = 1
USAGE = 2
FAILED = 3

_WRITE_TIMEOUT: Kind[timedelta] = duration(timedelta(days=30), zero=True)
_BY_THE_CALLER = (OptionError, SetupError, ConnectError, MissingSchemaError, QueueStateError)


def main(argv: Sequence[str]) -> int:
    """Sweep once, as the arguments say.

    Returns:
        0: done. 1: the audit found messages lost or stored wrongly. 2: wrong usage, or no such
        cluster, schema or queue. 3: the sweep failed half way; running it again goes on.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    console = Console(stderr=True)
    try:
        report = _sweep(arguments, console)
    except CassieqError as error:
        console.print(f"repair: {error}", style="red", markup=False, soft_wrap=True)
        return USAGE if isinstance(error, _BY_THE_CALLER) else FAILED
    # Standard output is for the JSON then, and only for it.
    report.show(console if arguments.json == "-" else Console())
    if arguments.json == "-":
        sys.stdout.write(report.to_json() + "\n")
    elif arguments.json:
        Path(arguments.json).write_text(report.to_json() + "\n", encoding="utf-8")
    return WHOLE if report.is_whole else LOSS


def _sweep(arguments: argparse.Namespace, console: Console) -> Report:
    connection = ConnectionOptions(
        contact_points=tuple(arguments.contact_points.split(",")),
        port=arguments.port,
        local_dc=arguments.local_dc,
        username=arguments.username,
        password=arguments.password,
        keyspace=arguments.keyspace,
    )
    store = open_store(connection)
    try:
        sweep = partial(
            run_once,
            store,
            queues=arguments.queue,
            steps=arguments.steps,
            dry_run=arguments.dry_run,
            write_timeout=arguments.write_timeout,
        )
        # Before Spark is started: of a missing table, the connector dies.
        list_queues(store)
        by_spark = arguments.scan == "spark" and not SCANNING.isdisjoint(arguments.steps)
        scanning = _spark_scan(connection) if by_spark else _driver_scan(store)
        with scanning as scan, _progress(console) as watch:
            return sweep(scan=scan, watch=watch)
    finally:
        store.close()


@contextmanager
def _driver_scan(store: Store) -> Iterator[Scan]:
    yield DriverScan(store)


@contextmanager
def _spark_scan(connection: ConnectionOptions) -> Iterator[Scan]:
    """Spark is started here, so that the steps without a scan do without it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from cassieq_spark.repair.spark_scan import SparkScan  # noqa: PLC0415

    spark = SparkSession.builder.appName("cassieq-repair").getOrCreate()
    try:
        yield SparkScan(spark, connection)
    finally:
        spark.stop()


@contextmanager
def _progress(console: Console) -> Iterator[Watch]:
    """A bar on a terminal, nothing elsewhere."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def watch(doing: str, done: int, total: int) -> None:
            progress.update(bar, description=doing, completed=done, total=total)

        yield watch


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="repair.py",
        description="Delete what is settled or was never published, and audit what is left.",
        epilog="Exit status: 0 done, 1 messages lost or stored wrongly, 2 wrong usage, 3 failed.",
    )
    cluster = parser.add_argument_group("the cluster")
    cluster.add_argument(
        "--contact-points", default="127.0.0.1", metavar="HOST[:PORT],...", help="%(default)s"
    )
    cluster.add_argument("--port", type=int, default=DEFAULT_PORT, help="%(default)s")
    cluster.add_argument("--local-dc", metavar="NAME", help="that of the contact points")
    cluster.add_argument("--username", metavar="NAME")
    cluster.add_argument("--password", metavar="TEXT")
    cluster.add_argument("--keyspace", default=DEFAULT_KEYSPACE, help="%(default)s")
    parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME", help="may be repeated; all queues"
    )
    parser.add_argument(
        "--steps", type=_steps, default=tuple(Step), metavar="STEP,...", help=", ".join(Step)
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done")
    parser.add_argument(
        "--write-timeout",
        type=_duration,
        default=DEFAULT_WRITE_TIMEOUT,
        metavar="DURATION",
        help=f"the longest that a write may take; {_WRITE_TIMEOUT.show(DEFAULT_WRITE_TIMEOUT)}",
    )
    parser.add_argument(
        "--scan",
        choices=("spark", "driver"),
        default="spark",
        help="who reads the table of chunks",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report there; - for stdout")
    return parser


def _steps(text: str) -> tuple[Step, ...]:
    try:
        return tuple(Step(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; the steps are {', '.join(Step)}") from error


def _duration(text: str) -> timedelta:
    try:
        return _WRITE_TIMEOUT.parse(text)
    except ValueError as error:
        message = f"must be {_WRITE_TIMEOUT.name}, not {text!r}"
        raise argparse.ArgumentTypeError(message) from error
