"""Append messages to a Delta table exactly once, with deltalake on the driver.

    pip install 'deltalake==1.6.6'
    python examples/tables/delta_rs.py [--contact-points host[:port],...]

There is no Delta for Spark 4.3 yet. The package deltalake needs no Spark: it takes a micro-batch
as an Arrow table, and commits the table together with the batch id. The second attempt of a batch
finds its id in the table, and writes nothing. Here the first attempt of the second batch fails
after its commit. All rows of a batch pass through the driver: keep batches below some million.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

QUEUE = "visits.delta_rs"
MESSAGES = 1000


def main(arguments: list[str]) -> int:
    """Publish a thousand messages, append them with one failure, and count them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    folder = tempfile.mkdtemp(prefix="cassieq-delta-")
    table = f"{folder}/visits"
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue(QUEUE, schema="visit bigint not null")
        client.put_many(QUEUE, ({"visit": number} for number in range(MESSAGES)))
    accidents = [1]  # ids of batches that fail once, after their commit

    def store(batch: DataFrame, batch_id: int) -> None:
        # A query with a new checkpoint counts from 0 again, and has another id.
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        is_there = DeltaTable.is_deltatable(table)
        last = DeltaTable(table).transaction_version(query_id) if is_there else None
        if last is None or last < batch_id:
            named = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
            write_deltalake(table, batch.toArrow(), mode="append", commit_properties=named)
        else:
            print(f"batch {batch_id} is in the table")
        if batch_id in accidents:
            accidents.remove(batch_id)
            raise RuntimeError("an accident, after Delta's commit")

    def run() -> None:
        messages = spark.readStream.format("cassieq").option("queue", QUEUE)
        messages = messages.option("spark.cassandra.connection.host", given.contact_points)
        messages = messages.option("keyspace", given.keyspace).option("maxMessagesPerTrigger", 400)
        query = messages.option("group", "delta").load().writeStream.foreachBatch(store)
        query = query.option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    try:
        run()
    except StreamingQueryException:
        print("the query died; it is started again")
        run()
    rows = DeltaTable(table).to_pyarrow_table()
    distinct = len(rows["visit"].unique())
    print(f"{distinct:,} messages in, {rows.num_rows:,} rows out")
    return 0 if rows.num_rows == distinct == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
