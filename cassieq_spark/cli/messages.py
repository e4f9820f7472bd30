"""``cassieq put``, ``receive`` and ``peek``: single messages, from a shell."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.cli.options import AsJson, QueueName, Value, command
from cassieq_spark.cli.output import tell
from cassieq_spark.client import Client, Message, NewMessage, StoredMessage
from cassieq_spark.display import visible_bytes
from cassieq_spark.errors import OptionError
from cassieq_spark.model import Positions
from cassieq_spark.schemas.to_rows import json_of
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.settings.position import POSITION, StartingPosition
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, json_line

app = typer.Typer()

_DURATION = duration(timedelta(days=365), zero=True)

_LinesOfJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print a line of JSON for each message; values and keys that are not "
        "UTF-8 in base64, as value_base64 and key_base64.",
    ),
]


@command(app)
def put(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    values: Annotated[
        list[str] | None, typer.Argument(help="Messages.", show_default=False)
    ] = None,
    *,
    connection: ConnectionOptions,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(help="Put each line of a file; - for standard input.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Key of all messages.", show_default=False)
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Header of all messages: name=value. Repeatable.", show_default=False),
    ] = None,
    delay: Annotated[
        timedelta, Value(_DURATION, "Delay before they are delivered: 10s, 5m.")
    ] = timedelta(0),
    as_json: AsJson = False,
) -> None:
    """Put messages; they become visible all together, or none does.

    Of a queue with a schema, each is a JSON object with its columns.
    """
    if bool(values) == (file is not None):
        raise OptionError("give either messages to put, or --file with one message in each line")
    headers = dict(_header(text) for text in header or ())
    # As the shell gave them, whatever their encoding.
    bodies: Iterable[bytes] = map(os.fsencode, values or ())
    if file is not None:
        bodies = (line.removesuffix(b"\n") for line in file)
    name = None if key is None else os.fsencode(key)
    with _client(connection) as client:
        monotons = client.put_many(
            queue, (NewMessage(body, name, headers) for body in bodies), delay=delay
        )
    if isinstance(monotons, Positions):
        parts = sorted(monotons.by_partition.items())
        where: dict[str, Any] = {
            "partitions": {str(at): {"start": it.start, "stop": it.stop} for at, it in parts}
        }
    else:
        where = {"start": monotons.start, "stop": monotons.stop}
    tell(
        f"Put {len(monotons):,} message(s) into queue {queue}: monotons {monotons}.",
        {"queue": queue, **where},
        as_json=as_json,
    )


@command(app)
def receive(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    *,
    connection: ConnectionOptions,
    group: Annotated[
        str, typer.Option(help="Consumer group; created if it does not exist.", show_default=False)
    ],
    most: Annotated[int, typer.Option("--max", help="Most messages.", min=1)] = 1,
    wait: Annotated[
        timedelta, Value(_DURATION, "How long to wait for the first one: 10s.")
    ] = timedelta(0),
    ack: Annotated[
        bool, typer.Option("--ack", help="Ack them once they are printed; the default.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Release them once they are printed: only look.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Hold them until their lease runs out.")
    ] = False,
    as_json: _LinesOfJson = False,
) -> None:
    """Lease messages and print them, one per line; print nothing if none comes in time.

    A file or a pipe gets the exact bytes; on a terminal, control characters are spelled out. Of a
    queue with a schema, a line is a JSON object.

    Each message is acked after it is printed. If the pipe breaks, or on Ctrl-C, the others are
    released at once.
    """
    if ack + release + keep > 1:
        raise OptionError("--ack, --release and --keep exclude each other: give one of them")
    with _client(connection) as client:
        messages = client.receive(queue, group, max=most, wait=wait)
        printed: list[Message] = []
        try:
            for message in messages:
                _print(message, as_json=as_json)
                printed.append(message)
        finally:
            done = [] if release or keep else printed
            kept = printed if keep else []
            _settle(client, done, messages[len(done) + len(kept) :])


@command(app)
def peek(
    queue: QueueName,
    *,
    connection: ConnectionOptions,
    most: Annotated[int, typer.Option("--max", help="Most messages.", min=1)] = 10,
    start: Annotated[
        StartingPosition, Value(POSITION, f"Where to begin: {POSITION.name}.", name="--from")
    ] = "earliest",
    as_json: _LinesOfJson = False,
) -> None:
    """Print messages, one per line, including leased and settled ones; leases nothing.

    A file or a pipe gets the exact bytes; on a terminal, control characters are spelled out. Of a
    queue with a schema, a line is a JSON object.
    """
    with _client(connection) as client:
        for message in client.peek(queue, max=most, start=start):
            _print(message, as_json=as_json)


@contextmanager
def _client(connection: ConnectionOptions) -> Iterator[Client]:
    store = open_store(connection)
    try:
        yield Client.from_store(store)
    finally:
        store.close()


def _settle(client: Client, done: Sequence[Message], back: Sequence[Message]) -> None:
    try:
        stale = client.ack(*done)
    finally:
        client.release(*back)
    if stale:
        echo(
            f"cassieq: the lease of {len(stale)} message(s) ran out before they "
            "were printed: they are delivered again",
            err=True,
        )


def _print(message: StoredMessage, *, as_json: bool) -> None:
    """Write and flush; what comes after that happens only if it went through."""
    out = typer.get_binary_stream("stdout")
    line = message.value
    if as_json:
        line = json_line(_as_json(message)).encode()
    elif isinstance(line, dict):
        line = json_line(json_of(line)).encode()
    elif out.isatty():
        # A program gets every byte, a terminal nothing that it would act on.
        line = visible_bytes(line).encode()
    left = memoryview(line + b"\n")
    while left:
        # With PYTHONUNBUFFERED, a write is done when a part of it is.
        left = left[out.write(left) :]
    out.flush()


def _as_json(message: StoredMessage) -> dict[str, Any]:
    values = {
        "queue": message.queue,
        "partition": message.partition,
        "monoton": message.monoton,
        **_text("key", message.key),
        **_value(message.value),
        "headers": dict(message.headers),
        "published_at": message.published_at.isoformat(timespec="milliseconds"),
    }
    if isinstance(message, Message):
        values |= {
            "group": message.group,
            "delivery_count": message.delivery_count,
            "receipt": message.receipt,
            "lease_until": message.lease_until.isoformat(timespec="milliseconds"),
        }
    return values


def _value(value: Any) -> dict[str, Any]:
    return {"value": json_of(value)} if isinstance(value, dict) else _text("value", value)


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise OptionError(f"--header must be name=value, not {text!r}")
    return name, value
