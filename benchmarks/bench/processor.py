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
    """What one process has used.

    Attributes:
        name: What it counts as.
        parent: Process id of its parent.
        own: Seconds, in user code and in the kernel.
        ended: Seconds of its children that have ended, and of theirs.
    """

    name: str
    parent: int
    own: float
    ended: float


#: By process id.
Snapshot = Mapping[int, Times]


@dataclass(frozen=True, slots=True)
class Processor:
    """Processes that take part in a contest.

    Attributes:
        spark: Process id of Spark's Java. What it starts counts as Python, and nearly all of it
            is; a ``chmod`` for each file of a checkpoint is as well.
        cassandra: Of the node.
        kafka: Of the broker, or of its parent.
    """

    spark: int
    cassandra: int
    kafka: int

    def read(self) -> Snapshot:
        """What each process has used until now."""
        java = psutil.Process(self.spark)
        named = [
            (SPARK, [java]),
            (PYTHON, java.children(recursive=True)),
            (CASSANDRA, _with_all_below(self.cassandra)),
            (KAFKA, _with_all_below(self.kafka)),
        ]
        found = {pid: times for name, processes in named for pid, times in _times(name, processes)}
        # Of this one only its own: its children are the others.
        found[os.getpid()] = Times(PYTHON, 0, sum(os.times()[:2]), 0)
        return found


def since(before: Snapshot, now: Snapshot) -> dict[str, float]:
    """What was used between two readings.

    A process that has ended meanwhile counts with its parent, less what it had used before.

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
        # A parent that did not wait for its children knows nothing of them.
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
