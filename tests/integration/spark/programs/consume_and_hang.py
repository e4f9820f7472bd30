"""Consume batch after batch, and hang in the second one; the test kills this program."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def main(options: dict[str, str], checkpoint: str, reached: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    stream = builder.getOrCreate().readStream.format("cassieq").options(**options).load()

    def consume(batch: DataFrame, batch_id: int) -> None:
        monotons = [row.monoton for row in batch.select("monoton").collect()]
        if batch_id == 1:
            Path(reached).write_text(json.dumps(monotons))
            threading.Event().wait()

    writer = stream.writeStream.foreachBatch(consume).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3])
