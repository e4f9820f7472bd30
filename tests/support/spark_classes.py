"""Archives the classes that Spark's Java loads, so that Spark starts in half the time.

    python -m tests.support.spark_classes

Java 17 calls this a dynamic archive of class data. Java does without it if it is of another Java,
or of other jars. Making it takes half a minute of processor time; each Spark of a test takes 4
seconds less.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: With the jars that it is made of.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: For programs that end within minutes: Java compiles once, which saves a fifth of its time.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Java would say on standard output, which tests read, why it does without an archive.
_SILENT = "-Xlog:disable"


def java_options() -> str:
    """The options with which Spark's Java starts at once."""
    return f"{_QUICK} {_SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else _QUICK


def main() -> None:
    """Make the archive, unless it is there."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (all tests import this module)

    if ARCHIVE.exists():
        return
    made = ARCHIVE.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUICK} {_SILENT} -XX:ArchiveClassesAtExit={made}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as folder:
        _use(builder.getOrCreate(), Path(folder))
        _end()
    # A Java that makes no archives starts as ever.
    if made.exists():
        made.rename(ARCHIVE)


def _use(spark: SparkSession, folder: Path) -> None:
    """Do what most tests do, so that the classes are loaded."""
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(10).selectExpr("id", "cast(id as string) as value", "id % 2 as key")
    rows.groupBy("key").count().orderBy("key").collect()
    table = str(folder / "table")
    rows.selectExpr("to_json(struct(*)) as text").write.parquet(table)
    schema = spark.read.parquet(table).schema

    def publish(batch: DataFrame, _: int) -> None:
        batch.mapInArrow(lambda batches: batches, batch.schema).collect()

    for writer in (
        spark.readStream.schema(schema).parquet(table).writeStream.foreachBatch(publish),
        spark.readStream.schema(schema).parquet(table).writeStream.format("noop"),
    ):
        place = tempfile.mkdtemp(dir=folder)
        query = writer.trigger(availableNow=True).option("checkpointLocation", place).start()
        query.awaitTermination()
    spark.stop()


def _end() -> None:
    """Let Java end, which writes the archive."""
    from pyspark import SparkContext  # noqa: PLC0415 (as above)

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
