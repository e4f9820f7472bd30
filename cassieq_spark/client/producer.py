"""A producer: many small puts, from many threads, gathered into few publishes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from cassieq_spark.blocks import FINEST, MOST_TIMES
from cassieq_spark.client.messages import (
    Headers,
    NewMessage,
    Row,
    Visible,
    row_of,
    visible_from,
)
from cassieq_spark.errors import CassieqError, OptionError

logger = logging.getLogger(__name__)

#: A batch of a producer could not be published; its futures have the error.
PUBLISH_FAILED = "producer.publish_failed"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_LINGER = timedelta(milliseconds=5)
DEFAULT_MAX_BATCH = 10_000
DEFAULT_MAX_BYTES = 8 << 20

#: A row, and when it is to be delivered.
Timed = tuple[Row, Visible]
#: Gives rows their monotons, all at once or not at all.
Publish = Callable[[Sequence[Timed]], Sequence[int]]


class _Put(Future[int]):
    """The monoton of a message, once it is published.

    `cancel` takes it back as long as its batch has not been begun.
    """

    #: Whether anybody asked for the outcome, and so knows of an error.
    asked = False

    def result(self, timeout: float | None = None) -> int:
        """See `Future.result`."""
        self.asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `Future.exception`."""
        self.asked = True
        return super().exception(timeout)


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
        queue: Name of the queue.
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
        queue: str,
        *,
        limit: int,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        if linger < timedelta(0):
            raise OptionError(f"linger must be 0 or longer, not {linger}")
        if min(max_batch, max_bytes) < 1:
            raise OptionError(
                f"max_batch and max_bytes must be at least 1, not {max_batch} and {max_bytes}"
            )
        self.queue = queue
        self._limit = limit
        self._new_gathering: Callable[[], _Gathering] = partial(
            _Gathering, publish, queue, linger, max_batch, max_bytes
        )
        self._gatherings: dict[int, _Gathering] = {}

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
            OptionError: The delay is out of range, or contradicts the instant.
            CassieqError: The producer is closed.
        """
        row = row_of(NewMessage(value, key, headers), limit=self._limit)
        return self._gathering.add(row, _rounded(visible_from(delay, visible_at)))

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

    @property
    def _gathering(self) -> _Gathering:
        pid = os.getpid()
        return self._gatherings.get(pid) or self._gatherings.setdefault(pid, self._new_gathering())


class _Gathering:
    """What a producer has gathered in one process, and the thread that publishes it."""

    def __init__(
        self, publish: Publish, queue: str, linger: timedelta, max_batch: int, max_bytes: int
    ) -> None:
        self._publish = publish
        self._queue = queue
        self._linger = linger.total_seconds()
        self._max_batch = max_batch
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._rows: list[tuple[Timed, _Put]] = []
        self._times: set[Visible] = set()
        self._bytes = 0
        self._first_at = 0.0
        self._under_way: list[_Put] = []
        self._failed: list[_Put] = []
        self._hurry = False
        self._closed = False
        # Python waits for its tasks before it ends: a producer that nobody closed loses nothing.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cassieq-producer")
        self._running = False
        self._ident = 0

    def add(self, row: Row, visible: Visible) -> Future[int]:
        put = _Put()
        with self._changed:
            # A callback in our own thread would wait for itself.
            while not (self._closed or self._has_room(row, visible) or self._is_own_thread):
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            if self._closed:
                raise CassieqError(f"this producer for queue {self._queue!r} is closed")
            if not self._rows:
                self._first_at = time.monotonic()
            if not self._running:
                self._thread.submit(self._run)
                self._running = True
            self._rows.append(((row, visible), put))
            self._times.add(visible)
            self._bytes += row.size
            if len(self._rows) == 1 or self._is_full():
                self._changed.notify_all()
        return put

    def flush(self) -> None:
        with self._changed:
            self._hurry = bool(self._rows)
            self._changed.notify_all()
            outstanding = [*self._under_way, *(put for _, put in self._rows)]
        wait(outstanding)
        with self._changed:
            failed, self._failed = self._failed, []
        for put in failed:
            if not put.asked and (error := put.exception()) is not None:
                raise error

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.shutdown()
        self.flush()

    def _run(self) -> None:
        """Publish batch after batch until nothing is gathered any more."""
        self._ident = threading.get_ident()
        while batch := self._next_batch():
            rows, puts = zip(*batch, strict=True)
            try:
                monotons = self._publish(rows)
            except BaseException as error:  # noqa: BLE001 (whatever it is, their owners hear it)
                self._fail(puts, error)
            else:
                for put, monoton in zip(puts, monotons, strict=True):
                    put.set_result(monoton)

    def _next_batch(self) -> list[tuple[Timed, _Put]]:
        """Wait until a batch is due, and take it; empty if there is none."""
        with self._changed:
            self._under_way = []
            while self._rows:
                left = self._first_at + self._linger - time.monotonic()
                if left > 0 and not (self._hurry or self._closed or self._is_full()):
                    self._changed.wait(left)
                    continue
                taken, self._rows, self._bytes = self._rows, [], 0
                self._times, self._hurry = set(), False
                batch = [each for each in taken if each[1].set_running_or_notify_cancel()]
                self._under_way = [put for _, put in batch]
                self._changed.notify_all()
                if batch:
                    return batch
            self._running = False
            return []

    def _fail(self, puts: Sequence[_Put], error: BaseException) -> None:
        logger.error(
            "queue %s: a producer could not publish %d messages: %s",
            self._queue,
            len(puts),
            error,
            extra={"action": PUBLISH_FAILED, "queue": self._queue, "count": len(puts)},
        )
        with self._changed:
            unheard = [put for put in self._failed if not put.asked]
            # The first are those that a flush tells of.
            self._failed = [*unheard, *puts][: self._max_batch]
        for put in puts:
            put.set_exception(error)

    @property
    def _is_own_thread(self) -> bool:
        return threading.get_ident() == self._ident

    def _is_full(self) -> bool:
        return len(self._rows) >= self._max_batch or self._bytes >= self._max_bytes

    def _has_room(self, row: Row, visible: Visible) -> bool:
        if not self._rows:
            return True
        return (
            len(self._rows) < self._max_batch
            and self._bytes + row.size <= self._max_bytes
            and (visible in self._times or len(self._times) < MOST_TIMES)
        )


def _rounded(visible: Visible) -> Visible:
    """Up to whole seconds: each time of delivery is a block of its own."""
    if isinstance(visible, datetime):
        over = (visible - _EPOCH) % FINEST
        return visible + (FINEST - over) % FINEST
    return visible if visible is None else -(-visible // FINEST) * FINEST
