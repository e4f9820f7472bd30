"""Processor time by process: Spark's Java, Python, and the servers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

SPARK, PYTHON, CASSANDRA, KAFKA = "Spark", "Python", "Cassandra", "Kafka"
SERVERS = (CASSANDRA, KAFKA)


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

    def read(self) -> dict[str, float]:
        """Seconds that each has used since it began, in user code and in the kernel."""
        java = psutil.Process(self.spark)
        times = java.cpu_times()
        ended = times.children_user + times.children_system
        running = _seconds(java.children(recursive=True))
        return {
            SPARK: times.user + times.system,
            PYTHON: ended + running + sum(os.times()[:2]),
            CASSANDRA: _seconds(_with_all_below(self.cassandra)),
            KAFKA: _seconds(_with_all_below(self.kafka)),
        }


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """What was used between two readings.

    >>> since({"Python": 1.0}, {"Python": 3.5})
    {'Python': 2.5}
    """
    return {name: now[name] - before[name] for name in now}


def _with_all_below(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _seconds(processes: Iterable[psutil.Process]) -> float:
    """Of processes and of their children that have ended: so nothing is lost or counted twice."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
