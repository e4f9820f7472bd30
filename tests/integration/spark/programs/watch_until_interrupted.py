"""Watch a query in the terminal that is standard input, until Ctrl-C; then see what it does."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
from datetime import timedelta

from pyspark.sql import SparkSession

from cassieq_spark import watch

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def main(options: dict[str, str], checkpoint: str) -> None:
    # From now on, Ctrl-C there is a signal for all processes of this session, Spark's JVM, too.
    fcntl.ioctl(sys.stdin, termios.TIOCSCTTY, 0)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    stream = spark.readStream.format("cassieq").options(**options).option("group", "g").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.queryName("endless").start()
    query.processAllAvailable()

    watch(query, every=timedelta(milliseconds=200))

    more = spark.range(7).selectExpr("cast(id AS string) AS value")
    more.write.format("cassieq").options(**options).mode("append").save()
    query.processAllAvailable()
    found = {"active": query.isActive, "batch": query.lastProgress.batchId}
    sys.stdout.write(f"{json.dumps(found)}\n")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
