"""Share the messages of a queue between three queries of one group.

    python examples/competing_consumers.py [--contact-points host[:port],...]

The three streaming queries run in one Spark here; they could run in three programs on three
clusters. Each has a checkpoint location of its own. No two of them hold a message at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

QUEUE = "parcels.to-weigh"
MESSAGES = 1000


def main(arguments: list[str]) -> int:
    """Publish a thousand messages, and let three queries process them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    checkpoints = Path(tempfile.mkdtemp(prefix="cassieq-competing-"))
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue(QUEUE)
        client.put_many(QUEUE, (str(number) for number in range(MESSAGES)))
    seen: Counter[int] = Counter()
    shares: Counter[str] = Counter()

    def weigh(name: str) -> Callable[[DataFrame, int], None]:
        def process(batch: DataFrame, _: int) -> None:
            monotons = [row.monoton for row in batch.select("monoton").collect()]
            seen.update(monotons)
            shares[name] += len(monotons)

        return process

    queries = [
        spark.readStream.format("cassieq")
        .option("queue", QUEUE)
        .option("group", "scales")
        .option("maxMessagesPerTrigger", 100)
        .option("spark.cassandra.connection.host", given.contact_points)
        .option("keyspace", given.keyspace)
        .load()
        .writeStream.foreachBatch(weigh(name))
        .option("checkpointLocation", str(checkpoints / name))
        .trigger(availableNow=True)
        .start()
        for name in ("left", "middle", "right")
    ]
    for query in queries:
        query.awaitTermination()
    print("shares:", dict(shares))
    print(f"{len(seen):,} messages, each processed {'once' if set(seen.values()) == {1} else '?'}")
    return 0 if len(seen) == seen.total() == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
