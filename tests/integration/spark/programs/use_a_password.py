"""Uses a queue in every way, and shows all that Spark and Python tell of how.

Arguments: options by the form of their password, as JSON; a folder for checkpoints. The options
also come from the session.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from cassieq_spark.settings import SinkOptions, SourceOptions, options_from_session

#: Not where it is used, because a traceback shows lines of this program.
WRONG = "hunter2-wrong"


def main(forms: dict[str, dict[str, str]], folder: str) -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    # It logs every word that goes to the JVM; docs/security.md says so.
    logging.getLogger("py4j").setLevel(logging.INFO)
    for form, options in forms.items():
        use(options, f"{folder}/{form}")
    SparkSession.builder.getOrCreate().stop()
    tell("done")


def use(options: dict[str, str], folder: str) -> None:
    builder = SparkSession.builder.appName("passwords")
    for key, value in options.items():
        if key.startswith("spark."):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("DEBUG")
    options |= options_from_session(spark)
    tell(SinkOptions.parse(options), SourceOptions.parse(options))

    messages = spark.range(10).selectExpr("string(id) as value")
    show(messages)
    write(messages, options)
    found = read(spark, options)
    show(found)
    assert found.count() == 10

    stream = spark.readStream.format("cassieq").options(**options).option("group", "g").load()
    show(stream)
    copied = stream.selectExpr("value").writeStream.format("cassieq").options(**options)
    copied = copied.option("checkpointLocation", f"{folder}/copy").trigger(availableNow=True)
    query = copied.start()
    query.awaitTermination()
    query.explain(extended=True)
    tell(query.lastProgress)
    query.stop()
    assert read(spark, options).count() == 20

    null = spark.sql("select cast(null as string) as value")
    fails(lambda: write(null, options))
    fails(lambda: write(messages, options | {"queue": "nowhere"}))
    fails(lambda: write(messages, options | {"keyspace": "nowhere"}))
    fails(lambda: write(messages, options | {"consistency": "ONE"}))
    fails(lambda: write(messages, options | {"spark.cassandra.auth.username": "nobody"}))
    fails(lambda: read(spark, options | {"spark.cassandra.auth.username": "nobody"}).collect())
    fails(lambda: write(messages, options | {"spark.cassandra.auth.password": WRONG}))
    fails(lambda: read(spark, options | {"spark.cassandra.auth.passwords": "x"}).collect())
    assert read(spark, options).count() == 20


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("cassieq").options(**options).load()


def write(messages: DataFrame, options: dict[str, str]) -> None:
    messages.write.format("cassieq").options(**options).mode("append").save()


def show(rows: DataFrame) -> None:
    rows.explain(extended=True)
    plan = rows._jdf.queryExecution()
    tell(rows, plan.toString(), plan.logical().toJSON(), plan.logical().numberedTreeString())


def tell(*things: object) -> None:
    sys.stdout.write("\n".join(map(str, things)) + "\n")


def fails(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever it is, it is shown
        traceback.print_exc(file=sys.stdout)
    else:
        raise AssertionError("it should have failed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
