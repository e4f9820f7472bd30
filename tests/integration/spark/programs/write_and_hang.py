"""Publish a DataFrame whose second partition never ends; the test kills this program."""

from __future__ import annotations

import json
import os
import sys
import threading

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def main(options: dict[str, str]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    numbers = spark.getOrCreate().range(100_000, numPartitions=2)
    messages = numbers.selectExpr("cast(id as string) as value").mapInArrow(hang, "value STRING")
    messages.write.format("cassieq").options(**options).mode("append").save()


def hang(batches):
    yield from batches
    threading.Event().wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
