"""``cassieq queue``: create, alter, pause, purge and delete queues, and see what is in them."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cassieq_spark.cli.options import AsJson, QueueName, Value, Yes, command
from cassieq_spark.cli.output import (
    ask,
    definition_json,
    group_json,
    instant_text,
    print_json,
    tell,
    tell_stopped,
    tell_unexamined,
)
from cassieq_spark.errors import InvariantError, NotFoundError, OptionError
from cassieq_spark.model import (
    DEFAULT_BUCKET_SIZE,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_LEASE,
    TYPED_BUCKET_SIZE,
    TYPED_CHUNK_SIZE,
    OnDead,
    Order,
)
from cassieq_spark.queues import (
    QueueRecord,
    Status,
    alter_queue,
    create_queue,
    delete_queue,
    fix_clocks,
    is_paused,
    known,
    pause_queue,
    purge_queue,
    read_mended,
    read_queue,
    read_record,
    read_records,
    resume_queue,
)
from cassieq_spark.queues.definition import MOST_PARTITIONS
from cassieq_spark.queues.stats import QueueStats, read_stats
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.files import parse_schema, read_schema_file
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import Console, echo

app = typer.Typer(
    help="Create, alter, pause, purge and delete queues, and see what is in them.",
    no_args_is_help=True,
)

_EXPIRE_AFTER = "Drop messages that are this old and were not consumed, as in 14d"
_KEEP_SETTLED = "Keep messages for this long after all groups have settled them, as in 7d"
_PERIOD = duration(timedelta(days=20_000), zero=True)
#: What the store takes.
_LONGEST_LEASE_SECONDS = 20_000 * 86_400

_Schema = Annotated[
    str | None,
    typer.Option(
        help="Columns of its messages, in Spark's DDL: 'vendor string not null, fare "
        "decimal(10,2)'.",
        show_default="messages are bytes",
    ),
]
_SchemaFile = Annotated[
    Path | None,
    typer.Option(
        help="The same as a file: DDL, Spark's JSON, an Avro schema (.avsc), or a Parquet file.",
        show_default=False,
    ),
]

#: What can't be altered: there to be refused with a reason.
_Fixed = Annotated[int | None, typer.Option(hidden=True)]

_WARNING = (
    "Warning: before the fence is lowered, stop all writers that began "
    "under the wrong clock. A repair run may have deleted blocks that they "
    "have begun, and the lower fence does not refuse these any more: a "
    "writer that publishes them publishes messages that are not in the "
    "store. Let such writers write again."
)


@command(app)
def create(  # noqa: PLR0913 (one per option)
    name: QueueName,
    *,
    connection: ConnectionOptions,
    bucket_size: Annotated[
        int | None,
        typer.Option(
            help="Messages per Cassandra partition; a multiple of --chunk-size.",
            show_default=f"{DEFAULT_BUCKET_SIZE}; {TYPED_BUCKET_SIZE} with a schema",
        ),
    ] = None,
    chunk_size: Annotated[
        int | None,
        typer.Option(
            help="Most messages per row.",
            show_default=f"{DEFAULT_CHUNK_SIZE}; {TYPED_CHUNK_SIZE} with a schema",
        ),
    ] = None,
    lease_seconds: Annotated[
        int,
        typer.Option(
            help="How long a reader that died keeps its messages from others.",
            max=_LONGEST_LEASE_SECONDS,
        ),
    ] = int(DEFAULT_LEASE.total_seconds()),
    max_deliveries: Annotated[
        int,
        typer.Option(
            help="A message is dead-lettered after this many deliveries; 0: never.", min=0
        ),
    ] = 5,
    dead_letter_queue: Annotated[
        str | None,
        typer.Option(
            help="Queue for dead messages; created if it does not exist.", show_default="NAME.dead"
        ),
    ] = None,
    drop_dead: Annotated[
        bool, typer.Option("--drop-dead", help="Have no dead-letter queue: drop dead messages.")
    ] = False,
    partitions: Annotated[
        int,
        typer.Option(
            help="Ledgers of the queue: each is published to and read by itself, and messages of "
            "one key go to the same one. Can't be altered.",
            max=MOST_PARTITIONS,
        ),
    ] = 1,
    order: Annotated[
        Order,
        typer.Option(
            help="key: deliver no message to a group before it has settled all earlier ones of "
            "its partition. strict: of the queue, which has one partition.",
        ),
    ] = Order.NONE,
    on_dead: Annotated[
        OnDead,
        typer.Option(
            help="With an order: deliver the messages behind a dead one, or stop there until "
            "cassieq group resume.",
        ),
    ] = OnDead.CONTINUE,
    expire_after: Annotated[
        timedelta | None, Value(_PERIOD, f"{_EXPIRE_AFTER}.", without="nothing")
    ] = None,
    keep_settled: Annotated[
        timedelta | None, Value(_PERIOD, f"{_KEEP_SETTLED}.", without="not at all")
    ] = None,
    schema: _Schema = None,
    schema_file: _SchemaFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue, and its dead-letter queue."""
    columns = _columns(schema, schema_file)
    if dead_letter_queue and (drop_dead or not max_deliveries):
        raise OptionError(
            "--dead-letter-queue cannot be combined with --drop-dead or --max-deliveries 0"
        )
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
            order=order,
            partitions=partitions,
            on_dead=on_dead,
            expire_after=expire_after or None,
            keep_settled=keep_settled or None,
            schema=columns,
        )
    if as_json:
        print_json({"queue_id": queue.queue_id, **definition_json(queue)})
        return
    echo(f"Queue {queue.name} is ready ({queue.queue_id}).")
    if target:
        echo(f"What fails {max_deliveries} times goes to queue {target}.")


