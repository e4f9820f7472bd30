"""What the demo's programs share: a session of local Spark, and how a batch is stored once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

try:
    from pyspark.sql import DataFrame, SparkSession
except ModuleNotFoundError:
    sys.exit("pyspark is missing: pip install 'cassieq-spark[spark,demo]'")

MASTER = "local[2]"

#: For a Java that lives for seconds: half the work, as it never compiles anything twice.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STOP_SECONDS = 30


def spark_settings(scratch: Path) -> dict[str, str]:
    """How the demo's programs run Spark; all of its files go to ``scratch``, which is made."""
    scratch.mkdir(exist_ok=True)
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{_QUICK} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def start_spark(name: str, scratch: Path) -> SparkSession:
    """Start Spark in this process, with the Python that runs it; its files go to ``scratch``."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName(name)
    for key, value in spark_settings(scratch).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def store_batch(rows: DataFrame, results: Path, batch_id: int) -> None:
    """Store what came of a batch under its number: done again, it replaces itself."""
    rows.write.mode("overwrite").parquet(str(results / f"batch={batch_id}"))


def store_messages(batch: DataFrame, results: Path, batch_id: int) -> None:
    """Store which messages a batch had: the number of each flight, and the CRC-32 of its JSON."""
    number = "cast(get_json_object(cast(value as string), '$.id') as bigint) as id"
    store_batch(batch.selectExpr(number, "crc32(value) as crc"), results, batch_id)


def stop_spark(session: SparkSession) -> None:
    """Stop Spark, and wait until its Java has ended."""
    gateway = session.sparkContext._gateway  # noqa: SLF001 (PySpark ends it with Python only)
    session.stop()
    java = getattr(gateway, "proc", None)
    if gateway is not None and java is not None:
        gateway.shutdown()
        java.stdin.close()
        java.wait(_STOP_SECONDS)
