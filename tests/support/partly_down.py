"""A store of which some partitions of Cassandra have no replicas for a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cassieq_spark.errors import NotAppliedError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Rows, Slice, Store
from cassieq_spark.testing.stores import WrappedStore


class PartlyDownStore(WrappedStore):
    """Refuses compare-and-sets, or reads of rows or chunks, by the keys of their partitions.

    Attributes:
        down: Which calls are refused, by method and a key, such as a queue id:
            ``("cas", "orders@1.3")``.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.down: set[tuple[str, str]] = set()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._check("cas", *partition.key)
        return super().cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._check("read_rows", *partition.key)
        return super().read_rows(partition, which, serial=serial)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self._check("read_chunks", queue_id)
        return super().read_chunks(queue_id, slices)

    def _check(self, method: str, *keys: str) -> None:
        if any((method, key) in self.down for key in keys):
            raise NotAppliedError("no replicas")
