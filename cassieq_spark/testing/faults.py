"""A store around a store that does to its caller what networks and other processes do."""

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

_T = TypeVar("_T")


class Fault(Enum):
    """What becomes of a write of rows; its caller hears that the outcome is unknown."""

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    REQUEST_LATE = auto()


class FaultyStore(WrappedStore):
    """Loses and delays writes of rows that it was armed to, and is interrupted; one at a time.

    Args:
        store: The store that does the work.
        watch: Called with the partition after every compare-and-set that was applied.

    Attributes:
        fault: Strikes the next compare-and-set, or write or deletion of a row.
        lasting: Whether it strikes all of them until `calm`, not only the next one.
        late: Requests under way, oldest first; `arrive` carries out the first.
        troubles: How many faults and interruptions have struck.
        delayed: How many requests were late.
    """

    def __init__(self, store: Store, watch: Callable[[Partition], None] = lambda _: None) -> None:
        super().__init__(store)
        self._watch = watch
        self._interruption: Callable[[], None] | None = None
        self._calls_left = 0
        self.fault: Fault | None = None
        self.lasting = False
        self.late: list[Callable[[], object]] = []
        self.troubles = 0
        self.delayed = 0

    def interrupt(self, action: Callable[[], None], *, after: int) -> None:
        """Let ``action`` happen just before the next call but ``after``; it may raise.

        What counts are compare-and-sets, reads of rows and deletions of buckets.
        """
        self._interruption, self._calls_left = action, after

    def calm(self) -> None:
        """Disarm everything; what is under way stays so."""
        self.fault = self._interruption = None
        self.lasting = False

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
        return self._write(carry_out, f"compare-and-set on {partition}")

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._pass()
        return super().read_rows(partition, which, serial=serial)

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

    def _pass(self) -> None:
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
        raise OutcomeUnknownError(f"{doing}: {fault.name.lower().replace('_', ' ')}")
