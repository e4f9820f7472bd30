"""A batch of ten messages after a rest, with and without the daemon that imports before it forks.

Spark ends a Python worker that was idle for a minute, so a query whose triggers are further apart
starts new ones for every batch. Two queries of one Spark wait: one reads a queue, one also writes
to another queue. After each rest, both get ten messages, one with Spark's own daemon and the other
with `cassieq_spark.spark.daemon`; the next time the other way round. Then new sessions, with each
daemon in turns, run their first task. Prints JSON lines: seconds of the batch by Spark's progress,
processor seconds by kind of process, and the MiB of a daemon and of a worker: those that it alone
has, and with its part of the memory that processes share (pss).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.lines import show
from cassieq_spark import Client
from cassieq_spark.queues import create_queue
from cassieq_spark.spark import daemon
from trials.environment import cassandra
from trials.spark import start_spark, stop_spark

_SETTING = "spark.python.daemon.module"
#: By the name that the lines have.
_DAEMONS = {"Spark's": "pyspark.daemon", "warm": daemon.NAME}
_MESSAGES = 10
_LOOK_SECONDS = 0.02
_LONGEST_SECONDS = 120.0
_MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rest", type=float, default=120.0, help="seconds; 75 end all workers")
    parser.add_argument("--first", type=int, default=3, help="rounds of a session's first task")
    given = parser.parse_args()
    with (
        cassandra(nodes=1) as environment,
        tempfile.TemporaryDirectory() as folder,
        Client(contact_points=environment.hosts) as client,
    ):
        for name in ("read", "relay", "relayed"):
            create_queue(environment.store, name)
        scratch = Path(folder)
        found: defaultdict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
        spark = start_spark("rest", scratch / "spark")
        queries = start_queries(spark, environment.hosts, scratch)
        for daemon in _DAEMONS:
            for query in queries:
                batch(spark, client, queries[query], query, daemon)
        for number in range(given.rounds * 2):
            time.sleep(given.rest)
            daemons = list(_DAEMONS) if number % 2 else list(_DAEMONS)[::-1]
            for query, daemon in zip(queries, daemons, strict=True):
                figures = batch(spark, client, queries[query], query, daemon)
                show(what=query, daemon=daemon, **figures)
                found[query, daemon].append(figures)
        for each in queries.values():
            each.stop()
        for number in range(given.first * 2):
            spark.stop()
            daemon = list(_DAEMONS)[number % 2]
            spark = start_spark("first", scratch / "spark", settings={_SETTING: _DAEMONS[daemon]})
            figures = first_task(spark, environment.hosts, daemon)
            show(what="first", daemon=daemon, **figures)
            found["first", daemon].append(figures)
        stop_spark(spark)
    for (what, daemon), rounds in found.items():
        medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        show(what=what, daemon=daemon, rounds=len(rounds), **medians)


def start_queries(spark: SparkSession, host: str, scratch: Path) -> dict[str, StreamingQuery]:
    """The query that only reads, and the one that also writes."""
    queries = {}
    for name, form in (("read", "noop"), ("relay", "cassieq")):
        messages = spark.readStream.format("cassieq").option("queue", name).option("group", "g")
        messages = messages.option("spark.cassandra.connection.host", host)
        writer = messages.load().select("value").writeStream.format(form)
        writer = writer.option("queue", "relayed").option("spark.cassandra.connection.host", host)
        writer = writer.option("checkpointLocation", str(scratch / name))
        queries[name] = writer.start()
    return queries


def batch(
    spark: SparkSession, client: Client, query: StreamingQuery, queue: str, daemon: str
) -> dict[str, float]:
    """Put ten messages and wait for the batch that has them."""
    # Spark looks for the setting before each task, so one application can have both daemons.
    spark.sparkContext._jsc.sc().conf().set(_SETTING, _DAEMONS[daemon])  # noqa: SLF001
    java = java_of(spark)
    seen, before = batches(query), used(java, daemon)
    client.put_many(queue, [b"x" * 100] * _MESSAGES)
    until = time.monotonic() + _LONGEST_SECONDS
    while len(now := batches(query)) == len(seen):
        if time.monotonic() > until or not query.isActive:
            raise TimeoutError(f"no batch of {queue}: {query.exception()}")
        time.sleep(_LOOK_SECONDS)
    return {"seconds": now[-1], **since(before, used(java, daemon)), **memory(java, daemon)}


def batches(query: StreamingQuery) -> list[float]:
    """The seconds of each batch with messages."""
    found = [each for each in query.recentProgress if each.numInputRows]
    return [each.durationMs["triggerExecution"] / 1000 for each in found]


def first_task(spark: SparkSession, host: str, daemon: str) -> dict[str, float]:
    """Read a queue in a session without any Python process."""
    java = java_of(spark)
    before, began = used(java, daemon), time.monotonic()
    messages = spark.read.format("cassieq").option("queue", "read")
    rows = messages.option("spark.cassandra.connection.host", host).load().collect()
    seconds = time.monotonic() - began
    if not rows:
        raise AssertionError("the queue should have messages")
    return {
        "seconds": round(seconds, 2),
        **since(before, used(java, daemon)),
        **memory(java, daemon),
    }


def java_of(spark: SparkSession) -> psutil.Process:
    """The process of Spark's driver."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return psutil.Process(int(jvm.ProcessHandle.current().pid()))


def used(java: psutil.Process, daemon: str) -> Mapping[tuple[str, int], float]:
    """Processor seconds until now of each process, by kind and process id."""
    return {
        (kind, process.pid): sum(process.cpu_times()[:2])
        for kind, process in processes(java, daemon)
    }


def since(
    before: Mapping[tuple[str, int], float], now: Mapping[tuple[str, int], float]
) -> dict[str, float]:
    """Processor seconds between two readings, by kind, and of all Python."""
    took = dict.fromkeys(("java", "tasks", "beside the driver"), 0.0)
    for key, seconds in now.items():
        if key[0] in took:
            took[key[0]] += seconds - before.get(key, 0.0)
    python = took["tasks"] + took["beside the driver"]
    return {name: round(each, 2) for name, each in {**took, "python": python}.items()}


def processes(java: psutil.Process, daemon: str) -> Iterator[tuple[str, psutil.Process]]:
    """Spark's Java, and what it has started: tasks of this daemon, of others, and the rest."""
    yield "java", java
    for process in java.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = process.cmdline()
            if command[-1:] != ["pyspark.worker"]:
                yield "beside the driver", process
            elif command[-2] == _DAEMONS[daemon]:
                yield "tasks", process


def memory(java: psutil.Process, daemon: str) -> dict[str, float]:
    """MiB of the daemon and of each of its workers, on average."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for kind, process in processes(java, daemon):
        if kind == "tasks":
            name = "daemon" if process.ppid() == java.pid else "worker"
            full = process.memory_full_info()
            found[f"{name} pss"].append(full.pss / _MIB)
            found[f"{name} own"].append(full.uss / _MIB)
    return {name: round(statistics.mean(each)) for name, each in found.items()}


if __name__ == "__main__":
    main()
