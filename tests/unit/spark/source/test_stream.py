from __future__ import annotations

import os
import signal

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from cassieq_spark.client import Client
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import alter_queue, create_queue
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.source import stream
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.stream import MessageStreamReader
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore


def test_all_there_is_at_once_is_refused_before_the_store_is_opened():
    """Only trigger(once=True) asks for it, and then nothing acks the batch."""
    reader = MessageStreamReader(SourceOptions(queue="q", group="g"), Columns(None))

    with pytest.raises(OptionError, match=r"use trigger\(availableNow=True\)"):
        reader.latestOffset(initial_offset("q", "g"), ReadAllAvailable())


def test_an_error_is_told_by_the_first_call_as_spark_calls_stop_of_a_reader_that_it_has_not_got():
    reader = CassieqDataSource({"queue": "q", "maxMessages": "5"}).streamReader(StructType())

    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.getDefaultReadLimit()
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.initialOffset()
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.latestOffset({}, ReadAllAvailable())
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.read(InputPartition(0))
    reader.stop()


# -- who stops the query -----------------------------------------------------------------------


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "_terminations", [])
    monkeypatch.setattr(stream, "_ORPHANED_WITHIN", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    stream._survive_termination()
    yield lambda: os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def test_a_process_that_got_sigterm_was_stopped_by_spark(terminated, monkeypatch):
    monkeypatch.setattr(stream, "_ORPHANED_WITHIN", 60.0)
    terminated()
    terminated()

    assert stream._is_stopped_by_spark(parent=os.getppid() + 1)


def test_a_process_with_another_parent_has_lost_its_jvm(terminated, monkeypatch):
    monkeypatch.setattr(stream, "_ORPHANED_WITHIN", 60.0)

    assert not stream._is_stopped_by_spark(parent=os.getppid() + 1)


def test_a_process_whose_parent_lives_was_stopped_although_it_got_no_signal(terminated):
    assert stream._is_stopped_by_spark(parent=os.getppid())


def test_a_query_that_is_too_old_for_its_queue_leases_nothing(monkeypatch: pytest.MonkeyPatch):
    store = CountingStore(MemoryStore())
    monkeypatch.setattr(stream, "open_store", lambda _: store)
    queue = create_queue(store, "q", schema="a int")
    columns = Columns(schema_of("a int"))
    alter_queue(store, "q", schema="a bigint")
    end = initial_offset("q", "g")
    store.reset()

    for _ in range(5):
        reader = MessageStreamReader(SourceOptions(queue="q", group="g"), columns)
        with pytest.raises(QueueStateError, match="widened 'a' from int to bigint"):
            reader.partitions(end, end)
        reader.stop()

    assert store.cas_count == 0
    assert Ledger(store, queue.queue_id).read_groups() == []


@pytest.mark.parametrize(("asked", "tasks"), [(None, 1), (4, 4)])
def test_a_stream_makes_the_tasks_that_min_partitions_asks_for(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, tasks: int
):
    store, start = MemoryStore(), initial_offset("q", "g")
    monkeypatch.setattr(stream, "open_store", lambda _: store)
    create_queue(store, "q")
    with Client.from_store(store) as client:
        client.put_many("q", [b"x"] * 8)
    options = SourceOptions(queue="q", group="g", min_partitions=asked)
    reader = MessageStreamReader(options, Columns(None))

    end = reader.latestOffset(start, ReadMaxRows(8))
    planned = reader.partitions(start, end)

    rows = [batch for each in planned for batch in reader.read(each)]
    assert len(planned) == tasks
    assert [each for batch in rows for each in batch.column("monoton").to_pylist()] == [*range(8)]
    reader.stop()
