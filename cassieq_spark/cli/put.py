"""``cassieq put``: messages from the command line, a file or a pipe."""

from __future__ import annotations

import json
import os
import signal
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import typer

from cassieq_spark.arguments import abridged
from cassieq_spark.cli.inlet import (
    STANDARD_INPUT,
    batches,
    is_piped,
    lines_of,
    standard_input,
)
from cassieq_spark.cli.messages import DURATION, client_of
from cassieq_spark.cli.options import (
    MESSAGES_PANEL,
    AsJson,
    QueueName,
    Value,
    command,
    name_and_value,
)
from cassieq_spark.cli.output import INTERRUPTED, tell, tell_rate
from cassieq_spark.client import NewMessage
from cassieq_spark.errors import CassieqError, MessageError, OptionError
from cassieq_spark.model import Positions, Range
from cassieq_spark.schemas.from_rows import parse_json
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.signals import stopped_by_signals

app = typer.Typer()

#: The names that a line of JSON may have for a message that is put.
_TAKEN = {
    "headers",
    "key",
    "key_base64",
    "unique_id",
    "unique_id_base64",
    "value",
    "value_base64",
}
#: Further names that 'receive --json' prints, about the received message.
_LEFT_OUT = {
    "delivery_count",
    "group",
    "lease_until",
    "monoton",
    "partition",
    "published_at",
    "queue",
    "receipt",
}


