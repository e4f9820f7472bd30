"""``cassieq queue fix-clocks``: undo what a server's clock that was ahead has done."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.lifecycle import Name, parse_period
from cassieq_spark.cli.output import AsJson, print_json
from cassieq_spark.queues import fix_clocks
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo

app = typer.Typer()

_WARNING = (
    "Warning: all writers that began under the wrong clock must be stopped before the fence goes "
    "down. A sweep may have deleted what they have begun, and the fence refuses it no more: a "
    "writer that publishes it afterwards publishes messages that are not in the store. Let them "
    "write it again."
)


@app.command("fix-clocks")
@with_connection
def fix(
    name: Name,
    *,
    connection: ConnectionOptions,
    longest: Annotated[
        str | None,
        typer.Option(
            help="Longest lease, or delay of a release, that your programs ask for; a day, or ten "
            "leases of the queue if that is more, unless given."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and tell what would be.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Undo what a server's clock that was ahead has done to a queue.

    First set it right, and restart Cassandra there: its time does not go back while it runs.

    A fence that is ahead goes down, so that puts are taken again after two minutes. Before that,
    stop all writers that began under the wrong clock: a sweep may have deleted what they have
    begun and not yet published, and the fence then refuses it no more. They write it again.

    What was handed out before and would wait for longer than --longest is due at once; what was
    delayed when it was put keeps its time.
    """
    period = parse_period("--longest", longest)
    with closing(open_store(connection)) as store:
        done = fix_clocks(store, name, longest=period, dry_run=dry_run)
    if done.fence is not None:
        echo(_WARNING, err=True)
    if as_json:
        fence = [each.isoformat() for each in done.fence or ()]
        print_json({"queue": name, "dry_run": dry_run, "fence": fence, "due": dict(done.due)})
        return
    if done.fence is not None:
        was, now = (each.isoformat(timespec="seconds") for each in done.fence)
        echo(f"The fence {'would go' if dry_run else 'went'} from {was} down to {now}.")
    for group, count in done.due.items():
        echo(f"Group {group}: {count:,} message(s) {'would be' if dry_run else 'are'} due now.")
    if done.fence is None and not done.due:
        echo(f"Nothing in queue {name} is ahead of its time.")
