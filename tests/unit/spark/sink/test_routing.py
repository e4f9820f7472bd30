"""A write whose rows name their queues."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from cassieq_spark import Client
from cassieq_spark.errors import (
    MessageError,
    NotAppliedError,
    NotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.identity import PlanIdentity
from cassieq_spark.model import SinkBatch
from cassieq_spark.producer.publisher import Written
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.sink import message_writer, query
from cassieq_spark.spark.sink.message_writer import MessageStreamWriter, PlannedBatch, TaskDone
from cassieq_spark.spark.sink.routing import by_queue, write_routed
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE

SOURCE = initial_offset("source", "g")
BOTH = (("a", "1"), ("b", "2"))
ROWS = StructType().add("to", StringType()).add("value", BinaryType())


def rows(*pairs: tuple[str | None, str]) -> pa.RecordBatch:
    to, values = zip(*pairs, strict=True)
    return pa.record_batch(
        {"to": pa.array(to, pa.string()), "value": pa.array([it.encode() for it in values])}
    )


class Sink:
    """A store, and the writers of a query on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory)
        self.store = CountingStore(self.faulty)
        self.told = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "0"}
        context = SimpleNamespace(getLocalProperty=self.told.get, partitionId=lambda: 0)
        monkeypatch.setattr(message_writer, "open_store", lambda _: self.store)
        monkeypatch.setattr(query, "TaskContext", SimpleNamespace(get=lambda: context))
        self.client = Client.from_store(self.memory)

    def writer(self, schema: StructType = ROWS, **options: str) -> MessageStreamWriter:
        copy = pickle.loads(pickle.dumps(CassieqDataSource({"queueColumn": "TO", **options})))
        return copy.streamWriter(schema, overwrite=False)

    def with_plan(self, folder: Path, batch: int, offset: Mapping[str, Any]) -> dict[str, str]:
        """Log a batch as Spark does before it runs; the option that names the checkpoint."""
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text('{"id":"q1"}')
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        self.told["streaming.sql.batchId"] = str(batch)
        return {"checkpointLocation": str(folder)}

    def reader(self) -> QueueReader:
        """A new run of a query that reads the queue ``source``."""
        queue = read_queue(self.memory, "source")
        request = LeaseRequest(lease=LEASE)
        return QueueReader(self.memory, queue, "g", starting="earliest", request=request)

    def peek(self, queue: str) -> list[str]:
        return [bytes(each.value).decode() for each in self.client.peek(queue, max=100)]


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Sink:
    sink = Sink(monkeypatch)
    sink.client.create_queue("a")
    sink.client.create_queue("b", partitions=2)
    return sink


def test_rows_go_to_the_queues_that_they_name_in_order(sink: Sink):
    first = rows(("a", "1"), ("b", "2"), ("a", "3"))

    done = sink.writer().write(iter([first, rows(("a", "4"))]))
    sink.store.reset()
    sink.writer().commit([done], 0)

    assert (sink.peek("a"), sink.peek("b")) == (["1", "3", "4"], ["2"])
    assert sink.store.cas_count == 2


def test_a_batch_is_published_once_in_each_queue(sink: Sink):
    batch = rows(("a", "1"), ("b", "2"))
    done = sink.writer().write(iter([batch]))
    sink.writer().commit([done], 0)
    again = sink.writer().write(iter([batch]))

    sink.writer().commit([again], 0)

    assert (sink.peek("a"), sink.peek("b")) == (["1"], ["2"])


@pytest.mark.parametrize("calls", range(12))
@pytest.mark.parametrize("is_planned", [True, False])
def test_what_fails_between_two_queues_is_completed_by_the_replay(
    sink: Sink, calls: int, is_planned: bool
):
    batch = rows(("a", "1"), ("b", "2"))
    planned = None
    if is_planned:
        plan = SinkBatch("query:q1", 0, str(PlanIdentity("d" * 32)))
        planned = PlannedBatch(plan, is_fresh=False, is_published=False)

    def fail() -> None:
        raise NotAppliedError("as the test says")

    sink.faulty.interrupt(fail, after=calls)
    for _ in range(3):
        writer = sink.writer()
        writer._planned = planned
        try:
            writer.commit([writer.write(iter([batch]))], 0)
        except StoreError:
            continue

    assert (sink.peek("a"), sink.peek("b")) == (["1"], ["2"])


