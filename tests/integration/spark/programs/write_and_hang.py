"""Publish a DataFrame whose second partition never ends; the test kills this program."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def main(options: dict[str, str], reached: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    numbers = spark.getOrCreate().range(100_000, numPartitions=2)
    values = numbers.selectExpr("cast(id as string) as value")
    messages = values.mapInArrow(hang_at_the_end(reached), "value STRING")
    messages.write.format("cassieq").options(**options).mode("append").save()


def hang_at_the_end(reached: str):
    """Pass everything on, tell the named pipe, and never end."""

    def hang(batches):
        yield from batches
        Path(reached).write_bytes(b"x")
        threading.Event().wait()

    return hang


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
