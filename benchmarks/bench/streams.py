"""Whole writes and reads, timed as a user would: from the call to its return."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from benchmarks.bench.lab import Lab
from benchmarks.bench.payloads import BATCHES, FILES_PER_BATCH, Payload
from benchmarks.bench.systems import System


@dataclass(frozen=True, slots=True)
class Took:
    """What a whole write or read took.

    Attributes:
        messages: How many went through.
        seconds: From the call to its return, the start of the query included.
        batches_ms: Each micro-batch, from its trigger to its entry in Spark's commit log.
    """

    messages: int
    seconds: float
    batches_ms: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Messages per second, over all."""
        return self.messages / self.seconds

    @property
    def rate_inside(self) -> float:
        """Messages per second inside the micro-batches."""
        return self.messages * 1000 / sum(self.batches_ms)


def write_batch(lab: Lab, system: System, payload: Payload, place: str) -> Took:
    """Write all messages in one batch write."""
    frame = lab.spark.read.schema("value binary").parquet(payload.files(max(BATCHES)))
    began = time.perf_counter()
    frame.write.format(system.form).options(**system.write_options(place)).mode("append").save()
    return Took(payload.count, time.perf_counter() - began)


def append_rows(lab: Lab, payload: Payload) -> Took:
    """Write all messages with the Spark Cassandra Connector, a row each."""
    frame = lab.spark.read.schema("value binary").parquet(payload.files(max(BATCHES)))
    began = time.perf_counter()
    numbered = frame.selectExpr("monotonically_increasing_id() as seq", "value")
    rows = numbered.selectExpr("seq div 512 as part", "seq", "value")
    writer = rows.write.format("org.apache.spark.sql.cassandra")
    writer.options(keyspace="bench", table="rows").mode("append").save()
    return Took(payload.count, time.perf_counter() - began)


def write_stream(lab: Lab, system: System, payload: Payload, place: str, *, batch: int) -> Took:
    """Write all messages with a streaming query, so many a micro-batch."""
    source = lab.spark.readStream.schema("value binary")
    frame = source.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(payload.files(batch))
    return _run(lab, frame, payload.count, system.form, system.write_options(place))


def read_stream(lab: Lab, system: System, place: str, *, messages: int, batch: int | None) -> Took:
    """Read all messages with a streaming query that stops at the end, and do nothing with them."""
    source = lab.spark.readStream.format(system.form)
    frame = source.options(**system.read_options(place, batch)).load()
    return _run(lab, frame, messages, "noop", {})


def _run(lab: Lab, frame: DataFrame, messages: int, form: str, options: dict[str, str]) -> Took:
    began = time.perf_counter()
    writer = frame.writeStream.format(form).options(**options)
    writer = writer.option("checkpointLocation", lab.new_folder())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    rows, batches_ms = _progress(query)
    if rows != messages:
        raise AssertionError(f"{messages} messages were there, {rows} went through")
    return Took(messages, seconds, batches_ms)


def _progress(query: StreamingQuery) -> tuple[int, tuple[int, ...]]:
    """Rows that a query has read, and how long each of its batches took."""
    progress = [each for each in query.recentProgress if each.numInputRows]
    rows = sum(each.numInputRows for each in progress)
    return rows, tuple(each.durationMs["triggerExecution"] for each in progress)
