"""The demo's consumer: delay statistics per carrier, in a process that may be killed.

It writes its events to a file, as lines of JSON: they tell the demo when to kill it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from trials.spark import start_spark

#: Folders of results: the messages of each batch, and its statistics.
MESSAGES = "messages"
DELAYS = "delays"

#: The environment variable of the password: other users can read arguments.
PASSWORD = "CASSIEQ_DEMO_PASSWORD"  # noqa: S105 (the name of a variable)

_LATE_MINUTES = 15
_FLIGHT = "carrier string, arr_delay double"


def main(arguments: list[str]) -> int:
    """Read the queue from the checkpoint on, until it is empty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", required=True, help="options of the source, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--events", type=Path, required=True, help="file for the events")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for Spark's files")
    given = parser.parse_args(arguments)
    options = json.loads(given.options)
    if password := os.environ.get(PASSWORD):
        options["spark.cassandra.auth.password"] = password

    def tell(event: str, **more: Any) -> None:
        with given.events.open("a") as file:
            file.write(json.dumps({"event": event, "at": time.time(), **more}) + "\n")

    spark = start_spark("cassieq demo: consumer", given.scratch)
    stream = spark.readStream.format("cassieq").options(**options).load()
    tell("started")
    query = (
        stream.writeStream.foreachBatch(_processing(given.results, tell))
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tell("ended")
    spark.stop()
    return 0


def store_messages(batch: DataFrame, results: Path, batch_id: int) -> None:
    """Store the messages of a batch: the number of each flight, and the CRC-32 of its JSON."""
    number = "cast(get_json_object(cast(value as string), '$.id') as bigint) as id"
    _store_batch(batch.selectExpr(number, "crc32(value) as crc"), results, batch_id)


def _store_batch(rows: DataFrame, results: Path, batch_id: int) -> None:
    # Under the id of the batch: a batch that is delivered again replaces its rows.
    rows.write.mode("overwrite").parquet(str(results / f"batch={batch_id}"))


def _processing(results: Path, tell: Callable[..., None]) -> Callable[[DataFrame, int], None]:
    def process(batch: DataFrame, batch_id: int) -> None:
        tell("batch", batch=batch_id)
        batch.persist()
        store_messages(batch, results / MESSAGES, batch_id)
        tell("messages", batch=batch_id)
        _store_batch(_delays(batch), results / DELAYS, batch_id)
        batch.unpersist()
        tell("done", batch=batch_id)

    return process


def _delays(batch: DataFrame) -> DataFrame:
    """Sums that can be added up over batches; ``again`` counts repeated deliveries."""
    return (
        batch.selectExpr(
            f"from_json(cast(value as string), '{_FLIGHT}') as flight", "delivery_count"
        )
        .groupBy("flight.carrier")
        .agg(
            expr("count(*) as flights"),
            expr("count(flight.arr_delay) as arrived"),
            expr(f"count_if(flight.arr_delay > {_LATE_MINUTES}) as late"),
            expr("sum(flight.arr_delay) as minutes"),
            expr("max(flight.arr_delay) as longest"),
            expr("count_if(delivery_count > 1) as again"),
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
