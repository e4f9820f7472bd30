"""Trouble on demand: a clock that is told, a store that loses, delays and is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from itertools import count
from uuid import UUID

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import QueueId, to_millis
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Rows, Slice, Store
from cassieq_spark.testing.stores import WrappedStore

_UUID_EPOCH_OFFSET = 0x01B21DD213814000
_numbers = count(1)


class FakeClock:
    """Stands still until it is told to go on; whole milliseconds."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


def make_block_id(begun_at: datetime) -> UUID:
    """A block id of its own, begun at this instant."""
    ticks = to_millis(begun_at) * 10_000 + _UUID_EPOCH_OFFSET
    middle, high = (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
    return UUID(fields=(ticks & 0xFFFFFFFF, middle, high | 0x1000, 0x80, 0, next(_numbers)))


class Fault(Enum):
    """What becomes of the next compare-and-set; its caller hears that the outcome is unknown."""

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    REQUEST_LATE = auto()


class TroubledStore(WrappedStore):
    """Does to its caller what networks and other processes do, one trouble at a time.

    Args:
        store: The store that does the work.
        watch: Called with the partition after every compare-and-set that was applied.

    Attributes:
        fault: Strikes the next compare-and-set.
        late: Requests under way; `arrive` carries out the first.
        troubles: How many faults and interruptions have struck.
        delayed: How many requests were late.
    """

    def __init__(self, store: Store, watch: Callable[[Partition], None] = lambda _: None) -> None:
        super().__init__(store)
        self._watch = watch
        self._interruption: Callable[[], None] | None = None
        self._calls_left = 0
        self.fault: Fault | None = None
        self.late: list[tuple[Partition, Sequence[Op]]] = []
        self.troubles = 0
        self.delayed = 0

    def interrupt(self, action: Callable[[], None], *, after: int) -> None:
        """Let ``action`` happen just before the next call but ``after``."""
        self._interruption, self._calls_left = action, after

    def calm(self) -> None:
        """Disarm everything; what is under way stays so."""
        self.fault = self._interruption = None

    def arrive(self) -> None:
        """Carry out the oldest late request, if there is one."""
        if self.late:
            self._carry_out(*self.late.pop(0))

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        self._pass()
        fault, self.fault = self.fault, None
        if fault is not None:
            self.troubles += 1
        if fault is Fault.REQUEST_LATE:
            self.delayed += 1
            self.late.append((partition, ops))
        if fault in (Fault.REQUEST_LATE, Fault.REQUEST_LOST):
            raise OutcomeUnknownError(f"{fault} on {partition}")
        applied = self._carry_out(partition, ops)
        if fault is Fault.ANSWER_LOST:
            raise OutcomeUnknownError(f"{fault} on {partition}")
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._pass()
        return super().read_rows(partition, which, serial=serial)

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

    def _carry_out(self, partition: Partition, ops: Sequence[Op]) -> bool:
        applied = super().cas(partition, ops)
        if applied:
            self._watch(partition)
        return applied
