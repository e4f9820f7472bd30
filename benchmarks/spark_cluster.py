"""Streams on a standalone Spark cluster, by the number of partitions.

Runs on three nodes with replication 3, a Master, and two Workers with two executors each. Of each
number of partitions, one stream writes keyed messages into a queue, then one reads them, in order
by key; several rounds in turns. Prints JSON lines: the LWTs for each partition that a micro-batch
has messages of, without those of a stream that finds nothing, and the messages per second without
the first batches, as times those of one partition in the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.lines import show
from benchmarks.lwts import count_lwts
from cassieq_spark.model import Order
from cassieq_spark.queues import create_queue
from cassieq_spark.store.cassandra.session import connect
from trials.chaos.spark_cluster import SparkCluster
from trials.environment import Cassandra, cassandra
from trials.spark import start_spark, stop_spark

PARTITIONS = (1, 4, 16)
#: They are not timed: the executors have just begun.
_FIRST = 2
_BATCHES, _KEYS, _REPLICAS = 10, 1000, 3
_EXECUTORS = {
    "spark.cores.max": "4",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=20_000, help="messages of a micro-batch")
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cassieq-spark-cluster-") as temporary:
        folder = Path(temporary)
        source = _messages(folder / "messages", given.batch)
        with (
            cassandra(nodes=_REPLICAS, heap_mb=512) as environment,
            SparkCluster(folder) as cluster,
        ):
            spark = start_spark(
                "benchmark",
                folder / "spark",
                master=cluster.url,
                log_level="ERROR",
                settings=_EXECUTORS,
                log=folder / "spark.log",
            )
            try:
                measure(spark, environment, source, folder, given)
            finally:
                stop_spark(spark)


def measure(
    spark: SparkSession,
    environment: Cassandra,
    source: Path,
    folder: Path,
    given: argparse.Namespace,
) -> None:
    """Run all rounds, and show the medians; the first round warms up."""
    driver, cql = connect(environment.connection)
    lwts: dict[tuple[str, int], list[float]] = defaultdict(list)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    nothing = 0.0
    for number in range(given.rounds + 1):
        for partitions in PARTITIONS:
            name = f"q{partitions}-{number}"
            order = Order.KEY if partitions > 1 else Order.NONE
            create_queue(environment.store, name, partitions=partitions, order=order)
            place = {"spark.cassandra.connection.host": environment.hosts, "queue": name}
            files = spark.readStream.schema("key binary, value binary")
            writing = files.option("maxFilesPerTrigger", "4").parquet(str(source))
            messages = spark.readStream.format("cassieq").options(
                **place, startingPosition="earliest", maxMessagesPerTrigger=str(given.batch)
            )
            for what, frame, form in (
                ("nothing", messages.option("group", "idle").load(), "noop"),
                ("write", writing, "cassieq"),
                ("read", messages.option("group", "busy").load(), "noop"),
            ):
                before = count_lwts(cql, replicas=_REPLICAS)
                checkpoint = str(folder / f"{what}-{name}")
                batches = _run(frame, form, place if form == "cassieq" else {}, checkpoint)
                spent = count_lwts(cql, replicas=_REPLICAS) - before
                if what == "nothing":
                    nothing = spent
                elif number:
                    touched = len(batches) * partitions
                    if what == "read":
                        spent -= nothing
                        touched = sum(each.partitions for each in batches)
                    lwts[what, partitions].append(spent / touched)
                    rates[what, partitions].append(_rate(batches))
    driver.shutdown()
    for (what, partitions), found in rates.items():
        ratios = [one / base for one, base in zip(found, rates[what, 1], strict=True)]
        show(
            what=what,
            partitions=partitions,
            lwts_a_partition=round(statistics.median(lwts[what, partitions]), 2),
            messages_a_second=round(statistics.median(found)),
            ratio=round(statistics.median(ratios), 2),
        )


def _messages(folder: Path, batch: int) -> Path:
    """Files of messages, four for each micro-batch."""
    folder.mkdir()
    count = batch // 4
    for number in range(4 * _BATCHES):
        keys = [b"%d" % (at % _KEYS) for at in range(count)]
        rows = {"key": pa.array(keys, pa.binary()), "value": pa.array([b"x" * 200] * count)}
        pq.write_table(pa.table(rows), folder / f"{number:04}.parquet")
    return folder


class Batch(NamedTuple):
    """A micro-batch, and of how many partitions of its source it has messages."""

    rows: int
    milliseconds: int
    partitions: int


def _run(frame: DataFrame, form: str, options: dict[str, str], checkpoint: str) -> list[Batch]:
    """Run a stream to its end; returns its batches with messages."""
    writer = frame.writeStream.format(form).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        Batch(each.numInputRows, each.durationMs["triggerExecution"], _partitions_of(each))
        for each in query.recentProgress
        if each.numInputRows
    ]


def _partitions_of(progress: StreamingQueryProgress) -> int:
    (source,) = progress.sources
    return len(json.loads(source.endOffset).get("partitions", ["the only one"]))


def _rate(batches: Sequence[Batch]) -> float:
    """Messages per second, without the first batches."""
    if len(batches) < _BATCHES:
        raise AssertionError(f"there were {len(batches)} batches, expected {_BATCHES}")
    timed = batches[_FIRST:]
    return sum(each.rows for each in timed) * 1000 / sum(each.milliseconds for each in timed)


if __name__ == "__main__":
    main()
