"""``cassieq group``: the consumer groups of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from cassieq_spark.cli.options import (
    PLACE,
    AsJson,
    GroupName,
    QueueName,
    Value,
    Yes,
    command,
    make_app,
)
from cassieq_spark.cli.output import (
    ask,
    group_json,
    instant_text,
    print_groups,
    print_json,
    tell,
    tell_stopped,
    tell_unexamined,
)
from cassieq_spark.cli.tables import Column, print_table
from cassieq_spark.client import Client
from cassieq_spark.dead_letters.stopped import Resume, Stopped
from cassieq_spark.display import shown_age
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import read_queue
from cassieq_spark.queues.moves import Move, read_move
from cassieq_spark.queues.stats import GroupStats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.position import StartingPosition, show_position
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo

app = make_app("Create, list, move, resume and delete the consumer groups of a queue.")

Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Continue even if readers hold messages; they lose their leases."
    ),
]


@command(app)
def create(
    queue: QueueName,
    group: GroupName,
    *,
    connection: ConnectionOptions,
    start: Annotated[
        StartingPosition,
        Value(PLACE, f"Where the group begins: {PLACE.name}.", name="--from"),
    ] = "earliest",
    as_json: AsJson = False,
) -> None:
    """Create a consumer group. A reader that starts first creates its group itself.

    Examples:
        cassieq group create orders billing
        cassieq group create orders reports --from latest
        cassieq group create orders audit --from 2h
    """
    with _client(connection) as client:
        definition = client.queue(queue)
        client.create_group(queue, group, start)
        (figures,) = _figures(client, queue, group)
    tell(
        f"Group {group} of queue {queue} begins at {_position(definition, figures.floor)} "
        f"({show_position(start)}): {figures.depth:,} message(s) to deliver.",
        {"queue": queue, **group_json(figures)},
        as_json=as_json,
    )


@command(app, "list")
def list_(
    queue: QueueName,
    *,
    connection: ConnectionOptions,
    as_json: AsJson = False,
) -> None:
    """List the groups of a queue, and what each of them is owed.

    Examples:
        cassieq group list orders
    """
    with _client(connection) as client:
        groups = client.groups(queue)
    if as_json:
        print_json([group_json(each) for each in groups])
        return
    if groups:
        print_groups(groups, with_places=True)
    else:
        echo(f"Queue {queue} has no groups. To create one: cassieq group create {queue} GROUP")
    tell_unexamined(groups)
    tell_stopped(queue, groups)


@command(app)
def seek(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    group: GroupName,
    *,
    connection: ConnectionOptions,
    to: Annotated[StartingPosition, Value(PLACE, f"Where the group continues: {PLACE.name}.")],
    partition: Annotated[
        int | None,
        typer.Option(help="Move it in this partition only.", min=0, show_default="in all"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Move a group to another position.

    Messages before the position are settled for the group; those from the position on are
    delivered, also those that were settled. Messages that the repair has deleted are gone.

    Examples:
        cassieq group seek orders billing --to 2h --dry-run
        cassieq group seek orders billing --to latest
        cassieq group seek orders billing --to 12345
    """
    if dry_run:
        with closing(open_store(connection)) as store:
            move = read_move(store, queue, group, to, partition=partition)
            definition = read_queue(store, queue)
        _tell_move(definition, group, move, partition, as_json=as_json)
        return
    with _client(connection) as client:
        definition = client.queue(queue)
        monoton = client.seek_group(queue, group, to, partition=partition, force=force)
    where = _position(definition, monoton, partition)
    tell(
        f"Group {group} of queue {queue} continues from {where}.",
        {"queue": queue, "group": group, "position": monoton},
        as_json=as_json,
    )


