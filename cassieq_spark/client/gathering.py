"""What a producer has gathered in one process, and the thread that publishes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta

from cassieq_spark.client.messages import Row, Visible
from cassieq_spark.errors import CassieqError
from cassieq_spark.producer.blocks import MOST_TIMES

logger = logging.getLogger(__name__)

#: A batch of a producer could not be published; its futures have the error.
PUBLISH_FAILED = "producer.publish_failed"

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


class Gathering:
    """Rows that wait to be published, and those that are being published.

    Args:
        publish: Publishes a batch.
        queue: Name of the queue.
        linger: How long the first row of a batch waits for others.
        max_batch: Most rows of a batch.
        max_bytes: Most bytes of a batch, unless it is a single row.
    """

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
        """See `Producer.put`."""
        with self._changed:
            # A callback in our own thread would wait for itself.
            while not (self._closed or self._has_room(row, visible) or self._is_own_thread):
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            return self._added(row, visible)

    def try_add(self, row: Row, visible: Visible) -> Future[int] | None:
        """See `Producer.try_put`."""
        with self._changed:
            if self._closed or self._has_room(row, visible):
                return self._added(row, visible)
            self._hurry = True
            self._changed.notify_all()
            return None

    def flush(self) -> None:
        """See `Producer.flush`."""
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
        """See `Producer.close`."""
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

    def _added(self, row: Row, visible: Visible) -> Future[int]:
        """Add a row for which there is room; to be called under the lock."""
        put = _Put()
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