@command(app, "list")
def list_(
    *,
    connection: ConnectionOptions,
    every: Annotated[bool, typer.Option("--all", help="Include deleted queues.")] = False,
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


@command(app)
def show(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show the definition of a queue, and whether it is paused."""
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


@command(app)
def stats(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show exact figures: what a queue holds, and what each consumer group is owed."""
    with closing(open_store(connection)) as store:
        figures = read_stats(store, read_queue(store, name))
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
    if figures.partitions:
        console.print(_by_partition(figures))
    tell_unexamined(figures.groups)
    tell_stopped(name, figures.groups)


@command(app)
def alter(  # noqa: PLR0913 (one per option)
    name: QueueName,
    *,
    connection: ConnectionOptions,
    lease_seconds: Annotated[
        int | None,
        typer.Option(
            help="How long a reader that died keeps its messages from others.",
            max=_LONGEST_LEASE_SECONDS,
        ),
    ] = None,
    max_deliveries: Annotated[
        int | None,
        typer.Option(
            help="A message is dead-lettered after this many deliveries; 0: never.", min=0
        ),
    ] = None,
    dead_letter_queue: Annotated[
        str | None, typer.Option(help="Queue for dead messages; created if it does not exist.")
    ] = None,
    drop_dead: Annotated[
        bool, typer.Option("--drop-dead", help="Have no dead-letter queue: drop dead messages.")
    ] = False,
    on_dead: Annotated[
        OnDead | None,
        typer.Option(
            help="With an order: deliver the messages behind a dead one, or stop there until "
            "cassieq group resume.",
        ),
    ] = None,
    expire_after: Annotated[
        timedelta | None, Value(_PERIOD, f"{_EXPIRE_AFTER}; 0s: nothing.")
    ] = None,
    keep_settled: Annotated[
        timedelta | None, Value(_PERIOD, f"{_KEEP_SETTLED}; 0s: not at all.")
    ] = None,
    schema: _Schema = None,
    schema_file: _SchemaFile = None,
    bucket_size: _Fixed = None,
    chunk_size: _Fixed = None,
    partitions: _Fixed = None,
    order: Annotated[Order | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Alter a queue; settings that are not given stay. Readers and writers see it when they start.

    Bucket size, chunk size, partitions and order can't be altered. A schema is given whole.
    Columns that may be null can be added and dropped, types widened, and not null taken away.
    """
    columns = _columns(schema, schema_file)
    _refuse_fixed(bucket_size, chunk_size, partitions, order)
    if dead_letter_queue and drop_dead:
        raise OptionError("--dead-letter-queue cannot be combined with --drop-dead")
    periods = (expire_after, keep_settled)
    settings = (lease_seconds, max_deliveries, dead_letter_queue, on_dead, *periods, columns)
    if not drop_dead and all(each is None for each in settings):
        raise OptionError("nothing to alter: give a setting, as in --lease-seconds 120")
    with closing(open_store(connection)) as store:
        altered = alter_queue(
            store,
            name,
            lease=None if lease_seconds is None else timedelta(seconds=lease_seconds),
            max_deliveries=max_deliveries,
            dead_letter_queue="" if drop_dead else dead_letter_queue,
            on_dead=on_dead,
            expire_after=expire_after,
            keep_settled=keep_settled,
            schema=columns,
        )
    tell(
        f"Queue {name} is altered: cassieq queue show {name}. Restart its "
        "readers and writers to apply the change.",
        definition_json(altered),
        as_json=as_json,
    )


@command(app)
def pause(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Pause a queue: readers lease nothing more, but ack what they hold; writers go on."""
    with closing(open_store(connection)) as store:
        changed = pause_queue(store, name)
    was = "" if changed else " already"
    tell(
        f"Queue {name} is paused{was}. To resume it: cassieq queue resume {name}",
        {"queue": name, "paused": True, "changed": changed},
        as_json=as_json,
    )


@command(app)
def resume(name: QueueName, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Resume a paused queue."""
    with closing(open_store(connection)) as store:
        changed = resume_queue(store, name)
    tell(
        f"Queue {name} goes on." if changed else f"Queue {name} was not paused.",
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
    """Delete all messages of a queue; groups and settings stay.

    Running readers and writers stop with an error: start them again, readers with a new
    checkpoint location. Repeat a purge that broke off to finish it.
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Purge", yes=yes)
        purged = purge_queue(store, name, force=force)
    tell(
        f"Queue {name} is empty ({purged.queue_id}). Restart its writers, and "
        "restart its readers with a new checkpoint location. The next repair "
        "run deletes what was stored.",
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
            help="Delete even if readers hold messages, or other queues send dead letters to it.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a queue, its groups and its messages; its dead-letter queue stays.

    A new queue may have the same name at once. Repeat a deletion that broke off to finish it.
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Delete", yes=yes)
        delete_queue(store, name, force=force)
    tell(
        f"Queue {name} is deleted. The next repair run deletes what was stored.",
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
            _PERIOD,
            "Longest lease, or delay of a release, that your programs use.",
            without="a day, or ten leases of the queue if that is more",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Undo what a server's clock that was ahead has done to a queue.

    First set it right, and restart Cassandra there: its time does not go back while it runs.

    A fence that is ahead goes down, so that puts are taken again after two minutes. Before that,
    stop all writers that began under the wrong clock: a repair run may have deleted what they have
    begun and not yet published, and the fence then refuses it no more. They write it again.

    What was handed out before and would wait for longer than --longest is due at once; what was
    delayed when it was put keeps its time.
    """
    with closing(open_store(connection)) as store:
        done = fix_clocks(store, name, longest=longest, dry_run=dry_run)
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


def _columns(schema: str | None, file: Path | None) -> str | None:
    """The schema that was given, in Spark's DDL."""
    if schema is not None and file is not None:
        raise OptionError("--schema and --schema-file exclude each other: give one of them")
    if file is not None:
        return to_ddl(read_schema_file(file))
    return None if schema is None else to_ddl(parse_schema(schema))


def _record(record: QueueRecord) -> dict[str, Any]:
    return definition_json(record.definition) | {
        "status": record.status.value,
        "created_at": instant_text(record.definition.created_at),
    }


def _by_partition(stats: QueueStats) -> Table:
    """What each partition holds, and how much of it each group is owed."""
    names = [group.group for group in stats.groups]
    table = Table("partition", "published", "stored", *(f"depth of {name}" for name in names))
    for number, each in enumerate(stats.partitions):
        depths = {group.group: group.depth for group in each.groups}
        counts = (each.next, each.next - each.finalised, *(depths.get(name, 0) for name in names))
        table.add_row(str(number), *(f"{count:,}" for count in counts))
    return table


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


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _refuse_fixed(
    bucket_size: int | None, chunk_size: int | None, partitions: int | None, order: Order | None
) -> None:
    if bucket_size is not None or chunk_size is not None:
        raise OptionError(
            "bucket size and chunk size can't be altered, because the keys of all "
            "stored messages depend on them; create another queue, and copy the "
            "remaining messages with a query"
        )
    if partitions is not None:
        raise OptionError(
            "the number of partitions can't be altered, because the partition of a key depends on "
            "it; create another queue, write to that one, and let readers finish this one first"
        )
    if order is not None:
        raise OptionError(
            "the order can't be altered, because running readers would use the "
            "old order beside new readers; create another queue, and copy the "
            "remaining messages with a query"
        )


def _confirm(store: Store, name: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    record = read_mended(store, name) if what == "Delete" else read_record(store, name)
    if record is None or record.status is not Status.DELETING:
        record = known(name, record)
    ask(
        lambda: f"{what} queue {name}{_holdings(store, record)}?",
        yes=yes,
        otherwise=f"give --yes to {what.lower()} the queue",
    )


def _holdings(store: Store, record: QueueRecord) -> str:
    # A queue whose state can't be read can be deleted all the same.
    with suppress(NotFoundError, InvariantError):
        if record.status is Status.ACTIVE:
            figures = read_stats(store, record.definition)
            return (
                f", which stores {figures.next - figures.finalised:,} message(s) for "
                f"{len(figures.groups)} group(s)"
            )
    return ""
