"""``cassieq repair``: the repair without Spark, and what it did.

`main` runs the command ``run`` as a program of its own: ``jobs/repair.py``, for spark-submit.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from click import ClickException
from rich.progress import Progress
from typer.main import get_command

from cassieq_spark.cli.flags import REPAIR_PANEL
from cassieq_spark.cli.help import HelpfulCommand
from cassieq_spark.cli.options import (
    AsJson,
    OnlyQueues,
    Value,
    command,
    make_app,
    with_options,
)
from cassieq_spark.cli.output import complain, finish_output, instant_text, print_json
from cassieq_spark.cli.tables import Column, print_table
from cassieq_spark.display import shown_age
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
from cassieq_spark.repair.context import DEFAULT_WRITE_TIMEOUT, Checkpoint
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.repair.runs import (
    DEFAULT_KEPT,
    REPAIR,
    PastRun,
    read_history,
    rounds,
    run_alone,
)
from cassieq_spark.repair.scan import DriverScan, Scan
from cassieq_spark.repair.steps import SCANNING, Step, Watch, run_once
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import Kind, choice, duration
from cassieq_spark.signals import Stop, stopped_by_signals
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import PlainConsole, echo, log_to_stderr

WHOLE = 0
LOSS = 1
USAGE = 2
FAILED = 3
BUSY = 4
SOME_FAILED = 5

#: Which program reads the table of chunks: Spark with its connector, or this process.
BY_CONNECTOR, BY_DRIVER = "connector", "driver"

app = make_app("Delete messages that nobody needs, and check that no other is missing.")

_STATUS = {Outcome.DONE: WHOLE, Outcome.SOME_FAILED: SOME_FAILED}
#: Statuses that the end of many runs reports, the worst first; a later run corrects other errors.
_KEPT_STATUS = (LOSS, SOME_FAILED)
_BY_THE_CALLER = (OptionError, SetupError, ConnectError, MissingSchemaError, QueueStateError)
_GOOD = {Outcome.DONE, Outcome.RUNNING}


def _parse_steps(text: str) -> tuple[Step, ...]:
    try:
        return tuple(Step(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise OptionError(f"{error}; the steps are {', '.join(Step)}") from error


_STEPS: Kind[tuple[Step, ...]] = Kind("steps", _parse_steps, ",".join, "STEP,...")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A repair job, as its arguments describe it; made by `job_of`."""

    queues: Sequence[str]
    steps: tuple[Step, ...]
    dry_run: bool
    write_timeout: timedelta
    by_spark: bool
    verify_data: bool
    explain: bool
    every: timedelta | None
    kept: timedelta
    json_file: str | None


def run_command() -> Any:
    """The command `run` by itself."""
    group: Any = get_command(app)
    return group.commands["run"]


def main(arguments: Sequence[str]) -> int:
    """Run the repair as a program of its own: Spark scans, unless the arguments say otherwise.

    Returns:
        The exit status; see `run`.
    """
    # A status of its own if the output is not taken: 1 means that messages are lost.
    status = _status_of(arguments)
    return FAILED if finish_output("repair", status) != status else status


def _status_of(arguments: Sequence[str]) -> int:
    by_spark = {"scan": BY_CONNECTOR}
    try:
        run_command().main(args=list(arguments), prog_name="repair.py", default_map=by_spark)
    except SystemExit as ended:
        return int(ended.code or WHOLE)
    except OptionError as error:
        # Of the configuration file, which is read before the command begins.
        complain("repair", error)
        return USAGE
    except OSError as error:
        # The help finds no room.
        complain("repair", error)
        return FAILED
    return WHOLE


