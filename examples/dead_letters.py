"""Reject messages that cannot be processed, look at them, and send them back.

    python examples/dead_letters.py [--contact-points host[:port],...]

A stream prices orders, and rejects orders in a currency that it does not know. The program then
looks at the dead letters, adds the currency, and redrives them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

from cassieq_spark import Client

QUEUE = "orders.to-price"
ORDERS = 100


def main(arguments: list[str]) -> int:
    """Price a hundred orders, ten of them in a currency that is unknown at first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    cluster = {
        "queue": QUEUE,
        "spark.cassandra.connection.host": given.contact_points,
        "keyspace": given.keyspace,
    }
    checkpoint = tempfile.mkdtemp(prefix="cassieq-orders-")
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        client.create_queue(QUEUE)
        client.put_many(
            QUEUE,
            (
                f"{number} {'XTS' if number % 10 == 0 else 'EUR'}"  # amount and currency
                for number in range(ORDERS)
            ),
        )
    known = ["EUR"]
    priced: set[str] = set()

    def price(batch: DataFrame, _: int) -> None:
        orders = batch.selectExpr(
            "receipt",
            "cast(value AS string) AS text",
            "split(cast(value AS string), ' ')[1] AS of",
        ).persist()
        fine = orders.where(orders["of"].isin(known))
        priced.update(row.text for row in fine.select("text").collect())
        unknown = orders.where(~orders["of"].isin(known))
        reject = unknown.selectExpr("receipt", "concat('unknown currency ', of) AS reason")
        # Messages that are not rejected are acked with their batch.
        out = reject.write.format("cassieq").options(**cluster).option("operation", "reject")
        out.mode("append").save()
        orders.unpersist()

    def run() -> None:
        orders = spark.readStream.format("cassieq").options(**cluster).option("group", "prices")
        query = (
            orders.option("includeReceipts", True)
            .load()
            .writeStream.foreachBatch(price)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    with Client(contact_points=given.contact_points, keyspace=given.keyspace) as client:
        found = client.dead_letters(QUEUE, limit=1000)
        for each in found.groups:
            print(f"{each.monotons.count} dead in group {each.origin_group}: {each.reason}")
        known.append("XTS")
        redriven = client.redrive(found).redriven
    run()
    count = sum(redriven.values())
    print(f"{found.monotons.count} dead, {count} redriven, {len(priced)} processed")
    return 0 if len(priced) == ORDERS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
