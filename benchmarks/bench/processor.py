"""Processor time by process: Spark's Java, what it forks, Python, and the servers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

SPARK, FORKS, PYTHON = "Spark's Java", "what Spark forks", "Python"
CASSANDRA, KAFKA = "Cassandra", "Kafka"
SERVERS = (CASSANDRA, KAFKA)


@dataclass(frozen=True, slots=True)
class Processor:
    """Processes that take part in a contest.

    Attributes:
        spark: Process id of Spark's Java. Python processes below it are Python; all others are
            short, such as ``chmod``, and are counted once they have ended.
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
        workers = [each for each in java.children(recursive=True) if _is_python(each)]
        return {
            SPARK: times.user + times.system,
            FORKS: times.children_user + times.children_system,
            PYTHON: _seconds(workers) + sum(os.times()[:2]),
            CASSANDRA: _seconds(_with_all_below(self.cassandra)),
            KAFKA: _seconds(_with_all_below(self.kafka)),
        }


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """What was used between two readings.

    >>> since({"Python": 1.0}, {"Python": 3.5})
    {'Python': 2.5}
    """
    return {name: now[name] - before[name] for name in now}


def _is_python(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "python" in process.name()
    return False


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
