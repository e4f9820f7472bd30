"""Readers of a group divide the partitions of a queue among them, without a coordinator.

Each reader writes its presence, a row with a time to live, and reads the presences of the others.
The n-th of k readers takes every k-th partition, from the n-th on. For a moment, two readers may
take the same partition, or no reader may take it: the LWT of each lease still decides who gets a
message, and each reader also looks at the others' partitions now and then.
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
from cassieq_spark.store.protocol import Partition, RowKey, Slice, TimedRows, partition_of_group

logger = logging.getLogger(__name__)

#: A reader could not write its presence, or not read the presences of others.
PRESENCE_FAILED = "presence.failed"

#: A presence lasts as long as a lease, within these bounds.
SHORTEST, LONGEST = timedelta(seconds=3), timedelta(minutes=1)
#: A presence is written again once this part of its length has passed (a third), or this time.
PART = 3
LATEST = timedelta(seconds=5)

_KIND = "reader"
#: Rows are in order of time, in windows of this length. Only the last two windows are read, so
#: no read crosses older rows, which have expired.
_WINDOW = timedelta(minutes=10)


class Presence:
    """The presence of one reader, from which its share of the partitions follows.

    One read and one write every third of a lease, or every five seconds; no LWT. None if the queue
    has one partition. Safe to call from several threads.

    Args:
        lease: How long the reader's leases, and its presence, last.
    """

    def __init__(
        self, store: TimedRows, queue: QueueDefinition, group: str, *, lease: timedelta
    ) -> None:
        self._store = store
        self._queue = queue
        self._group = group
        # If the queue has several partitions, nothing else is kept under the id of the whole.
        self._partition = partition_of_group(queue.queue_id, group)
        seconds = int(min(LONGEST, max(SHORTEST, lease)).total_seconds()) + 1
        self._lasting = timedelta(seconds=seconds)
        self._again_after = min(LATEST, self._lasting / PART).total_seconds()
        self._reader = uuid4()
        self._row: RowKey | None = None
        self._written_at: float | None = None
        self._share = frozenset(range(queue.partitions))

    def share(self) -> frozenset[int]:
        """The partitions that this reader takes; all, if it cannot read other presences."""
        at, now = self._written_at, time.monotonic()
        if self._queue.partitions > 1 and (at is None or now >= at + self._again_after):
            self._written_at = now
            try:
                self._share = share_of(self._reader, self._write(), self._queue.partitions)
            except StoreError as error:
                self._share = frozenset(range(self._queue.partitions))
                about = {"queue": self._queue.queue_id, "group": self._group}
                logger.warning(
                    "queue %(queue)s, group %(group)s: a reader cannot learn who else reads, so "
                    "it takes all partitions: %(error)s",
                    about | {"error": error},
                    extra={"action": PRESENCE_FAILED, **about},
                )
        return self._share

    def leave(self) -> None:
        """Delete the presence. One write; never raises, as the row expires in any case."""
        row, self._row, self._written_at = self._row, None, None
        if row is not None:
            with suppress(StoreError):
                self._store.delete_row(self._partition, row, timestamp=_micros(time.time()))

    @property
    def is_over(self) -> bool:
        """True if the presence has expired, because `share` was not called for too long."""
        at = self._written_at
        return at is not None and time.monotonic() > at + self._lasting.total_seconds()

    def _write(self) -> set[UUID]:
        """Write the presence; return the readers that have one now."""
        now = time.time()
        window = int(now // _WINDOW.total_seconds())
        row = self._row = (_KIND, window, self._reader.int >> 65)
        self._store.write_row(
            self._partition,
            row,
            {"lease": self._reader, "last_at": datetime.fromtimestamp(now, UTC)},
            timestamp=_micros(now),
            ttl=self._lasting,
        )
        return set(_read_written(self._store, self._partition, window))


class Presences:
    """The presences of one program: one in each group from which it receives.

    Safe to call from several threads, and across a fork.
    """

    def __init__(self, store: TimedRows) -> None:
        self._store = store
        # A forked process is a reader of its own.
        self._known: dict[tuple[int, QueueId, str], Presence] = {}

    def share(self, queue: QueueDefinition, group: str) -> frozenset[int]:
        """The partitions of a queue that the program reads first; see `Presence.share`."""
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
        """Delete the presences of the program. One write per group; never raises."""
        for (process, _, _), presence in list(self._known.items()):
            if process == os.getpid():
                presence.leave()


def read_presences(store: TimedRows, queue: QueueDefinition, group: str) -> dict[UUID, datetime]:
    """The readers of a group that have a presence, and when each was written. One read.

    Empty if the queue has one partition, where readers write no presence.
    """
    if queue.partitions == 1:
        return {}
    window = int(time.time() // _WINDOW.total_seconds())
    return _read_written(store, partition_of_group(queue.queue_id, group), window)


def _read_written(store: TimedRows, partition: Partition, window: int) -> dict[UUID, datetime]:
    # Without an end, as the clocks of some readers are ahead.
    rows = store.read_rows(partition, Slice(kinds=(_KIND,), start=window - 1)).rows
    return {
        row["lease"]: row["last_at"]
        for row in rows
        if isinstance(row["lease"], UUID) and isinstance(row["last_at"], datetime)
    }


def share_of(reader: UUID, readers: Collection[UUID], partitions: int) -> frozenset[int]:
    """The partitions that a reader takes: every k-th, if there are k readers.

    >>> first, second = UUID(int=1), UUID(int=2)
    >>> sorted(share_of(second, [second, first], 5))
    [1, 3]

    Args:
        reader: The reader; counted once, even if it is among ``readers``.
    """
    in_order = sorted({reader, *readers})
    return frozenset(range(in_order.index(reader), partitions, len(in_order)))


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
