"""Readers of a group divide the partitions of a queue among them, without a coordinator.

Each says now and then that it is there, in a row that vanishes by itself, and reads who else is.
The n-th of k readers takes every k-th partition, from the n-th on. Readers that know of different
readers may take the same partition, or none may take it for a moment: who leases what is decided
by the LWT as ever, and each looks at the others' partitions now and then, too.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from cassieq_spark.errors import StoreError
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.store.protocol import RowKey, Slice, Store, partition_of_group

logger = logging.getLogger(__name__)

#: A reader could not say that it is there, or not learn who else is.
PRESENCE_FAILED = "presence.failed"

#: A reader is there for a lease after it said so, but neither shorter nor longer than this.
SHORTEST, LONGEST = timedelta(seconds=3), timedelta(minutes=1)
#: It says so again after this part of that time, but not later than this.
PART = 3
LATEST = timedelta(seconds=5)

_KIND = "reader"
#: Rows of readers that are gone are not read once this has passed twice: their order is by time.
_WINDOW = timedelta(minutes=10)


class Presence:
    """Says that a reader is there, and tells which partitions are its share.

    A read and a write each third of a lease, or each five seconds; no LWT. None if the queue has
    one partition. Safe to call from several threads.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        group: Which group.
        lease: For how long the reader leases messages: so long it is there after it said so.
    """

    def __init__(
        self, store: Store, queue: QueueDefinition, group: str, *, lease: timedelta
    ) -> None:
        self._store = store
        self._queue = queue
        self._group = group
        # No partition of the queue has this id if it has several, so nothing else is in there.
        self._partition = partition_of_group(queue.queue_id, group)
        self._there_for = timedelta(
            seconds=int(min(LONGEST, max(SHORTEST, lease)).total_seconds()) + 1
        )
        self._again_after = min(LATEST, self._there_for / PART).total_seconds()
        self._reader = uuid4()
        self._row: RowKey | None = None
        self._said_at: float | None = None
        self._share = frozenset(range(queue.partitions))

    def share(self) -> frozenset[int]:
        """Which partitions this reader takes; all, if it cannot learn who else is there."""
        if self._queue.partitions > 1 and self._is_due():
            self._said_at = time.monotonic()
            try:
                self._say()
                self._share = share_of(self._reader, self._readers(), self._queue.partitions)
            except StoreError as error:
                self._share = frozenset(range(self._queue.partitions))
                logger.warning(
                    "queue %s, group %s: a reader cannot learn who else reads, so it takes all "
                    "partitions: %s",
                    self._queue.queue_id,
                    self._group,
                    error,
                    extra={
                        "action": PRESENCE_FAILED,
                        "queue": self._queue.queue_id,
                        "group": self._group,
                    },
                )
        return self._share

    def leave(self) -> None:
        """Say that the reader is gone. One write; never raises, as it is gone soon in any case."""
        row, self._row, self._said_at = self._row, None, None
        if row is None:
            return
        with suppress(StoreError):
            self._store.delete_row(self._partition, row, timestamp=_micros(time.time()))

    @property
    def is_over(self) -> bool:
        """Whether it counts as gone, as it has not said for long that it is there."""
        said_at = self._said_at
        if said_at is None:
            return False
        return time.monotonic() > said_at + self._there_for.total_seconds()

    def _is_due(self) -> bool:
        return self._said_at is None or time.monotonic() >= self._said_at + self._again_after

    def _say(self) -> None:
        now = time.time()
        self._row = (_KIND, int(now // _WINDOW.total_seconds()), self._reader.int >> 65)
        self._store.write_row(
            self._partition,
            self._row,
            {"lease": self._reader, "last_at": datetime.fromtimestamp(now, UTC)},
            timestamp=_micros(now),
            ttl=self._there_for,
        )

    def _readers(self) -> set[UUID]:
        assert self._row is not None  # noqa: S101 (said a moment ago)
        # Of a reader whose clock is ahead, too.
        first = int(self._row[1]) - 1
        rows = self._store.read_rows(self._partition, Slice(kinds=(_KIND,), start=first)).rows
        return {row["lease"] for row in rows if isinstance(row["lease"], UUID)}


class Presences:
    """The presence of one program in each group that it receives for.

    Safe to call from several threads, and across a fork.

    Args:
        store: Where the queues are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # A forked process is a reader of its own.
        self._known: dict[tuple[int, QueueId, str], Presence] = {}

    def share(self, queue: QueueDefinition, group: str) -> frozenset[int]:
        """Which partitions of a queue the program takes first; see `Presence.share`."""
        if queue.partitions == 1:
            return frozenset({0})
        key = (os.getpid(), queue.queue_id, group)
        presence = self._known.get(key)
        if presence is None:
            for gone in [each for each, known in self._known.copy().items() if known.is_over]:
                self._known.pop(gone, None)
            new = Presence(self._store, queue, group, lease=queue.lease)
            presence = self._known.setdefault(key, new)
        return presence.share()

    def leave(self) -> None:
        """Say that the program is gone. One write for each group; never raises."""
        for (process, _, _), presence in list(self._known.items()):
            if process == os.getpid():
                presence.leave()


def share_of(reader: UUID, readers: Collection[UUID], partitions: int) -> frozenset[int]:
    """Which partitions a reader takes: every k-th, if there are k readers. Pure.

    >>> first, second = UUID(int=1), UUID(int=2)
    >>> sorted(share_of(second, [second, first], 5))
    [1, 3]

    Args:
        reader: The reader; counts as one whether it is among the readers or not.
        readers: Those that are there.
        partitions: How many partitions the queue has.
    """
    in_order = sorted({reader, *readers})
    return frozenset(range(in_order.index(reader), partitions, len(in_order)))


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
