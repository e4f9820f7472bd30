"""The contract between the queue and the store that keeps it.

The code above a store needs compare-and-set on one partition, reads of one partition, and bulk
reads, writes and deletions of chunks. `MemoryStore` and `CassandraStore` pass the same conformance
suite (`cassieq_spark.testing.conformance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.store.tables import Table

Value = str | int | UUID | datetime | None
#: A row as read: every column of its table except ``data``, keys included; None where a column is
#: unset; bytes for unique ids.
Row = Mapping[str, Value]
#: The whole clustering key: ``(kind, position, name)`` in ``ledger``,
#: ``(kind, ordinal, position)`` in ``group_state``, ``()`` in ``queue``, ``(kind, ticket)`` in
#: ``lock``, ``(epoch,)`` in ``repair``, ``(kind, key name)`` in ``account``.
RowKey = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of any table but ``chunk``; a compare-and-set changes rows of one partition."""

    table: Table
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table} {'/'.join(self.key)}"


@dataclass(frozen=True, slots=True)
class ServerNow:
    """The coordinator's clock when it carries out the request, in whole ms, plus ``plus``.

    Attributes:
        plus: The time that is added.
        wall: True for the clock by which rows expire. It goes back when somebody sets it back,
            while the other clock stands still until its time has come again, or the server is
            restarted.
    """

    plus: timedelta = timedelta(0)
    wall: bool = False


#: The values that an operation writes, by column; bytes only of unique ids.
Values = Mapping[str, Value | bytes | ServerNow]


@dataclass(frozen=True, slots=True)
class When:
    """A condition on one column of the row that an operation writes.

    A missing row or column is null: ``= None`` is true for it, every other comparison is false.
    """

    column: str
    op: Literal["=", "<", "<=", ">", ">="]
    value: Value | ServerNow


@dataclass(frozen=True, slots=True)
class Insert:
    """Write a row; with ``if_absent``, only if it does not exist.

    Attributes:
        row: The key of the row.
        values: The columns of the row.
        if_absent: True if the row must not exist; then this is a condition.
        ttl: The time to live of the row, in whole seconds; it may vanish up to a second early.
            Only with ``if_absent``, and for rows that are never updated or deleted, and are read
            by their whole key: rows that have vanished leave tombstones, which slow down reads
            of their neighbours.
    """

    row: RowKey
    values: Values
    if_absent: bool = False
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Set columns of a row if all of ``when`` is true. Never to None: that leaves a tombstone."""

    row: RowKey
    values: Values
    when: tuple[When, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a row if it exists."""

    row: RowKey


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Delete the rows of ``kind`` whose second key column is below ``stop``; unconditional."""

    kind: str
    stop: int


Op = Insert | Update | Delete | DeleteBelow


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The rows of a partition to read: rows of ``kinds`` (all, if empty), in key order.

    Attributes:
        row: Only the row with this key; then no other attribute may be set.
        rows: Only the rows with these keys, as a consistent snapshot; then no other attribute may
            be set.
        kinds: With more than one kind, no other attribute may be set.
        start: The lowest value of the second key column, inclusive.
        stop: The end of these values, exclusive.
        limit: The maximum number of rows to return.
        reverse: True if the highest key comes first.
    """

    row: RowKey | None = None
    rows: tuple[RowKey, ...] = ()
    kinds: tuple[str, ...] = ()
    start: int | None = None
    stop: int | None = None
    limit: int | None = None
    reverse: bool = False


