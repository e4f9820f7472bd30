"""Fixtures: a local Spark session, and a fresh queue on the session's Cassandra for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import GroupStats, QueueStats, read_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store

_RECOMMENDED = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
#: In the ``PYTHONPATH`` of Spark, it makes the processes that plan on the driver start at once.
WARM_PLANNERS = Path(__file__).parent / "warm_planners"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and one more attempt for a task that fails."""
    builder = SparkSession.builder.master("local[2, 2]").appName("cassieq-spark tests")
    for key, value in (_SETTINGS | recommended_settings()).items():
        builder = builder.config(key, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
    with pytest.MonkeyPatch.context() as environment:
        # Spark's own JVM keeps it; programs that tests start do without.
        environment.setenv("PYTHONPATH", str(WARM_PLANNERS), prepend=os.pathsep)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def recommended_settings() -> dict[str, str]:
    """What conf/spark-defaults.conf says."""
    lines = [line.split("#")[0].split() for line in _RECOMMENDED.read_text().splitlines()]
    return dict(line for line in lines if line)


@dataclass(frozen=True)
class QueueOnSpark:
    """A queue of a test's own, and the few things that tests do with it."""

    spark: SparkSession
    store: Store
    definition: QueueDefinition
    connection: dict[str, str]
    folder: Path

    @property
    def options(self) -> dict[str, str]:
        return self.connection | {"queue": self.definition.name}

    def numbers(self, count: int, *, partitions: int = 3) -> DataFrame:
        """Messages whose value is their number as text, in order over the partitions."""
        numbers = self.spark.range(count, numPartitions=partitions)
        return numbers.selectExpr("cast(id as string) as value")

    def publish(self, messages: DataFrame, **options: str) -> None:
        writer = messages.write.format("cassieq").options(**self.options).options(**options)
        writer.mode("append").save()

    def browse(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("cassieq").options(**self.options).options(**options)
        return reader.load()

    def stream(self, group: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("cassieq").options(**self.options)
        return reader.option("group", group).options(**options).load()

    def start(
        self,
        messages: DataFrame,
        each_batch: Callable[[DataFrame, int], None],
        *,
        checkpoint: str = "checkpoint",
        **trigger: Any,
    ) -> StreamingQuery:
        writer = messages.writeStream.foreachBatch(each_batch)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def drain(
        self, group: str, *, checkpoint: str = "checkpoint", **options: str
    ) -> list[list[Row]]:
        """Consume what is there with AvailableNow; the rows of each batch."""
        batches: list[list[Row]] = []
        query = self.start(
            self.stream(group, **options),
            lambda batch, _: batches.append(batch.collect()),
            checkpoint=checkpoint,
        )
        query.awaitTermination()
        return batches

    def stats(self) -> QueueStats:
        return read_stats(self.store, self.definition)

    def group_stats(self, group: str) -> GroupStats:
        return next(each for each in self.stats().groups if each.group == group)


@pytest.fixture
def queue(
    spark: SparkSession, cassandra_store: Store, connection: ConnectionOptions, tmp_path: Path
) -> QueueOnSpark:
    definition = create_queue(cassandra_store, f"q-{uuid4().hex[:12]}")
    return queue_on_spark(spark, cassandra_store, definition, connection, tmp_path)


def queue_on_spark(
    spark: SparkSession,
    store: Store,
    definition: QueueDefinition,
    connection: ConnectionOptions,
    folder: Path,
) -> QueueOnSpark:
    """A queue that a test has created."""
    options = {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "spark.cassandra.connection.port": str(connection.port),
        "keyspace": connection.keyspace,
    }
    return QueueOnSpark(spark, store, definition, options, folder)


def numbers_of(rows: list[Row]) -> list[int]:
    """The numbers that `QueueOnSpark.numbers` made messages of."""
    return [int(bytes(row.value)) for row in rows]
