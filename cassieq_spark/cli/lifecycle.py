"""``cassieq queue``: alter, pause, purge and delete queues."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import timedelta
from typing import Annotated

import typer

from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.group import is_interactive
from cassieq_spark.cli.output import AsJson, settings_json, tell
from cassieq_spark.errors import InvariantError, NotFoundError, OptionError
from cassieq_spark.queues import (
    Status,
    alter_queue,
    delete_queue,
    known,
    pause_queue,
    purge_queue,
    read_mended,
    read_record,
    resume_queue,
)
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import confirm

app = typer.Typer()

Name = Annotated[str, typer.Argument(help="Name of the queue.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

EXPIRE_AFTER_HELP = "Throw away what was not consumed so long after it became visible, as in 14d"
KEEP_SETTLED_HELP = "Keep what all groups have settled for so long, to be read again, as in 7d"
_PERIOD = duration(timedelta(days=20_000), zero=True)
#: What the store takes.
LONGEST_LEASE_SECONDS = 20_000 * 86_400

#: What can't be altered: there to be refused with a reason.
_Fixed = Annotated[int | None, typer.Option(hidden=True)]


@app.command()
@with_connection
def alter(  # noqa: PLR0913 (one per option)
    name: Name,
    *,
    connection: ConnectionOptions,
    lease_seconds: Annotated[
        int | None,
        typer.Option(
            help="How long a reader that died keeps its messages from others.",
            max=LONGEST_LEASE_SECONDS,
        ),
    ] = None,
    max_deliveries: Annotated[
        int | None,
        typer.Option(help="After so many deliveries a message is dead; 0: never.", min=0),
    ] = None,
    dead_letter_queue: Annotated[
        str | None, typer.Option(help="Where dead messages go; made if it does not exist.")
    ] = None,
    drop_dead: Annotated[
        bool, typer.Option("--drop-dead", help="Have no dead-letter queue: drop dead messages.")
    ] = False,
    expire_after: Annotated[
        str | None, typer.Option(help=f"{EXPIRE_AFTER_HELP}; 0s: nothing.")
    ] = None,
    keep_settled: Annotated[
        str | None, typer.Option(help=f"{KEEP_SETTLED_HELP}; 0s: not at all.")
    ] = None,
    bucket_size: _Fixed = None,
    chunk_size: _Fixed = None,
    strict_fifo: Annotated[
        bool | None, typer.Option("--strict-fifo/--no-strict-fifo", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Alter a queue: what is not given stays as it is. Readers and writers see it when they start.

    The sizes and the order stay what they were when the queue was created.
    """
    _refuse_fixed(bucket_size, chunk_size, strict_fifo)
    if dead_letter_queue and drop_dead:
        raise OptionError("--dead-letter-queue does not go with --drop-dead")
    settings = (lease_seconds, max_deliveries, dead_letter_queue, expire_after, keep_settled)
    if not drop_dead and all(each is None for each in settings):
        raise OptionError("nothing to alter: give a setting, as in --lease-seconds 120")
    with closing(open_store(connection)) as store:
        altered = alter_queue(
            store,
            name,
            lease=None if lease_seconds is None else timedelta(seconds=lease_seconds),
            max_deliveries=max_deliveries,
            dead_letter_queue="" if drop_dead else dead_letter_queue,
            expire_after=parse_period("--expire-after", expire_after),
            keep_settled=parse_period("--keep-settled", keep_settled),
        )
    tell(
        f"Queue {name} is altered: cassieq queue show {name}. Start its readers again to have "
        "them go by it.",
        settings_json(altered),
        as_json=as_json,
    )


@app.command()
@with_connection
def pause(name: Name, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Let readers lease nothing more; they ack what they have, and writers go on."""
    with closing(open_store(connection)) as store:
        changed = pause_queue(store, name)
    was = "" if changed else " already"
    tell(
        f"Queue {name} is paused{was}. To go on: cassieq queue resume {name}",
        {"queue": name, "paused": True, "changed": changed},
        as_json=as_json,
    )


@app.command()
@with_connection
def resume(name: Name, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Let the readers of a paused queue go on."""
    with closing(open_store(connection)) as store:
        changed = resume_queue(store, name)
    tell(
        f"Queue {name} goes on." if changed else f"Queue {name} was not paused.",
        {"queue": name, "paused": False, "changed": changed},
        as_json=as_json,
    )


@app.command()
@with_connection
def purge(
    name: Name,
    *,
    connection: ConnectionOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Also while readers hold messages: they lose them.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Throw all messages of a queue away; groups and settings stay.

    Readers and writers that run stop with an error: start them again, readers with a new
    checkpoint location. Also finishes a purge that broke off.
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Purge", yes=yes)
        purged = purge_queue(store, name, force=force)
    tell(
        f"Queue {name} is empty ({purged.queue_id}). Start its writers again, and its readers "
        "with a new checkpoint location. What was stored is deleted by the next sweep.",
        {"queue": name, "version": purged.version, "queue_id": purged.queue_id},
        as_json=as_json,
    )


@app.command()
@with_connection
def delete(
    name: Name,
    *,
    connection: ConnectionOptions,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also while readers hold messages, or other queues send dead letters to it.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a queue, its groups and its messages; its dead-letter queue stays.

    One of that name can be created at once. Also finishes a deletion that broke off.
    """
    with closing(open_store(connection)) as store:
        _confirm(store, name, "Delete", yes=yes)
        delete_queue(store, name, force=force)
    tell(
        f"Queue {name} is deleted. What was stored is deleted by the next sweep.",
        {"queue": name, "deleted": True},
        as_json=as_json,
    )


def parse_period(option: str, text: str | None) -> timedelta | None:
    """The value of an option that is a period of time; None if it was not given."""
    if text is None:
        return None
    try:
        return _PERIOD.parse(text)
    except ValueError as error:
        raise OptionError(f"{option} must be {_PERIOD.name}, not {text!r}") from error


def _refuse_fixed(
    bucket_size: int | None, chunk_size: int | None, strict_fifo: bool | None
) -> None:
    if bucket_size is not None or chunk_size is not None:
        raise OptionError(
            "bucket size and chunk size can't be altered, as the keys of all stored messages come "
            "from them; create another queue, and let a query copy what is left"
        )
    if strict_fifo is not None:
        raise OptionError(
            "strict order can't be altered, as readers that run would go on in the other one; "
            "create another queue, and let a query copy what is left"
        )


def _confirm(store: Store, name: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    record = read_mended(store, name) if what == "Delete" else read_record(store, name)
    if record is None or record.status is not Status.DELETING:
        record = known(name, record)
    if not is_interactive():
        raise OptionError(
            f"there is no terminal to ask on: give --yes to {what.lower()} the queue"
        )
    holds = ""
    # Of what can't be read, nobody can say how much it is; it is to be deleted all the same.
    with suppress(NotFoundError, InvariantError):
        if record.status is Status.ACTIVE:
            figures = queue_stats(store, record.definition.queue_id)
            holds = (
                f", which stores {figures.next - figures.finalised:,} message(s) for "
                f"{len(figures.groups)} group(s)"
            )
    confirm(f"{what} queue {name}{holds}?")