def test_a_batch_write_with_a_name_is_published_once_in_each_queue(sink: Sink):
    named = {"queueColumn": "to", "txnAppId": "load", "txnVersion": "1"}

    for _ in range(2):
        writer = CassieqDataSource(named).writer(ROWS, overwrite=False)
        writer.commit([writer.write(iter([rows(*BOTH)]))])

    assert (sink.peek("a"), sink.peek("b")) == (["1"], ["2"])


def test_a_queue_that_does_not_exist_fails_the_batch_before_anything_is_visible(sink: Sink):
    with pytest.raises(NotFoundError, match="'c'"):
        sink.writer().write(iter([rows(("a", "1"), ("c", "2"))]))

    assert sink.peek("a") == []
    created = sink.writer(createQueue="true")
    created.commit([created.write(iter([rows(("a", "1"), ("c", "2"))]))], 0)
    assert sink.peek("a") == ["1"]
    assert [each.value for each in sink.client.peek("c")] == [{"value": b"2"}]


def test_each_queue_with_columns_takes_those_of_the_rows(sink: Sink):
    sink.client.create_queue("typed", schema="id BIGINT")
    schema = StructType().add("to", StringType()).add("id", LongType())
    batch = pa.record_batch({"to": ["typed"], "id": [7]})
    writer = sink.writer(schema)

    writer.commit([writer.write(iter([batch]))], 0)

    assert [each.value for each in sink.client.peek("typed")] == [{"id": 7}]
    with pytest.raises(SchemaError, match="value"):
        writer.write(iter([pa.record_batch({"to": ["a"], "id": [7]})]))


def test_a_queue_that_has_more_columns_than_the_rows_gets_nulls_and_one_that_has_fewer_refuses(
    sink: Sink,
):
    sink.client.create_queue("more", schema="id BIGINT, note STRING, extra DOUBLE")
    sink.client.create_queue("fewer", schema="id BIGINT")
    sink.client.create_queue("needs", schema="id BIGINT, note STRING, must INT NOT NULL")
    schema = StructType().add("to", StringType()).add("id", LongType()).add("note", StringType())

    def task(*to: str) -> TaskDone:
        names = list(to)
        batch = pa.record_batch({"to": names, "id": [7] * len(to), "note": names})
        return sink.writer(schema).write(iter([batch]))

    with pytest.raises(SchemaError, match=r"queue 'fewer': .*no column 'note'"):
        task("more", "fewer")
    with pytest.raises(SchemaError, match=r"queue 'needs': .*'must' int is missing"):
        task("more", "needs")
    assert sink.client.peek("more") == []
    sink.writer(schema).commit([task("more")], 0)
    assert [each.value for each in sink.client.peek("more")] == [
        {"id": 7, "note": "more", "extra": None}
    ]


def test_a_value_that_does_not_fit_is_refused_with_the_name_of_its_queue(sink: Sink):
    sink.client.create_queue("narrow", schema="id TINYINT")
    schema = StructType().add("to", StringType()).add("id", LongType())
    batch = pa.record_batch({"to": ["narrow"], "id": [700]})

    with pytest.raises(MessageError, match=r"queue 'narrow': column 'id'.*700"):
        sink.writer(schema).write(iter([batch]))


def test_a_row_without_a_queue_is_refused(sink: Sink):
    with pytest.raises(MessageError, match="row 2 of this task names no queue"):
        sink.writer().write(iter([rows(("a", "1")), rows(("a", "2"), (None, "3"))]))
    assert sink.peek("a") == []


@pytest.mark.parametrize(
    ("column", "schema", "words"),
    [
        ("too", ROWS, "did you mean 'to'"),
        ("to", StructType().add("to", LongType()), "must be string"),
    ],
)
def test_the_column_must_be_there_and_of_strings(
    sink: Sink, column: str, schema: StructType, words: str
):
    with pytest.raises(SchemaError, match=words):
        sink.writer(schema, queueColumn=column)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "a", "queueColumn": "to"}, "give one of them"),
        ({"queueColumn": "to", "operation": "ack"}, "'queueColumn' is for 'operation' = publish"),
        ({}, r"only \.option\('queueColumn', \.\.\.\) does without"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, str], words: str):
    with pytest.raises(OptionError, match=words):
        SinkOptions.parse({"compression": "none", **options})