@command(app)
def resume(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    group: GroupName,
    *,
    connection: ConnectionOptions,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry", help="Deliver the dead messages again, and count their deliveries anew."
        ),
    ] = False,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Move them to the dead-letter queue.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Discard them.")] = False,
    partition: Annotated[
        int | None,
        typer.Option(help="Resume this partition only.", min=0, show_default="all"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a group that has stopped at a dead message continue (queues with --on-dead stop).

    Without --retry, --dead-letter or --drop, only show where the group has stopped, and why.

    Examples:
        cassieq group resume orders billing
        cassieq group resume orders billing --retry
    """
    chosen = [how for how, given in zip(Resume, (retry, dead_letter, drop), strict=True) if given]
    if len(chosen) > 1:
        raise OptionError("--retry, --dead-letter and --drop exclude each other: give one of them")
    with _client(connection) as client:
        if not chosen:
            _tell_stopped(queue, group, client.stopped(queue, group), as_json=as_json)
            return
        definition = client.queue(queue)
        count = client.resume_group(queue, group, chosen[0], partition=partition)
    fate = {
        Resume.RETRY: "are delivered again",
        Resume.DEAD_LETTER: f"are in queue {definition.dead_letter_queue} now",
        Resume.DROP: "are discarded",
    }
    tell(
        f"Group {group} of queue {queue} continues: {count:,} message(s) {fate[chosen[0]]}."
        if count
        else f"Group {group} of queue {queue} has not stopped at a dead message.",
        {"queue": queue, "group": group, "how": chosen[0].value, "resumed": count},
        as_json=as_json,
    )


@command(app)
def delete(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    group: GroupName,
    *,
    connection: ConnectionOptions,
    force: Force = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a group and its state.

    The readers of the group stop with an error. When they restart, they create the group again.

    Examples:
        cassieq group delete orders billing
    """
    with _client(connection) as client:
        definition = client.queue(queue)
        ask(
            lambda: (
                f"Delete group {group} of {definition.queue_id}, which has not settled "
                f"{sum(each.depth for each in _figures(client, queue, group)):,} message(s)?"
            ),
            yes=yes,
            otherwise="give --yes to delete the group",
        )
        if not client.delete_group(queue, group, force=force):
            raise _unknown(queue, group)
    tell(
        f"Group {group} of queue {queue} is deleted.",
        {"queue": queue, "group": group, "deleted": True},
        as_json=as_json,
    )


@contextmanager
def _client(connection: ConnectionOptions) -> Iterator[Client]:
    with closing(open_store(connection)) as store:
        yield Client.from_store(store)


def _tell_stopped(queue: str, group: str, found: list[Stopped], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "partition": each.partition,
                    "monotons": str(each.monotons),
                    "deliveries": each.deliveries,
                    "reason": each.reason,
                    "last_delivered_at": instant_text(each.last_delivered_at),
                }
                for each in found
            ]
        )
        return
    if not found:
        echo(f"Group {group} of queue {queue} has not stopped at a dead message.")
        return
    columns = ["partition", "messages", "deliveries", "last delivered"]
    now = datetime.now(UTC)
    rows = [
        (
            each.partition,
            each.monotons.short,
            each.deliveries,
            each.last_delivered_at and f"{shown_age(now - each.last_delivered_at)} ago",
            each.reason,
        )
        for each in found
    ]
    print_table([*columns, Column("reason", wraps=True)], rows)


def _tell_move(
    queue: QueueDefinition, group: str, move: Move, partition: int | None, *, as_json: bool
) -> None:
    held = ""
    if move.leased:
        held = f" Readers hold {move.leased:,} message(s): stop them first, or give --force."
    tell(
        f"Group {group} of queue {queue.name} would continue from "
        f"{_position(queue, move.position, partition)}, and be owed {move.owed:,} message(s). "
        f"{move.again:,} that it has settled would be delivered again, and {move.skipped:,} that "
        f"it is owed would be skipped.{held}",
        {"queue": queue.name, "group": group, "dry_run": True, **asdict(move)},
        as_json=as_json,
    )


def _figures(client: Client, queue: str, group: str) -> list[GroupStats]:
    return [each for each in client.groups(queue) if each.group == group]


def _position(queue: QueueDefinition, monoton: int, partition: int | None = None) -> str:
    if queue.partitions == 1 or partition is not None:
        return f"monoton {monoton}"
    return f"message {monoton}, counted over {queue.partitions} partitions"


def _unknown(queue: str, group: str) -> QueueStateError:
    return QueueStateError(
        f"queue {queue} has no group {group!r}; see them with: cassieq group list {queue}"
    )
