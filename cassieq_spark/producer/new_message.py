"""Messages to be put: what a program gives, checked, and as rows of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import pyarrow as pa

from cassieq_spark.arguments import (
    bytes_of,
    check_duration,
    check_instant,
    check_many,
    header_pairs,
    shown,
)
from cassieq_spark.arrow.framing import STORED
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.arrow.typed_framing import EXTRA
from cassieq_spark.display import Displayed, View
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.rows import from_dicts, from_json, parse_json
from cassieq_spark.settings.writing import LARGEST_MESSAGE

#: Messages and bytes that are put together before they are cut into chunks.
_BATCH_COUNT = 512
_BATCH_BYTES = 1 << 20

Headers = Mapping[str, str | None]
#: The body of a message: a mapping has the columns of a queue with a schema.
Value = bytes | str | Mapping[str, Any]
#: When a message is delivered, at the earliest: at an instant, so long after it is published, or,
#: None, at once.
Visible = datetime | timedelta | None


@dataclass(frozen=True, slots=True, repr=False)
class NewMessage(Displayed):
    """A message to be put.

    Attributes:
        value: Its body; text is stored as UTF-8. If the queue has a schema, a dict of its columns,
            or a JSON object as text or bytes.
        key: Anything by which the program identifies it. Of a queue with several partitions,
            messages of one key go to the same one.
        headers: Names with values that describe the message.
        delay: How long after it is published it is delivered, at the earliest.
        visible_at: When it is delivered, at the earliest; aware; instead of a delay.
    """

    value: Value
    key: bytes | str | None = None
    headers: Headers | None = field(default=None, hash=False)
    delay: timedelta | None = None
    visible_at: datetime | None = None

    def _view(self) -> View:
        facts = {
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "delay": self.delay,
            "visible_at": self.visible_at,
        }
        return View("new messages", "", facts)


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """A message that the queue takes, ready to be written.

    Attributes:
        key: Or None.
        value: Its body; a batch of one row, if the queue has a schema.
        headers: Names with values; None if there are none.
        size: Bytes of all three.
        visible: When it is to be delivered.
    """

    key: bytes | None
    value: bytes | pa.RecordBatch
    headers: tuple[tuple[str, str | None], ...] | None
    size: int
    visible: Visible = None


def check_message(
    message: Value | NewMessage, queue: QueueDefinition, *, what: str = "the message"
) -> CheckedMessage:
    """Refuse a message that the queue does not take.

    Args:
        message: A value, or a message with more than that.
        queue: Which queue.
        what: Which message it is, for errors.

    Raises:
        MessageError: Its value, key or headers are of another type, a header has no name, a text
            is not one that UTF-8 can hold, or it is too large; or a value does not fit its column.
        SchemaError: The queue has other columns.
        OptionError: See `visible_from`.
    """
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    visible = visible_from(new.delay, new.visible_at)
    value: bytes | pa.RecordBatch
    if queue.schema is None:
        value = bytes_of(new.value, f"the value of {what}")
        size = len(value)
    else:
        value = _row_of(new.value, schema_of(queue.schema), what)
        size = sum(form_of(queue).check(value, LARGEST_MESSAGE, first_row=0).to_pylist())
    key = None if new.key is None else bytes_of(new.key, f"the key of {what}")
    headers = None if new.headers is None else header_pairs(new.headers, what) or None
    if key is not None:
        size += len(key)
    if headers is not None:
        size += sum(len(text.encode()) for pair in headers for text in pair if text)
    if size > LARGEST_MESSAGE:
        raise MessageError(
            f"{what} is {size} bytes with its key and headers: the limit is "
            f"{LARGEST_MESSAGE}; store it elsewhere and put a reference into the queue"
        )
    return CheckedMessage(key, value, headers, size, visible)


def check_all(
    messages: Iterable[Value | NewMessage], queue: QueueDefinition
) -> Iterator[CheckedMessage]:
    """Check messages as they come, all of which are to be delivered at the same time.

    Raises:
        MessageError, SchemaError: See `check_message`; or one of them has a delay of its own, or
            they are not several messages but one.
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
        what = f"message {number} (counted from 0)"
        checked = check_message(message, queue, what=what)
        if checked.visible is not None:
            raise MessageError(
                f"{what} has a delay of its own, and put_many delivers all messages of a call at "
                "the same time: give put_many the delay, or use a producer"
            )
        yield checked


def _row_of(value: Value, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The one row of a value of a queue with a schema."""
    if isinstance(value, Mapping):
        return from_dicts([value], schema)
    if isinstance(value, (bytes, str)):
        return from_json([parse_json(value)], schema)
    raise MessageError(
        f"the value of {what} must be a dict of the queue's columns, or a JSON object as text, "
        f"not {shown(value)}"
    )


def visible_from(delay: timedelta | None, visible_at: datetime | None) -> Visible:
    """When a message is to be delivered: so long after it is published, at an instant, at once.

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
    """Put messages together into Arrow batches as they come, a bounded number of bytes each."""
    schema = STORED if queue.schema is None else EXTRA
    held: list[CheckedMessage] = []
    size = 0
    for message in messages:
        held.append(message)
        size += message.size
        if len(held) == _BATCH_COUNT or size >= _BATCH_BYTES:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def _batch(messages: Sequence[CheckedMessage], schema: pa.Schema) -> pa.RecordBatch:
    """A batch with these columns, and those of the queue, if it has a schema."""
    columns = [_column(messages, column.name.removeprefix("_"), column.type) for column in schema]
    rows = [message.value for message in messages if isinstance(message.value, pa.RecordBatch)]
    if not rows:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    own = pa.concat_batches(rows)
    return pa.RecordBatch.from_arrays(
        [*own.columns, *columns], schema=pa.schema([*own.schema, *schema])
    )


def _column(messages: Sequence[CheckedMessage], attribute: str, type_: pa.DataType) -> pa.Array:
    return pa.array(list(map(attrgetter(attribute), messages)), type_)
