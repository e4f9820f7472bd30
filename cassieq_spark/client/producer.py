"""A producer: many small puts, from many threads, gathered into few publishes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from cassieq_spark.arguments import check_count, check_duration
from cassieq_spark.client.gathering import Gathering, Publish
from cassieq_spark.client.messages import (
    Headers,
    NewMessage,
    Row,
    Visible,
    row_of,
    visible_from,
)
from cassieq_spark.errors import CassieqError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.blocks import FINEST
from cassieq_spark.queues import check_delayable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_LINGER = timedelta(milliseconds=5)
DEFAULT_MAX_BATCH = 10_000
DEFAULT_MAX_BYTES = 8 << 20


class Producer:
    """Publishes what many threads put, all that comes within a moment by one LWT.

    A batch is published when its first message has waited for ``linger``, when it is full, or by
    `flush`; one at a time, so that messages get their monotons in the order of their puts. While
    one is being published the next one gathers; when that is full as well, `put` waits. Leaving
    its ``with`` publishes what is left.

    Made by `Client.producer`. Safe to use from many threads. A process that was forked begins
    with nothing gathered: what the parent put, the parent publishes.

    Args:
        publish: Publishes a batch.
        queue: Which queue.
        limit: Most bytes of a message.
        linger: How long the first message of a batch waits for others.
        max_batch: Most messages of a batch.
        max_bytes: Most bytes of a batch, unless it is a single message.

    Raises:
        OptionError: A value is out of range.
    """

    def __init__(  # noqa: PLR0913 (each is a setting of its own, by name)
        self,
        publish: Publish,
        queue: QueueDefinition,
        *,
        limit: int,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        check_duration("linger", linger)
        check_count("max_batch", max_batch)
        check_count("max_bytes", max_bytes)
        self.queue = queue.name
        self._definition = queue
        self._limit = limit
        self._new_gathering: Callable[[], Gathering] = partial(
            Gathering, publish, queue.name, linger, max_batch, max_bytes
        )
        self._gatherings: dict[int, Gathering] = {}

    def put(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> Future[int]:
        """Put a message into the next batch; waits while there is no room for it.

        The future's callbacks run in the producer's thread and hold up its next batch: they must
        not wait for this producer.

        Args:
            value: Its body; text is stored as UTF-8.
            key: Whatever the program wants to know it by.
            headers: Names with values.
            delay: How long after it is published it is delivered, at the earliest; rounded up to
                a second.
            visible_at: When it is delivered, at the earliest; aware; rounded up to a second.

        Returns:
            A future of its monoton; the error, if its batch could not be published.

        Raises:
            MessageError: The queue does not take such a message.
            OptionError: The delay is out of range, or contradicts the instant or the queue.
            CassieqError: The producer is closed.
        """
        new = NewMessage(value, key, headers)
        return self._gathering.add(*self._checked(new, visible_from(delay, visible_at)))

    def try_put(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> Future[int] | None:
        """As `put`, but never waits: None if there is no room for the message now."""
        new = NewMessage(value, key, headers)
        return self._gathering.try_add(*self._checked(new, visible_from(delay, visible_at)))

    def put_and_wait(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> int:
        """Put a message, and return its monoton once it is published; see `put`.

        Raises:
            CassieqError: Its batch could not be published.
        """
        return self.put(
            value, key=key, headers=headers, delay=delay, visible_at=visible_at
        ).result()

    def flush(self) -> None:
        """Publish what was put until now, and wait for it.

        Raises:
            CassieqError: A batch since the last flush could not be published, and its futures
                were not asked; the first such error.
        """
        self._gathering.flush()

    def close(self) -> None:
        """Take no more messages, publish what is left, and wait for it; see `flush`."""
        self._gathering.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CassieqError:
            # It is in the log; the error that is under way came first.
            if error is None:
                raise

    def _checked(self, new: NewMessage, visible: Visible) -> tuple[Row, Visible]:
        """Refuse here what would fail the whole batch."""
        row = row_of(new, limit=self._limit)
        if visible is not None:
            check_delayable(self._definition)
        return row, _rounded(visible)

    @property
    def _gathering(self) -> Gathering:
        pid = os.getpid()
        return self._gatherings.get(pid) or self._gatherings.setdefault(pid, self._new_gathering())


def _rounded(visible: Visible) -> Visible:
    """Up to whole seconds: each time of delivery is a block of its own."""
    if isinstance(visible, datetime):
        over = (visible - _EPOCH) % FINEST
        return visible + (FINEST - over) % FINEST
    return visible if visible is None else -(-visible // FINEST) * FINEST
