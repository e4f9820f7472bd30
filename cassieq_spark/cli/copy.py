"""``cassieq copy``: a queue into a file, and a file into a queue."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.complete import complete_queues
from cassieq_spark.cli.options import MESSAGES_PANEL, AsJson, command
from cassieq_spark.cli.output import progress_bar, tell
from cassieq_spark.client import Client
from cassieq_spark.client.files import (
    check_key,
    export_queue,
    import_file,
    is_file,
    schema_of_file,
)
from cassieq_spark.errors import ExistsError, OptionError
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store

app = typer.Typer()


@command(app, panel=MESSAGES_PANEL)
def copy(  # noqa: PLR0913 (one per option)
    source: Annotated[
        str, typer.Argument(help="A queue, or a file.", autocompletion=complete_queues)
    ],
    target: Annotated[
        str, typer.Argument(help="A file, or a queue.", autocompletion=complete_queues)
    ],
    *,
    connection: ConnectionOptions,
    create: Annotated[
        bool, typer.Option("--create", help="Create the queue, with the columns of the file.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Column whose values become the keys of the messages.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            help="Name of the copy into a queue: repeated under it within twelve hours, it "
            "publishes what is missing, and nothing twice.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the messages of a queue to a file, or the rows of a file to a queue.

    The name of a file ends in .parquet, .arrow (a stream) or .jsonl. It has the columns of the
    queue, _key and _headers; or value, key and headers, if messages are bytes. Nothing is leased.
    The rows of a file become visible together, or none does; in a queue with several partitions,
    those of each partition. If a copy breaks off in between, its error says how to complete it.

    Examples:
        cassieq copy orders orders.parquet
        cassieq copy trips.parquet trips --create --key vendor
    """
    if is_file(source) == is_file(target):
        raise OptionError(
            "give a queue and a file, whose name ends in .parquet, .arrow or .jsonl, not "
            f"{source!r} and {target!r}"
        )
    given = {"--key": key, "--idempotency-key": idempotency_key}
    for option, value in given.items():
        if value is not None and is_file(target):
            raise OptionError(f"{option} is for copying a file to a queue: leave it out")
    if idempotency_key is not None and not idempotency_key.strip():
        raise OptionError("--idempotency-key is empty: give a name that no other copy has")
    with closing(open_store(connection)) as store, progress_bar() as watch:
        if is_file(target):
            count = export_queue(
                store,
                read_queue(store, source),
                Path(target),
                force=force,
                watch=lambda done, total: watch("copying", done, total),
            )
        else:
            path = Path(source)
            if create:
                columns = schema_of_file(path)
                if key is not None:
                    check_key(key, columns, source)
                with suppress(ExistsError):
                    Client.from_store(store).create_queue(target, schema=columns)
            count = import_file(
                store,
                read_queue(store, target),
                path,
                key=key,
                idempotency_key=idempotency_key,
                watch=lambda done, total: watch("copying", done, total or done),
            )
    tell(
        f"{count:,} message(s) copied from {source} to {target}.",
        {"source": source, "target": target, "count": count},
        as_json=as_json,
    )
