"""What many tasks cost at one partition and at sixteen, and what fewer tasks save.

On one node and a local Spark. A micro-batch of keyed messages comes from a file for each task. It
is written as it is, after `coalesce`, or after `repartition` by key, and then read in one
micro-batch: in as many tasks, or, in order by key, in one task for each partition. Several rounds
in turns. Prints JSON lines: the chunks that were written and the LWTs, and the time of both
micro-batches, as times those of few tasks and one partition in the same round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cassandra.cluster import Session
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lines import show
from benchmarks.lwts import count_lwts
from cassieq_spark.model import Order
from cassieq_spark.queues import create_queue
from cassieq_spark.store.cassandra.session import connect
from trials.environment import Cassandra, cassandra, tell
from trials.spark import start_spark, stop_spark

_MESSAGES, _KEYS, _SIZE = 100_000, 1000, 200
_FEW, _MANY, _PARTITIONS = 16, 1000, 16
_CHUNKS = (
    "SELECT count FROM system_views.local_write_latency "
    "WHERE keyspace_name = %s AND table_name = 'chunk'"
)
#: Each file is a task.
_SPARK = {"spark.sql.files.openCostInBytes": "128m", "spark.sql.files.maxPartitionBytes": "128m"}


@dataclass(frozen=True, slots=True)
class Case:
    """A way to write a micro-batch, and to read it.

    Attributes:
        tasks: Tasks that have its messages.
        partitions: Of the queue.
        order: Of the queue.
        way: What is done before the write, with as many tasks as partitions.
    """

    tasks: int
    partitions: int
    order: Order = Order.NONE
    way: str = "as it is"

    def arranged(self, frame: DataFrame) -> DataFrame:
        """The messages as they are written."""
        if self.way == "coalesce":
            return frame.coalesce(_FEW)
        if self.way == "repartition by key":
            return frame.repartition(_FEW, "key")
        return frame


CASES = (
    Case(_FEW, 1),
    Case(_FEW, _PARTITIONS, Order.KEY),
    Case(_MANY, 1),
    Case(_MANY, _PARTITIONS),
    Case(_MANY, _PARTITIONS, Order.KEY),
    Case(_MANY, _PARTITIONS, Order.KEY, "coalesce"),
    Case(_MANY, _PARTITIONS, Order.KEY, "repartition by key"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with (
        tempfile.TemporaryDirectory(prefix="cassieq-many-tasks-") as temporary,
        cassandra(nodes=1, heap_mb=1024) as environment,
    ):
        folder = Path(temporary)
        spark = start_spark("benchmark", folder / "spark", log_level="ERROR", settings=_SPARK)
        try:
            measure(spark, environment, folder, rounds)
        finally:
            stop_spark(spark)


def measure(spark: SparkSession, environment: Cassandra, folder: Path, rounds: int) -> None:
    """Run all rounds, and show the medians; the first round warms up."""
    driver, cql = connect(environment.connection)
    found: dict[Case, list[Taken]] = defaultdict(list)
    for tasks in (_FEW, _MANY):
        _write_files(folder / f"{tasks}", tasks)
    for number in range(rounds + 1):
        for at, case in enumerate(CASES):
            taken = _run(spark, environment, cql, folder, case, f"q{number}-{at}")
            tell(f"{case} {taken}")
            if number:
                found[case].append(taken)
    driver.shutdown()
    for case, takes in found.items():
        pairs = list(zip(takes, found[CASES[0]], strict=True))
        show(
            tasks=case.tasks,
            partitions=case.partitions,
            order=case.order.value,
            way=case.way,
            chunks=round(statistics.median(each.chunks for each in takes)),
            lwts=round(statistics.median(each.lwts for each in takes)),
            readers=statistics.median(each.readers for each in takes),
            write=round(statistics.median(each.write / base.write for each, base in pairs), 2),
            read=round(statistics.median(each.read / base.read for each, base in pairs), 2),
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """What a case took: chunks, LWTs of the write, tasks that read, seconds of both."""

    chunks: float
    lwts: float
    readers: int
    write: float
    read: float


def _run(
    spark: SparkSession,
    environment: Cassandra,
    cql: Session,
    folder: Path,
    case: Case,
    name: str,
) -> Taken:
    create_queue(environment.store, name, partitions=case.partitions, order=case.order)
    place = {"spark.cassandra.connection.host": environment.hosts, "queue": name}
    files = spark.readStream.schema("key binary, value binary")
    frame = case.arranged(files.parquet(str(folder / f"{case.tasks}")))
    before, lwts = _chunks(cql, environment), count_lwts(cql)
    write, _ = _batch(frame, "cassieq", place, folder / f"write-{name}")
    chunks, lwts = _chunks(cql, environment) - before, count_lwts(cql) - lwts
    messages = spark.readStream.format("cassieq").options(
        **place,
        group="readers",
        startingPosition="earliest",
        maxMessagesPerTrigger=str(_PARTITIONS * _MESSAGES),
        messagesPerTask=str(_MESSAGES // case.tasks),
    )
    read, readers = _batch(messages.load(), "noop", {}, folder / f"read-{name}")
    return Taken(chunks, lwts, readers, write, read)


def _batch(
    frame: DataFrame, form: str, options: dict[str, str], checkpoint: Path
) -> tuple[float, int]:
    """Run a stream of one micro-batch; returns its seconds, and its tasks."""
    writer = frame.writeStream.format(form).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    (batch,) = [each for each in query.recentProgress if each.numInputRows]
    if batch.numInputRows != _MESSAGES:
        raise AssertionError(f"{batch.numInputRows} messages, expected {_MESSAGES}")
    tracker = frame.sparkSession.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return batch.durationMs["triggerExecution"] / 1000, sum(
        each.numCompletedTasks for each in stages if each
    )


def _chunks(cql: Session, environment: Cassandra) -> float:
    """How many chunks the node has written since it started."""
    return sum(count for (count,) in cql.execute(_CHUNKS, (environment.connection.keyspace,)))


def _write_files(folder: Path, tasks: int) -> None:
    """Messages in a file for each task; each file has all keys, or as many as it has messages."""
    folder.mkdir()
    count = _MESSAGES // tasks
    for number in range(tasks):
        keys = [b"%d" % ((number * count + at) % _KEYS) for at in range(count)]
        rows = {"key": pa.array(keys, pa.binary()), "value": pa.array([b"x" * _SIZE] * count)}
        pq.write_table(pa.table(rows), folder / f"{number:04}.parquet")


if __name__ == "__main__":
    main()
