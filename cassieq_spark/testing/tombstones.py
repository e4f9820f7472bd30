"""A store around a store that fails reads of too many deleted rows, as Cassandra does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from cassieq_spark.errors import StoreError
from cassieq_spark.store.memory import keys_in
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Delete,
    DeleteBelow,
    Insert,
    Op,
    Partition,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from cassieq_spark.testing.tearing import key_of


class TombstoneStore(WrappedStore):
    """Fails a read or a scan that crosses more deleted rows of a partition than a limit.

    Rows that compare-and-sets have deleted count, and so do rows with a time to live, expired or
    not. A read of rows by their whole keys crosses none. Nothing is compacted.

    Args:
        store: The store that does the work.
        limit: The maximum number of deleted rows that a read may cross; None for no limit.

    Attributes:
        limit: The limit; a test may change it.
        most: The largest number of deleted rows that a read has crossed, even if it failed.
    """

    def __init__(self, store: Store, limit: int | None = None) -> None:
        super().__init__(store)
        self.limit = limit
        self._alive: defaultdict[Partition, set[RowKey]] = defaultdict(set)
        self._dead: defaultdict[Partition, set[RowKey]] = defaultdict(set)
        self.most = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        applied = super().cas(partition, ops)
        if applied:
            with self._lock:
                for op in ops:
                    self._note(self._alive[partition], self._dead[partition], op)
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if which.row is None and not which.rows:
            last = key_of(partition, found.rows[-1]) if found.rows else None
            with self._lock:
                crossed: Iterable[RowKey] = keys_in(self._dead[partition], which)
            if last is not None and which.limit is not None and len(found.rows) == which.limit:
                crossed = [key for key in crossed if (key > last if which.reverse else key < last)]
            self._count(partition, crossed)
        return found

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        with self._lock:
            dead = {each: set(keys) for each, keys in self._dead.items() if each.table is table}
        for partition, keys in dead.items():
            self._count(partition, keys_in(keys, Slice(kinds=tuple(kinds))))
        yield from super().scan(table, kinds)

    def _count(self, partition: Partition, crossed: Iterable[RowKey]) -> None:
        count = len(list(crossed))
        with self._lock:
            self.most = max(self.most, count)
        if self.limit is not None and count > self.limit:
            raise StoreError(
                f"a read of {partition.table} {'/'.join(partition.key)} came across {count} "
                f"deleted rows, and {self.limit} is the most"
            )

    @staticmethod
    def _note(alive: set[RowKey], dead: set[RowKey], op: Op) -> None:
        match op:
            case Delete(row=row):
                alive.discard(row)
                dead.add(row)
            case DeleteBelow(kind=kind, stop=stop):
                gone = {key for key in alive if key[0] == kind and int(key[1]) < stop}
                alive -= gone
                dead |= gone
            case Insert(row=row, ttl=ttl) if ttl is not None:
                dead.add(row)
            case _:
                alive.add(op.row)
                dead.discard(op.row)
