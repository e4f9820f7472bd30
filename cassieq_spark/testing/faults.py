"""A store around a store that loses and delays requests, and lets others act between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TypeVar
from uuid import UUID

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Op,
    Partition,
    RowKey,
    Rows,
    Slice,
    Store,
    Value,
)
from cassieq_spark.testing.stores import WrappedStore
from cassieq_spark.testing.tearing import TearingStore

_T = TypeVar("_T")


class Fault(Enum):
    """A fault of a write of rows; the caller gets an `OutcomeUnknownError`.

    A compare-and-set that has reached one replica is decided. Plain reads may miss it until the
    next compare-and-set or serial read of its partition; see `TearingStore`.
    """

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    REQUEST_LATE = auto()
    REACHED_ONE = auto()


class FaultyStore(WrappedStore):
    """Loses or delays writes of rows, and interrupts calls, as a test says. Not thread-safe.

    Args:
        store: The store that does the work.
        watch: Called with the partition after every compare-and-set that was applied.
        replicas: The store within ``store`` that has the replicas, if several stores share them;
            None: ``store`` itself if it is a `TearingStore`, else new replicas.

    Attributes:
        replicas: The store in which tests choose the replicas that plain reads ask.
        fault: What happens to the next compare-and-set, or write or deletion of a row.
        lasting: True if the fault happens to all of them until `calm`, not only to the next one.
        late: Delayed requests, the oldest first; `arrive` carries out the first one.
        troubles: How many faults and interruptions have happened.
        torn: How many reads might have returned a different result from other replicas.
        delayed: How many requests were delayed.
    """

    def __init__(
        self,
        store: Store,
        watch: Callable[[Partition], None] = lambda _: None,
        replicas: TearingStore | None = None,
    ) -> None:
        if replicas is None:
            store = replicas = store if isinstance(store, TearingStore) else TearingStore(store)
        super().__init__(store)
        self.replicas = replicas
        self._watch = watch
        self._interruption: Callable[[], None] | None = None
        self._calls_left = 0
        self._bit_by_bit = False
        self.fault: Fault | None = None
        self.lasting = False
        self.late: list[Callable[[], object]] = []
        self.troubles = 0
        self.torn = 0
        self.delayed = 0

    @property
    def unrest(self) -> int:
        """A number that grows if a read may have missed something, or a write was not answered."""
        return self.troubles + self.torn

    def interrupt(
        self, action: Callable[[], None], *, after: int, bit_by_bit: bool = False
    ) -> None:
        """Call ``action`` just before one of the next calls.

        Compare-and-sets, reads of rows and deletions of buckets count as calls.

        Args:
            action: What to do; if it raises an error, the call fails with that error.
            after: How many calls come before that call.
            bit_by_bit: True if each compare-and-set reaches one replica first, and the others
                just before it is answered, which counts as another call.
        """
        self._interruption, self._calls_left = action, after
        self._bit_by_bit = bit_by_bit

    def calm(self) -> None:
        """Cancel the fault and the interruption, but not the late requests."""
        self.fault = self._interruption = None
        self.lasting = self._bit_by_bit = False

    def arrive(self) -> None:
        """Carry out the oldest late request, if there is one."""
        if self.late:
            self.late.pop(0)()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        def carry_out() -> bool:
            applied = super(FaultyStore, self).cas(partition, ops)
            if applied:
                self._watch(partition)
            return applied

        self._pass()
        if self.fault is None and self._bit_by_bit:
            return self._carry_out_bit_by_bit(partition, carry_out)
        return self._write(carry_out, f"compare-and-set on {partition}")

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._pass()
        drawn = self.replicas.drawn
        rows = super().read_rows(partition, which, serial=serial)
        self.torn += self.replicas.drawn - drawn
        return rows

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        write = super().write_row
        self._write(
            lambda: write(partition, row, values, timestamp=timestamp, ttl=ttl),
            f"write of {row} to {partition}",
        )

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        delete = super().delete_row
        self._write(
            lambda: delete(partition, row, timestamp=timestamp),
            f"deletion of {row} from {partition}",
        )

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        self._pass()
        super().delete_buckets(queue_id, buckets)

    def _carry_out_bit_by_bit(self, partition: Partition, carry_out: Callable[[], bool]) -> bool:
        """Reach one replica, let others act, and reach the other replicas before the answer."""
        with self.replicas.tearing():
            applied = carry_out()
        if applied:
            commit = self.replicas.pending(partition)
            self._await_answer()
            self.replicas.complete(partition, commit)
        return applied

    def _await_answer(self) -> None:
        """Let others act before the answer; the interleavings override this."""
        self._pass()

    def _pass(self) -> None:
        """Count a call, and interrupt it if its turn has come."""
        action = self._interruption
        if action is None:
            return
        if self._calls_left:
            self._calls_left -= 1
            return
        self._interruption = None
        self.troubles += 1
        action()

    def _write(self, write: Callable[[], _T], doing: str) -> _T:
        fault = self.fault
        if not self.lasting:
            self.fault = None
        if fault is None:
            return write()
        self.troubles += 1
        if fault is Fault.REQUEST_LATE:
            self.delayed += 1
            self.late.append(write)
        if fault is Fault.ANSWER_LOST:
            write()
        if fault is Fault.REACHED_ONE:
            with self.replicas.tearing():
                write()
        raise OutcomeUnknownError(f"{doing}: {fault.name.lower().replace('_', ' ')}")
