"""A store that tells when a read would wade through deleted rows of a ledger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from cassieq_spark.store.protocol import (
    EVERYTHING,
    DeleteBelow,
    Insert,
    Op,
    Partition,
    Rows,
    Slice,
    Store,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore


class DryStore(WrappedStore):
    """Refuses reads of blocks that come across rows that were deleted.

    Cassandra keeps those until it compacts them, and steps over them one by one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._starts: dict[Partition, list[int]] = {}
        self._deleted_below: dict[Partition, int] = {}

    def deleted(self, partition: Partition) -> list[int]:
        """First monotons of the blocks whose rows were deleted, in order."""
        starts = self._starts.get(partition, [])
        return starts[: bisect_left(starts, self._deleted_below.get(partition, 0))]

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        applied = super().cas(partition, ops)
        if applied:
            for op in ops:
                match op:
                    case Insert(row=("block", int(start), _)):
                        self._starts.setdefault(partition, []).append(start)
                    case DeleteBelow(kind="block", stop=stop):
                        self._deleted_below[partition] = stop
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if partition.table is Table.LEDGER and which.kinds == ("block",):
            starts = [int(str(row["position"])) for row in found.rows]
            full = which.limit is not None and len(starts) == which.limit
            lowest = min(starts) if full and which.reverse else which.start
            highest = max(starts) if full and not which.reverse else which.stop
            waded = [
                start
                for start in self.deleted(partition)
                if (lowest is None or start >= lowest) and (highest is None or start < highest)
            ]
            assert not waded, f"{which} wades through {waded}"
        return found
