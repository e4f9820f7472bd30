"""``cassieq peek``, ``ack``, ``release``, ``extend`` and ``reject``; and messages as text."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.cli.inlet import STANDARD_INPUT, batches, standard_input
from cassieq_spark.cli.options import MESSAGES_PANEL, PLACE, AsJson, QueueName, Value, command
from cassieq_spark.cli.output import print_json
from cassieq_spark.client import Client, Message, StoredMessage
from cassieq_spark.display import visible_bytes
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.schemas.to_rows import json_of
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, json_line

app = typer.Typer()

#: How long something waits, or is held.
DURATION = duration(timedelta(days=365), zero=True)
_HOLD = duration(timedelta(days=365))

LinesOfJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print a line of JSON for each message. A value or key that is not UTF-8 is Base64, "
        "as value_base64 and key_base64.",
    ),
]

_Receipts = Annotated[
    list[str],
    typer.Argument(
        help="Receipts, as 'cassieq receive --receipts' prints them; - reads them from standard "
        "input: a receipt on each line, or JSON with a receipt.",
        metavar="RECEIPT",
        show_default=False,
    ),
]


@command(app, panel=MESSAGES_PANEL)
def peek(
    queue: QueueName,
    *,
    connection: ConnectionOptions,
    most: Annotated[int, typer.Option("--max", help="Messages to print, at most.", min=1)] = 10,
    start: Annotated[
        StartingPosition, Value(PLACE, f"Where to begin: {PLACE.name}.", name="--from")
    ] = "earliest",
    as_json: LinesOfJson = False,
) -> None:
    """Print messages without receiving them, one on each line.

    Messages that others hold or have settled are printed, too, as long as they are stored. A file
    or a pipe gets the exact bytes; on a terminal, control characters are spelled out. Of a queue
    with a schema, a line is a JSON object.

    Examples:
        cassieq peek orders
        cassieq peek orders --from 15m --max 100 --json
    """
    out = typer.get_binary_stream("stdout")
    with client_of(connection) as client:
        found = client.peek(queue, max=most, start=start)
    try:
        for message in found:
            out.write(line_of(message, as_json=as_json, for_people=out.isatty()))
        out.flush()
    except BrokenPipeError:
        # The reader has what it wants. Python would try to write the rest as the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


@command(app, panel=MESSAGES_PANEL)
def ack(receipts: _Receipts, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Ack messages by their receipts: they are done.

    The exit code is 1 if a receipt is stale: its lease has run out, or it was settled before; or
    if a line of standard input has no receipt. The others are settled all the same.

    Examples:
        cassieq ack 'orders@1/billing/0a3c5c1e-8f5f-4a0c-9c39-5d2f7c3a1b11/42'
        cassieq receive orders --group billing --receipts | ./process | cassieq ack -
    """
    _settle(connection, receipts, "acked", lambda client, given: client.ack(*given), as_json)


@command(app, panel=MESSAGES_PANEL)
def release(
    receipts: _Receipts,
    *,
    connection: ConnectionOptions,
    delay: Annotated[
        timedelta, Value(DURATION, "Delay before they are delivered again: 10s, 5m.")
    ] = timedelta(0),
    as_json: AsJson = False,
) -> None:
    """Give messages back by their receipts: they are delivered again.

    The exit code is 1 if a receipt is stale: its lease has run out, or it was settled before; or
    if a line of standard input has no receipt. The others are settled all the same.

    Examples:
        cassieq release --delay 5m - < receipts.txt
    """

    def give_back(client: Client, given: Sequence[str]) -> list[str]:
        return client.release(*given, delay=delay)

    _settle(connection, receipts, "released", give_back, as_json)


@command(app, panel=MESSAGES_PANEL)
def extend(
    receipts: _Receipts,
    *,
    connection: ConnectionOptions,
    by: Annotated[timedelta, Value(_HOLD, "How long to hold them from now on: 5m.")],
    as_json: AsJson = False,
) -> None:
    """Hold messages longer by their receipts: nobody else gets them meanwhile.

    The exit code is 1 if a receipt is stale: its lease has run out, or it was settled before; or
    if a line of standard input has no receipt. The others are settled all the same.

    Examples:
        cassieq extend --by 10m 'orders@1/billing/0a3c5c1e-8f5f-4a0c-9c39-5d2f7c3a1b11/42'
    """
    _settle(
        connection,
        receipts,
        "extended",
        lambda client, given: client.extend(*given, by=by),
        as_json,
    )


