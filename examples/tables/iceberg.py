"""Upsert messages into an Iceberg table by key, with PyIceberg on the driver.

    pip install 'pyiceberg[sql-sqlite]==0.12.0'
    python examples/tables/iceberg.py [--contact-points host[:port],...]

Iceberg's own Spark runtime does not run with the Spark releases that the queue needs. PyIceberg
takes a micro-batch as an Arrow table, and commits it as one snapshot. A message that comes again
replaces its row. All rows of a batch pass through the driver: keep batches below some million.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

MESSAGES = 1000
SCHEMA = pa.schema([pa.field("visit", pa.int64(), nullable=False)])


def main(arguments: list[str]) -> int:
    """Publish a thousand messages, upsert them with one failure, and count them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    folder = tempfile.mkdtemp(prefix="cassieq-iceberg-")
    # Yours would be a REST catalog, Glue, Hive or Unity: pyiceberg.catalog.load_catalog("name").
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    catalog.create_table("shop.visits", schema=SCHEMA)
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue("visits.iceberg", schema="visit bigint not null")
        client.put_many("visits.iceberg", ({"visit": number} for number in range(MESSAGES)))
    accidents = [1]

    def store(batch: DataFrame, batch_id: int) -> None:
        rows = batch.toArrow().cast(SCHEMA)
        catalog.load_table("shop.visits").upsert(rows, join_cols=["visit"])
        if batch_id in accidents:
            accidents.remove(batch_id)
            raise RuntimeError("an accident, after Iceberg's commit")

    def run() -> None:
        messages = spark.readStream.format("cassieq").option("queue", "visits.iceberg")
        messages = messages.option("spark.cassandra.connection.host", given.contact_points)
        messages = messages.option("keyspace", given.keyspace).option("maxMessagesPerTrigger", 400)
        query = messages.option("group", "iceberg").load().writeStream.foreachBatch(store)
        query = query.option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    try:
        run()
    except StreamingQueryException:
        print("the query died; it is started again")
        run()
    rows = catalog.load_table("shop.visits").scan().to_arrow()
    distinct = len(rows["visit"].unique())
    print(f"{distinct:,} messages in, {rows.num_rows:,} rows out")
    return 0 if rows.num_rows == distinct == MESSAGES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
