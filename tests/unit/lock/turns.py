"""Processes that take the lock, confirm it a few times and leave it, call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.lock.bakery import Bakery, HeldLock
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey, Store, Value
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import WrappedStore
from tests.support.faults import FakeClock
from tests.support.turns import SteppedStore, Turns

NAME = "repair"
TTL = timedelta(seconds=8)
PATIENCE = timedelta(hours=1)


class AheadStore(WrappedStore):
    """A node whose clock may be a day ahead: Cassandra keeps the rows that it writes for so long.

    Attributes:
        is_ahead: Whether the clock is ahead now.
    """

    def __init__(self, store: Store, *, is_ahead: bool = False) -> None:
        super().__init__(store)
        self.is_ahead = is_ahead

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        kept = ttl + timedelta(days=self.is_ahead)
        super().write_row(partition, row, values, timestamp=timestamp, ttl=kept)


class Process:
    """Takes the lock, confirms it a few times and leaves it: stops before and after each call.

    Attributes:
        held: The lock it has taken; None before, and after it has left.
        confirmed: For each confirmation: whether another had entered before it began, and what
            it said.
        epochs: Of the locks it has taken.
        lag: How long its clock has stood still.
    """

    def __init__(self, world: World, *, rounds: int = 1) -> None:
        self.held: HeldLock | None = None
        self.confirmed: list[tuple[bool, bool]] = []
        self.epochs: list[int] = []
        self.lag = timedelta(0)
        self._world = world
        self._rounds = rounds
        self._store = world.store_of_a_process()
        self._turns = Turns(self._run)

    @property
    def ended(self) -> bool:
        return self._turns.ended

    @property
    def steps(self) -> int:
        return self._turns.steps

    def step(self) -> None:
        """Go on to the next stop."""
        self._turns.step()

    def crash(self) -> None:
        """Never go on."""
        self.held = None
        self._turns.crash()

    def lose(self, fault: Fault) -> None:
        """Let its next write be struck."""
        self._store.fault = fault

    def _seconds(self) -> float:
        return (self._world.clock() - self.lag).timestamp()

    def _run(self) -> None:
        store = SteppedStore(self._store, self._turns.stop_here, after=True)
        bakery = self._world.bakery(store, lambda _: self._turns.stop_here(), clock=self._seconds)
        for _ in range(self._rounds):
            self._take_and_leave(bakery)

    def _take_and_leave(self, bakery: Bakery) -> None:
        self.held = held = bakery.enter(PATIENCE)
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
        self.node = AheadStore(self.store)
        self._stores: list[FaultyStore] = []

    def store_of_a_process(self) -> FaultyStore:
        self._stores.append(FaultyStore(self.node))
        return self._stores[-1]

    def arrive(self) -> None:
        """Carry out what is late, also that of processes which are no more."""
        for store in self._stores:
            while store.late:
                store.arrive()

    def bakery(
        self,
        store: Store,
        sleep: Callable[[float], object] = lambda _: None,
        clock: Callable[[], float] | None = None,
    ) -> Bakery:
        own = clock or (lambda: self.clock().timestamp())
        return Bakery(store, NAME, owner="test", ttl=TTL, clock=own, sleep=sleep)

    def newcomer(self) -> HeldLock | None:
        """Somebody who looks once, undisturbed."""
        return self.bakery(self.store).enter(timedelta(0))

    def patient_newcomer(self) -> HeldLock | None:
        """Somebody who waits a little longer than a TTL, undisturbed."""
        pause = timedelta(milliseconds=500)
        bakery = self.bakery(self.store, lambda _: self.clock.advance(pause))
        return bakery.enter(TTL + 2 * pause)

    @property
    def epoch(self) -> int:
        entry = self.bakery(self.store).read_entry()
        return entry.epoch if entry else 0
