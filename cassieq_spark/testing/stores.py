"""Stores around a store: one passes every call on, one counts the calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.processes import StaysHere, lock_across_forks
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Op,
    Partition,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
    Value,
)
from cassieq_spark.store.tables import Table


class WrappedStore(StaysHere):
    """Passes every call on to another store.

    Args:
        store: The store that does the work; it is closed with this store.
    """

    _instead = "its figures are of this process; send the store that it wraps"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = lock_across_forks()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        return self._store.cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        return self._store.read_rows(partition, which, serial=serial)

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        self._store.write_row(partition, row, values, timestamp=timestamp, ttl=ttl)

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        self._store.delete_row(partition, row, timestamp=timestamp)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        self._store.write_chunks(queue_id, block, chunks)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        return self._store.read_chunks(queue_id, slices)

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        self._store.delete_buckets(queue_id, buckets)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        return self._store.scan(table, kinds)

    def close(self) -> None:
        self._store.close()


class CountingStore(WrappedStore):
    """Counts compare-and-sets, reads of rows and scans, whether they succeed or fail.

    Attributes:
        cas_count: Compare-and-sets.
        read_count: Plain reads of rows.
        serial_read_count: Serial reads of rows.
        scan_count: Scans of a table.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reset()

    def reset(self) -> None:
        """Start again at zero."""
        self.cas_count = self.read_count = self.serial_read_count = self.scan_count = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        with self._lock:
            self.cas_count += 1
        return super().cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        with self._lock:
            if serial:
                self.serial_read_count += 1
            else:
                self.read_count += 1
        return super().read_rows(partition, which, serial=serial)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        with self._lock:
            self.scan_count += 1
        return super().scan(table, kinds)