#: Clocks that differ by more than this disagree. With NTP, clocks differ by milliseconds; without
#: NTP, they drift by seconds a day. Everything that depends on a clock is counted in hours.
CLOCKS_APART = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a read returned, and when.

    Attributes:
        rows: The rows, in the order of the slice.
        now: The clock of the server that answered; None without rows, as rows carry it.
        here: The clock of this process at that time.
    """

    rows: Sequence[Row]
    now: datetime | None = None
    here: datetime | None = None

    @property
    def ahead(self) -> timedelta:
        """How far the server's clock is ahead of this process's, if they disagree; else zero."""
        if self.now is None or self.here is None or abs(self.now - self.here) <= CLOCKS_APART:
            return timedelta(0)
        return self.now - self.here

    @property
    def sure_now(self) -> datetime | None:
        """The server's time; if the clocks disagree, the earlier of the two.

        This time decides how far a fence is raised, what is old enough to be discarded, and until
        when messages wait. If it is too early, the next read corrects that; nothing would correct
        a time that is too late.
        """
        return self.now and self.now - max(timedelta(0), self.ahead)


EVERYTHING: Slice = Slice()

#: Maximum number of operations of one compare-and-set; Cassandra's protocol counts in 16 bits.
MOST_OPS = 65_535


class TimedRows(Protocol):
    """Reads of one partition, and writes of rows that vanish; fails as `Store` does.

    Tickets of locks, presences and the history of runs need no other part of a store.
    """

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """Read rows of one partition, with the effect of every compare-and-set that was answered.

        A plain read may also show the effect of a compare-and-set that is decided, but only on few
        replicas yet, because it is in flight or its answer was lost. All that the read shows is
        one consistent snapshot, except rows that other plain reads have shown before: those may be
        newer than the rest. Rows of several ``kinds`` are one snapshot, however many they are.
        Thousands of rows of one kind may come in pages, each a snapshot of its own. Two plain
        reads are not one snapshot: the second may ask other replicas, and miss what the first has
        shown. Only row by row, what was shown once is not missed again.

        A serial read, like a compare-and-set, first completes what is in flight. So it misses
        nothing that any earlier read has shown. A decision that depends on several rows takes one
        read of all of them; or it reads them serially, after a row that every change of the other
        rows changes as well.

        Args:
            partition: The partition.
            which: The rows to read.
            serial: True to complete what is in flight first; costs about as much as an LWT.
        """

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        """Write a row at quorum that vanishes after ``ttl``. No LWT, no condition.

        Only for rows that have one writer and that no compare-and-set ever writes. By the server's
        clock, the row may vanish up to a second early.

        Args:
            partition: The partition.
            row: The key of the row.
            values: The values by column, none of them null; at least the columns that were given
                before.
            timestamp: Microseconds. The write with the highest timestamp wins, in whatever
                order writes arrive, so no clock and no late arrival decides between two of them.
            ttl: The time to live of the whole row, counted from this write, in whole seconds.

        Raises:
            OutcomeUnknownError: The row may be written, now or later.
        """

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        """Delete what `write_row` wrote up to this timestamp, even if it arrives later."""


class Store(TimedRows, Protocol):
    """Keeps queues. Safe to call from several threads.

    Every method repeats requests that are safe to repeat, within a budget of time, and raises
    `NotAppliedError`, `OutcomeUnknownError`, `ConnectError`, `MissingSchemaError` or plain
    `StoreError`.
    """

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """Carry out all of ``ops`` on one partition at once if every condition is true. One LWT.

        At least one operation must have a condition (`Update`, `Delete`, or `Insert` with
        ``if_absent``), no two may name the same row, and there may be at most `MOST_OPS`.

        Returns:
            True if all operations were applied; False if a condition was false, and none was
            applied.

        Raises:
            OutcomeUnknownError: The operations may have been applied. A serial read of the rows
                shows it.
            TooLargeError: There are more than `MOST_OPS` operations; nothing was sent.
        """

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """Write chunks as they come, several at a time, with a bounded number of bytes in flight.

        Returns when all chunks are acknowledged at quorum. Repeating the call with the same chunks
        changes nothing.
        """

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """Read the chunks of each slice in order, slice after slice, a bounded amount ahead."""

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        """Delete whole partitions ``(block, bucket)``, several at a time."""

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """Read a whole table without ``data``. For repair runs and lists; never on a hot path.

        Rows of one partition come together. The scan is no snapshot: a row that is written
        meanwhile may be in it or not.

        Args:
            table: The table.
            kinds: Read only rows of these kinds; empty for all rows.
        """

    def close(self) -> None:
        """Release connections and threads. No other call may follow."""


def partition_of_queue(name: str) -> Partition:
    """The partition of a queue's definition."""
    return Partition(Table.QUEUE, (name,))


def partition_of_ledger(queue_id: QueueId) -> Partition:
    """The partition that says which monotons exist, and in which blocks."""
    return Partition(Table.LEDGER, (queue_id,))


def partition_of_group(queue_id: QueueId, group: str) -> Partition:
    """The partition of a group state: which messages a consumer group has, had, and waits for."""
    return Partition(Table.GROUP_STATE, (queue_id, group))


def partition_of_lock(name: str) -> Partition:
    """The partition of a lock: its holder, and the tickets of the waiting processes."""
    return Partition(Table.LOCK, (name,))


def partition_of_history(job: str) -> Partition:
    """The partition that records what each run of a job did."""
    return Partition(Table.REPAIR, (job,))


def partition_of_account(name: str) -> Partition:
    """The partition of an account of the HTTP gateway and its keys."""
    return Partition(Table.ACCOUNT, (name,))
