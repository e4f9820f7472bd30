"""What a micro-batch costs, counted on real Cassandra; the rim is called as Spark calls it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StringType, StructType

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions, SourceOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.spark.sink import message_writer
from cassieq_spark.spark.source import stream
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore

MESSAGES = StructType().add("value", StringType())
TASKS = 8


@pytest.fixture
def counted(cassandra_store: Store, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    store = CountingStore(cassandra_store)
    for module in (message_writer, stream):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    return store


@pytest.fixture
def definition(counted: CountingStore, request: pytest.FixtureRequest) -> QueueDefinition:
    return create_queue(counted, request.node.name)


def test_publishing_a_micro_batch_costs_one_lwt_however_many_tasks(
    counted: CountingStore, definition: QueueDefinition, connection: ConnectionOptions
):
    _publish(definition, connection, version=0)
    counted.reset()

    _publish(definition, connection, version=1)

    assert counted.cas_count == 1
    # The definition once, the sink's row once a task, head and sink at one moment.
    assert counted.read_count == 1 + TASKS + 1
    assert counted.serial_read_count == 0


def test_consuming_a_micro_batch_costs_one_lwt_and_an_idle_trigger_none(
    counted: CountingStore,
    definition: QueueDefinition,
    connection: ConnectionOptions,
    monkeypatch: pytest.MonkeyPatch,
):
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr(idle_backoff, "time", clock)
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(minutes=1))
    for version in range(3):
        _publish(definition, connection, version=version)
    options = SourceOptions(queue=definition.name, group="g", connection=connection)
    source = stream.MessageStreamReader(options, Columns(None))
    end = source.initialOffset()
    end = source.latestOffset(end, ReadMaxRows(2_000))
    assert len(list(_read(source, end))) == 2_000
    counted.reset()

    end = source.latestOffset(end, ReadMaxRows(2_000))
    rows = list(_read(source, end))

    assert len(rows) == 2_000
    assert counted.cas_count == 1, "it acks the batch before and leases this one"
    assert counted.read_count == 2, "the head, and the blocks that follow"

    while (last := source.latestOffset(end, ReadMaxRows(2_000))) != end:
        end = last
    counted.reset()
    for _ in range(10):
        assert source.latestOffset(end, ReadMaxRows(2_000)) is end
    source.commit(end)
    source.stop()
    assert counted.cas_count == 0
    assert counted.read_count <= 10 * 3


def _publish(definition: QueueDefinition, connection: ConnectionOptions, *, version: int) -> None:
    options = SinkOptions(
        queue=definition.name, txn_app_id="cost", txn_version=version, connection=connection
    )
    sink = message_writer.MessageWriter(options, MESSAGES, overwrite=False)
    batch = pa.record_batch({"value": ["x"] * 1_000})
    sink.commit([sink.write(iter([batch])) for _ in range(TASKS)])


def _read(source: stream.MessageStreamReader, end: dict[str, object]) -> Iterator[int]:
    for partition in source.partitions({}, end):
        for batch in source.read(partition):
            yield from batch.column("monoton").to_pylist()
