"""A store with three replicas, where a compare-and-set may reach one before the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle, groupby

from cassieq_spark.store.memory import keys_in
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Op,
    Partition,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
)
from cassieq_spark.store.tables import SHAPES, Table
from cassieq_spark.testing.stores import WrappedStore

#: After how many rows of a partition a page of a scan ends; the next page is read later.
PAGE = 3
#: The replicas that plain reads of a partition ask, in turn, while a commit is on one replica:
#: ``f`` is a read that asks this replica, ``s`` is a read that asks the two others.
Draws = str


@dataclass(slots=True)
class Pending:
    """A commit that is on one replica only.

    Attributes:
        old: The rows that the commit changed, as the two other replicas still have them; None: no
            such row. A plain read that returns a row repairs it on all replicas, and removes it
            here.
        now: The server's clock when the commit was carried out.
    """

    old: dict[RowKey, Row | None]
    now: datetime | None


class TearingStore(WrappedStore):
    """Makes plain reads return different moments, as Cassandra's do; see `Store.read_rows`.

    The wrapped store has all that is decided. This store has the commits that two of three
    replicas lack: at most one per partition, as the next serial read or compare-and-set of
    the partition completes it. A plain read that asks the replica with the commit returns the part
    of the commit that is in its slice, and repairs these rows on the other replicas. A plain read
    that asks the others returns only the rows that were repaired before. A scan comes in pages:
    the replica with the commit may return, and repair, the first rows of a partition, and the
    others the next rows.

    Args:
        store: The store that does the work.
        draws: The replicas that plain reads ask, in turn; then from the beginning again.

    Attributes:
        drawn: How many plain reads depended on which replicas they asked.
    """

    def __init__(self, store: Store, draws: Draws = "fs") -> None:
        super().__init__(store)
        self._pending: dict[Partition, Pending] = {}
        self._tears = False
        self.draw(draws)

    def draw(self, draws: Draws) -> None:
        """Set the replicas that plain reads ask from now on."""
        self._draws: Iterator[str] = cycle(draws)
        self.drawn = 0

    @contextmanager
    def tearing(self) -> Iterator[None]:
        """Make compare-and-sets within the block reach only one replica."""
        self._tears = True
        try:
            yield
        finally:
            self._tears = False

    def pending(self, partition: Partition) -> Pending | None:
        """The commit of this partition that is on only one replica."""
        return self._pending.get(partition)

    def complete(self, partition: Partition, commit: Pending | None) -> None:
        """Make this commit reach all replicas, unless it has reached them already."""
        if commit is not None and self._pending.get(partition) is commit:
            del self._pending[partition]

    def heal(self) -> None:
        """Make every commit reach all replicas."""
        self._pending.clear()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._pending.pop(partition, None)
        if not self._tears:
            return super().cas(partition, ops)
        before = super().read_rows(partition)
        applied = super().cas(partition, ops)
        if applied:
            self._pending[partition] = self._changes(partition, before)
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if serial:
            self._pending.pop(partition, None)
        commit = self._pending.get(partition)
        if commit is None:
            return super().read_rows(partition, which, serial=serial)
        if self._asks_the_one():
            rows = super().read_rows(partition, which)
            _repair(commit, partition, which, rows.rows)
            return rows
        every = super().read_rows(partition)
        known = _as_the_others_know(commit, partition, every.rows)
        found = [known[key] for key in keys_in(known, which)]
        return Rows(found, every.now or commit.now, every.here) if found else Rows(found)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        if not self._pending:
            yield from super().scan(table, kinds)
            return
        columns = SHAPES[table].partition
        rows = list(super().scan(table))
        found = {
            Partition(table, key): list(every)
            for key, every in groupby(rows, lambda row: tuple(str(row[each]) for each in columns))
        }
        torn = {each: commit for each, commit in self._pending.items() if each.table is table}
        for partition in [*found, *(each for each in torn if each not in found)]:
            seen = found.get(partition, [])
            if partition in torn:
                commit = torn[partition]
                if self._asks_the_one():
                    # The next page of the scan asks the others.
                    wanted = [row for row in seen if not kinds or row["kind"] in kinds]
                    page = Slice(kinds=tuple(kinds), limit=PAGE)
                    _repair(commit, partition, page, wanted[:PAGE])
                known = _as_the_others_know(commit, partition, seen)
                seen = [known[key] for key in sorted(known)]
            yield from (row for row in seen if not kinds or row["kind"] in kinds)

    def _asks_the_one(self) -> bool:
        self.drawn += 1
        return next(self._draws) == "f"

    def _changes(self, partition: Partition, before: Rows) -> Pending:
        after = super().read_rows(partition)
        old, new = (_by_key(partition, each.rows) for each in (before, after))
        changed = {key: old.get(key) for key in old | new if old.get(key) != new.get(key)}
        return Pending(changed, after.now or before.now)


def _repair(commit: Pending, partition: Partition, which: Slice, shown: Sequence[Row]) -> None:
    """Repair what a read of this slice has returned: rows, and the absence of deleted rows."""
    covered = {key for key in commit.old if keys_in([key], which)}
    if which.limit is not None and len(shown) == which.limit:
        last = key_of(partition, shown[-1])
        covered = {key for key in covered if (key >= last if which.reverse else key <= last)}
    for key in covered:
        del commit.old[key]


def _as_the_others_know(
    commit: Pending, partition: Partition, rows: Iterable[Row]
) -> dict[RowKey, Row]:
    every = {**_by_key(partition, rows), **commit.old}
    return {key: row for key, row in every.items() if row is not None}


def _by_key(partition: Partition, rows: Iterable[Row]) -> dict[RowKey, Row]:
    return {key_of(partition, row): row for row in rows}


def key_of(partition: Partition, row: Row) -> RowKey:
    """The key of a row within its partition."""
    names = SHAPES[partition.table].clustering
    return tuple(value for name in names if isinstance(value := row[name], str | int))
