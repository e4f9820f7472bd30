"""A store of three replicas, of which a compare-and-set may reach one before the others."""

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

#: Rows of a partition after which a page of a scan ends, so that its next rows come later.
PAGE = 3
#: What the plain reads of a partition see, in turn, while a commit is on one replica: ``f`` is a
#: read that asks this replica, ``s`` is one that asks the two others.
Draws = str


@dataclass(slots=True)
class Pending:
    """A commit that is on one replica only.

    Attributes:
        old: What the two others still have of the rows that it changed; None: no such row. A row
            that a plain read has shown is repaired there, and so is no longer in here.
        now: The server's clock when it was carried out.
    """

    old: dict[RowKey, Row | None]
    now: datetime | None


class TearingStore(WrappedStore):
    """Lets plain reads of different moments meet, as Cassandra's do; see `Store.read_rows`.

    The store that it wraps has what is decided. Here is only what two of three replicas have not
    heard of: at most one commit for each partition, as the next serial read or compare-and-set on
    the partition completes it. A plain read that asks the replica that has it shows all of it
    that is in its slice, and repairs these rows; one that asks the others does not, but for the
    rows that were repaired before. A scan comes in pages: the first rows of a partition may be
    shown, and repaired, by the replica that has the commit, and the others not.

    Args:
        store: The store that does the work.
        draws: Which replicas plain reads ask, in turn, and from the beginning again.

    Attributes:
        drawn: How many plain reads had to choose.
    """

    def __init__(self, store: Store, draws: Draws = "fs") -> None:
        super().__init__(store)
        self._pending: dict[Partition, Pending] = {}
        self._tears = False
        self.draw(draws)

    def draw(self, draws: Draws) -> None:
        """Say which replicas plain reads ask from now on."""
        self._draws: Iterator[str] = cycle(draws)
        self.drawn = 0

    @contextmanager
    def tearing(self) -> Iterator[None]:
        """Let what is carried out within reach one replica only."""
        self._tears = True
        try:
            yield
        finally:
            self._tears = False

    def pending(self, partition: Partition) -> Pending | None:
        """The commit of this partition that is on one replica only."""
        return self._pending.get(partition)

    def complete(self, partition: Partition, commit: Pending | None) -> None:
        """Let this commit reach all replicas, if it is not there by now."""
        if commit is not None and self._pending.get(partition) is commit:
            del self._pending[partition]

    def heal(self) -> None:
        """Let every commit reach all replicas."""
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
                    wanted = [row for row in seen if not kinds or row["kind"] in kinds]
                    _repair_page(commit, partition, kinds, wanted[:PAGE])
                known = _as_the_others_know(commit, partition, seen)
                seen = [known[key] for key in sorted(known)]
            yield from (row for row in seen if not kinds or row["kind"] in kinds)

    def _asks_the_one(self) -> bool:
        self.drawn += 1
        return next(self._draws) == "f"

    def _changes(self, partition: Partition, before: Rows) -> Pending:
        old = _by_key(partition, before.rows)
        after = super().read_rows(partition)
        new = _by_key(partition, after.rows)
        changed = {key: old.get(key) for key in old | new if old.get(key) != new.get(key)}
        return Pending(changed, after.now or before.now)


def _repair(commit: Pending, partition: Partition, which: Slice, shown: Sequence[Row]) -> None:
    """All replicas have from now on what a read of this slice has shown, or shown to be gone."""
    covered = {key for key in commit.old if keys_in([key], which)}
    if which.limit is not None and len(shown) == which.limit:
        last = key_of(partition, shown[-1])
        covered = {key for key in covered if (key >= last if which.reverse else key <= last)}
    for key in covered:
        del commit.old[key]


def _repair_page(
    commit: Pending, partition: Partition, kinds: Sequence[str], page: Sequence[Row]
) -> None:
    """The same for the first page of a scan; the next one asks the others."""
    is_last = len(page) < PAGE
    for key in list(commit.old):
        is_shown = is_last or key <= key_of(partition, page[-1])
        if is_shown and (not kinds or key[0] in kinds):
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
