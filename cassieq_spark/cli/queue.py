"""``cassieq queue``: create queues, and see which there are and what is in them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table

from cassieq_spark.cli import clocks, lifecycle
from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.lifecycle import (
    EXPIRE_AFTER_HELP,
    KEEP_SETTLED_HELP,
    LONGEST_LEASE_SECONDS,
    Name,
    parse_period,
)
from cassieq_spark.cli.output import AsJson, print_json, settings_json, tell_unexamined
from cassieq_spark.errors import OptionError
from cassieq_spark.model import (
    DEFAULT_BUCKET_SIZE,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_LEASE,
)
from cassieq_spark.queues import (
    QueueRecord,
    Status,
    create_queue,
    is_paused,
    known,
    read_queue,
    read_record,
    read_records,
)
from cassieq_spark.queues.stats import GroupStats, QueueStats, queue_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.terminal import Console, echo

app = typer.Typer(
    help="Create, alter, pause, purge and delete queues, and see what is in them.",
    no_args_is_help=True,
)
app.add_typer(lifecycle.app)
app.add_typer(clocks.app)


@app.command()
@with_connection
def create(  # noqa: PLR0913 (one per option)
    name: Name,
    *,
    connection: ConnectionOptions,
    bucket_size: Annotated[
        int, typer.Option(help="Messages per Cassandra partition; a multiple of --chunk-size.")
    ] = DEFAULT_BUCKET_SIZE,
    chunk_size: Annotated[
        int, typer.Option(help="Messages per row, at the most.")
    ] = DEFAULT_CHUNK_SIZE,
    lease_seconds: Annotated[
        int,
        typer.Option(
            help="How long a reader that died keeps its messages from others.",
            max=LONGEST_LEASE_SECONDS,
        ),
    ] = int(DEFAULT_LEASE.total_seconds()),
    max_deliveries: Annotated[
        int, typer.Option(help="After so many deliveries a message is dead; 0: never.", min=0)
    ] = 5,
    dead_letter_queue: Annotated[
        str | None,
        typer.Option(
            help="Where dead messages go; made if it does not exist.", show_default="NAME.dead"
        ),
    ] = None,
    drop_dead: Annotated[
        bool, typer.Option("--drop-dead", help="Have no dead-letter queue: drop dead messages.")
    ] = False,
    strict_fifo: Annotated[
        bool,
        typer.Option(
            "--strict-fifo",
            help="Give a group no message before the ones below it are settled.",
        ),
    ] = False,
    expire_after: Annotated[
        str | None, typer.Option(help=f"{EXPIRE_AFTER_HELP}.", show_default="nothing")
    ] = None,
    keep_settled: Annotated[
        str | None, typer.Option(help=f"{KEEP_SETTLED_HELP}.", show_default="not at all")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue, and its dead-letter queue."""
    if dead_letter_queue and (drop_dead or not max_deliveries):
        raise OptionError(
            "--dead-letter-queue goes neither with --drop-dead nor with --max-deliveries 0"
        )
    expiry = parse_period("--expire-after", expire_after) or None
    keep = parse_period("--keep-settled", keep_settled) or None
    target = None if drop_dead or not max_deliveries else dead_letter_queue or f"{name}.dead"
    with closing(open_store(connection)) as store:
        queue = create_queue(
            store,
            name,
            bucket_size=bucket_size,
            chunk_size=chunk_size,
            lease=timedelta(seconds=lease_seconds),
            max_deliveries=max_deliveries,
            dead_letter_queue=target,
            strict_fifo=strict_fifo,
            expire_after=expiry,
            keep_settled=keep,
        )
    if as_json:
        print_json({"queue_id": queue.queue_id, **settings_json(queue)})
        return
    echo(f"Queue {queue.name} is ready ({queue.queue_id}).")
    if target:
        echo(f"What fails {max_deliveries} times goes to queue {target}.")


@app.command("list")
@with_connection
def list_(
    *,
    connection: ConnectionOptions,
    every: Annotated[bool, typer.Option("--all", help="Also those that are deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all queues."""
    with closing(open_store(connection)) as store:
        found = read_records(store)
    records = found.readable.values()
    queues = [_record(each) for each in records if every or each.status is not Status.DELETED]
    queues += [
        {"queue": name, "status": "unreadable", "error": str(error)}
        for name, error in found.unreadable.items()
    ]
    if as_json:
        print_json(queues)
        return
    shown = ("queue", "status", "lease_seconds", "max_deliveries", "dead_letter_queue")
    table = Table()
    for column in shown:
        table.add_column(column.replace("_", " "), overflow="fold")
    for queue in queues:
        table.add_row(*(_cell(queue.get(name)) for name in shown))
    Console().print(table if queues else "There are no queues: cassieq queue create NAME")
    for name, error in found.unreadable.items():
        echo(f"cassieq: queue {name!a}: {error}", err=True)


@app.command()
@with_connection
def show(name: Name, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show how a queue is defined, and whether its readers pause."""
    with closing(open_store(connection)) as store:
        record = known(name, read_record(store, name))
        paused = is_paused(store, name) if record.status is Status.ACTIVE else None
    definition = _record(record) | {"paused": paused}
    if as_json:
        print_json(definition)
        return
    table = Table(show_header=False)
    for key, value in definition.items():
        table.add_row(key, _cell(value))
    Console().print(table)


@app.command()
@with_connection
def stats(name: Name, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show what a queue holds, and what each consumer group is owed: exact, from its state."""
    with closing(open_store(connection)) as store:
        figures = queue_stats(store, read_queue(store, name).queue_id)
    if as_json:
        print_json(_figures(figures))
        return
    console = Console()
    console.print(
        f"{figures.queue_id}: {figures.next:,} messages published, "
        f"{figures.next - figures.finalised:,} of them still stored, {figures.settled:,} of these "
        "settled by every group"
    )
    table = Table("group", "depth", "leased", "due again", "waiting", "dead", "oldest age")
    for group in figures.groups:
        counts = (group.depth, group.leased, group.due, group.waiting, group.dead)
        age = "-" if group.oldest_age is None else str(group.oldest_age)
        table.add_row(group.group, *(f"{count:,}" for count in counts), age)
    console.print(table if figures.groups else "No group has read from it yet.")
    tell_unexamined(figures.groups)


def _record(record: QueueRecord) -> dict[str, Any]:
    created_at = _instant(record.definition.created_at)
    return settings_json(record.definition) | {
        "status": record.status.value,
        "created_at": created_at,
    }


def _figures(stats: QueueStats) -> dict[str, Any]:
    return {
        "queue_id": stats.queue_id,
        "finalised": stats.finalised,
        "next": stats.next,
        "settled": stats.settled,
        "groups": [_group(group) for group in stats.groups],
    }


def _group(group: GroupStats) -> dict[str, Any]:
    figures = asdict(group)
    age = figures.pop("oldest_age")
    return figures | {"oldest_age_seconds": None if age is None else age.total_seconds()}


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _instant(instant: datetime | None) -> str | None:
    return instant.astimezone(UTC).isoformat(timespec="seconds") if instant else None
