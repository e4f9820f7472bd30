"""A store that somebody uses with the grants of a role, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.grants import User, grant_statements
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore


class RoleStore(WrappedStore):
    """Reads and compares-and-sets only in tables that a kind of user may read and change.

    Attributes:
        tables: The tables that were read so far.
    """

    def __init__(self, store: Store, user: User) -> None:
        super().__init__(store)
        self.tables: set[Table] = set()
        self._granted = set(grant_statements(user, "r", "queues"))

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._check("MODIFY", partition.table)
        return super().cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._read(partition.table)
        return super().read_rows(partition, which, serial=serial)

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self._read(Table.CHUNK)
        return super().read_chunks(queue_id, slices)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        self._read(table)
        return super().scan(table, kinds)

    def _read(self, table: Table) -> None:
        self._check("SELECT", table)
        self.tables.add(table)

    def _check(self, permission: str, table: Table) -> None:
        statement = f'GRANT {permission} ON TABLE queues.{table} TO "r"'
        assert statement in self._granted, f"{permission} on {table} is not granted"