def _with_exit_status(command: Callable[..., None]) -> Callable[..., None]:
    """End the process with the exit status of the command's error."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        log_to_stderr()
        try:
            command(**given)
        except CassieqError as error:
            complain("repair", error)
            raise typer.Exit(USAGE if isinstance(error, _BY_THE_CALLER) else FAILED) from error
        except typer.Abort as error:
            # Nobody is there to be asked for a password.
            raise typer.Exit(USAGE) from error
        except (typer.Exit, ClickException):
            raise
        except Exception as error:
            # The status of an exception would be 1, as if messages were lost.
            if not isinstance(error, OSError):
                traceback.print_exc()
            complain("repair", error)
            raise typer.Exit(FAILED) from error

    return run


def job_of(  # noqa: PLR0913 (one per option)
    *,
    queue: OnlyQueues = [],  # noqa: B006 (typer copies it)
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")
    ] = False,
    steps: Annotated[
        tuple[Step, ...],
        Value(_STEPS, f"Steps to take, with commas: {', '.join(Step)}.", panel=REPAIR_PANEL),
    ] = tuple(Step),
    write_timeout: Annotated[
        timedelta,
        Value(
            duration(timedelta(days=30), zero=True),
            "Longest time that a write may take, from its first block to its publication.",
            panel=REPAIR_PANEL,
        ),
    ] = DEFAULT_WRITE_TIMEOUT,
    scan: Annotated[
        str,
        Value(
            choice(BY_CONNECTOR, BY_DRIVER),
            "What reads the table of chunks: Spark with its connector, or this process.",
            panel=REPAIR_PANEL,
        ),
    ] = BY_DRIVER,
    verify: Annotated[
        str,
        Value(
            choice("keys", "data"),
            "What the audit reads: the keys of the chunks, or all data, too, in this process.",
            panel=REPAIR_PANEL,
        ),
    ] = "keys",
    repair_report: Annotated[
        bool,
        typer.Option(
            "--repair-report",
            help="Explain each finding: what happened, which groups have not settled the "
            "messages, what to do.",
            rich_help_panel=REPAIR_PANEL,
        ),
    ] = False,
    every: Annotated[
        timedelta | None,
        Value(
            duration(timedelta(days=30)),
            "Repeat it with this pause, such as 5m, until SIGTERM or Ctrl-C.",
            panel=REPAIR_PANEL,
        ),
    ] = None,
    keep_history: Annotated[
        timedelta,
        Value(
            duration(timedelta(days=3650)),
            "How long the history keeps a run; in whole seconds.",
            panel=REPAIR_PANEL,
        ),
    ] = DEFAULT_KEPT,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the report to this file as JSON; - for standard output.",
            show_default=False,
            rich_help_panel=REPAIR_PANEL,
        ),
    ] = None,
) -> Job:
    """Make a `Job` from the options of `run`.

    Raises:
        OptionError: Two options contradict each other.
    """
    if keep_history % timedelta(seconds=1):
        raise OptionError(f"--keep-history must be whole seconds, not {keep_history}")
    audits = {"--verify data": verify == "data", "--repair-report": repair_report}
    for option, is_given in audits.items():
        if is_given and Step.AUDIT not in steps:
            raise OptionError(f"{option} is for the step audit, which --steps leaves out")
    if json not in {None, "-"} and not (folder := Path(json or "").parent).is_dir():
        raise OptionError(f"--json {json}: there is no folder {folder}; create it first")
    return Job(
        queues=queue,
        steps=steps,
        dry_run=dry_run,
        write_timeout=write_timeout,
        by_spark=scan == BY_CONNECTOR and not SCANNING.isdisjoint(steps),
        verify_data=verify == "data",
        explain=repair_report,
        every=every,
        kept=keep_history,
        json_file=json,
    )


def run(
    *,
    connection: ConnectionOptions,
    job: Job,
) -> None:
    """Delete messages that are settled or were never published, and audit the others.

    One run at a time works on a keyspace. Under spark-submit, jobs/repair.py does the same, and
    Spark reads the table of chunks unless --scan says otherwise.

    Exit codes: 0 done, or ended by a signal with --every; 1 messages are lost or stored wrongly;
    2 wrong usage, or no such cluster, keyspace or queue; 3 failed, or stopped half way, as by
    Ctrl-C; 4 another run is at work; 5 some queues failed, and all others are done.

    Examples:
        cassieq repair run
        cassieq repair run --dry-run
        cassieq repair run --steps redeliver,expire,finalise --every 5m
    """
    raise typer.Exit(_run(job, connection))


app.command(cls=HelpfulCommand)(_with_exit_status(with_options(run, job=job_of)))


def _run(job: Job, connection: ConnectionOptions) -> int:
    with stopped_by_signals() as stop:
        store = open_store(connection)
        try:
            # Before Spark is started: of a missing table, the connector dies.
            list_queues(store)
            scanning = _spark_scan(connection, stop) if job.by_spark else _driver_scan(store)
            with scanning as reading:
                repair = partial(_repair, job, stop, store, reading)
                return repair() if job.every is None else _again_and_again(repair, job.every, stop)
        finally:
            store.close()


def _again_and_again(repair: Callable[[], int], every: timedelta, stop: Stop) -> int:
    """Repeat the repair until told to stop; ends if the first run finds wrong arguments."""
    worst = WHOLE
    for number, _ in enumerate(rounds(every, stop)):
        try:
            status = repair()
        except (CassieqError, OSError) as error:
            if number == 0 and isinstance(error, _BY_THE_CALLER):
                raise
            complain("repair", error)
            continue
        worst = next((each for each in _KEPT_STATUS if each in (status, worst)), WHOLE)
    return worst


def _repair(job: Job, stop: Stop, store: Store, scan: Scan) -> int:
    """Run the repair once, and print what it did; return the exit status."""
    console = PlainConsole(stderr=True)
    with _progress(console) as watch:
        repair = partial(
            run_once,
            store,
            scan=scan,
            queues=job.queues,
            steps=job.steps,
            dry_run=job.dry_run,
            write_timeout=job.write_timeout,
            verify_data=job.verify_data,
            explain=job.explain,
            watch=watch,
        )
        if job.dry_run:
            checkpoint = Checkpoint(may_continue=lambda: not stop.is_set())
            report: Report | None = repair(checkpoint=checkpoint)
        else:
            report = run_alone(
                store,
                lambda checkpoint: repair(checkpoint=checkpoint),
                steps=job.steps,
                stop=stop,
                kept=job.kept,
            )
    if report is None:
        _tell_who_is_at_work(console, store, stop)
        return FAILED if stop.is_set() else BUSY
    _tell(report, job.json_file, console)
    if not report.is_whole:
        return LOSS
    return _STATUS.get(report.outcome, FAILED)


def _tell(report: Report, json_file: str | None, console: PlainConsole) -> None:
    # Standard output is for the JSON then, and only for it.
    report.show(console if json_file == "-" else PlainConsole())
    if json_file == "-":
        sys.stdout.write(report.to_json() + "\n")
        sys.stdout.flush()
    elif json_file:
        Path(json_file).write_text(report.to_json() + "\n", encoding="utf-8")


def _tell_who_is_at_work(console: PlainConsole, store: Store, stop: Stop) -> None:
    if stop.is_set():
        return
    holder = read_holder(store, REPAIR)
    who = "its runner is not known"
    if holder is not None:
        who = f"{holder.owner}, since {instant_text(holder.entered_at)}"
    text = f"repair: another repair run is at work ({who}); nothing was done"
    console.print(text, style="yellow", markup=False, soft_wrap=True)


@contextmanager
def _driver_scan(store: Store) -> Iterator[Scan]:
    yield DriverScan(store)


@contextmanager
def _spark_scan(connection: ConnectionOptions, stop: Stop) -> Iterator[Scan]:
    """Start Spark; only when needed, so that steps without a scan work without it."""
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
def _progress(console: PlainConsole) -> Iterator[Watch]:
    """A bar on a terminal, nothing elsewhere."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def watch(doing: str, done: int, total: int) -> None:
            progress.update(bar, description=doing, completed=done, total=total)

        yield watch


