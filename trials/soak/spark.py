"""What a real Spark writes in between."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from datetime import UTC, datetime

from cassieq_spark.queues import read_queue
from trials.soak.actors import World
from trials.soak.checker import Fate, Put


def write_by_spark(world: World, host: str) -> None:
    """One batch write of a real Spark, twice under one name: it is published once."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (only here)

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tempfile.mkdtemp(prefix="cassieq-soak-")
    builder = SparkSession.builder.master("local[1]").appName("cassieq soak")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    values = world.new_values(random.Random(world.seed), 500)
    queue = read_queue(world.store, "steady")
    begun = datetime.now(UTC)
    fate = Fate.UNKNOWN
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        frame = spark.createDataFrame([(value,) for value in values.values()], "value STRING")
        for _ in range(2):
            frame.write.format("cassieq").option("queue", queue.name).option(
                "spark.cassandra.connection.host", host
            ).option("txnAppId", f"soak-{min(values)}").option("txnVersion", 1).mode(
                "append"
            ).save()
        fate = Fate.VISIBLE
        world.note("Spark jobs")
    except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
        world.journal.alarms.append(f"Spark: {error}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
        world.journal.puts += [Put(number, fate, queue.queue_id, None, begun) for number in values]
