"""``cassieq repair``: the repair without Spark, and what it did."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

import typer
from rich.table import Table

from cassieq_spark.cli.options import AsJson, command
from cassieq_spark.cli.output import print_json
from cassieq_spark.repair.history import PastRun, read_history
from cassieq_spark.repair.job import main
from cassieq_spark.repair.report import Outcome
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.terminal import Console

app = typer.Typer(
    help="Run the repair without Spark, and see what its runs did.", no_args_is_help=True
)

_GOOD = {Outcome.DONE, Outcome.RUNNING}


#: What follows is for the job: it has a parser of its own, also where it runs under Spark.
_AS_THEY_ARE = {"ignore_unknown_options": True, "allow_extra_args": True}


@app.command(add_help_option=False, context_settings=_AS_THEY_ARE)
def run(context: typer.Context) -> None:
    """Run the repair here, as jobs/repair.py does in Spark; its options: `run --help`.

    This process then reads the table of chunks itself, where a step needs that. Exit codes of its
    own: 0 done, or ended by a signal with --every; 1 messages lost or stored wrongly; 2 wrong
    usage, or no such cluster, schema or queue; 3 failed, or stopped half way, as by Ctrl-C; 4
    another repair run is at work; 5 some queues failed, all others are done.
    """
    raise typer.Exit(main(["--scan=driver", *context.args]))


@command(app)
def history(
    *,
    connection: ConnectionOptions,
    limit: Annotated[int, typer.Option(help="Most runs to show.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the last runs of the repair, the latest first."""
    store = open_store(connection)
    try:
        runs = read_history(store, limit)
    finally:
        store.close()
    if as_json:
        print_json([_to_json(run) for run in runs])
        return
    console = Console()
    if not runs:
        console.print("The repair has not run yet, or no run is remembered: cassieq repair run")
        return
    table = Table("run", "started", "by", "outcome", "took", "steps", "queues", "did")
    for run in runs:
        table.add_row(*_cells(run), style="" if run.outcome in _GOOD else "yellow")
    console.print(table)
    for run in runs:
        for problem in run.problems:
            # Not wrapped, so that it can be searched for.
            console.print(f"run {run.epoch}: {problem}", markup=False, soft_wrap=True)


def _cells(run: PastRun) -> tuple[str, ...]:
    counts = ", ".join(f"{name} {count:,}" for name, count in (run.counts or {}).items())
    return (
        str(run.epoch),
        run.started_at.astimezone(UTC).isoformat(timespec="seconds"),
        run.runner,
        run.outcome,
        "-" if run.duration is None else f"{run.duration.total_seconds():.1f} s",
        ", ".join(run.steps),
        f"{run.queues:,}",
        counts or "-",
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
        "counts": run.counts,
        "problems": run.problems,
    }
