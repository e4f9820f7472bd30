"""``cassieq queue``: creates, lists, alters and deletes queues, and shows what is in them."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.cli.options import (
    AsJson,
    QueueName,
    Value,
    Yes,
    command,
    make_app,
    name_and_value,
)
from cassieq_spark.cli.output import (
    ask,
    definition_json,
    group_json,
    print_groups,
    print_json,
    tell,
    tell_stopped,
    tell_unexamined,
)
from cassieq_spark.cli.queue_flags import settings_flags
from cassieq_spark.cli.tables import Column, print_record, print_table
from cassieq_spark.client import Client
from cassieq_spark.display import shown_age
from cassieq_spark.errors import (
    NEW_CHECKPOINT,
    ExistsError,
    InvariantError,
    NotFoundError,
    OptionError,
)
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import (
    QueueRecord,
    Status,
    attributes_of,
    is_paused,
    known,
    read_mended,
    read_record,
    read_records,
)
from cassieq_spark.queues.stats import QueueStats, read_stats
from cassieq_spark.schedules.changes import readable_schedules
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.queue import PERIOD, QUEUE_SETTINGS
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import echo

app = make_app("Create, list, alter and delete queues, and see what is in them.")

_WARNING = (
    "Warning: before the fence is lowered, stop all writers that began under the wrong clock. A "
    "repair run may have deleted blocks that they had begun, and the lower fence does not refuse "
    "these blocks any more. A writer that publishes such a block publishes messages that are not "
    "in the store. Start these writers again, so that they write anew."
)


@command(app, settings=settings_flags(alters=False))
def create(  # noqa: PLR0913 (one per option)
    name: QueueName,
    *,
    context: typer.Context,
    connection: ConnectionOptions,
    settings: dict[str, Any],
    if_missing: Annotated[
        bool,
        typer.Option(
            "--if-missing", help="Leave a queue that exists, if it has the settings given here."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a queue, and its dead-letter queue.

    Partitions, order and sizes can't be altered later. With --if-missing the command may be
    repeated, as in a script that deploys a program.

    Examples:
        cassieq queue create orders
        cassieq queue create trips --schema 'vendor string not null, fare double'
        cassieq queue create events --partitions 16 --order key
        cassieq queue create mail --max-deliveries 3 --expire-after 14d
        cassieq queue create orders --lease 2m --if-missing
    """
    found = None
    with closing(open_store(connection)) as store:
        client = Client.from_store(store)
        try:
            queue = client.create_queue(name, **settings)
        except ExistsError:
            if not if_missing:
                raise
            queue = found = client.queue(name)
            _check_same(queue, settings, context)
    if as_json:
        print_json(definition_json(queue))
        return
    if found is not None:
        echo(f"Queue {queue.name} exists already ({queue.queue_id}).")
        return
    echo(f"Queue {queue.name} is created ({queue.queue_id}).")
    if queue.dead_letter_queue:
        echo(
            f"A message that fails {queue.max_deliveries} times goes to queue "
            f"{queue.dead_letter_queue}."
        )