@command(app, panel=MESSAGES_PANEL)
def put(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            help="Messages; - reads them from standard input, one from each line.",
            metavar="MESSAGE",
            show_default="what comes from a pipe",
        ),
    ] = None,
    *,
    connection: ConnectionOptions,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--file",
            help="Put each line of a file; - is standard input.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Key of the messages.", show_default=False)
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            help="Header of the messages. Repeatable.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    unique_id: Annotated[
        str | None,
        typer.Option(
            "--unique-id",
            help="Unique id of a single message: if one with this id was put within the time for "
            "which the queue deduplicates, this one is not put.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        timedelta, Value(DURATION, "Delay before they are delivered: 10s, 5m.")
    ] = timedelta(0),
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Each line is a JSON object: value, optionally key, headers and unique_id, as "
            "'receive --json' and 'peek --json' print them.",
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Publish lines as they come, at least every second, and not all together.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put messages into a queue.

    All messages become visible together, or none does; in a queue with several partitions, those
    of each partition. In a queue with a schema, a message is a JSON object with its columns.

    Examples:
        cassieq put orders hello world
        cassieq put orders --key customer-7 --header source=web '{"total": 12}'
        seq 1000 | cassieq put orders -
        cassieq peek orders --max 100 --json | cassieq put copies --json-lines -
        tail -f app.log | cassieq put logs - --follow
    """
    source = _source(values, file)
    if follow and source is None:
        raise OptionError("--follow is for standard input and files: give - or --file")
    if unique_id is not None and (source is not None or len(values or ()) != 1):
        raise OptionError(
            "--unique-id is for one message: with several, all but the first would be left out; "
            "give --json-lines, and each line its unique_id"
        )
    made = _Maker(
        key=None if key is None else os.fsencode(key),
        unique_id=None if unique_id is None else os.fsencode(unique_id),
        headers=dict(name_and_value("--header", text) for text in header or ()),
        reads_json=json_lines,
    )
    # As the shell gave them, whatever their encoding.
    lines = map(os.fsencode, values or ()) if source is None else lines_of(source)
    put = _Put(queue)
    is_stopped = False
    with client_of(connection) as client:
        if not follow:
            messages = put.counted(made.messages(lines))
            put.add(client.put_many(queue, messages, delay=delay))
        else:
            first = 1
            with stopped_by_signals() as stop:
                for several in batches(source, stop):
                    messages = put.counted(made.messages(several, first=first))
                    try:
                        put.add(client.put_many(queue, messages, delay=delay))
                    except CassieqError as error:
                        tell(put.sentence, put.values, as_json=as_json)
                        error.add_note(f"this is about the lines from {first:,} on")
                        raise
                    first += len(several)
                is_stopped = stop.signal is signal.SIGINT
    tell(put.sentence, put.values, as_json=as_json)
    if source is not None:
        tell_rate(put.count, time.monotonic() - put.begun)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


class _Put:
    """The messages that a command puts into a queue, by one publication or several."""

    def __init__(self, queue: str) -> None:
        self.begun = time.monotonic()
        self.count = self.repeated = self._given = 0
        self._queue = queue
        self._published: list[Range | Positions] = []

    def counted(self, messages: Iterable[NewMessage]) -> Iterator[NewMessage]:
        """The same messages, which are published together; counts them."""
        self._given = 0
        for message in messages:
            self._given += 1
            yield message

    def add(self, monotons: Range | Positions) -> None:
        """Count messages that were published together, and repeats of their unique ids."""
        self.repeated += self._given - len(monotons)
        self.count += len(monotons)
        self._published.append(monotons)

    @property
    def sentence(self) -> str:
        """Tell people how many messages were put, and where."""
        is_one = self.count and len(self._published) == 1
        where = f": monotons {self._published[0]}" if is_one else ""
        rest = f" {self.repeated:,} with the same unique id were there." if self.repeated else ""
        return f"Put {self.count:,} message(s) into queue {self._queue}{where}.{rest}"

    @property
    def values(self) -> dict[str, Any]:
        """Tell programs how many messages were put, and where."""
        repeated = {"repeated": self.repeated} if self.repeated else {}
        return self._published_values | repeated

    @property
    def _published_values(self) -> dict[str, Any]:
        match self._published:
            case [Range() as one]:
                return {"queue": self._queue, "start": one.start, "stop": one.stop}
            case [Positions() as one]:
                parts = sorted(one.by_partition.items())
                found = {str(at): {"start": it.start, "stop": it.stop} for at, it in parts}
                return {"queue": self._queue, "partitions": found}
            case _:
                return {
                    "queue": self._queue,
                    "count": self.count,
                    "publications": len(self._published),
                }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """Makes messages from lines.

    Attributes:
        key: The key of messages that have none of their own.
        unique_id: The unique id of the only message, if it has one.
        headers: The headers of all messages; a message's own header of that name has precedence.
        reads_json: True if a line is JSON with key, value and headers.
    """

    key: bytes | None
    unique_id: bytes | None
    headers: Mapping[str, str]
    reads_json: bool

    def messages(self, lines: Iterable[bytes], *, first: int = 1) -> Iterator[NewMessage]:
        """The message of each line; empty lines of JSON are left out.

        Args:
            lines: The lines.
            first: The number of the first line, for errors.
        """
        for number, line in enumerate(lines, first):
            if not self.reads_json:
                yield NewMessage(line, self.key, self.headers, unique_id=self.unique_id)
            elif line.strip():
                yield self._read(line, f"line {number}")

    def _read(self, line: bytes, where: str) -> NewMessage:
        try:
            given = parse_json(line)
        except MessageError as error:
            raise MessageError(f"{where}: {error}") from error
        if not isinstance(given, dict):
            raise MessageError(f"{where} is no JSON object, but {type(given).__name__}")
        if unknown := sorted(given.keys() - _TAKEN - _LEFT_OUT):
            raise MessageError(
                f"{where} has unknown names: {abridged(unknown)}; a message has "
                f"{', '.join(sorted(_TAKEN))}"
            )
        value = given.get("value", _decoded(given, "value_base64", where))
        if not isinstance(value, (str, bytes, dict)):
            raise MessageError(f"{where} has no value: expected a text, an object or value_base64")
        if isinstance(value, dict):
            value = _json_text(value, where)
        key = given.get("key", _decoded(given, "key_base64", where))
        headers = {} if given.get("headers") is None else given["headers"]
        unique_id = given.get("unique_id", _decoded(given, "unique_id_base64", where))
        texts = all(isinstance(it, (str, bytes, type(None))) for it in (key, unique_id))
        if not texts or not isinstance(headers, dict):
            raise MessageError(
                f"{where}: key and unique_id must be texts, and headers an object of texts"
            )
        key = self.key if key is None else key
        return NewMessage(value, key, {**self.headers, **headers}, unique_id=unique_id)


def _source(values: list[str] | None, file: Any) -> Any | None:
    """The stream with messages; None if they are arguments."""
    from_input = values == [STANDARD_INPUT]
    if (bool(values) and file is not None) or (
        not from_input and STANDARD_INPUT in (values or ())
    ):
        raise OptionError("give messages, or - for standard input, or --file; only one of them")
    if file is not None:
        return file
    if from_input or (not values and is_piped()):
        return standard_input()
    if not values:
        raise OptionError(
            "there is nothing to put: give messages, - for standard input, or --file FILE"
        )
    return None


def _decoded(given: Mapping[str, Any], name: str, where: str) -> bytes | None:
    if name not in given:
        return None
    try:
        return b64decode(given[name], validate=True)
    except (TypeError, ValueError) as error:
        raise MessageError(f"{where}: {name} is not Base64") from error


def _json_text(value: dict[str, Any], where: str) -> str:
    """An object that `parse_json` returned, as JSON again, from which columns are read."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return (
                f"{{{','.join(f'{json.dumps(key)}:{written(it)}' for key, it in value.items())}}}"
            )
        if isinstance(value, list):
            return f"[{','.join(map(written, value))}]"
        # With all of its digits.
        return str(value) if isinstance(value, Decimal) else json.dumps(value)

    try:
        return written(value)
    except RecursionError as error:
        raise MessageError(f"{where}: its value is nested too deeply") from error
