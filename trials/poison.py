"""One message of many kills the Python worker that processes it, every time, with all defaults.

A driver restarts the query whenever it fails, until the group is owed nothing. Prints, as JSON,
how often each message was delivered and what ended up in the dead-letter queue; with --figure,
draws it. Exit code 1 if anything is not as promised.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition
from cassieq_spark.node import Cluster
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store

#: As `cassieq queue create` has it.
MAX_DELIVERIES = 5
QUEUE, DEAD, GROUP = "orders", "orders.dead", "billing"


@dataclass
class Tally:
    """What happened."""

    delivered: Counter[int] = field(default_factory=Counter)
    processed: Counter[int] = field(default_factory=Counter)
    batches: list[tuple[int, bool]] = field(default_factory=list)
    failures: int = 0
    wrong_counts: int = 0

    def deliver(self, batch: DataFrame) -> list[int]:
        """Count a batch before anything is done with it; the monotons of its messages."""
        rows = batch.select("monoton", "delivery_count").toArrow().to_pydict()
        self.delivered.update(rows["monoton"])
        told = zip(rows["monoton"], rows["delivery_count"], strict=True)
        self.wrong_counts += sum(self.delivered[monoton] != count for monoton, count in told)
        return list(rows["monoton"])


def main() -> int:
    """Run it on a Cassandra of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--figure", type=Path, help="where to draw it (SVG)")
    given = parser.parse_args()
    poison = given.messages * 2 // 3
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="cassieq-poison-"))
    try:
        with Cluster(nodes=1) as cluster:
            host = f"{cluster.contact_points[0]}:{cluster.port}"
            connection = ConnectionOptions(contact_points=(host,))
            apply_schema(connection)
            store = open_store(connection)
            queue = create_queue(
                store, QUEUE, max_deliveries=MAX_DELIVERIES, dead_letter_queue=DEAD
            )
            values = pa.array([str(number) for number in range(given.messages)])
            batch = pa.record_batch({"value": values})
            written = write_block(store, queue, [batch], SinkOptions(queue=QUEUE))
            publish(store, queue.queue_id, [written])
            began = time.monotonic()
            tally = consume(store, queue, host, folder, poison, console)
            seconds = time.monotonic() - began
            dead = dead_letters(store, host)
            store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = summarise(tally, given.messages, poison, dead) | {"seconds": round(seconds, 1)}
    print(json.dumps(report))
    if given.figure:
        draw(given.figure, tally, poison)
    return 0 if report["as_promised"] else 1


def consume(  # noqa: PLR0913, PLR0917 (a program)
    store: Store, queue: QueueDefinition, host: str, folder: Path, poison: int, console: Console
) -> Tally:
    """Process everything, restarting the query whenever it fails."""
    spark = start_spark(folder)
    tally = Tally()

    def process(batch: DataFrame, _: int) -> None:
        monotons = tally.deliver(batch)
        tally.batches.append((len(monotons), False))
        batch.select("monoton").mapInArrow(worker(poison), "monoton BIGINT").write.format(
            "noop"
        ).mode("overwrite").save()
        tally.batches[-1] = (len(monotons), True)
        tally.processed.update(monotons)

    while not is_done(store, queue):
        reader = spark.readStream.format("cassieq").option("queue", QUEUE).option("group", GROUP)
        query = (
            reader.option("spark.cassandra.connection.host", host)
            .load()
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            tally.failures += 1
        console.print(
            f"{len(tally.processed):,} processed, the query failed {tally.failures} times, "
            f"{len(tally.batches):,} batches"
        )
    spark.stop()
    return tally


def worker(poison: int) -> object:
    """What runs on executors; the poison kills the process that it runs in."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if poison in batch.column(0).to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return run


def is_done(store: Store, queue: QueueDefinition) -> bool:
    """Whether the group has been owed everything, and is owed nothing any more."""
    return any(each.depth == 0 for each in queue_stats(store, queue.queue_id).groups)


def dead_letters(store: Store, host: str) -> list[int]:
    """The monotons, in their queue of origin, of what is in the dead-letter queue."""
    spark = SparkSession.builder.getOrCreate()
    reader = spark.read.format("cassieq").option("queue", read_queue(store, DEAD).name)
    rows = (
        reader.option("spark.cassandra.connection.host", host)
        .option("includeHeaders", True)
        .load()
        .collect()
    )
    spark.stop()
    return [int(row.headers["cassieq.origin-monoton"]) for row in rows]


def start_spark(folder: Path) -> SparkSession:
    """Local Spark on two cores, as it comes."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("cassieq poison")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def summarise(tally: Tally, messages: int, poison: int, dead: list[int]) -> dict[str, object]:
    """What is promised, and whether it is so."""
    good = {number: count for number, count in tally.delivered.items() if number != poison}
    histogram = dict(sorted(Counter(good.values()).items()))
    report = {
        "messages": messages,
        "processed": len(tally.processed),
        "processed_twice": sum(count > 1 for count in tally.processed.values()),
        "dead_letters": dead,
        "poison": poison,
        "poison_deliveries": tally.delivered[poison],
        "good_messages_by_deliveries": histogram,
        "query_failures": tally.failures,
        "batches": len(tally.batches),
        "counts_other_than_told": tally.wrong_counts,
    }
    as_promised = (
        dead == [poison]
        and tally.delivered[poison] == MAX_DELIVERIES
        and set(tally.processed) == set(range(messages)) - {poison}
        and max(histogram) < MAX_DELIVERIES
        and not tally.wrong_counts
    )
    return report | {"as_promised": as_promised}


def draw(path: Path, tally: Tally, poison: int) -> None:
    """Two pictures: deliveries per message, and the batches one after the other."""
    import matplotlib as mpl  # noqa: PLC0415 (only here)

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "cassieq"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    histogram = Counter(n for number, n in tally.delivered.items() if number != poison)
    counts = [histogram[n] for n in range(1, MAX_DELIVERIES + 1)]
    bars = left.bar(range(1, MAX_DELIVERIES + 1), counts, color="#3b7dd8", label="good")
    left.bar_label(bars, [f"{count:,}" if count else "none" for count in counts], fontsize=8)
    left.bar([tally.delivered[poison]], [1], color="#d8483b", label="the poison: 1 message")
    left.set(yscale="log", ylim=(0.7, max(counts) * 4), xlabel="times delivered")
    left.set(ylabel="messages", title=f"{sum(counts):,} good messages and a deadly one")
    left.legend(fontsize=8)
    sizes = [size for size, _ in tally.batches]
    colours = ["#3b7dd8" if done else "#d8483b" for _, done in tally.batches]
    right.scatter(range(1, len(sizes) + 1), sizes, c=colours, s=9)
    right.set(yscale="log", xlabel="batch", ylabel="messages in it")
    right.set(title="red: the worker was killed")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