@command(app, panel=MESSAGES_PANEL)
def reject(
    receipts: _Receipts,
    *,
    connection: ConnectionOptions,
    reason: Annotated[
        str, typer.Option("--reason", help="What is wrong with them; it is in the dead letters.")
    ],
    as_json: AsJson = False,
) -> None:
    """Dead-letter messages by their receipts, however often they were delivered.

    The exit code is 1 if a receipt is stale: its lease has run out, or it was settled before; or
    if a line of standard input has no receipt. The others are settled all the same.

    Examples:
        cassieq reject --reason 'no such customer' - < receipts.txt
    """

    def refuse(client: Client, given: Sequence[str]) -> list[str]:
        return client.reject(*given, reason=reason)

    _settle(connection, receipts, "rejected", refuse, as_json)


@contextmanager
def client_of(connection: ConnectionOptions) -> Iterator[Client]:
    """A client that is closed with the block."""
    with closing(open_store(connection)) as store:
        yield Client.from_store(store)


def line_of(message: StoredMessage, *, as_json: bool, for_people: bool) -> bytes:
    """A message as it is printed, with a newline.

    Args:
        message: The message.
        as_json: Whether it is printed with all that is known of it.
        for_people: Whether nothing in it may do something to a terminal.
    """
    if as_json:
        return json_line(_as_json(message)).encode() + b"\n"
    data = body_of(message)
    return (visible_bytes(data).encode() if for_people else data) + b"\n"


def body_of(message: StoredMessage) -> bytes:
    """The value of a message; a JSON object if its queue has a schema."""
    value = message.value
    return json_line(json_of(value)).encode() if isinstance(value, dict) else value


def _settle(
    connection: ConnectionOptions,
    receipts: Sequence[str],
    done: str,
    settle: Callable[[Client, Sequence[str]], list[str]],
    as_json: bool,
) -> None:
    """Settle messages as their receipts come; then tell how many, and fail if some could not be.

    A line without a receipt keeps no message of other lines from being settled.
    """
    _check(receipts)
    count, stale, malformed = 0, list[str](), list[str]()
    with client_of(connection) as client:
        for given in _given(receipts, malformed):
            stale += settle(client, given)
            count += len(given)
    if as_json:
        print_json({done: count - len(stale), "stale": stale, "malformed": malformed})
    else:
        echo(f"{count - len(stale):,} message(s) {done}.")
    problems = []
    if stale:
        problems.append(
            f"{len(stale):,} receipt(s) are stale, the first is {stale[0]}: the lease has run "
            "out, or the message was settled before"
        )
    if malformed:
        problems.append(f"{len(malformed):,} line(s) have no receipt, the first: {malformed[0]}")
    if problems:
        raise MessageError("; ".join(problems))


def _check(receipts: Sequence[str]) -> None:
    """Refuse arguments that can't be receipts, before any of them is settled."""
    if STANDARD_INPUT in receipts:
        if len(receipts) > 1:
            raise OptionError("give either receipts, or - to read them from standard input")
        return
    for each in receipts:
        try:
            _checked(each)
        except MessageError as error:
            raise OptionError(str(error)) from error


def _checked(receipt: str) -> str:
    Receipt.parse(receipt, advice="'cassieq receive --receipts' prints receipts")
    return receipt


def _given(receipts: Sequence[str], malformed: list[str]) -> Iterator[list[str]]:
    """The receipts that come together, each once.

    Args:
        receipts: The arguments.
        malformed: Gets what is wrong with lines that have no receipt.
    """
    if STANDARD_INPUT not in receipts:
        yield [*dict.fromkeys(receipts)]
        return
    for lines in batches(standard_input()):
        found: list[str] = []
        for line in filter(bytes.strip, lines):
            try:
                found.append(_receipt(line))
            except MessageError as error:
                malformed.append(str(error))
        if found:
            yield [*dict.fromkeys(found)]


def _receipt(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    if not text.startswith("{"):
        return _checked(text)
    try:
        receipt = json.loads(text).get("receipt")
    except (ValueError, RecursionError) as error:
        raise MessageError(f"{text[:100]!a} is no JSON: {error}") from error
    if not isinstance(receipt, str):
        raise MessageError(f"{text[:100]!a} has no receipt: expected a text with that name")
    return _checked(receipt)


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
