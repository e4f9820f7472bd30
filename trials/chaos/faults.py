"""Carries out a schedule: finds who is to be struck, strikes, and lets go again."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from trials.chaos.clocks import NodeClocks
from trials.chaos.schedule import WRONG_CLOCKS, Fault, How, Victim
from trials.chaos.supervision import Application
from trials.processes import Child

#: A process, and what goes down or stands still with it; parents before their children.
Group = Sequence[psutil.Process]

_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "pyspark.daemon"
#: What an executor runs, and what a driver runs for a stream of a data source. A driver keeps
#: others that have planned something, and do nothing any more.
_WORKER, _STREAM = "pyspark.worker", ".python_streaming_"
#: How long is waited for somebody to strike, such as a driver that is just being started.
_PATIENCE = timedelta(seconds=30)
_LOOK_SECONDS = 0.2


class Striker:
    """Strikes, each time from a thread of its own; nodes one after the other.

    Args:
        nodes: The nodes.
        clocks: Their clocks.
        applications: The applications on Spark.
        workers: Spark's Workers, whose children are the executors.
        repairs: The repair runs.
        tell: Told what happens.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (all that can be struck)
        self,
        nodes: Cluster,
        clocks: NodeClocks,
        applications: Sequence[Application],
        workers: Sequence[Child],
        repairs: Sequence[Application],
        tell: Callable[[str], None],
    ) -> None:
        self.struck: Counter[str] = Counter()
        self.troubles: list[str] = []
        self._nodes = nodes
        self._clocks = clocks
        self._find: dict[Victim, Callable[[], Iterable[Group]]] = {
            Victim.DRIVER: lambda: _groups(applications),
            Victim.READER: lambda: _pythons(_javas(_groups(applications)), _STREAM),
            Victim.EXECUTOR: lambda: ([process] for process in _executors(workers)),
            Victim.WORKER: lambda: _pythons(_executors(workers), _WORKER),
            Victim.REPAIR: lambda: _groups(repairs),
        }
        self._tell = tell
        self._lock = threading.Lock()
        self._one_node = threading.Lock()
        self._threads: list[threading.Thread] = []

    def strike(self, fault: Fault) -> None:
        """Begin; returns at once."""
        act = self._strike_node if fault.victim is Victim.NODE else self._strike_process
        thread = threading.Thread(target=act, args=(fault,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Return when everybody who was stopped goes on, and all nodes are back."""
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
        """Set a node's clock wrong, then right; until it starts anew, it goes by the later one."""
        address = self._nodes.contact_points[number]
        self._clocks.set(address, skew)
        _pass(lasts)
        self._clocks.set(address, timedelta(0))
        self._nodes.kill(number)
        self._nodes.start(number)

    def _strike_process(self, fault: Fault) -> None:
        group = self._choose(fault)
        if group is None:
            self._tell(f"{fault}: there was none")
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
            with suppress(psutil.NoSuchProcess):  # it has ended while we looked
                if groups := sorted(self._find[fault.victim](), key=lambda group: group[0].pid):
                    return groups[fault.which % len(groups)]
            _pass(timedelta(seconds=_LOOK_SECONDS))
        return None

    def _count(self, fault: Fault, who: str) -> None:
        with self._lock:
            self.struck[fault.kind] += 1
        self._tell(f"{fault}: {who}")


def _groups(applications: Iterable[Application]) -> Iterator[Group]:
    """All processes of each application that runs, without its keeper."""
    for application in applications:
        if application.child is not None and application.is_running:
            below = psutil.Process(application.child.pid).children(recursive=True)
            if below:
                yield below


def _javas(groups: Iterable[Group]) -> Iterator[psutil.Process]:
    return (process for group in groups for process in group if "java" in _words(process)[:1])


def _executors(workers: Iterable[Child]) -> Iterator[psutil.Process]:
    for worker in workers:
        for process in psutil.Process(worker.pid).children(recursive=True):
            if any(word.endswith(_EXECUTOR) for word in _words(process)):
                yield process


def _pythons(javas: Iterable[psutil.Process], module: str) -> Iterator[Group]:
    """The processes in which these run a module of PySpark: a daemon's children, or theirs."""
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
    """Its command, first without the folder; empty if it has ended, reaped or not."""
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
