"""One message of many kills each Python worker that processes it, with all defaults.

A driver restarts the query when it fails, until all messages are settled. Prints, as JSON, how
often messages were delivered and which are in the dead-letter queue; --figure draws it. The exit
code is 1 if anything is not as promised.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark.model import QueueId
from cassieq_spark.queues import create_queue
from trials.environment import Cassandra, Report, carry_out, cassandra, depth, fill, tell
from trials.spark import start_spark

#: The default of `cassieq queue create`.
MAX_DELIVERIES = 5
QUEUE, DEAD, GROUP = "orders", "orders.dead", "billing"


@dataclass
class Tally:
    """How often each message was delivered and processed, and how batches ended."""

    delivered: Counter[int] = field(default_factory=Counter)
    processed: Counter[int] = field(default_factory=Counter)
    batches: list[tuple[int, bool]] = field(default_factory=list)
    failures: int = 0
    wrong_counts: int = 0

    def deliver(self, batch: DataFrame) -> list[int]:
        """Count a batch before it is processed; returns the monotons of its messages."""
        rows = batch.select("monoton", "delivery_count").toArrow().to_pydict()
        self.delivered.update(rows["monoton"])
        told = zip(rows["monoton"], rows["delivery_count"], strict=True)
        self.wrong_counts += sum(self.delivered[monoton] != count for monoton, count in told)
        return list(rows["monoton"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--figure", type=Path, help="file of the figure (SVG)")
    given = parser.parse_args()
    poison = given.messages * 2 // 3

    def play(folder: Path) -> Report:
        with cassandra(nodes=1) as environment:
            queue = create_queue(
                environment.store, QUEUE, max_deliveries=MAX_DELIVERIES, dead_letter_queue=DEAD
            )
            fill(environment.store, queue, given.messages)
            spark = start_spark("cassieq poison", folder / "spark", log_level="OFF")
            began = time.monotonic()
            tally = consume(environment, spark, queue.queue_id, folder, poison)
            seconds = round(time.monotonic() - began, 1)
            dead = dead_letters(environment, spark)
            spark.stop()
        if given.figure:
            draw(given.figure, tally, poison)
        return summarise(tally, given.messages, poison, dead) | {"seconds": seconds}

    return carry_out("poison", play, fine=itemgetter("as_promised"))


def consume(
    environment: Cassandra, spark: SparkSession, queue_id: QueueId, folder: Path, poison: int
) -> Tally:
    """Process all messages; restart the query when it fails."""
    tally = Tally()
    options = {
        "queue": QUEUE,
        "group": GROUP,
        "spark.cassandra.connection.host": environment.hosts,
    }

    def process(batch: DataFrame, _: int) -> None:
        monotons = tally.deliver(batch)
        tally.batches.append((len(monotons), False))
        done = batch.select("monoton").mapInArrow(worker(poison), "monoton BIGINT")
        done.write.format("noop").mode("overwrite").save()
        tally.batches[-1] = (len(monotons), True)
        tally.processed.update(monotons)

    while depth(environment.store, queue_id) != 0:
        stream = spark.readStream.format("cassieq").options(**options).load()
        writer = stream.writeStream.foreachBatch(process).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        try:
            query.awaitTermination()
        except PySparkException:
            tally.failures += 1
        tell(
            f"{len(tally.processed):,} processed, the query failed {tally.failures} times, "
            f"{len(tally.batches):,} batches"
        )
    return tally


def worker(poison: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for executors; the poison kills its process."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if poison in batch.column(0).to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return run


def dead_letters(environment: Cassandra, spark: SparkSession) -> list[int]:
    """The dead letters, by their monotons in the queue that they come from."""
    reader = spark.read.format("cassieq").options(queue=DEAD, includeHeaders=True)
    reader = reader.option("spark.cassandra.connection.host", environment.hosts)
    rows = reader.load().collect()
    return [int(row.headers["cassieq.origin-monoton"]) for row in rows]


def summarise(tally: Tally, messages: int, poison: int, dead: list[int]) -> dict[str, object]:
    """The report."""
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
    """Draw the deliveries of messages, and the batches one after the other."""
    from trials.figures import BLUE, RED, styled  # noqa: PLC0415 (only here: it takes a second)

    histogram = Counter(n for number, n in tally.delivered.items() if number != poison)
    counts = [histogram[n] for n in range(1, MAX_DELIVERIES + 1)]
    sizes = [size for size, _ in tally.batches]
    colours = [BLUE if done else RED for _, done in tally.batches]
    with styled(path, (10, 3.6)) as figure:
        left, right = figure.subplots(1, 2)
        bars = left.bar(range(1, MAX_DELIVERIES + 1), counts, color=BLUE, label="good")
        left.bar_label(bars, [f"{count:,}" if count else "none" for count in counts], fontsize=8)
        left.bar([tally.delivered[poison]], [1], color=RED, label="the poison: 1 message")
        left.set(yscale="log", ylim=(0.7, max(counts) * 4), xlabel="times delivered")
        left.set(ylabel="messages", title=f"{sum(counts):,} good messages and a deadly one")
        left.legend(fontsize=8)
        right.scatter(range(1, len(sizes) + 1), sizes, c=colours, s=9)
        right.set(yscale="log", xlabel="batch", ylabel="messages in it")
        right.set(title="red: the worker was killed")


if __name__ == "__main__":
    sys.exit(main())
