"""A store in which one queue ails: what touches it fails, and scans die of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore


class AilingQueueStore(WrappedStore):
    """Raises an error whenever a queue is touched, but for the first times.

    Args:
        store: The store that does the work.
        queue_id: The queue that ails; its row in the table of queues does not.
        error: What is raised.
        after: How many calls and rows of a scan are spared.

    Attributes:
        touched: How many calls and rows of a scan there were.
    """

    def __init__(
        self, store: Store, queue_id: QueueId, error: Exception, *, after: int = 0
    ) -> None:
        super().__init__(store)
        self._queue_id = queue_id
        self._error = error
        self._after = after
        self.touched = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._touch(partition.key[0])
        return super().cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._touch(partition.key[0])
        return super().read_rows(partition, which, serial=serial)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        self._touch(queue_id)
        super().write_chunks(queue_id, block, chunks)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self._touch(queue_id)
        return super().read_chunks(queue_id, slices)

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        self._touch(queue_id)
        super().delete_buckets(queue_id, buckets)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        for row in super().scan(table, kinds):
            # Chunks are deleted as whole partitions: a scan of them steps over nothing.
            if table is not Table.CHUNK:
                self._touch(row.get("queue_id"))
            yield row

    def _touch(self, owner: object) -> None:
        if owner != self._queue_id:
            return
        with self._lock:
            self.touched += 1
            spared = self.touched <= self._after
        if not spared:
            raise self._error


def copy_of(store: MemoryStore) -> MemoryStore:
    """Another store with the same rows and chunks, by the same clock."""
    other = MemoryStore(store._clock)
    for name in ("_rows", "_timed", "_chunks", "_deleted"):
        setattr(other, name, deepcopy(getattr(store, name)))
    return other
