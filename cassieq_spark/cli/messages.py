"""``cassieq peek``; ``ack`` and the other verbs that settle messages; and messages as text."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.arguments import AT_ONCE
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.cli.inlet import STANDARD_INPUT, batches, standard_input
from cassieq_spark.cli.options import MESSAGES_PANEL, PLACE, AsJson, QueueName, Value, command
from cassieq_spark.cli.output import instant_text, print_json
from cassieq_spark.cli.tables import Column, print_table
from cassieq_spark.client import Client, Message, StoredMessage, plain_event
from cassieq_spark.display import visible_bytes
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.schemas.to_rows import json_of
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.settings.verbs import VERBS, Verb
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, json_line

app = typer.Typer()

#: How long a message waits, or is held.
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

_EXPLAINED = """{meaning}

    The messages are named by their receipts. The exit code is 1 if a receipt is stale: its lease
    has run out, or it was settled before; or if a line of standard input has no receipt. The
    others are settled all the same.

    Examples:
        {command} 'orders@1/billing/0a3c5c1e-8f5f-4a0c-9c39-5d2f7c3a1b11/42'
        cassieq receive orders --group billing --receipts | ./process | {command} -
    """

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
    """Print messages without receiving them, one per line.

    Messages that others hold or have settled are printed, too, as long as they are stored. A file
    or a pipe gets the exact bytes; on a terminal, control characters are spelled out. In a queue
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
def history(
    queue: QueueName,
    monoton: Annotated[
        int, typer.Argument(help="The position of the message.", metavar="MONOTON", min=0)
    ],
    *,
    connection: ConnectionOptions,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", help="The partition of the message, if there are several.", min=0
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who got, extended, released, acked or rejected a message, and when.

    Only what was done while the queue kept the history, see 'cassieq queue alter --history'. It is
    best effort: what a program did just before it died may be missing.

    Examples:
        cassieq history orders 4711
        cassieq history orders 4711 --partition 3 --json
    """
    with client_of(connection) as client:
        found = client.history(queue, monoton, partition=partition)
        is_kept = client.queue(queue).history is not None
    if as_json:
        print_json([plain_event(each) for each in found])
        return
    if not found:
        why = "" if is_kept else f": cassieq queue alter {queue} --history 7d keeps it from now on"
        echo(f"Queue {queue} has no history of message {monoton}{why}.")
        return
    columns = ["at", "did", "group", "by", "delivery", "lease"]
    rows = [
        (
            instant_text(each.at),
            str(each.did),
            each.group,
            each.by,
            each.deliveries,
            str(each.lease)[:8],
            each.detail,
        )
        for each in found
    ]
    print_table([*columns, Column("reason", wraps=True)], rows)


@contextmanager
def client_of(connection: ConnectionOptions) -> Iterator[Client]:
    """A client that is closed at the end of the block."""
    with closing(open_store(connection)) as store:
        yield Client.from_store(store)


def line_of(message: StoredMessage, *, as_json: bool, for_people: bool) -> bytes:
    """A message as it is printed, with a newline.

    Args:
        message: The message.
        as_json: True to print it with all that is known about it.
        for_people: True if nothing in it may affect a terminal.
    """
    if as_json:
        return json_line(_as_json(message)).encode() + b"\n"
    data = body_of(message)
    return (visible_bytes(data).encode() if for_people else data) + b"\n"


def body_of(message: StoredMessage) -> bytes:
    """The value of a message; a JSON object if its queue has a schema."""
    value = message.value
    return json_line(json_of(value)).encode() if isinstance(value, dict) else value


def _settle_by(verb: Verb) -> None:
    """Declare the command that settles messages with a verb."""
    it = verb.parameter

    def run(
        receipts: list[str], connection: ConnectionOptions, *, as_json: bool, **value: Any
    ) -> None:
        verb.check(next(iter(value.values()), None))
        _settle(connection, receipts, verb, value, as_json=as_json)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("receipts", keyword, annotation=_Receipts),
        inspect.Parameter("connection", keyword, annotation=ConnectionOptions),
    ]
    flag = ""
    if it is not None:
        flag = f" --{it.name} {_shown(it.example)}"
        default = inspect.Parameter.empty if it.default is None else it.default
        declared: Any = Annotated[str, typer.Option(f"--{it.name}", help=it.meaning)]
        if it.is_duration:
            kind = DURATION if it.least == AT_ONCE else _HOLD
            declared = Annotated[timedelta, Value(kind, it.meaning)]
        parameters.append(
            inspect.Parameter(it.name, keyword, annotation=declared, default=default)
        )
    parameters.append(inspect.Parameter("as_json", keyword, annotation=AsJson, default=False))
    run.__name__ = verb.name
    run.__doc__ = _EXPLAINED.format(meaning=verb.meaning, command=f"cassieq {verb.name}{flag}")
    vars(run)["__signature__"] = inspect.Signature(parameters)
    command(app, panel=MESSAGES_PANEL)(run)


def _shown(value: timedelta | str) -> str:
    return DURATION.show(value) if isinstance(value, timedelta) else shlex.quote(value)


def _settle(
    connection: ConnectionOptions,
    receipts: Sequence[str],
    verb: Verb,
    value: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Settle messages as their receipts come; report how many, and fail if some could not be.

    A line without a receipt does not prevent the settlement of other lines. ``value`` is the
    parameter of the verb, by name; empty if it has none.
    """
    _check(receipts)
    count, stale, malformed = 0, list[str](), list[str]()
    with client_of(connection) as client:
        for given in _given(receipts, malformed):
            stale += getattr(client, verb.name)(*given, **value)
            count += len(given)
    if as_json:
        print_json({verb.done: count - len(stale), "stale": stale, "malformed": malformed})
    else:
        echo(f"{count - len(stale):,} message(s) {verb.done}.")
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
        malformed: Gets the errors of lines without a receipt.
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


for _verb in VERBS.values():
    _settle_by(_verb)
