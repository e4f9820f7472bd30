"""A store in this process's memory that answers as Cassandra does: for our tests and yours."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId, from_millis, to_millis
from cassieq_spark.processes import StaysHere, lock_across_forks
from cassieq_spark.store.checks import check_ops, check_slice, check_timed_row
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
    ServerNow,
    Slice,
    Update,
    Value,
    When,
)
from cassieq_spark.store.tables import SHAPES, Table

_COMPARE: dict[str, Callable[..., bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PartitionRows = dict[RowKey, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Timed:
    """When a row with a time to live was written or deleted, and when it vanishes.

    This record outlives the row, so that a late write with an older timestamp is ignored.
    """

    timestamp: int
    until: datetime


class MemoryStore(StaysHere):
    """Implements `Store` with dictionaries and one lock.

    Args:
        clock: The server's clock; aware. Its time is truncated to milliseconds, as Cassandra's is.
        here: The clock of this process; by default the same clock.
    """

    _instead = "what it stores is in the memory of this one; use Cassandra, by open_store"

    def __init__(
        self,
        clock: Callable[[], datetime] | None = None,
        *,
        here: Callable[[], datetime] | None = None,
    ) -> None:
        self._clock = clock or (lambda: datetime.now(UTC))
        self._here = here or self._clock
        self._lock = lock_across_forks()
        self._rows: dict[Partition, _PartitionRows] = {}
        self._timed: dict[Partition, dict[RowKey, _Timed]] = {}
        self._expiring: dict[Partition, list[tuple[datetime, RowKey]]] = {}
        self._chunks: dict[tuple[QueueId, UUID, int], dict[int, Chunk]] = {}
        self._deleted: set[tuple[QueueId, UUID, int]] = set()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """Change the rows of a partition if all conditions hold; see `Store.cas`."""
        check_ops(partition, ops)
        with self._lock:
            rows = self._alive(partition)
            now = self._now()
            if not all(_holds(op, rows, now) for op in ops):
                return False
            rows = dict(rows)
            # As in a batch of Cassandra, deletions are older than what the same batch writes.
            for op in sorted(ops, key=lambda op: isinstance(op, Insert | Update)):
                _apply(op, rows, now)
            self._rows[partition] = rows
            for op in ops:
                if isinstance(op, Insert) and op.ttl is not None:
                    # As in Cassandra, the time to live begins at the whole second before.
                    until = now.replace(microsecond=0) + op.ttl
                    heapq.heappush(self._expiring.setdefault(partition, []), (until, op.row))
            return True

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """Read rows of a partition, always as a serial read does; see `Store.read_rows`."""
        del serial
        check_slice(partition.table, which)
        with self._lock:
            rows = self._alive(partition)
            found = [_whole_row(partition, key, rows[key]) for key in keys_in(rows, which)]
            return Rows(found, self._now(), self._here()) if found else Rows(found)

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        """Write a row; its time to live begins at the last whole second. See `Store.write_row`."""
        check_timed_row(partition.table, row, values, ttl)
        with self._lock:
            now = self._now()
            self._alive(partition)
            timed = self._timed.setdefault(partition, {})
            if row not in timed or timed[row].timestamp <= timestamp:
                timed[row] = _Timed(timestamp, now.replace(microsecond=0) + ttl)
                rows = self._rows.setdefault(partition, {})
                given = {name: _at(value, now) for name, value in values.items()}
                rows[row] = rows.get(row, {}) | given

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        """Delete a row with a time to live; see `Store.delete_row`."""
        with self._lock:
            timed = self._timed.setdefault(partition, {})
            if row not in timed or timed[row].timestamp <= timestamp:
                timed[row] = _Timed(timestamp + 1, self._now())
                self._alive(partition)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """Keep chunks that no deletion covers; see `Store.write_chunks`."""
        for chunk in chunks:
            partition = (queue_id, block, chunk.bucket)
            with self._lock:
                # A deletion of a bucket is newer than all that its block ever writes.
                if partition not in self._deleted:
                    self._chunks.setdefault(partition, {})[chunk.start] = chunk

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """Read chunks of each slice; see `Store.read_chunks`."""
        for piece in slices:
            with self._lock:
                bucket = self._chunks.get((queue_id, piece.block, piece.bucket), {})
                found = [bucket[at] for at in sorted(bucket) if piece.start <= at < piece.stop]
            yield from ((piece, chunk) for chunk in found)

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        """Delete buckets, and remember their deletion; see `Store.delete_buckets`."""
        for block, bucket in buckets:
            with self._lock:
                self._chunks.pop((queue_id, block, bucket), None)
                self._deleted.add((queue_id, block, bucket))

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """Read the rows of all partitions of a table; see `Store.scan`."""
        with self._lock:
            found: list[Row]
            if table is Table.CHUNK:
                names = ("queue_id", "block", "bucket", "start", "stop")
                found = [
                    dict(zip(names, (*key, chunk.start, chunk.stop), strict=True))
                    for key, chunks in self._chunks.items()
                    for _, chunk in sorted(chunks.items())
                ]
            else:
                found = [
                    _whole_row(partition, key, rows[key])
                    for partition in list(self._rows)
                    if partition.table is table
                    for rows in (self._alive(partition),)
                    for key in sorted(rows)
                    if not kinds or key[0] in kinds
                ]
        yield from found

    def close(self) -> None:
        """Do nothing, as there is nothing to release; see `Store.close`."""

    def _alive(self, partition: Partition) -> _PartitionRows:
        """The rows of a partition, without rows whose time to live is over."""
        rows = self._rows.get(partition, {})
        now = self._now()
        for row, timed in self._timed.get(partition, {}).items():
            if timed.until <= now:
                rows.pop(row, None)
        # In Cassandra each replica uses its own clock for this, not that of the coordinator.
        here = self._here()
        ends = self._expiring.get(partition, [])
        while ends and ends[0][0] <= here:
            rows.pop(heapq.heappop(ends)[1], None)
        return rows

    def _now(self) -> datetime:
        return from_millis(to_millis(self._clock()))


def keys_in(keys: Iterable[RowKey], which: Slice) -> list[RowKey]:
    """The keys that are in a slice, in the order of the slice."""
    found = sorted((key for key in keys if _is_in(key, which)), reverse=which.reverse)
    return found[: which.limit]


def _holds(op: Op, rows: _PartitionRows, now: datetime) -> bool:
    match op:
        case Insert(row=row, if_absent=True):
            return row not in rows
        case Delete(row=row):
            return row in rows
        case Update(row=row, when=when):
            return all(_compare(rows.get(row, {}).get(each.column), each, now) for each in when)
        case _:
            return True


def _compare(actual: Value, when: When, now: datetime) -> bool:
    expected = _at(when.value, now)
    if actual is None or expected is None:
        return when.op == "=" and actual is expected
    return _COMPARE[when.op](actual, expected)


def _apply(op: Op, rows: _PartitionRows, now: datetime) -> None:
    match op:
        case Insert(row=row, values=values) | Update(row=row, values=values):
            given = {name: _at(value, now) for name, value in values.items() if value is not None}
            rows[row] = rows.get(row, {}) | given
        case Delete(row=row):
            del rows[row]
        case DeleteBelow(kind=kind, stop=stop):
            for row in [row for row in rows if row[0] == kind and int(row[1]) < stop]:
                del rows[row]


def _at(value: Value | bytes | ServerNow, now: datetime) -> Any:
    instant = now + value.plus if isinstance(value, ServerNow) else value
    return from_millis(to_millis(instant)) if isinstance(instant, datetime) else instant


def _is_in(key: RowKey, which: Slice) -> bool:
    if which.row is not None or which.rows:
        return key == which.row or key in which.rows
    if which.kinds and key[0] not in which.kinds:
        return False
    at_least = which.start is None or int(key[1]) >= which.start
    return at_least and (which.stop is None or int(key[1]) < which.stop)


def _whole_row(partition: Partition, key: RowKey, values: dict[str, Value]) -> Row:
    shape = SHAPES[partition.table]
    keys = dict(zip(shape.partition + shape.clustering, partition.key + key, strict=True))
    return keys | dict.fromkeys(shape.columns) | values
