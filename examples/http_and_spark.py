"""Put orders by HTTP, price them with Spark, and get the invoices by HTTP.

    python examples/http_and_spark.py [--contact-points host[:port],...]

The program starts a gateway of its own. In production the gateway runs elsewhere, and programs in
any language use it. For Spark, the queue ``orders`` of the account ``shop`` is the queue
``shop:orders``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

from cassieq_spark.http.client import HttpQueue

ACCOUNT = f"shop-{secrets.token_hex(4)}"
ORDERS = 100


def main(arguments: list[str]) -> int:
    """Put orders by HTTP, price them with Spark, get invoices by HTTP."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contact-points", default="127.0.0.1")
    parser.add_argument("--keyspace", default="cassieq")
    given = parser.parse_args(arguments)
    reach = ["--contact-points", given.contact_points, "--keyspace", given.keyspace]
    secret = secrets.token_urlsafe(48)
    command = ["gateway", "account", ACCOUNT, "--secret", "env:GATEWAY_SECRET", "--json", *reach]
    made = json.loads(_cassieq(command, secret))
    with (
        _gateway(reach, secret) as url,
        HttpQueue(url, ACCOUNT, "orders", key=made["keys"]["primary"]) as orders,
        HttpQueue(url, ACCOUNT, "invoices", key=made["keys"]["primary"]) as invoices,
    ):
        orders.create()
        invoices.create()
        for number in range(ORDERS):
            orders.put(json.dumps({"order": number, "pieces": number % 7}))
        _price(given.contact_points, given.keyspace)
        paid = 0
        while batch := invoices.receive(max=30, wait=timedelta(seconds=1)):
            paid += sum(json.loads(invoice.value)["cents"] for invoice in batch)
            invoices.ack(*batch)
        owed = sum(group.depth for group in orders.groups())
    expected = sum(995 * (number % 7) for number in range(ORDERS))
    print(f"{ORDERS} orders put by HTTP, {paid / 100:.2f} invoiced by Spark, {owed} left")
    return 0 if (paid, owed) == (expected, 0) else 1


def _price(contact_points: str, keyspace: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    reach = {"spark.cassandra.connection.host": contact_points, "keyspace": keyspace}

    def price(batch: DataFrame, _: int) -> None:
        order = "from_json(cast(value AS string), 'order INT, pieces INT')"
        priced = batch.selectExpr(f"{order} AS o").selectExpr(
            "to_json(named_struct('order', o.order, 'cents', o.pieces * 995)) AS value"
        )
        written = priced.write.format("cassieq").option("queue", f"{ACCOUNT}:invoices")
        written.option("exactlyOnce", "batch").options(**reach).mode("append").save()

    query = (
        spark.readStream.format("cassieq")
        .option("queue", f"{ACCOUNT}:orders")
        .option("group", "default")
        .options(**reach)
        .load()
        .writeStream.foreachBatch(price)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="cassieq-orders-"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _cassieq(words: list[str], secret: str) -> str:
    done = subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-m", "cassieq_spark.cli", *words],
        env=os.environ | {"GATEWAY_SECRET": secret},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@contextmanager
def _gateway(reach: list[str], secret: str) -> Iterator[str]:
    words = ["gateway", "serve", "--secret", "env:GATEWAY_SECRET", "--listen", "127.0.0.1:0"]
    gateway = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-m", "cassieq_spark.cli", *words, "--no-access-log", *reach],
        env=os.environ | {"GATEWAY_SECRET": secret},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = gateway.stdout.readline() if gateway.stdout else ""
        yield told.removeprefix("Gateway at ").partition(";")[0]
    finally:
        gateway.terminate()
        gateway.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
