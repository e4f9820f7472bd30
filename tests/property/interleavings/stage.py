"""A store on which several act at once, each of them stopped before every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cassieq_spark.store.protocol import Op, Partition, Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.tearing import TearingStore
from tests.property.interleavings.schedule import Actor, Play
from tests.support.faults import FakeClock
from tests.support.turns import SteppedStore, Turns

#: Actors that are no process: time, the network, and who kills.
EVENTS = frozenset("tnk")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What befalls a process.

    Attributes:
        process: Which.
        fault: Strikes one of its compare-and-sets; None: it is killed, at any turn.
        at: Which one: 0 for the first.
    """

    process: str
    fault: Fault | None = None
    at: int = 0

    def __str__(self) -> str:
        return f"{self.process} {self.fault.name if self.fault else 'KILLED'} {self.at}"

    @classmethod
    def read(cls, text: str) -> Trouble | None:
        """What `str` of it says; None if it is empty."""
        if not text:
            return None
        process, fault, at = text.split()
        return cls(process, None if fault == "KILLED" else Fault[fault], int(at))


class ActingStore(SteppedStore, FaultyStore):
    """Stops before each call of its process, and before the answer to a compare-and-set.

    What is late arrives without.
    """

    def __init__(
        self,
        store: Store,
        watch: Callable[[Partition], None],
        stop: Callable[[], None],
        replicas: TearingStore | None,
    ) -> None:
        if replicas is None:
            store = replicas = store if isinstance(store, TearingStore) else TearingStore(store)
        super().__init__(store, stop)
        self._watch = watch
        self.replicas = replicas
        self._bit_by_bit = True
        self._fates: list[Fault | None] = []

    def strike(self, fault: Fault, at: int) -> None:
        """Let a compare-and-set be struck, the next one counting as 0."""
        self._fates = [None] * at + [fault]

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        if self._fates:
            self.fault = self._fates.pop(0)
        return super().cas(partition, ops)

    def _await_answer(self) -> None:
        self._stop()


class Process:
    """An actor that calls a store: a turn is one call, and what it does up to the next one."""

    def __init__(self) -> None:
        self._turns: Turns | None = None
        self._stores: list[ActingStore] = []

    def store_around(
        self,
        store: Store,
        watch: Callable[[Partition], None] = lambda _: None,
        replicas: TearingStore | None = None,
    ) -> ActingStore:
        """A store of its own; undisturbed until it begins. See `FaultyStore`."""
        self._stores.append(ActingStore(store, watch, self._stop, replicas))
        return self._stores[-1]

    def begin(self, deed: Callable[[], None], trouble: Trouble | None) -> None:
        """Be ready to take turns in order to do this."""
        if trouble is not None and trouble.fault is not None:
            for store in self._stores:
                store.strike(trouble.fault, trouble.at)
        self._turns = Turns(deed)

    @property
    def is_able(self) -> bool:
        return self._turns is not None and not self._turns.ended

    @property
    def late(self) -> list[ActingStore]:
        """Its stores that have requests under way."""
        return [store for store in self._stores if store.late]

    def step(self) -> None:
        assert self._turns is not None
        self._turns.step()

    def crash(self) -> None:
        """Never go on."""
        if self._turns is not None:
            self._turns.crash()

    def hear_of_others(self) -> None:
        """Others have acted since its last turn."""
        for store in self._stores:
            store.troubles += 1

    def _stop(self) -> None:
        if self._turns is not None:
            self._turns.stop_here()


class Time:
    """An actor that lets time pass."""

    def __init__(self, clock: FakeClock, pauses: Sequence[timedelta]) -> None:
        self._clock = clock
        self._left = list(pauses)

    @property
    def is_able(self) -> bool:
        return bool(self._left)

    def step(self) -> None:
        self._clock.advance(self._left.pop(0))


class Network:
    """An actor that carries out requests which are late."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def is_able(self) -> bool:
        return bool(self._process.late)

    def step(self) -> None:
        self._process.late[0].arrive()


class Killer:
    """An actor that kills a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def is_able(self) -> bool:
        return self._process.is_able

    def step(self) -> None:
        self._process.crash()


class Stage:
    """Those who act in one run.

    Args:
        clock: The time of all.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._processes: dict[str, Process] = {}
        self._deeds: dict[str, Callable[[], None]] = {}
        self._pauses: Sequence[timedelta] = ()
        self._last = ""

    @property
    def names(self) -> Sequence[str]:
        """Those of the processes that are to do something."""
        return tuple(self._deeds)

    def process(self, name: str) -> Process:
        """Somebody who will act, named by a letter."""
        return self._processes.setdefault(name, Process())

    def let(self, name: str, deed: Callable[[], None]) -> None:
        """Say what a process is to do."""
        self._deeds[name] = deed

    def let_pass(self, *pauses: timedelta) -> None:
        """Let time pass meanwhile, at any turn."""
        self._pauses = pauses

    def play(self, trouble: Trouble | None, check: Callable[[], None]) -> Play:
        """Let everybody be ready to take turns: also time ``t``, network ``n`` and killer ``k``.

        Args:
            trouble: What befalls one of them.
            check: Called after each turn.
        """
        actors: dict[str, Actor] = {name: self.process(name) for name in self._deeds}
        if self._pauses:
            actors["t"] = Time(self._clock, self._pauses)
        if trouble is not None:
            victim = self.process(trouble.process)
            actors |= {"k": Killer(victim)} if trouble.fault is None else {"n": Network(victim)}
        for name, deed in self._deeds.items():
            hit = trouble if trouble is not None and trouble.process == name else None
            self.process(name).begin(deed, hit)
        return Play(actors, before=self._hand_over, after=check)

    def close(self) -> None:
        """No thread is left behind."""
        for process in self._processes.values():
            process.crash()

    def _hand_over(self, name: str) -> None:
        if name != self._last and name in self._processes:
            self._processes[name].hear_of_others()
        self._last = name
