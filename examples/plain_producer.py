"""Put messages with plain Python, and count them with a Spark stream.

    python examples/plain_producer.py [--contact-points host[:port],...]

Putting messages needs neither Spark nor Java. Many threads give their messages to a producer. It
collects them for a moment and publishes them by one lightweight transaction.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client, NewMessage

QUEUE = "page_views"
VISITS = 100


def main(arguments: list[str]) -> int:
    """Put messages from four threads, then count them with Spark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue(QUEUE)
        with (
            client.producer(QUEUE, linger=timedelta(milliseconds=5)) as producer,
            ThreadPoolExecutor(4) as threads,
        ):
            puts = threads.map(
                lambda number: producer.put(
                    NewMessage(f"visit {number}", key=f"page {number % 3}")
                ),
                range(VISITS),
            )
            monotons = {put.result() for put in puts}
    counts = _count(given.contact_points, given.keyspace)
    for page, count in sorted(counts.items()):
        print(page, count)
    print(f"{len(monotons)} put, {counts.total()} counted")
    return 0 if len(monotons) == counts.total() == VISITS else 1


def _count(contact_points: str, keyspace: str) -> Counter[str]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    counts: Counter[str] = Counter()

    def add(batch: DataFrame, _: int) -> None:
        pages = batch.selectExpr("cast(key AS string) AS page").groupBy("page").count()
        counts.update({row.page: row["count"] for row in pages.collect()})

    visits = spark.readStream.format("cassieq").option("queue", QUEUE).option("group", "pages")
    query = (
        visits.option("spark.cassandra.connection.host", contact_points)
        .option("keyspace", keyspace)
        .load()
        .writeStream.foreachBatch(add)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="cassieq-visits-"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