@command(app, "list")
def list_(
    *,
    connection: ConnectionOptions,
    every: Annotated[bool, typer.Option("--all", help="Include deleted queues.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all queues.

    Examples:
        cassieq queue list
        cassieq queue list --json | jq -r '.[].queue'
    """
    with closing(open_store(connection)) as store:
        found = read_records(store)
    records = [
        each for each in found.readable.values() if every or each.status is not Status.DELETED
    ]
    if as_json:
        unreadable = [
            {"queue": name, "status": "unreadable", "error": str(error)}
            for name, error in found.unreadable.items()
        ]
        print_json([_record(each) for each in records] + unreadable)
        return
    rows = [_row(each) for each in records]
    rows += [(name, "unreadable", *[None] * 4) for name in found.unreadable]
    if rows:
        columns = ("queue", "status", "lease", "deliveries", "dead letters to", "created")
        print_table([Column("queue", wraps=True), *columns[1:]], rows)
    else:
        echo("There are no queues. To create one: cassieq queue create NAME")
    for name, error in found.unreadable.items():
        echo(f"cassieq: queue {name!a}: {error}", err=True)


@command(app)
def show(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show the settings of a queue, and whether it is paused.

    Examples:
        cassieq queue show orders
    """
    with closing(open_store(connection)) as store:
        record = known(name, read_record(store, name))
        paused = is_paused(store, name) if record.status is Status.ACTIVE else None
    if as_json:
        print_json(_record(record) | {"paused": paused, "attributes": attributes_of(record)})
        return
    queue = record.definition
    print_record(
        [
            ("queue", queue.name),
            ("version", queue.version),
            ("status", record.status.value),
            ("paused", paused),
            ("created", queue.created_at),
            *((it.label, it.shown(getattr(queue, it.name))) for it in QUEUE_SETTINGS),
            *((f"attribute {key}", value) for key, value in attributes_of(record).items()),
        ]
    )


@command(app)
def stats(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show exact figures: what a queue holds, and what each consumer group is owed.

    Examples:
        cassieq queue stats orders
        cassieq queue stats orders --json | jq '.groups[] | {group, depth}'
    """
    with closing(open_store(connection)) as store:
        figures = Client.from_store(store).stats(name)
    if as_json:
        print_json(_figures(figures))
        return
    echo(
        f"{figures.queue_id}: {figures.next:,} messages published, "
        f"{figures.next - figures.finalised:,} of them still stored, {figures.settled:,} of these "
        "settled by every group."
    )
    if figures.groups:
        print_groups(figures.groups)
    else:
        echo("No group has read from it yet.")
    if figures.partitions:
        echo()
        _print_partitions(figures)
    tell_unexamined(figures.groups)
    tell_stopped(name, figures.groups)


@command(app, changes=settings_flags(alters=True))
def alter(
    name: QueueName,
    *,
    connection: ConnectionOptions,
    changes: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Alter settings of a queue; the others stay as they are.

    Readers and writers see the change when they start. Bucket size, chunk size, partitions and
    order can't be altered. A schema is given whole: columns that may be null can be added and
    dropped, types widened, and not null taken away.

    Examples:
        cassieq queue alter orders --lease 2m
        cassieq queue alter trips --schema 'vendor string not null, fare double, tip double'
    """
    if not changes:
        raise OptionError("there is nothing to alter: give a setting, such as --lease 2m")
    with closing(open_store(connection)) as store:
        altered = Client.from_store(store).alter_queue(name, **changes)
    tell(
        f"Queue {name} is altered. Restart its readers and writers, so that they see the change.",
        definition_json(altered),
        as_json=as_json,
    )


@command(app)
def attributes(
    name: QueueName,
    *,
    connection: ConnectionOptions,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set this one; may be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove this one; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the attributes of a queue: facts about the queue, which mean nothing to it.

    A purge keeps attributes; a deletion does not.

    Examples:
        cassieq queue attributes orders --set team=payments --set tier=1
        cassieq queue attributes orders --remove tier
    """
    changes: dict[str, str | None] = dict.fromkeys(remove or ())
    changes |= dict(name_and_value("--set", each) for each in given or ())
    with closing(open_store(connection)) as store:
        client = Client.from_store(store)
        found = client.set_attributes(name, changes) if changes else client.attributes(name)
    if as_json:
        print_json(found)
    elif found:
        print_record(list(found.items()))
    else:
        echo(f"Queue {name} has no attributes.")


@command(app)
def pause(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Pause a queue: readers get no more messages, and ack those they have; writers continue.

    Examples:
        cassieq queue pause orders
    """
    with closing(open_store(connection)) as store:
        changed = Client.from_store(store).pause_queue(name)
    was = "" if changed else " already"
    tell(
        f"Queue {name} is paused{was}. To resume it: cassieq queue resume {name}",
        {"queue": name, "paused": True, "changed": changed},
        as_json=as_json,
    )


@command(app)
def resume(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Resume a paused queue.

    Examples:
        cassieq queue resume orders
    """
    with closing(open_store(connection)) as store:
        changed = Client.from_store(store).resume_queue(name)
    tell(
        f"Queue {name} is resumed." if changed else f"Queue {name} was not paused.",
        {"queue": name, "paused": False, "changed": changed},
        as_json=as_json,
    )


@command(app)
def purge(
    name: QueueName,
    *,
    connection: ConnectionOptions,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Continue even if readers hold messages; they lose their leases."
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all messages of a queue; its groups and settings stay.

    Running readers and writers stop with an error. Start them again, queries that read with a new
    checkpoint location, and a new folder if they write files. To finish a purge that broke off,
    repeat it.

    Examples:
        cassieq queue purge orders
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Purge", yes=yes)
        purged = Client.from_store(store).purge_queue(name, force=force)
    tell(
        f"Queue {name} is empty ({purged.queue_id}). Restart its writers; restart queries that "
        f"read it with {NEW_CHECKPOINT}. The next repair run frees the disk space.",
        {"queue": name, "version": purged.version, "queue_id": purged.queue_id},
        as_json=as_json,
    )


@command(app)
def delete(
    name: QueueName,
    *,
    connection: ConnectionOptions,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete it even if readers hold messages, or if it gets the dead letters of "
            "other queues.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a queue, its groups and its messages; its dead-letter queue stays.

    A new queue may have the same name at once. To finish a deletion that broke off, repeat it.

    Examples:
        cassieq queue delete orders
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Delete", yes=yes)
        Client.from_store(store).delete_queue(name, force=force)
    tell(
        f"Queue {name} is deleted. The next repair run frees the disk space.",
        {"queue": name, "deleted": True},
        as_json=as_json,
    )


@command(app, "fix-clocks")
def fix(
    name: QueueName,
    *,
    connection: ConnectionOptions,
    longest: Annotated[
        timedelta | None,
        Value(
            PERIOD,
            "Longest lease, or delay of a release, that your programs use: 1h.",
            without="a day, or ten leases of the queue if that is more",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Repair a queue after the clock of a Cassandra node was ahead.

    First set that clock right, and restart Cassandra on that node: its time does not go back while
    Cassandra runs.

    If the fence of the queue is ahead, it is lowered, and after two minutes the queue takes puts
    again. Before that, stop all writers that began under the wrong clock: a repair run may have
    deleted blocks that they had begun, and the lower fence no longer refuses these blocks.

    Messages that were delivered and would wait for longer than --longest are due at once. Messages
    that would be leased for longer stay with their readers for one lease from now.
    Messages that were put with a delay keep their time.

    Examples:
        cassieq queue fix-clocks orders --dry-run
        cassieq queue fix-clocks orders
    """
    with closing(open_store(connection)) as store:
        client = Client.from_store(store)
        done = client.fix_clocks(name, longest=longest, dry_run=dry_run)
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
        are = "would be" if dry_run else "are"
        echo(f"Group {group}: {count:,} message(s) {are} due now, or one lease from now.")
    if done.fence is None and not done.due:
        echo(f"Nothing in queue {name} is ahead of time.")


def _check_same(queue: QueueDefinition, settings: dict[str, Any], context: typer.Context) -> None:
    """Refuse a queue that has other settings than those that the line gives.

    Raises:
        ExistsError: A setting differs.
    """
    wanted = {
        it.name: settings.get(it.name)
        for it in QUEUE_SETTINGS
        if (source := context.get_parameter_source(it.name)) and source.name != "DEFAULT"
    }
    if "schema" in settings:
        # The line may name a file with the schema.
        wanted["schema"] = settings["schema"]
    if "drop_dead" in settings:
        wanted["dead_letter_queue"] = ""
    different = [
        f"{it.label}: {it.shown(there)}"
        for it in QUEUE_SETTINGS
        if it.name in wanted and it.check(wanted[it.name]) != (there := getattr(queue, it.name))
    ]
    if different:
        raise ExistsError(
            f"queue {queue.name!r} exists with other settings ({'; '.join(different)}): leave "
            f"these out, or alter the queue: cassieq queue alter {queue.name}"
        )


def _record(record: QueueRecord) -> dict[str, Any]:
    return definition_json(record.definition) | {"status": record.status.value}


def _row(record: QueueRecord) -> tuple[Any, ...]:
    queue = record.definition
    age = None if queue.created_at is None else datetime.now(UTC) - queue.created_at
    return (
        queue.name,
        record.status.value,
        PERIOD.show(queue.lease),
        queue.max_deliveries or "no limit",
        queue.dead_letter_queue,
        None if age is None else f"{shown_age(age)} ago",
    )


def _print_partitions(stats: QueueStats) -> None:
    """Print what each queue partition holds, and how much of it each group is owed."""
    names = [group.group for group in stats.groups]
    rows = []
    for number, each in enumerate(stats.partitions):
        depths = {group.group: group.depth for group in each.groups}
        stored = each.next - each.finalised
        rows.append((number, each.next, stored, *(depths.get(name, 0) for name in names)))
    print_table(["partition", "published", "stored", *(f"depth of {it}" for it in names)], rows)


def _figures(stats: QueueStats) -> dict[str, Any]:
    return {
        "queue_id": stats.queue_id,
        "finalised": stats.finalised,
        "next": stats.next,
        "settled": stats.settled,
        "groups": [group_json(group) for group in stats.groups],
        **(
            {"partitions": [_figures(each) for each in stats.partitions]}
            if stats.partitions
            else {}
        ),
    }


def _confirm(store: Store, name: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    record = read_mended(store, name) if what == "Delete" else read_record(store, name)
    if record is None or record.status is not Status.DELETING:
        record = known(name, record)
    ask(
        lambda: f"{what} queue {name}{_holdings(store, record, what)}?",
        yes=yes,
        otherwise=f"give --yes to {what.lower()} the queue",
    )


def _holdings(store: Store, record: QueueRecord, what: str) -> str:
    # A queue whose state can't be read can be deleted all the same.
    with suppress(NotFoundError, InvariantError):
        if record.status is Status.ACTIVE:
            figures = read_stats(store, record.definition)
            # A purge keeps them.
            schedules = len(readable_schedules(record)) if what == "Delete" else 0
            return (
                f", which stores {figures.next - figures.finalised:,} message(s) for "
                f"{len(figures.groups)} group(s)"
                + (f" and has {schedules:,} schedule(s)" if schedules else "")
            )
    return ""
