"""Messages as a client gets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from cassieq_spark.arrow.rows import metadata_of, values_of
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.producer.new_message import Headers

#: The bytes for which a number or an instant counts.
_SCALAR = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class StoredMessage(Displayed):
    """A message of a queue, as it was put.

    Attributes:
        queue: Name of the queue.
        monoton: The position of the message in its partition, from 0, without gaps.
        key: The key as it was put; text comes back as UTF-8.
        value: The value as it was put; text comes back as UTF-8. If the queue has a schema, a
            dict of its columns.
        headers: The headers as they were put; empty if there were none.
        published_at: When the message was published, by the coordinator's clock.
        partition: The number of the queue partition that holds the message, from 0.
    """

    queue: str
    monoton: int
    key: bytes | None
    value: Any
    headers: Headers = field(hash=False)
    published_at: datetime
    partition: int = field(default=0, kw_only=True)

    @property
    def size(self) -> int:
        """Bytes that count against limits of answers: value, key, and three times the headers.

        JSON takes up to six bytes per byte of a header, and less than three per byte of a
        value or key, which is sent as Base64 where JSON would take more.
        """
        size = _size_of(self.value) + len(self.key or b"")
        if not self.headers:
            return size
        headers = sum(len(name) + len(text or "") for name, text in self.headers.items())
        return size + 3 * headers

    def _view(self) -> ObjectView:
        facts = {
            "partition": self.partition,
            "monoton": str(self.monoton),
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "published_at": self.published_at,
        }
        return ObjectView("messages", self.queue, facts, usual={"partition": 0, "headers": {}})


@dataclass(frozen=True, slots=True, repr=False)
class Message(StoredMessage):
    """A message that this program holds under a lease.

    Attributes:
        group: The consumer group to which the message was delivered.
        delivery_count: How often the message was delivered to that group, this time included.
        receipt: Text with which any program can settle the message.
        lease_until: Until when, at least, the message is held, by the coordinator's clock.
        first_delivered_at: When the message was delivered to that group for the first time, by
            the coordinator's clock; None if nobody knows, and by HTTP.
    """

    group: str
    delivery_count: int
    receipt: str
    lease_until: datetime
    first_delivered_at: datetime | None = field(default=None, kw_only=True)

    def _view(self) -> ObjectView:
        # Not super(), which loses its class where there are slots.
        view = StoredMessage._view(self)  # noqa: SLF001 (our own)
        facts = {"delivery_count": self.delivery_count, "lease_until": self.lease_until}
        return replace(
            view,
            of=f"{self.queue}, group {self.group}",
            facts={**view.facts, **facts},
            details={"receipt": self.receipt},
        )


def _size_of(value: Any) -> int:
    """The approximate bytes of a value, which may be a dict of columns."""
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(len(str(name)) + _size_of(each) for name, each in value.items())
    if isinstance(value, list):
        return sum(map(_size_of, value))
    return _SCALAR


def stored_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[StoredMessage]:
    """The rows of fetched batches as messages."""
    for batch in batches:
        # For instants, Arrow needs a time zone database, which a machine may lack.
        published = metadata_of(batch, "published_at").cast(pa.int64()).to_pylist()
        columns = (
            metadata_of(batch, name).to_pylist()
            for name in ("queue", "partition", "monoton", "key", "headers")
        )
        for queue, partition, monoton, key, headers, value, at in zip(
            *columns, values_of(batch), published, strict=True
        ):
            yield StoredMessage(
                queue,
                monoton,
                key,
                value,
                dict(headers or ()),
                _EPOCH + timedelta(microseconds=at),
                partition=partition,
            )
