"""Append messages to a Delta table exactly once; a batch that is repeated is skipped by Delta.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
      --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
      --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
      examples/tables/delta.py [host[:port]] [keyspace]

Delta remembers the last version of each ``txnAppId``. Here that is the batch id, and the first
attempt of the second batch fails after Delta has committed it.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

MESSAGES = 1000


def main(host: str = "127.0.0.1", keyspace: str = "cassieq") -> int:
    """Publish a thousand messages, append them with one failure, and count them."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    folder = tempfile.mkdtemp(prefix="cassieq-delta-")
    with Client(contact_points=host, keyspace=keyspace) as client:
        client.create_queue("visits.delta", schema="visit bigint not null")
        client.put_many("visits.delta", ({"visit": number} for number in range(MESSAGES)))
    accidents = [1]

    def store(batch: DataFrame, batch_id: int) -> None:
        # A query with a new checkpoint counts from 0 again, and has another id.
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        named = batch.write.format("delta").option("txnAppId", query_id)
        named.option("txnVersion", batch_id).mode("append").save(f"{folder}/visits")
        if batch_id in accidents:
            accidents.remove(batch_id)
            raise RuntimeError("an accident, after Delta's commit")

    def run() -> None:
        messages = spark.readStream.format("cassieq").option("queue", "visits.delta")
        messages = messages.option("spark.cassandra.connection.host", host)
        messages = messages.option("keyspace", keyspace).option("maxMessagesPerTrigger", 400)
        query = messages.option("group", "delta").load().writeStream.foreachBatch(store)
        query = query.option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    try:
        run()
    except StreamingQueryException:
        print("the query died; it is started again")
        run()
    rows = spark.read.format("delta").load(f"{folder}/visits")
    total, distinct = rows.count(), rows.distinct().count()
    print(f"{distinct:,} messages in, {total:,} rows out")
    return 0 if total == distinct == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
