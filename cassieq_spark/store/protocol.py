"""The one seam between the queue and where it is kept. Pure.

Everything above a store needs compare-and-set on one partition, reads of one partition, and bulk
reads, writes and deletes of chunks. `MemoryStore` and `CassandraStore` pass the same conformance
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
#: A row as read: every column of its table but ``data``, keys included; None where unset.
Row = Mapping[str, Value]
#: The whole clustering key: ``(kind, position, name)`` in ``ledger``,
#: ``(kind, ordinal, position)`` in ``group_state``, ``()`` in ``queue``, ``(kind, ticket)`` in
#: ``lock``, ``(epoch,)`` in ``repair``, ``(kind, key name)`` in ``account``.
RowKey = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of any table but ``chunk``: what one compare-and-set can reach."""

    table: Table
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table} {'/'.join(self.key)}"


@dataclass(frozen=True, slots=True)
class ServerNow:
    """The coordinator's clock as the request is carried out, in whole ms, plus ``plus``."""

    plus: timedelta = timedelta(0)


#: What an operation writes, by column.
Values = Mapping[str, Value | ServerNow]


@dataclass(frozen=True, slots=True)
class When:
    """A condition on one column of the row that an operation writes.

    A missing row or column is null: ``= None`` holds for it, every other comparison does not.
    """

    column: str
    op: Literal["=", "<", "<=", ">", ">="]
    value: Value | ServerNow


@dataclass(frozen=True, slots=True)
class Insert:
    """Write a row; with ``if_absent``, only if there is none.

    Attributes:
        row: Which row.
        values: Its columns.
        if_absent: Whether that is a condition.
        ttl: After which the row vanishes, in whole seconds; up to a second early. Only with
            ``if_absent``, and for rows that are never updated or deleted, and read by their whole
            key: who reads past rows that have vanished wades through what is left of them.
    """

    row: RowKey
    values: Values
    if_absent: bool = False
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Set columns of a row if all of ``when`` holds. Never to None: that leaves a tombstone."""

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
    """Which rows of a partition to read: those of ``kinds`` (all, if empty), in key order.

    Attributes:
        row: Just the row of this key; then no other attribute may be set.
        rows: Just the rows of these keys, as they are at one moment; the same.
        kinds: With more than one, no other attribute may be set.
        start: Lowest value of the second key column, inclusive.
        stop: Its end, exclusive.
        limit: Most rows to return.
        reverse: Highest key first.
    """

    row: RowKey | None = None
    rows: tuple[RowKey, ...] = ()
    kinds: tuple[str, ...] = ()
    start: int | None = None
    stop: int | None = None
    limit: int | None = None
    reverse: bool = False


#: Clocks that differ by more disagree. Those that are kept by NTP differ by milliseconds, those
#: that nobody keeps by seconds a day; what goes by a clock is counted in hours.
CLOCKS_APART = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a read returned, and when.

    Attributes:
        rows: What was found.
        now: By the clock of the server that answered; None where no row came to carry it.
        here: By the clock of this process, then.
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

        By it goes what raises a fence, throws away what is old, or lets messages wait: too early a
        time is made good by the next look, too late a one by nothing.
        """
        return self.now and self.now - max(timedelta(0), self.ahead)


EVERYTHING: Slice = Slice()

#: Operations of one compare-and-set: Cassandra's protocol counts them in 16 bits.
MOST_OPS = 65_535


class Store(Protocol):
    """Where queues are kept. Safe to call from several threads.

    Every method raises `NotAppliedError`, `OutcomeUnknownError`, `ConnectError`,
    `MissingSchemaError` or plain `StoreError`, and retries by itself, within a budget of time,
    what is safe to repeat.
    """

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        """Carry out all of ``ops`` on one partition at once if every condition holds. One LWT.

        At least one operation must carry a condition (`Update`, `Delete`, or `Insert` with
        ``if_absent``), no two may name the same row, and there are `MOST_OPS` at the most.

        Returns:
            True: all applied. False: a condition did not hold, and nothing was applied.

        Raises:
            OutcomeUnknownError: It may have been applied. A serial read of the rows tells.
            TooLargeError: More than `MOST_OPS`; nothing was sent.
        """

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        """Read rows of one partition: what every compare-and-set has left that was answered.

        A plain read may show one more, which is decided and on few replicas yet: it is in flight,
        or its answer was lost. What it shows is of one moment; at most, rows that other plain
        reads have shown before are newer than the rest. Rows of several ``kinds`` are so however
        many they are; of one kind, thousands may come in pages, each of a moment of its own. Two
        plain reads are not of one moment: the second may ask other replicas, and miss what the
        first has shown. Only row by row, what was shown once is not missed again.

        A serial read, like a compare-and-set, first completes what is in flight: it misses
        nothing that any earlier read has shown. So what rests on several rows is read at once, or
        serially after the row that all changes of the others change too.

        Args:
            partition: Where.
            which: Which rows.
            serial: Complete what is in flight first; costs about as much as an LWT.
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

        For rows that one writer has to itself, and that no compare-and-set ever writes. By the
        clock of the server the row may vanish up to a second early.

        Args:
            partition: Where.
            row: Which row.
            values: None of them null; at least the columns that were given before.
            timestamp: In microseconds. The highest wins, in whatever order they arrive, so that
                no clock and no late arrival decides which of two writes counts.
            ttl: In whole seconds; counts from this write for all of the row.

        Raises:
            OutcomeUnknownError: It may be written, now or later.
        """

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        """Delete what `write_row` wrote up to this timestamp, also if that arrives later."""

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: Iterable[Chunk]) -> None:
        """Write chunks as they come, several at a time, a bounded number of bytes in flight.

        Returns when all are acknowledged at quorum. Repeating it with the same chunks changes
        nothing.
        """

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        """Read the chunks of each slice in order, slice after slice, a bounded amount ahead."""

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        """Delete whole partitions ``(block, bucket)``, several at a time."""

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        """Read a whole table without ``data``. For repair runs and lists; never on a hot path.

        Rows of one partition come together. It is no snapshot, and a row that is written
        meanwhile may be seen or not.

        Args:
            table: Which table.
            kinds: Only rows of these kinds; others are not even read. All, if empty.
        """

    def close(self) -> None:
        """Release connections and threads. No other call may follow."""


def partition_of_queue(name: str) -> Partition:
    """The partition of a queue's definition."""
    return Partition(Table.QUEUE, (name,))


def partition_of_ledger(queue_id: QueueId) -> Partition:
    """The partition that says which monotons exist, and where they are."""
    return Partition(Table.LEDGER, (queue_id,))


def partition_of_group(queue_id: QueueId, group: str) -> Partition:
    """The partition that says which messages a consumer group has, had, and waits for."""
    return Partition(Table.GROUP_STATE, (queue_id, group))


def partition_of_lock(name: str) -> Partition:
    """The partition of a lock: who waits for it, and who entered last."""
    return Partition(Table.LOCK, (name,))


def partition_of_history(job: str) -> Partition:
    """The partition that says what each run of a job did."""
    return Partition(Table.REPAIR, (job,))


def partition_of_account(name: str) -> Partition:
    """The partition of an account of the HTTP gateway: it and its keys."""
    return Partition(Table.ACCOUNT, (name,))
