"""Messages to be put: what a program gives, checked, and as rows of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from cassieq_spark.arguments import (
    bytes_of,
    check_duration,
    check_instant,
    check_many,
    header_pairs,
)
from cassieq_spark.arrow.framing import STORED
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.settings import SinkOptions

#: Messages and bytes that are put together before they are cut into chunks.
_BATCH_COUNT = 512
_BATCH_BYTES = 1 << 20

Headers = Mapping[str, str | None]
#: When a message is delivered, at the earliest: at an instant, so long after it is published, or,
#: None, at once.
Visible = datetime | timedelta | None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be put.

    Attributes:
        value: Its body; text is stored as UTF-8.
        key: Anything by which the program identifies it; the queue ignores it.
        headers: Names with values that describe the message.
        delay: How long after it is published it is delivered, at the earliest.
        visible_at: When it is delivered, at the earliest; aware; instead of a delay.
    """

    value: bytes | str
    key: bytes | str | None = None
    headers: Headers | None = field(default=None, hash=False)
    delay: timedelta | None = None
    visible_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """A message that the queue takes, ready to be written.

    Attributes:
        key: Or None.
        value: Its body.
        headers: Names with values; None if there are none.
        size: Bytes of all three.
        visible: When it is to be delivered.
    """

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, str | None], ...] | None
    size: int
    visible: Visible = None


def message_limit(queue: str) -> int:
    """Most bytes that a message may have, with its key and headers."""
    return SinkOptions(queue=queue).max_message_bytes


def check_message(
    message: bytes | str | NewMessage, *, limit: int, what: str = "the message"
) -> CheckedMessage:
    """Refuse a message that the queue does not take.

    Args:
        message: A value, or a message with more than that.
        limit: Most bytes that it may have, with its key and headers.
        what: Which message it is, for errors.

    Raises:
        MessageError: Its value, key or headers are of another type, a header has no name, a text
            is not one that UTF-8 can hold, or it is too large.
        OptionError: See `visible_from`.
    """
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    visible = visible_from(new.delay, new.visible_at)
    value = bytes_of(new.value, f"the value of {what}")
    key = None if new.key is None else bytes_of(new.key, f"the key of {what}")
    headers = None if new.headers is None else header_pairs(new.headers, what) or None
    size = len(value) + len(key or b"")
    size += sum(len(text.encode()) for pair in headers or () for text in pair if text)
    if size > limit:
        raise MessageError(
            f"{what} is {size} bytes with its key and headers: the limit is "
            f"{limit}; store it elsewhere and put a reference into the queue"
        )
    return CheckedMessage(key, value, headers, size, visible)


def check_all(
    messages: Iterable[bytes | str | NewMessage], *, limit: int
) -> Iterator[CheckedMessage]:
    """Check messages as they come, all of which are to be delivered at the same time.

    Raises:
        MessageError: See `check_message`; or one of them has a delay of its own, or they are not
            several messages but one.
    """
    if isinstance(messages, NewMessage):
        raise MessageError(
            "messages must be a list of values, such as [message]; for a single value, use put"
        )
    check_many("messages", messages, "a list of values; for a single value, use put")
    return _checked_one_by_one(messages, limit)


def _checked_one_by_one(
    messages: Iterable[bytes | str | NewMessage], limit: int
) -> Iterator[CheckedMessage]:
    for number, message in enumerate(messages):
        what = f"message {number} (counted from 0)"
        checked = check_message(message, limit=limit, what=what)
        if checked.visible is not None:
            raise MessageError(
                f"{what} has a delay of its own, and put_many delivers all messages of a call at "
                "the same time: give put_many the delay, or use a producer"
            )
        yield checked


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


def batches_of(messages: Iterable[CheckedMessage]) -> Iterator[pa.RecordBatch]:
    """Put messages together into Arrow batches as they come, a bounded number of bytes each."""
    return _batches(messages, STORED)


def narrow_batches_of(messages: Sequence[CheckedMessage]) -> Iterator[pa.RecordBatch]:
    """As `batches_of`, without columns that no message has: each takes some hundred bytes."""
    used = [
        column
        for column in STORED
        if any(getattr(message, column.name) is not None for message in messages)
    ]
    return _batches(messages, pa.schema(used))


def _batches(messages: Iterable[CheckedMessage], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
    columns = [
        pa.array([getattr(message, column.name) for message in messages], column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
