"""What the programs of a chaos run on Spark have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.chaos.records import Notebook

_LOOK_SECONDS = 1


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What each of them takes."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--options", type=json.loads, required=True, help="of cassieq, as JSON")
    parser.add_argument("--folder", type=Path, required=True, help="checkpoint and results")
    return parser


def begin(notebook: Notebook) -> SparkSession:
    """Note that the program has begun, and which package its executors have."""

    def where(_: Iterator[int]) -> Iterator[str]:
        import cassieq_spark  # noqa: PLC0415 (the executor's)

        yield cassieq_spark.__file__

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    package = spark.sparkContext.parallelize([0], 1).mapPartitions(where).first()
    notebook.tell("started", package=package)
    return spark


def go_on(spark: SparkSession, query: StreamingQuery, notebook: Notebook) -> None:
    """Let the query run until the program is asked to end, or the query fails."""
    while not notebook.is_over:
        query.awaitTermination(_LOOK_SECONDS)
    query.stop()
    spark.stop()
