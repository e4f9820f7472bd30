"""Stores around a store: one counts what it is asked, one fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
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


class WrappedStore:
    """Passes every call on to another store.

    Args:
        store: The store that does the work; it is closed with this one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()

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
    """Counts compare-and-sets, reads of rows and scans, whatever becomes of them.

    Attributes:
        cas_count: Compare-and-sets.
        read_count: Reads of rows that are not serial.
        serial_read_count: Those that are.
        scan_count: Scans of a table.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reset()

    def reset(self) -> None:
        """Begin again at zero."""
        self.cas_count = 0
        self.read_count = 0
        self.serial_read_count = 0
        self.scan_count = 0

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


class FaultyStore(WrappedStore):
    """Loses compare-and-sets that it was armed to lose, as a network does; lost requests first.

    Attributes:
        lost_requests: How many compare-and-sets still fail before they are applied.
        lost_answers: How many, after those, still fail although they were carried out.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.disarm()

    def disarm(self) -> None:
        """Lose nothing from now on."""
        self.lost_requests = 0
        self.lost_answers = 0

    def lose_request(self, count: int = 1) -> None:
        """Let the next ``count`` compare-and-sets fail before they are applied."""
        self.lost_requests += count

    def lose_answer(self, count: int = 1) -> None:
        """Let the next ``count`` compare-and-sets fail after they were carried out."""
        self.lost_answers += count

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        with self._lock:
            lose_request = self.lost_requests > 0
            lose_answer = not lose_request and self.lost_answers > 0
            self.lost_requests -= lose_request
            self.lost_answers -= lose_answer
        if lose_request:
            raise OutcomeUnknownError(f"compare-and-set on {partition}: the request was lost")
        applied = super().cas(partition, ops)
        if lose_answer:
            raise OutcomeUnknownError(f"compare-and-set on {partition}: the answer was lost")
        return applied
