"""Processes that go on call by call, when they are told: threads around a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TypeVar

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.lock.bakery import Bakery, Held
from cassieq_spark.store.memory import MemoryStore
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
from tests.support.faults import FakeClock

NAME = "sweep"
TTL = timedelta(seconds=8)
PATIENCE = timedelta(hours=1)
_HANGS_AFTER_SECONDS = 60

_T = TypeVar("_T")


class Crash(BaseException):
    """The process ends: nothing may catch it."""


class Fault(Enum):
    """What becomes of the next write; its caller hears that the outcome is unknown."""

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    REQUEST_LATE = auto()


class Process:
    """Takes the lock, confirms it a few times and leaves it: stops before and after each call.

    Attributes:
        held: The lock it has taken; None before, and after it has left.
        confirmed: For each confirmation: whether another had entered before it began, and what
            it said.
        epochs: Of the locks it has taken.
        fault: Strikes its next write.
        lag: How long its clock has stood still.
    """

    def __init__(self, world: World, *, rounds: int = 1) -> None:
        self.held: Held | None = None
        self.confirmed: list[tuple[bool, bool]] = []
        self.epochs: list[int] = []
        self.fault: Fault | None = None
        self.lag = timedelta(0)
        self.ended = False
        self.steps = 0
        self._error: BaseException | None = None
        self._crashes = False
        self._world = world
        self._rounds = rounds
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._bakery = world.bakery(
            SteppedStore(world, self),
            lambda _: self.stop_here(),
            clock=self._seconds,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._await_stop()

    def step(self) -> None:
        """Go on to the next stop."""
        if self.ended:
            return
        self.steps += 1
        self._go.release()
        self._await_stop()

    def crash(self) -> None:
        """Never go on."""
        self._crashes = True
        self.held = None
        self.step()

    def stop_here(self) -> None:
        """Wait until told to go on."""
        self._stopped.release()
        self._go.acquire()
        if self._crashes:
            raise Crash

    def _seconds(self) -> float:
        return (self._world.clock() - self.lag).timestamp()

    def _await_stop(self) -> None:
        assert self._stopped.acquire(timeout=_HANGS_AFTER_SECONDS)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.stop_here()
            for _ in range(self._rounds):
                self._take_and_leave()
        except Crash:
            self.held = None
        except BaseException as error:  # noqa: BLE001 (raised again by whoever steps)
            self._error = error
        self.ended = True
        self._stopped.release()

    def _take_and_leave(self) -> None:
        self.held = held = self._bakery.enter(PATIENCE)
        if held is None:
            return
        self.epochs.append(held.epoch)
        for _ in range(3):
            overtaken = self._world.epoch != held.epoch
            self.confirmed.append((overtaken, held.confirm()))
            try:
                held.renew()
            except OutcomeUnknownError:
                continue
        # From here on it claims nothing any more.
        self.held = None
        held.leave()


class World:
    """One store, one time, and who uses them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.late: list[Callable[[], object]] = []

    def bakery(
        self,
        store: Store,
        sleep: Callable[[float], object] = lambda _: None,
        clock: Callable[[], float] | None = None,
    ) -> Bakery:
        own = clock or (lambda: self.clock().timestamp())
        return Bakery(store, NAME, owner="test", ttl=TTL, clock=own, sleep=sleep)

    def newcomer(self) -> Held | None:
        """Somebody who looks once, undisturbed."""
        return self.bakery(self.store).enter(timedelta(0))

    @property
    def epoch(self) -> int:
        entry = self.bakery(self.store).read_entry()
        return entry.epoch if entry else 0


class SteppedStore(WrappedStore):
    """Stops its process before and after each call, and loses what it is told to lose."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world.store)
        self._world = world
        self._process = process

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        return self._write(lambda: self._store.cas(partition, ops))

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._process.stop_here()
        rows = super().read_rows(partition, which, serial=serial)
        self._process.stop_here()
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
        self._write(
            lambda: self._store.write_row(partition, row, values, timestamp=timestamp, ttl=ttl)
        )

    def delete_row(self, partition: Partition, row: RowKey, *, timestamp: int) -> None:
        self._write(lambda: self._store.delete_row(partition, row, timestamp=timestamp))

    def _write(self, write: Callable[[], _T]) -> _T:
        self._process.stop_here()
        fault, self._process.fault = self._process.fault, None
        if fault is Fault.REQUEST_LATE:
            self._world.late.append(write)
        if fault in (Fault.REQUEST_LATE, Fault.REQUEST_LOST):
            raise OutcomeUnknownError(str(fault))
        result = write()
        self._process.stop_here()
        if fault is Fault.ANSWER_LOST:
            raise OutcomeUnknownError(str(fault))
        return result
