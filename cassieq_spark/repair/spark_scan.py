"""The scan by Spark through the Spark Cassandra Connector: about one row per block."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from cassieq_spark.arrow.framing import MOST_MESSAGES
from cassieq_spark.errors import ConnectError, SetupError, StoreError
from cassieq_spark.model import QueueId, Range
from cassieq_spark.repair.scan import Run
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.secret import reveal
from cassieq_spark.signals import Stop
from cassieq_spark.store.tables import Table

#: The package for ``spark-submit --packages``.
CONNECTOR = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"

_FORMAT = "org.apache.spark.sql.cassandra"
#: Small, because Cassandra reads the payload of a chunk from disk even if it is not asked for.
_PAGE_ROWS = 200
#: Errors of Spark when a job fails or Spark has ended.
SPARK_ERRORS = (Py4JError, PySparkException, OSError, EOFError)
_LOOK = timedelta(milliseconds=200)


@dataclass(frozen=True, slots=True)
class SparkScan:
    """Scans with all executors of a Spark session.

    Attributes:
        chunks: The table of chunks; its session must run nothing else meanwhile.
        stop: Ends a scan early, as if there were no more runs.
    """

    chunks: DataFrame
    stop: Stop

    def __call__(self, bucket_sizes: Mapping[QueueId, int]) -> Iterator[Run]:
        """Run the scan in Spark; see `Scan`.

        Raises:
            StoreError: Spark could not read the table.
        """
        try:
            with _cancelling(self.chunks.sparkSession, self.stop):
                rows = runs_of(self.chunks, bucket_sizes).toLocalIterator()
                yield from map(run_of, rows)
        except SPARK_ERRORS as error:
            if not self.stop.is_set():
                raise StoreError(
                    f"Spark could not read the table of chunks, or is gone: {error}"
                ) from error


@contextmanager
def _cancelling(spark: SparkSession, stop: Stop) -> Iterator[None]:
    """Once ``stop`` is set, cancel Spark's jobs repeatedly, as one job follows another."""
    is_over = threading.Event()

    def cancel() -> None:
        while not is_over.is_set():
            # Spark itself may have ended, by the same signal.
            if stop.wait(_LOOK):
                with suppress(*SPARK_ERRORS):
                    spark.sparkContext.cancelAllJobs()
                is_over.wait(_LOOK.total_seconds())

    watcher = threading.Thread(target=cancel, name="cassieq-cancel", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def connector_options(connection: ConnectionOptions) -> dict[str, str]:
    """The connector's options: how to reach the same cluster, and how to read the chunks.

    The connector reads no PEM files; users give Spark its key stores by options like
    ``spark.cassandra.connection.ssl.trustStore.path``.

    Raises:
        SetupError: This machine lacks the password.
    """
    options = {
        "keyspace": connection.keyspace,
        "table": str(Table.CHUNK),
        "spark.cassandra.input.consistency.level": connection.consistency.value,
        "spark.cassandra.input.fetch.sizeInRows": str(_PAGE_ROWS),
    }
    if connection.secure_connect_bundle is not None:
        bundle = Path(connection.secure_connect_bundle).absolute().as_uri()
        options["spark.cassandra.connection.config.cloud.path"] = bundle
    else:
        options |= {
            "spark.cassandra.connection.host": ",".join(connection.contact_points),
            "spark.cassandra.connection.port": str(connection.port),
            "spark.cassandra.connection.ssl.enabled": str(connection.encrypted).lower(),
        }
    password = connection.password
    optional = {
        "spark.cassandra.connection.localDC": connection.local_dc,
        "spark.cassandra.auth.username": connection.username,
        "spark.cassandra.auth.password": password and reveal("password", password),
    }
    return options | {key: value for key, value in optional.items() if value is not None}


def runs_of(chunks: DataFrame, bucket_sizes: Mapping[QueueId, int]) -> DataFrame:
    """Merge rows of the table of chunks into runs, as `scan.runs_of` does.

    Args:
        chunks: Columns ``queue_id``, ``block``, ``bucket``, ``start``, ``stop`` and others.
        bucket_sizes: Messages per bucket of each queue that exists.
    """
    in_order = Window.partitionBy("queue_id", "block").orderBy("start", "stop", "bucket")
    start, stop, bucket = sf.col("start"), sf.col("stop"), sf.col("bucket")
    size = _bucket_size(bucket_sizes)
    most = sf.least(size, sf.lit(MOST_MESSAGES))
    # As `scan.within_reason`; the difference of two numbers that are not negative cannot overflow.
    length = sf.when(stop.isNull() | (start < 0) | (stop < start), 0).otherwise(
        sf.least(stop - start, most)
    )
    reached = sf.max("stop").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    begins = sf.coalesce(start > sf.col("reached"), sf.lit(True)).cast("int")
    overlap = sf.struct(start, sf.least("stop", "reached"))
    first = bucket * size
    orphans = (start == stop) | (start < first) | (stop > first + size)
    return (
        chunks.select("queue_id", "block", "bucket", "start", "stop")
        .withColumn("length", length)
        .withColumn("start", sf.greatest(start, sf.lit(0)))
        .withColumn("stop", start + sf.col("length"))
        .withColumn("reached", reached)
        .withColumn("begins", begins)
        .withColumn("run", sf.sum("begins").over(in_order))
        .withColumn("orphans", orphans)
        .groupBy("queue_id", "block", "run")
        .agg(
            sf.min(start).alias("start"),
            sf.max(stop).alias("stop"),
            sf.collect_list(sf.when(start < sf.col("reached"), overlap)).alias("overlaps"),
            sf.collect_list(sf.when(sf.col("orphans"), sf.struct(start, stop))).alias("misplaced"),
            sf.sort_array(sf.collect_set(sf.when(sf.col("orphans"), bucket))).alias(
                "misplaced_buckets"
            ),
        )
    )


def run_of(row: Row) -> Run:
    """Decode a row of `runs_of`."""
    return Run(
        QueueId(row.queue_id),
        UUID(row.block),
        Range(row.start, row.stop),
        tuple(sorted(Range(*each) for each in row.overlaps)),
        tuple(sorted(Range(*each) for each in row.misplaced)),
        tuple(row.misplaced_buckets),
    )


def load_chunks(spark: SparkSession, connection: ConnectionOptions) -> DataFrame:
    """The table of chunks, as the connector reads it.

    Args:
        spark: A session that has `CONNECTOR`.
        connection: Cluster and keyspace. The tables must exist; the connector's error says little.

    Raises:
        SetupError: The session does not have the connector.
        ConnectError: The connector does not reach the cluster.
    """
    reader = spark.read.format(_FORMAT).options(**connector_options(connection))
    try:
        return reader.load()
    except Py4JJavaError as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise SetupError(
                "Spark lacks the Spark Cassandra Connector; start the job with: "
                f"spark-submit --packages {CONNECTOR}"
            ) from error
        if "Failed to open native connection" in str(error):
            nodes = ", ".join(connection.contact_points)
            raise ConnectError(
                f"the Spark Cassandra Connector cannot reach {nodes}"
                + ("; it needs a trust store: docs/security.md" if connection.encrypted else "")
            ) from error
        raise


def _bucket_size(bucket_sizes: Mapping[QueueId, int]) -> Column:
    """Messages per bucket; null for unknown queues, so that none of their chunks is misplaced."""
    if not bucket_sizes:
        return sf.lit(None).cast("bigint")
    pairs = [sf.lit(each) for pair in bucket_sizes.items() for each in pair]
    return sf.create_map(*pairs)[sf.col("queue_id")].cast("bigint")
