"""The repair job: arguments in, repair runs, reports and an exit status out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.progress import Progress

from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    MissingSchemaError,
    OptionError,
    QueueStateError,
    SetupError,
)
from cassieq_spark.lock.bakery import read_holder
from cassieq_spark.queues import list_queues
from cassieq_spark.repair.alone import rounds, run_alone
from cassieq_spark.repair.arguments import parse
from cassieq_spark.repair.audit import Thoroughness
from cassieq_spark.repair.guard import Guard
from cassieq_spark.repair.history import REPAIR
from cassieq_spark.repair.logs import log_to_stderr
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.repair.scan import DriverScan, Scan
from cassieq_spark.repair.steps import (
    SCANNING,
    Watch,
    run_once,
)
from cassieq_spark.repair.stop import Stop, stopped_by_signals
from cassieq_spark.settings.connection import (
    ConnectionOptions,
    parse_consistency,
)
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import Console

WHOLE = 0
LOSS = 1
USAGE = 2
FAILED = 3
BUSY = 4
SOME_FAILED = 5

_STATUS = {Outcome.DONE: WHOLE, Outcome.SOME_FAILED: SOME_FAILED}

#: What is told at the end of many runs, the worst first; other errors a later run makes good.
_KEPT = (LOSS, SOME_FAILED)

_BY_THE_CALLER = (OptionError, SetupError, ConnectError, MissingSchemaError, QueueStateError)


def main(argv: Sequence[str]) -> int:
    """Run the repair as the arguments say: once, or again and again until a signal ends it.

    Returns:
        0: done. 1: the audit found messages lost or stored wrongly. 2: wrong usage, or no such
        cluster, schema or queue. 3: the repair ended half way; running it again goes on. 4:
        another repair was at work. 5: some queues failed, all others are done.
    """
    arguments = parse(argv)
    log_to_stderr()
    console = Console(stderr=True)
    with stopped_by_signals() as stop:
        try:
            return _run(arguments, console, stop)
        except CassieqError as error:
            _complain(console, error)
            return USAGE if isinstance(error, _BY_THE_CALLER) else FAILED


def _run(arguments: argparse.Namespace, console: Console, stop: Stop) -> int:
    connection = ConnectionOptions(
        contact_points=tuple(arguments.contact_points.split(",")),
        port=arguments.port,
        local_dc=arguments.local_dc,
        username=arguments.username,
        password=arguments.password,
        ssl=arguments.ssl,
        ssl_ca_file=arguments.ssl_ca_file,
        ssl_cert_file=arguments.ssl_cert_file,
        ssl_key_file=arguments.ssl_key_file,
        ssl_check_hostname=arguments.ssl_check_hostname,
        secure_connect_bundle=arguments.secure_connect_bundle,
        consistency=parse_consistency(arguments.consistency),
        keyspace=arguments.keyspace,
    )
    store = open_store(connection)
    try:
        # Before Spark is started: of a missing table, the connector dies.
        list_queues(store)
        by_spark = arguments.scan == "connector" and not SCANNING.isdisjoint(arguments.steps)
        scanning = _spark_scan(connection, stop) if by_spark else _driver_scan(store)
        with scanning as scan:
            repair = partial(_repair_and_tell, arguments, console, stop, store, scan)
            return (
                repair() if arguments.every is None else _again_and_again(repair, arguments, stop)
            )
    finally:
        store.close()


def _again_and_again(repair: Callable[[], int], arguments: argparse.Namespace, stop: Stop) -> int:
    """Until told to stop; what the first run finds wrong with the arguments ends it."""
    worst = WHOLE
    for number, _ in enumerate(rounds(arguments.every, stop)):
        try:
            status = repair()
        except CassieqError as error:
            if number == 0 and isinstance(error, _BY_THE_CALLER):
                raise
            _complain(Console(stderr=True), error)
            continue
        worst = next((each for each in _KEPT if each in (status, worst)), WHOLE)
    return worst


def _repair_and_tell(
    arguments: argparse.Namespace, console: Console, stop: Stop, store: Store, scan: Scan
) -> int:
    with _progress(console) as watch:
        repair = partial(
            run_once,
            store,
            scan=scan,
            queues=arguments.queue,
            steps=arguments.steps,
            dry_run=arguments.dry_run,
            write_timeout=arguments.write_timeout,
            thoroughness=Thoroughness(
                verify_data=arguments.verify == "data", explain=arguments.repair_report
            ),
            watch=watch,
        )
        if arguments.dry_run:
            report: Report | None = repair(guard=Guard(is_wanted=lambda: not stop.is_set()))
        else:
            report = run_alone(
                store,
                lambda guard: repair(guard=guard),
                steps=arguments.steps,
                stop=stop,
                kept=arguments.keep_history,
            )
    if report is None:
        _tell_who_is_at_work(console, store, stop)
        return FAILED if stop.is_set() else BUSY
    _tell(report, arguments.json, console)
    if not report.is_whole:
        return LOSS
    return _STATUS.get(report.outcome, FAILED)


def _tell(report: Report, json_file: str | None, console: Console) -> None:
    # Standard output is for the JSON then, and only for it.
    report.show(console if json_file == "-" else Console())
    if json_file == "-":
        sys.stdout.write(report.to_json() + "\n")
        sys.stdout.flush()
    elif json_file:
        Path(json_file).write_text(report.to_json() + "\n", encoding="utf-8")


def _tell_who_is_at_work(console: Console, store: Store, stop: Stop) -> None:
    if stop.is_set():
        return
    holder = read_holder(store, REPAIR)
    who = "another repair" if holder is None else f"{holder.owner}, since {holder.entered_at}"
    text = f"repair: a repair run is at work ({who}); nothing was done"
    console.print(text, style="yellow", markup=False, soft_wrap=True)


def _complain(console: Console, error: CassieqError) -> None:
    console.print(f"repair: {error}", style="red", markup=False, soft_wrap=True)


@contextmanager
def _driver_scan(store: Store) -> Iterator[Scan]:
    yield DriverScan(store)


@contextmanager
def _spark_scan(connection: ConnectionOptions, stop: Stop) -> Iterator[Scan]:
    """Spark is started here, so that the steps without a scan do without it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from cassieq_spark.repair.spark_scan import (  # noqa: PLC0415
        SPARK_ERRORS,
        SparkScan,
        load_chunks,
    )

    spark = SparkSession.builder.appName("cassieq-repair").getOrCreate()
    stop.listen()
    try:
        yield SparkScan(load_chunks(spark, connection), stop)
    finally:
        # It may be gone by itself: spark-submit gets the same signal.
        with suppress(*SPARK_ERRORS):
            spark.stop()


@contextmanager
def _progress(console: Console) -> Iterator[Watch]:
    """A bar on a terminal, nothing elsewhere."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def watch(doing: str, done: int, total: int) -> None:
            progress.update(bar, description=doing, completed=done, total=total)

        yield watch