def test_rows_are_split_without_their_column():
    found = [
        (name, rows.to_pydict()) for name, rows in by_queue(rows(("a", "1"), ("b", "2")), "to")
    ]

    assert found == [("a", {"value": [b"1"]}), ("b", {"value": [b"2"]})]


def test_when_one_queue_fails_the_writers_of_the_others_end():
    ended = threading.Event()

    def write(name: str, handed: Iterator[pa.RecordBatch]) -> list[Written]:
        if name == "bad":
            next(handed)
            raise NotAppliedError("no")
        try:
            for _ in handed:
                pass
        finally:
            ended.set()
        return []

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield rows(("good", "1"), ("bad", "2"))

    with pytest.raises(NotAppliedError):
        write_routed(endless(), "to", write)

    assert ended.is_set()
    assert not [each for each in threading.enumerate() if each.name.startswith("cassieq-to_")]


def test_a_delay_is_that_of_the_row(sink: Sink):
    schema = StructType([*ROWS.fields, StructField("delay", LongType())])
    batch = pa.record_batch({"to": ["a", "b"], "value": [b"1", b"2"], "delay": [0, 3600]})
    writer = sink.writer(schema)

    writer.commit([writer.write(iter([batch]))], 0)

    assert sink.client.receive("b", "g", wait=timedelta(0)) == []
    assert [each.value for each in sink.client.receive("a", "g")] == [b"1"]


@pytest.fixture
def source(sink: Sink) -> Sink:
    """With a queue of 20 messages, from which a query reads."""
    sink.client.create_queue("source", max_deliveries=4, drop_dead=True)
    sink.client.put_many("source", [str(number).encode() for number in range(20)])
    return sink


def publish_in_a(sink: Sink, done: TaskDone) -> None:
    """As if the driver had died between the two queues."""
    own = tuple(each for each in done.written if each.queue_id == "a@1")
    sink.writer().commit([replace(done, written=own)], 0)
    assert (sink.peek("a"), sink.peek("b")) == (["1"], [])


def run(sink: Sink, **options: str) -> TaskDone:
    """Run the task of a batch, as planned by a new driver."""
    writer = CassieqDataSource({"queueColumn": "to", **options}).streamWriter(
        ROWS, overwrite=False
    )
    copy: MessageStreamWriter = pickle.loads(pickle.dumps(writer))
    return copy.write(iter([rows(*BOTH)]))


def test_what_was_published_in_one_of_the_queues_is_replayed_whole(source: Sink, tmp_path: Path):
    end = source.reader().next_batch(SOURCE, limit=10)
    options = source.with_plan(tmp_path, 0, end)
    publish_in_a(source, run(source, **options))

    for _ in range(8):
        ((task,),) = source.reader().tasks(end, messages_per_task=100)
        assert task.count == 10
        done = run(source, **options)
    source.writer(**options).commit([done], 0)

    assert (source.peek("a"), source.peek("b")) == (["1"], ["2"])


def test_a_batch_that_no_queue_has_is_replayed_in_smaller_pieces(source: Sink, tmp_path: Path):
    """Else one message that fails each time would stop the query for ever."""
    end = source.reader().next_batch(SOURCE, limit=10)
    options = source.with_plan(tmp_path, 0, end)
    counts = []

    for _ in range(4):
        counts.append(
            sum(
                part.count for it in source.reader().tasks(end, messages_per_task=9) for part in it
            )
        )
        run(source, **options)

    assert counts[0] == 10
    assert counts[-1] < 10


@pytest.mark.parametrize("is_published", [False, True])
def test_what_a_refused_write_has_leased_is_given_back_unless_a_queue_has_it(
    source: Sink, tmp_path: Path, is_published: bool
):
    for _ in range(1 if is_published else 6):
        end = source.reader().next_batch(SOURCE, limit=10)
        options = source.with_plan(tmp_path, 0, end)
        if is_published:
            publish_in_a(source, run(source, **options))
        with pytest.raises(SchemaError, match="no column 'none'"):
            run(source, **{**options, "queueColumn": "none"})

    taken = source.client.receive("source", "g", max=20)
    assert [each.delivery_count for each in taken] == [1] * (10 if is_published else 20)
