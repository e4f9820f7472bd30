"""Costs of work by coefficients: processor time, bytes written, bytes on the network.

A cost is a sum of coefficients, each times the number of its things. So one function computes
the seconds of a run, from its messages, and the cores of a plan, from its messages per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from cassieq_spark.consumer.idle_backoff import RECHECK
from cassieq_spark.planning.coefficients import Coefficients

PUBLISH, READ = "publish", "read"
#: How many files compaction merges into one (``T4``, Cassandra's default for this strategy).
_FANOUT = 4
#: The cost of a serial read, in LWTs: it ends after the first of an LWT's three steps.
_SERIAL_READ = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Publishing or reading, in total or per second.

    Attributes:
        message: Messages.
        raw: Bytes of the messages before compression.
        stored: Bytes of the messages as stored.
        task: Tasks of Spark.
        block: Blocks that are written or read: a task of the writer makes one per queue partition.
        batch: Micro-batches.
        lwt: LWTs: a micro-batch has one per queue partition. A serial read counts as a third.
    """

    message: float = 0.0
    raw: float = 0.0
    stored: float = 0.0
    task: float = 0.0
    block: float = 0.0
    batch: float = 0.0
    lwt: float = 0.0

    def __mul__(self, times: float) -> Work:
        return Work(**{each.name: getattr(self, each.name) * times for each in fields(self)})


def ordered_reads(interval: float) -> float:
    """The serial reads of a queue partition per micro-batch, as LWTs, in a queue with an order.

    A stream that keeps an order reads the state serially before it leases, unless it knows the
    state.

    >>> [round(ordered_reads(interval), 2) for interval in (0.5, 1.5, 10)]
    [0.11, 0.33, 0.33]

    Args:
        interval: Seconds between micro-batches.
    """
    return _SERIAL_READ * min(1.0, interval / RECHECK.total_seconds())


def quorum(replicas: int) -> int:
    """The number of replicas that a read asks.

    >>> [quorum(replicas) for replicas in (1, 2, 3, 5)]
    [1, 2, 2, 3]
    """
    return replicas // 2 + 1


def further_replicas(operation: str, replicas: int) -> int:
    """The other replicas that take part: all in a publish, those of a quorum in a read."""
    return (replicas if operation == PUBLISH else quorum(replicas)) - 1


def cassandra_seconds(operation: str, work: Work, replicas: int, known: Coefficients) -> float:
    """Processor time of all nodes, without memtables and compaction."""
    further = further_replicas(operation, replicas)
    first = _in_cassandra(f"{operation}.cassandra", work, known)
    return first + further * _in_cassandra(f"{operation}.replica", work, known)


def client_seconds(operation: str, work: Work, known: Coefficients) -> float:
    """Processor time of Spark, in Java and in Python."""
    prefix = f"{operation}.client"
    return (
        known[f"{prefix}.message"] * work.message
        + known[f"{prefix}.byte"] * work.raw
        + known[f"{prefix}.task"] * work.task
        + known[f"{prefix}.batch"] * work.batch
    )


def wire_bytes(operation: str, work: Work, known: Coefficients) -> float:
    """Bytes between clients and Cassandra."""
    return _in_cassandra(f"wire.{operation}", work, known)


def node_bytes(operation: str, work: Work, replicas: int, known: Coefficients) -> float:
    """Bytes between nodes; each is sent by one and received by another."""
    further = further_replicas(operation, replicas)
    return further * _in_cassandra(f"wire.{operation}.nodes", work, known)


def log_bytes(work: Work, known: Coefficients) -> float:
    """Bytes that a publish adds to the commit log of each replica."""
    return known["log.message"] * work.message + known["log.byte"] * work.stored


def disk_bytes(work: Work, known: Coefficients) -> float:
    """Bytes of files on each replica, of messages that are not deleted, after compaction."""
    return known["disk.message"] * work.message + known["disk.byte"] * work.stored


def rewrites(files: float, known: Coefficients) -> float:
    """How often compaction writes each byte: once per level of four times as many files.

    Args:
        files: The size on disk, in new files.
        known: The coefficients.
    """
    return known["disk.level"] * math.log(files, _FANOUT) if files > 1 else 0.0


def storing_seconds(written: float, times: float, known: Coefficients) -> float:
    """Processor time of writing memtables to disk, and of merging files.

    Args:
        written: Bytes of files written from memtables, of all replicas.
        times: See `rewrites`.
        known: The coefficients.
    """
    return written * (known["flush.byte"] + times * known["compaction.byte"])


def repair_seconds(part: str, deleted: Work, scanned: Work, known: Coefficients) -> float:
    """Processor time of the repair: one replica's (``cassandra``), or its own (``client``)."""
    return sum(
        known[f"repair.{part}.{step}.message"] * work.message
        + known[f"repair.{part}.{step}.byte"] * work.stored
        for step, work in (("delete", deleted), ("scan", scanned))
    )


def _in_cassandra(prefix: str, work: Work, known: Coefficients) -> float:
    return (
        known[f"{prefix}.message"] * work.message
        + known[f"{prefix}.byte"] * work.stored
        + known[f"{prefix}.block"] * work.block
        + known[f"{prefix}.batch"] * work.lwt
    )
