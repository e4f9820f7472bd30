"""The schedule of faults, which follows from a seed, and the striker, which carries it out."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from random import Random

import psutil

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from trials.chaos.clocks import NodeClocks
from trials.environment import tell
from trials.processes import Program

#: No fault comes earlier.
CALM = timedelta(seconds=5)
_PROCESS_EVERY = timedelta(seconds=11)
#: Long enough for a node to be back, and known to the others, before the next one is struck.
_NODE_EVERY = timedelta(seconds=34)
_CLIENT_EVERY = timedelta(seconds=21)
_JITTER = 0.3
#: Around the lease of the queue, so that some leases are lost and some are not.
_PAUSE_SECONDS = (2.0, 22.0)
#: Around the time after which nodes consider another one dead.
_NODE_SECONDS = (2.0, 15.0)
#: A node reads the wall clock every ten seconds, for the age of messages between nodes.
_CLOCK_SECONDS = (12.0, 25.0)
#: How wrong a node's clock is.
WRONG_BY = timedelta(days=1)


class Victim(StrEnum):
    DRIVER = "driver"
    #: The Java process of a driver alone: its Python processes go on for a moment.
    JVM = "jvm"
    EXECUTOR = "executor"
    #: A Python process of an executor.
    WORKER = "worker"
    #: A Python process beside a driver, which leases messages and publishes writes.
    READER = "reader"
    REPAIR = "repair"
    NODE = "node"
    #: A program that is no Spark: it puts or receives by `Client`, or runs schedules.
    CLIENT = "client"


class How(StrEnum):
    #: By SIGKILL.
    KILLED = "killed"
    #: For a while, by SIGSTOP and SIGCONT.
    PAUSED = "paused"
    #: A node's wall clock is ahead for a while; then it is set right, and the node restarted.
    AHEAD = "ahead"
    #: The same, behind; it is restarted with the wrong clock, as its time would stand still else.
    BEHIND = "behind"


#: How far a node's clock is ahead.
WRONG_CLOCKS = {How.AHEAD: WRONG_BY, How.BEHIND: -WRONG_BY}
#: All kinds of faults.
_WAYS = [
    (victim, how)
    for victim in Victim
    for how in How
    if victim is Victim.NODE or how not in WRONG_CLOCKS
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the schedule.

    Attributes:
        at: When, from the beginning.
        victim: What is struck.
        which: Chooses one of several victims.
        how: How it is struck.
        lasts: How long it is paused, its clock is wrong, or a killed node stays away; 0 for other
            killed victims, which are started again at once.
    """

    at: timedelta
    victim: Victim
    which: int
    how: How
    lasts: timedelta = timedelta(0)

    @property
    def kind(self) -> str:
        return f"{self.victim}_{self.how}"

    def __str__(self) -> str:
        how = {
            How.KILLED: "killed" + (f", away for {_seconds(self.lasts)}" if self.lasts else ""),
            How.PAUSED: f"stopped for {_seconds(self.lasts)}",
            How.AHEAD: f"a day ahead for {_seconds(self.lasts)}",
            How.BEHIND: f"a day behind for {_seconds(self.lasts)}",
        }
        return f"{_seconds(self.at):>7} {self.victim} {how[self.how]}"


def plan(seed: int, length: timedelta) -> list[Fault]:
    """The faults of a run, in order; equally many of each kind, give or take one.

    Nodes are struck one after the other; processes independently of that, and clients of both.
    """
    chance = Random(seed)
    apart = {Victim.NODE, Victim.CLIENT}
    processes = [(victim, how) for victim, how in _WAYS if victim not in apart]
    nodes, clients = (
        [way for way in _WAYS if way[0] is each] for each in (Victim.NODE, Victim.CLIENT)
    )
    faults = _lane(chance, processes, length, _PROCESS_EVERY, _PAUSE_SECONDS)
    faults += _lane(chance, nodes, length, _NODE_EVERY, _NODE_SECONDS)
    faults += _lane(chance, clients, length, _CLIENT_EVERY, _PAUSE_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)


def kinds() -> list[str]:
    """The kinds of faults, as they are counted."""
    return [f"{victim}_{how}" for victim, how in _WAYS]


def _lane(
    chance: Random,
    ways: Sequence[tuple[Victim, How]],
    length: timedelta,
    every: timedelta,
    seconds: tuple[float, float],
) -> list[Fault]:
    faults: list[Fault] = []
    to_come: list[tuple[Victim, How]] = []
    at = CALM
    while at < length:
        if not to_come:
            to_come = list(ways)
            chance.shuffle(to_come)
        victim, how = to_come.pop()
        between = _CLOCK_SECONDS if how in WRONG_CLOCKS else seconds
        lasts = timedelta(seconds=round(chance.uniform(*between), 1))
        if how is How.KILLED and victim is not Victim.NODE:
            lasts = timedelta(0)
        faults.append(
            Fault(at=at, victim=victim, which=chance.randrange(10**6), how=how, lasts=lasts)
        )
        at += every * chance.uniform(1 - _JITTER, 1 + _JITTER)
    return faults


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"


#: A process with those that are struck with it; parents before their children.
Group = Sequence[psutil.Process]

_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "pyspark.daemon"
#: The modules of an executor's Python processes, and of a driver's for a stream. A driver has
#: others, which have planned something and are idle.
_WORKER, _STREAM = "pyspark.worker", ".python_streaming_"
#: How long to wait for a victim, such as a driver that is being started.
_PATIENCE = timedelta(seconds=30)
_LOOK_SECONDS = 0.2


