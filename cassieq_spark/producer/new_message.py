"""Checks messages that a program puts, and turns them into rows of Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict, Unpack

import pyarrow as pa

from cassieq_spark.arguments import (
    bytes_of,
    check_duration,
    check_instant,
    check_many,
    header_pairs,
    shown,
)
from cassieq_spark.arrow.chunks import PLAIN
from cassieq_spark.arrow.framing import STORED
from cassieq_spark.arrow.typed_chunks import NAMES, form_of
from cassieq_spark.arrow.typed_framing import EXTRA
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import CassieqError, MessageError, OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.unique_ids import LONGEST_ID, check_deduplicates, check_id
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.from_rows import from_dicts, from_json, parse_json
from cassieq_spark.settings.writing import LARGEST_MESSAGE

#: Messages and bytes of one Arrow batch, which is then cut into chunks.
_BATCH_COUNT = 2048
_BATCH_BYTES = 1 << 20

Headers = Mapping[str, str | None]
#: The body of a message; a mapping of columns if the queue has a schema.
Value = bytes | str | Mapping[str, Any]
#: The earliest time of delivery: an instant, or a delay after publication; None: at once.
Visible = datetime | timedelta | None


class MessageParts(TypedDict, total=False):
    """The attributes of a `NewMessage` in addition to its value."""

    key: bytes | str | None
    headers: Headers | None
    delay: timedelta | None
    visible_at: datetime | None
    unique_id: bytes | str | None


@dataclass(frozen=True, slots=True, repr=False)
class NewMessage(Displayed):
    """A message to be put.

    Attributes:
        value: The body; text is stored as UTF-8. If the queue has a schema, a dict of its columns,
            or a JSON object as text or bytes.
        key: Anything by which the program identifies the message. Messages of one key go to the
            same queue partition.
        headers: Names with values that describe the message.
        delay: How long after publication the message is delivered, at the earliest.
        visible_at: When the message is delivered, at the earliest; aware; instead of a delay.
        unique_id: If a message with this id and key was published within the queue's window
            (setting ``deduplicate``), the message counts as the same, and is not published.
    """

    value: Value
    key: bytes | str | None = None
    headers: Headers | None = field(default=None, hash=False)
    delay: timedelta | None = None
    visible_at: datetime | None = None
    unique_id: bytes | str | None = None

    def _view(self) -> ObjectView:
        facts = {
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "delay": self.delay,
            "visible_at": self.visible_at,
            "unique_id": self.unique_id,
        }
        return ObjectView("new messages", "", facts)


def message_given(value: Value | NewMessage, **given: Unpack[MessageParts]) -> NewMessage:
    """The message of a put, given as a `NewMessage`, or as a value and further attributes.

    Raises:
        OptionError: Both a `NewMessage` and further attributes are given.
    """
    if not isinstance(value, NewMessage):
        return NewMessage(value, **given)
    named = [name for name, each in given.items() if each is not None]
    if named:
        raise OptionError(
            f"put got a NewMessage and {', '.join(named)} beside it, but a NewMessage has its "
            "own: set them in the NewMessage, or give put its value instead of it"
        )
    return value


class CheckedMessage(NamedTuple):
    """A message that the queue takes, ready to be written.

    Attributes:
        key: The key; None if the message has none.
        value: The body; if the queue has a schema, a batch of one row, with key and headers.
        headers: Names with values; None if the message has none.
        size: Bytes of key, value and headers.
        visible: When the message is delivered.
        unique_id: The unique id; None if the message has none.
    """

    key: bytes | None
    value: bytes | pa.RecordBatch
    headers: tuple[tuple[str, str | None], ...] | None
    size: int
    visible: Visible = None
    unique_id: bytes | None = None


def check_message(
    message: Value | NewMessage, queue: QueueDefinition, *, what: str = "the message"
) -> CheckedMessage:
    """Refuse a message that the queue does not take.

    Args:
        message: A message, or only its value.
        what: The words for the message in errors.

    Raises:
        MessageError: Value, key or headers have the wrong type, a header has no name, a text can't
            be encoded as UTF-8, a value does not fit its column, or the message is too large.
        SchemaError: The queue has other columns.
        OptionError: See `visible_from`; or the message has a unique id, and the queue does not
            deduplicate.
    """
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    visible: Visible = None
    if new.delay is not None or new.visible_at is not None:
        visible = visible_from(new.delay, new.visible_at)
    key = None if new.key is None else _bytes_of(new.key, "the key", what)
    headers = None if new.headers is None else header_pairs(new.headers, what) or None
    unique_id: bytes | None = None
    if new.unique_id is not None:
        if queue.deduplicate is None:
            check_deduplicates(queue)
        unique_id = _bytes_of(new.unique_id, "the unique id", "a message")
        if not 0 < len(unique_id) <= LONGEST_ID:
            check_id(unique_id, what)
    value: bytes | pa.RecordBatch
    if queue.schema is None:
        value = _bytes_of(new.value, "the value", what)
        size = len(value) + (0 if key is None else len(key))
        if headers is not None:
            size += sum(len(text.encode()) for pair in headers for text in pair if text)
    else:
        value = _with_extra(_row_of(new.value, schema_of(queue.schema), what), key, headers)
        # As the row will be counted when it is written, so that it is not refused there.
        size = form_of(queue).check(value, sys.maxsize, first_row=0)[0].as_py()
    if size > LARGEST_MESSAGE:
        raise MessageError(
            f"{what} is {size} bytes with its key and headers: the limit is "
            f"{LARGEST_MESSAGE}; store it elsewhere and put a reference into the queue"
        )
    return CheckedMessage(key, value, headers, size, visible, unique_id)


def check_all(
    messages: Iterable[Value | NewMessage], queue: QueueDefinition
) -> Iterator[CheckedMessage]:
    """Check messages one by one; all of them are delivered at the same time.

    Raises:
        MessageError, SchemaError: See `check_message`; or a message has a delay of its own, or
            ``messages`` is a single message.
    """
    if isinstance(messages, (NewMessage, Mapping)):
        raise MessageError(
            "messages must be a list of values, such as [message]; for a single value, use put"
        )
    check_many("messages", messages, "a list of values; for a single value, use put")
    return _checked_one_by_one(messages, queue)


def _checked_one_by_one(
    messages: Iterable[Value | NewMessage], queue: QueueDefinition
) -> Iterator[CheckedMessage]:
    for number, message in enumerate(messages):
        try:
            checked = check_message(message, queue)
        except CassieqError:
            # Once more, with the words that say which message it is: they cost as much as a check.
            check_message(message, queue, what=_number_of(number))
            raise
        if checked.visible is not None:
            raise MessageError(
                f"{_number_of(number)} has a delay of its own, and put_many delivers all messages "
                "of a call at the same time: give put_many the delay, or use a producer"
            )
        yield checked


def _bytes_of(given: object, part: str, what: str) -> bytes:
    """The bytes of a value; see `bytes_of`. The words for an error are joined only for one."""
    if type(given) is bytes:
        return given
    try:
        return given.encode() if type(given) is str else bytes_of(given, f"{part} of {what}")
    except UnicodeEncodeError:
        return bytes_of(given, f"{part} of {what}")


def _number_of(number: int) -> str:
    return f"message {number} (counted from 0)"


def _row_of(value: Value, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """A value of a queue with a schema, as a batch of one row."""
    if isinstance(value, Mapping):
        return from_dicts([value], schema)
    if isinstance(value, (bytes, str)):
        return from_json([parse_json(value)], schema)
    raise MessageError(
        f"the value of {what} must be a dict of the queue's columns, or a JSON object as text, "
        f"not {shown(value)}"
    )


def _with_extra(
    row: pa.RecordBatch, key: bytes | None, headers: Sequence[tuple[str, str | None]] | None
) -> pa.RecordBatch:
    """A row with the columns that a message has in addition to those of its queue."""
    extra = [
        pa.array([each], field.type) for each, field in zip((key, headers), EXTRA, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*row.columns, *extra], schema=_with_fields(row.schema))


@lru_cache(maxsize=256)
def _with_fields(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *EXTRA])


def visible_from(delay: timedelta | None, visible_at: datetime | None) -> Visible:
    """The time of delivery of a message: after a delay, at an instant, or at once.

    Raises:
        OptionError: Both are given, one is out of range, or the instant has no time zone.
    """
    if delay is not None and visible_at is not None:
        raise OptionError("delay and visible_at exclude each other: give one of them")
    if visible_at is not None:
        return check_instant("visible_at", visible_at)
    return None if delay is None else check_duration("delay", delay) or None


def batches_of(
    messages: Iterable[CheckedMessage], queue: QueueDefinition
) -> Iterator[pa.RecordBatch]:
    """Collect messages into Arrow batches of a bounded number of bytes."""
    batch, name = _plain_batch, PLAIN.names.unique_id
    if queue.schema is not None:
        batch, name = _typed_batch, NAMES.unique_id

    def with_ids(held: Sequence[CheckedMessage]) -> pa.RecordBatch:
        rows, ids = batch(held), list(map(attrgetter("unique_id"), held))
        return rows.append_column(name, pa.array(ids, pa.binary())) if any(ids) else rows

    held: list[CheckedMessage] = []
    size = 0
    for message in messages:
        held.append(message)
        size += message.size
        if len(held) == _BATCH_COUNT or size >= _BATCH_BYTES:
            yield with_ids(held)
            held, size = [], 0
    if held:
        yield with_ids(held)


def _plain_batch(messages: Sequence[CheckedMessage]) -> pa.RecordBatch:
    columns = [pa.array(list(map(attrgetter(each.name), messages)), each.type) for each in STORED]
    return pa.RecordBatch.from_arrays(columns, schema=STORED)


def _typed_batch(messages: Sequence[CheckedMessage]) -> pa.RecordBatch:
    return pa.concat_batches([message.value for message in messages])
