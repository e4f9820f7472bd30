"""Processor time by process: Spark's Java, Python, and the servers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

SPARK, PYTHON, CASSANDRA, KAFKA = "Spark", "Python", "Cassandra", "Kafka"
SERVERS = (CASSANDRA, KAFKA)


@dataclass(frozen=True, slots=True)
class Times:
    """The processor time of one process.

    Attributes:
        name: The kind of process that it counts as.
        parent: Process id of its parent.
        own: Its seconds, in user code and in the kernel.
        ended: Seconds of its descendants that have ended.
    """

    name: str
    parent: int
    own: float
    ended: float


#: By process id.
Snapshot = Mapping[int, Times]


@dataclass(frozen=True, slots=True)
class Processor:
    """The process ids of Spark's Java, the Cassandra node, and the broker or its parent.

    All that Spark's Java starts counts as Python, even a ``chmod`` for each file of a checkpoint.
    """

    spark: int
    cassandra: int
    kafka: int

    def read(self) -> Snapshot:
        """The processor time of each process until now."""
        java = psutil.Process(self.spark)
        named = [
            (SPARK, [java]),
            (PYTHON, java.children(recursive=True)),
            (CASSANDRA, _with_all_below(self.cassandra)),
            (KAFKA, _with_all_below(self.kafka)),
        ]
        found = {pid: times for name, processes in named for pid, times in _times(name, processes)}
        # Of this process only its own time, as the others are its children.
        found[os.getpid()] = Times(PYTHON, 0, sum(os.times()[:2]), 0)
        return found


def since(before: Snapshot, now: Snapshot) -> dict[str, float]:
    """The processor time between two readings.

    The time of a process that has ended meanwhile counts with its parent.

    >>> one = {1: Times(SPARK, 0, 5.0, 1.0), 2: Times(PYTHON, 1, 3.0, 0.0)}
    >>> since(one, {1: Times(SPARK, 0, 5.5, 4.25)})
    {'Spark': 0.5, 'Python': 0.25}
    """
    gone: defaultdict[int, float] = defaultdict(float)
    for pid, times in before.items():
        if pid not in now:
            gone[times.parent] += times.own + times.ended
    used: defaultdict[str, float] = defaultdict(float)
    for pid, times in now.items():
        earlier = before.get(pid, Times(times.name, times.parent, 0, 0))
        used[times.name] += times.own - earlier.own
        # A parent that did not wait for its children does not have their time.
        ended = max(0.0, times.ended - earlier.ended - gone[pid])
        used[PYTHON if times.name == SPARK else times.name] += ended
    return dict(used)


def _with_all_below(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _times(name: str, processes: Iterable[psutil.Process]) -> Iterator[tuple[int, Times]]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            ended = used.children_user + used.children_system
            yield process.pid, Times(name, process.ppid(), used.user + used.system, ended)
