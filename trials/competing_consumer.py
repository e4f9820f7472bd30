"""One of the competing queries: stores what each batch had, until it is killed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

RESULT_SUFFIX = ".json"

_BATCH = "5000"


def main(  # noqa: PLR0913, PLR0917 (the arguments of a program)
    queue: str, group: str, name: str, host: str, folder: Path, lease: str
) -> None:
    """Read the queue for ever."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    results = folder / "results"
    results.mkdir(exist_ok=True)
    spark = (
        SparkSession.builder.master("local[1]")
        .appName(f"cassieq competing {name}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def store(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("monoton", "delivery_count").toArrow().to_pydict()
        result = {"monotons": rows["monoton"], "deliveries": rows["delivery_count"]}
        unfinished = results / f".{name}-{batch_id}"
        unfinished.write_text(json.dumps(result))
        unfinished.rename(results / f"{name}-{batch_id}{RESULT_SUFFIX}")

    stream = spark.readStream.format("cassieq").option("queue", queue).option("group", group)
    query = (
        stream.option("spark.cassandra.connection.host", host)
        .option("maxMessagesPerTrigger", _BATCH)
        .option("leaseSeconds", lease)
        .load()
        .writeStream.foreachBatch(store)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]), sys.argv[6])