@command(app)
def history(
    *,
    connection: ConnectionOptions,
    limit: Annotated[int, typer.Option(help="Runs to show, at most.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the last runs of the repair, the latest first.

    Examples:
        cassieq repair history
        cassieq repair history --limit 1 --json | jq '.[0].problems'
    """
    with closing(open_store(connection)) as store:
        runs = read_history(store, limit)
    if as_json:
        print_json([_to_json(run) for run in runs])
        return
    if not runs:
        echo("The history has no repair run. To start one: cassieq repair run")
        return
    now = datetime.now(UTC)
    columns = ("run", "started", "by", "outcome", "took", "steps", "queues", "did")
    rows = [_cells(run, now) for run in runs]
    styles = ["" if run.outcome in _GOOD else "yellow" for run in runs]
    wrapping = {"steps", "did"}
    print_table([Column(each, wraps=each in wrapping) for each in columns], rows, style_of=styles)
    for run in runs:
        for problem in run.problems:
            # On one line, so that it can be searched for.
            echo(f"run {run.epoch}: {problem}")


def _cells(run: PastRun, now: datetime) -> tuple[Any, ...]:
    counts = ", ".join(f"{name} {count:,}" for name, count in (run.counts or {}).items())
    is_whole = set(run.steps) == set(Step)
    return (
        run.epoch,
        f"{shown_age(now - run.started_at)} ago",
        run.runner,
        run.outcome,
        None if run.duration is None else f"{run.duration.total_seconds():.1f} s",
        "all" if is_whole else ", ".join(run.steps),
        f"{run.queues:,} of {run.queues + run.left_out:,}" if run.left_out else run.queues,
        counts,
    )


def _to_json(run: PastRun) -> dict[str, Any]:
    return {
        "epoch": run.epoch,
        "runner": run.runner,
        "started_at": run.started_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "outcome": run.outcome,
        "seconds": None if run.duration is None else run.duration.total_seconds(),
        "steps": run.steps,
        "queues": run.queues,
        "left_out": run.left_out,
        "counts": run.counts,
        "problems": run.problems,
        "alarms": run.alarms,
    }
