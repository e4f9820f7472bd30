"""Write messages into Parquet files exactly once, by the batch id.

    python examples/exactly_once_parquet.py [--contact-points host[:port],...]

Each batch goes into a folder named after the query's id and its own. If the batch is delivered
again, it overwrites the folder. Here the first attempt of the second batch fails after it has
written its files. The query is started again, gets the same rows under the same id, and replaces
the files. In the end
each message is there once. (A table format with transactions has its own means for that.)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

QUEUE = "measurements"
MESSAGES = 1000


def main(arguments: list[str]) -> int:
    """Publish a thousand messages, consume them with one failure, and count them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    folder = Path(tempfile.mkdtemp(prefix="cassieq-parquet-"))
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue(QUEUE)
        client.put_many(QUEUE, (str(number) for number in range(MESSAGES)))
    accidents = [1]  # ids of batches that fail once, after they are written

    def store(batch: DataFrame, batch_id: int) -> None:
        rows = batch.selectExpr("monoton", "cast(value AS string) AS value")
        # With a new checkpoint, batches count from 0 again; the query has another id then.
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        where = folder / "rows" / f"query={query_id}" / f"batch_id={batch_id}"
        rows.write.mode("overwrite").parquet(str(where))
        if batch_id in accidents:
            accidents.remove(batch_id)
            raise RuntimeError("an accident, between the files and Spark's commit log")

    def run() -> None:
        messages = (
            spark.readStream.format("cassieq")
            .option("queue", QUEUE)
            .option("group", "files")
            .option("maxMessagesPerTrigger", 400)
            .option("spark.cassandra.connection.host", given.contact_points)
            .option("keyspace", given.keyspace)
            .load()
        )
        query = (
            messages.writeStream.foreachBatch(store)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    try:
        run()
    except StreamingQueryException:
        print("the query died; it is started again")
        run()
    rows = spark.read.parquet(str(folder / "rows"))
    total, distinct = rows.count(), rows.select("value").distinct().count()
    print(f"{distinct:,} messages in, {total:,} rows out")
    return 0 if total == distinct == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