class Striker:
    """Carries out each fault in a thread of its own; nodes are struck one after the other.

    Args:
        nodes: The nodes.
        clocks: Their clocks.
        applications: The applications on Spark.
        workers: Spark's Workers, whose children are the executors.
        repairs: The repair jobs.
        clients: The programs that use `Client`, and those that run schedules.
    """

    def __init__(
        self,
        nodes: Cluster,
        clocks: NodeClocks,
        applications: Sequence[Program],
        workers: Sequence[Program],
        repairs: Sequence[Program],
        clients: Sequence[Program] = (),
    ) -> None:
        self.struck: Counter[str] = Counter()
        self.troubles: list[str] = []
        self._nodes = nodes
        self._clocks = clocks
        self._find: dict[Victim, Callable[[], Iterable[Group]]] = {
            Victim.DRIVER: lambda: _groups(applications),
            Victim.JVM: lambda: ([java] for java in _javas(_groups(applications))),
            Victim.READER: lambda: _pythons(_javas(_groups(applications)), _STREAM),
            Victim.EXECUTOR: lambda: ([process] for process in _executors(workers)),
            Victim.WORKER: lambda: _pythons(_executors(workers), _WORKER),
            Victim.REPAIR: lambda: _groups(repairs),
            Victim.CLIENT: lambda: _groups(clients),
        }
        self._lock = threading.Lock()
        self._one_node = threading.Lock()
        self._threads: list[threading.Thread] = []

    def strike(self, fault: Fault) -> None:
        """Begin a fault, and return at once."""
        act = self._strike_node if fault.victim is Victim.NODE else self._strike_process
        thread = threading.Thread(target=act, args=(fault,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Return when all faults are over."""
        for thread in self._threads:
            thread.join()

    def _strike_node(self, fault: Fault) -> None:
        number = fault.which % len(self._nodes.contact_points)
        with self._one_node:
            try:
                self._count(fault, f"node {number}")
                if fault.how is How.KILLED:
                    self._nodes.kill(number)
                    _pass(fault.lasts)
                    self._nodes.start(number)
                elif fault.how is How.PAUSED:
                    self._nodes.pause(number)
                    _pass(fault.lasts)
                    self._nodes.resume(number)
                else:
                    self._set_wrong(number, WRONG_CLOCKS[fault.how], fault.lasts)
            except SetupError as error:
                self.troubles.append(f"{fault}: {error}")

    def _set_wrong(self, number: int, skew: timedelta, lasts: timedelta) -> None:
        """Set a node's clock wrong, then right, and restart the node: it uses the later time."""
        address = self._nodes.contact_points[number]
        self._clocks.set(address, skew)
        if skew < timedelta(0):
            self._restart(number)
        _pass(lasts)
        self._clocks.set(address, timedelta(0))
        self._restart(number)

    def _restart(self, number: int) -> None:
        self._nodes.kill(number)
        self._nodes.start(number)

    def _strike_process(self, fault: Fault) -> None:
        group = self._choose(fault)
        if group is None:
            tell(f"{fault}: there was none")
        elif fault.how is How.KILLED:
            _send(group, signal.SIGKILL)
            self._count(fault, _name(group))
        else:
            _send(group, signal.SIGSTOP)
            self._count(fault, _name(group))
            _pass(fault.lasts)
            _send(group, signal.SIGCONT)

    def _choose(self, fault: Fault) -> Group | None:
        for _ in range(round(_PATIENCE.total_seconds() / _LOOK_SECONDS)):
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if groups := sorted(self._find[fault.victim](), key=lambda group: group[0].pid):
                    return groups[fault.which % len(groups)]
            _pass(timedelta(seconds=_LOOK_SECONDS))
        return None

    def _count(self, fault: Fault, who: str) -> None:
        with self._lock:
            self.struck[fault.kind] += 1
        tell(f"{fault}: {who}")


def _groups(applications: Iterable[Program]) -> Iterator[Group]:
    """The processes of each running application, without its keeper."""
    for application in applications:
        if application.is_running:
            below = psutil.Process(application.pid).children(recursive=True)
            if below:
                yield below


def _javas(groups: Iterable[Group]) -> Iterator[psutil.Process]:
    return (process for group in groups for process in group if "java" in _words(process)[:1])


def _executors(workers: Iterable[Program]) -> Iterator[psutil.Process]:
    for worker in workers:
        for process in psutil.Process(worker.pid).children(recursive=True):
            if any(word.endswith(_EXECUTOR) for word in _words(process)):
                yield process


def _pythons(javas: Iterable[psutil.Process], module: str) -> Iterator[Group]:
    """The children of Java processes that run a module of PySpark, or those of a daemon."""
    for java in javas:
        for python in java.children():
            words = _words(python)
            if not any(module in word for word in words):
                continue
            if _DAEMON in words:
                yield from ([worker] for worker in python.children())
            else:
                yield [python]


def _words(process: psutil.Process) -> list[str]:
    """Its command, the program without its folder; empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        program, *arguments = process.cmdline() or [""]
        return [Path(program).name, *arguments]
    return []


def _send(group: Group, number: signal.Signals) -> None:
    for process in group:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _name(group: Group) -> str:
    first = group[0]
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"process {first.pid}{others}"


def _pass(span: timedelta) -> None:
    threading.Event().wait(span.total_seconds())
