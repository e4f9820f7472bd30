"""``cassieq group``: the consumer groups of a queue."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.output import AsJson, print_json, tell, tell_unexamined
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.groups import create_group, delete_group, seek_group
from cassieq_spark.model import QueueId
from cassieq_spark.queues import read_queue
from cassieq_spark.queues.stats import GroupStats, queue_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.position import POSITION, StartingPosition
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import Console, confirm

app = typer.Typer(
    help="Create, list, move and delete the consumer groups of a queue.", no_args_is_help=True
)

Queue = Annotated[str, typer.Argument(help="Name of the queue.", show_default=False)]
Group = Annotated[str, typer.Argument(help="Name of the group.", show_default=False)]
Force = Annotated[
    bool, typer.Option("--force", help="Also while readers hold messages: they lose them.")
]
_POSITIONS = "earliest, latest, a monoton, or an instant such as 2026-11-20T12:00:00Z"


@app.command()
@with_connection
def create(
    queue: Queue,
    group: Group,
    *,
    connection: ConnectionOptions,
    start: Annotated[
        str, typer.Option("--from", help=f"Where it begins: {_POSITIONS}.")
    ] = "earliest",
    as_json: AsJson = False,
) -> None:
    """Create a group, before a reader of that name does."""
    position = _position("--from", start)
    with _queue(connection, queue) as (store, queue_id):
        create_group(store, queue_id, group, position)
        (figures,) = _figures(store, queue_id, group)
    tell(
        f"Group {group} of queue {queue} begins at monoton {figures.floor} ({start}): "
        f"{figures.depth:,} message(s) to deliver.",
        {"queue": queue, **_as_json(figures)},
        as_json=as_json,
    )


@app.command("list")
@with_connection
def list_(
    queue: Queue,
    *,
    connection: ConnectionOptions,
    as_json: AsJson = False,
) -> None:
    """List the groups of a queue, and where they stand."""
    with _queue(connection, queue) as (store, queue_id):
        groups = _figures(store, queue_id)
    if as_json:
        print_json([_as_json(each) for each in groups])
        return
    columns = ("depth", "leased", "due again", "waiting", "dead", "pointer", "floor")
    table = Table("group", *columns)
    for each in groups:
        counts = (each.depth, each.leased, each.due, each.waiting, each.dead)
        figures = (*counts, each.pointer, each.floor)
        table.add_row(each.group, *(f"{figure:,}" for figure in figures))
    nothing = f"Queue {queue} has no groups: cassieq group create {queue} GROUP"
    Console().print(table if groups else nothing)
    tell_unexamined(groups)


@app.command()
@with_connection
def seek(  # noqa: PLR0913 (one per option)
    queue: Queue,
    group: Group,
    *,
    connection: ConnectionOptions,
    to: Annotated[str, typer.Option(help=f"Where it goes on: {_POSITIONS}.", show_default=False)],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Let a group go on from another position: what is below is done, the rest is delivered.

    What is settled for every group and deleted by the sweep can't be had again.
    """
    position = _position("--to", to)
    with _queue(connection, queue) as (store, queue_id):
        monoton = seek_group(store, queue_id, group, position, force=force)
    tell(
        f"Group {group} of queue {queue} goes on from monoton {monoton}.",
        {"queue": queue, "group": group, "position": monoton},
        as_json=as_json,
    )


@app.command()
@with_connection
def delete(  # noqa: PLR0913 (one per option)
    queue: Queue,
    group: Group,
    *,
    connection: ConnectionOptions,
    force: Force = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a group, and what it is owed; its readers stop, or make it anew when they restart."""
    with _queue(connection, queue) as (store, queue_id):
        if not yes:
            _confirm(store, queue_id, group)
        if not delete_group(store, queue_id, group, force=force):
            raise _unknown(queue, group)
    tell(
        f"Group {group} of queue {queue} is deleted.",
        {"queue": queue, "group": group, "deleted": True},
        as_json=as_json,
    )


@contextmanager
def _queue(connection: ConnectionOptions, queue: str) -> Iterator[tuple[Store, QueueId]]:
    store = open_store(connection)
    try:
        yield store, read_queue(store, queue).queue_id
    finally:
        store.close()


def _figures(store: Store, queue_id: QueueId, group: str | None = None) -> list[GroupStats]:
    groups = queue_stats(store, queue_id).groups
    return [each for each in groups if group is None or each.group == group]


def _position(option: str, text: str) -> StartingPosition:
    try:
        return POSITION.parse(text)
    except OptionError as error:
        raise OptionError(f"{option}: {error}") from error
    except ValueError as error:
        raise OptionError(f"{option} must be {POSITION.name}, not {text!r}") from error


def _confirm(store: Store, queue_id: QueueId, group: str) -> None:
    if not is_interactive():
        raise OptionError("there is no terminal to ask on: give --yes to delete the group")
    owed = sum(each.depth for each in _figures(store, queue_id, group))
    confirm(f"Delete group {group} of {queue_id}, which is owed {owed:,} message(s)?")


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _unknown(queue: str, group: str) -> QueueStateError:
    return QueueStateError(
        f"queue {queue} has no group {group!r}; see them with: cassieq group list {queue}"
    )


def _as_json(figures: GroupStats) -> dict[str, Any]:
    values = asdict(figures)
    age = values.pop("oldest_age")
    return values | {"oldest_age_seconds": None if age is None else age.total_seconds()}
