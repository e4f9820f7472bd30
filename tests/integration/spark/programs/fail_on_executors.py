"""Writes to a queue, reads it and streams it, on executors whose Python lacks the package.

Arguments: settings of the session and options, both as JSON; a folder for a checkpoint. It prints
what each of the three raises.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(settings: dict[str, str], options: dict[str, str], folder: str) -> None:
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(1).selectExpr("string(id) AS value")
    show("write", rows.write.format("cassieq").options(**options).mode("append").save)
    browsed = spark.read.format("cassieq").options(**options)
    show("read", lambda: browsed.load().collect())
    messages = spark.readStream.format("cassieq").options(**options).option("group", "g").load()
    stream = messages.writeStream.format("noop").option("checkpointLocation", folder)
    show("stream", lambda: stream.trigger(availableNow=True).start().awaitTermination())
    spark.stop()


def show(what: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (PySparkException, Py4JJavaError) as error:
        sys.stdout.write(f"== {what}\n{error}\n")
    else:
        raise AssertionError(f"{what} should have failed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
