"""A query that reads several queues, with a real Spark and a real Cassandra."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from cassieq_spark.queues import alter_queue, create_queue, delete_queue
from cassieq_spark.spark.progress import progress
from tests.support.spark_session import QueueOnSpark

PATIENCE = 120


@pytest.fixture
def queues(queue: QueueOnSpark) -> list[QueueOnSpark]:
    """Three queues; the last one has two partitions."""
    name = queue.definition.name
    return [
        replace(queue, definition=create_queue(queue.store, f"{name}.{at}", partitions=partitions))
        for at, partitions in enumerate((1, 1, 2))
    ]


def several(queues: list[QueueOnSpark], **options: str) -> DataFrame:
    """A stream of all of them by a list, unless a pattern is given."""
    names = {"queue": ",".join(each.definition.name for each in queues)}
    reader = queues[0].spark.readStream.format("cassieq").options(**queues[0].connection)
    given = {} if "queuePattern" in options else names
    return reader.options(**given, **{"group": "g", **options}).load()


def counts(rows: list[Row]) -> Counter[str]:
    """Messages by the last part of their queue's name, and their value."""
    return Counter(f"{row.queue.rpartition('.')[2]}:{bytes(row.value).decode()}" for row in rows)


def test_what_fails_between_queues_is_replayed_and_acked_in_all_of_them(
    queues: list[QueueOnSpark],
):
    for each in queues:
        each.publish(each.numbers(40))
    processed: list[Row] = []
    batches: dict[int, Counter[str]] = {}

    def process(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        before = batches.setdefault(number, counts(rows))
        assert before == counts(rows), "a replay has the same rows"
        if number == 1 and not failed.is_set():
            failed.set()
            raise RuntimeError("not ready")
        processed.extend(rows)

    failed = threading.Event()
    stream = several(queues, maxMessagesPerTrigger="50")
    with pytest.raises(PySparkException, match="not ready"):
        queues[0].start(stream, process).awaitTermination()
    query = queues[0].start(several(queues, maxMessagesPerTrigger="50"), process)
    query.awaitTermination()

    expected = {f"{at}:{number}" for at in range(3) for number in range(40)}
    assert counts(processed) == Counter(expected)
    assert {row.partition for row in processed if row.queue.endswith(".2")} <= {0, 1}
    assert [each.group_stats("g").depth for each in queues] == [0, 0, 0]


def test_a_query_of_a_pattern_finds_queues_that_are_made_and_leaves_those_that_are_deleted(
    queues: list[QueueOnSpark],
):
    queue, name = queues[0], queues[0].definition.name.rpartition(".")[0]
    queue.publish(queue.numbers(3))

    with Running(queue, queuePattern=rf"{name}\..*") as running:
        running.wait_for(3)
        made = replace(queue, definition=create_queue(queue.store, f"{name}.made"))
        made.publish(made.numbers(2))
        running.wait_for(5)
        delete_queue(queue.store, queues[1].definition.name, force=True)
        queues[2].publish(queues[2].numbers(4))
        running.wait_for(9)
        (told,) = progress(running.query.lastProgress)

    assert counts(running.rows) == Counter(
        [f"0:{n}" for n in range(3)]
        + [f"made:{n}" for n in range(2)]
        + [f"2:{n}" for n in range(4)]
    )
    assert queues[0].definition.name in told.queue


def test_a_stream_publishes_each_row_once_to_the_queue_that_it_names(queues: list[QueueOnSpark]):
    source, *targets = queues
    source.publish(source.numbers(90))
    names = [each.definition.name for each in targets]

    def routed(stream: DataFrame) -> DataFrame:
        number = "cast(cast(value as string) as int)"
        to = f"if({number} % 3 = 0, '{names[0]}', '{names[1]}') as to"
        return stream.selectExpr(to, "cast(value as string) as key", "value")

    for _ in range(2):
        # The second query, with the checkpoint of the first one, repeats nothing.
        writer = routed(source.stream("g", maxMessagesPerTrigger="40")).writeStream
        writer = writer.format("cassieq").options(**source.connection, queueColumn="to")
        writer = writer.option("checkpointLocation", str(source.folder / "routed"))
        writer.trigger(availableNow=True).start().awaitTermination()

    found = [Counter(int(bytes(row.value)) for row in each.browse().collect()) for each in targets]
    assert found[0] == Counter(range(0, 90, 3))
    assert found[1] == Counter(number for number in range(90) if number % 3)
    assert source.group_stats("g").depth == 0


def test_a_batch_write_to_a_queue_that_does_not_exist_publishes_nothing(
    queues: list[QueueOnSpark],
):
    queue = queues[0]
    rows = queue.numbers(4).selectExpr(f"'{queue.definition.name}' as to", "value")
    lost = queue.numbers(1).selectExpr("'nobody' as to", "value")
    writer = rows.union(lost).write.format("cassieq").options(**queue.connection)

    with pytest.raises(PySparkException, match="nobody"):
        writer.option("queueColumn", "to").mode("append").save()

    assert queue.browse().count() == 0


@pytest.fixture
def typed(queue: QueueOnSpark) -> Callable[..., QueueOnSpark]:
    """Creates a queue with a schema, whose name a pattern of all of them matches."""

    def create(last: str, schema: str | None) -> QueueOnSpark:
        name = f"{queue.definition.name}.{last}"
        return replace(queue, definition=create_queue(queue.store, name, schema=schema))

    return create


def pattern(queue: QueueOnSpark) -> dict[str, str]:
    name = queue.definition.name.rpartition(".")[0]
    return {"queuePattern": rf"{name}\.[a-z]+", "failOnDataLoss": "false"}


class Running:
    """A query of a pattern, which runs until a test has seen what it waits for."""

    def __init__(self, queue: QueueOnSpark, **options: str) -> None:
        self.rows: list[Row] = []
        self._new = threading.Condition()
        self._queue = queue
        self._options = pattern(queue) | options

    def __enter__(self) -> Self:
        stream = several([self._queue], **self._options)
        self.query = self._queue.start(
            stream,
            self._process,
            checkpoint=self._options.get("group", "g"),
            processingTime="100 milliseconds",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()

    def _process(self, batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        with self._new:
            self.rows += rows
            self._new.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until there are so many rows."""
        with self._new:
            found = self._new.wait_for(lambda: len(self.rows) >= count, PATIENCE)
        assert found, (self.rows, self.query.exception())

    @property
    def by_id(self) -> list[dict[str, Any]]:
        return sorted((row.asDict() for row in self.rows), key=lambda row: row["id"])


def test_queues_with_other_columns_join_a_query_and_are_altered_while_it_runs(
    typed: Callable[..., QueueOnSpark],
):
    first = typed("first", "id bigint not null, name string")
    second = typed("second", "fare double, id int")
    first.publish(first.spark.range(1).selectExpr("id", "'a' as name"))
    second.publish(first.spark.range(1, 2).selectExpr("cast(id as int) as id", "0.5D as fare"))

    with Running(first) as running:
        running.wait_for(2)
        third = typed("third", "id bigint, other string")
        third.publish(first.spark.range(2, 3).selectExpr("id", "'unseen' as other"))
        running.wait_for(3)
        alter_queue(first.store, first.definition.name, schema="id bigint not null, late int")
        first.publish(first.spark.range(3, 4).selectExpr("id", "7 as late"))
        running.wait_for(4)

    assert running.by_id == [
        {"id": 0, "name": "a", "fare": None},
        {"id": 1, "name": None, "fare": 0.5},
        {"id": 2, "name": None, "fare": None},
        {"id": 3, "name": None, "fare": None},
    ]
    with Running(first, columns="late,id", group="other", includeMetadata="true") as again:
        again.wait_for(4)
    assert [row["late"] for row in again.by_id] == [None, None, None, 7]
    queues = {row._metadata.queue.rpartition(".")[2] for row in again.rows}
    assert queues == {"first", "second", "third"}


def test_a_queue_whose_columns_contradict_the_others_is_refused_by_name(
    typed: Callable[..., QueueOnSpark],
):
    first = typed("first", "id bigint, name string")
    with Running(first) as running:
        first.publish(first.spark.range(1).selectExpr("id", "'a' as name"))
        running.wait_for(1)
        second = typed("second", "id string, name string")
        second.publish(first.spark.range(1).selectExpr("'x' as id", "'b' as name"))

        with pytest.raises(PySparkException, match=r"queue '\S+\.second' can't be read together"):
            running.query.awaitTermination(PATIENCE)

    assert second.stats().groups == ()
    with pytest.raises(PySparkException, match=r"'\S+\.second'.*queue '\S+\.first'.*'id'"):
        several([first], **pattern(first))
    names = several([first], **pattern(first), columns="name").columns
    assert names == ["name"]


def test_rows_go_to_queues_that_have_more_columns_and_to_none_that_has_fewer(
    typed: Callable[..., QueueOnSpark],
):
    more, fewer = (
        typed("more", "extra double, id bigint, name string"),
        typed("fewer", "id bigint"),
    )
    names = [each.definition.name for each in (more, fewer)]
    rows = more.spark.range(4).selectExpr("id", "cast(id as string) as name")

    def write(to: str) -> None:
        writer = rows.selectExpr("*", f"{to} as to").write.format("cassieq")
        writer.options(**more.connection).option("queueColumn", "to").mode("append").save()

    with pytest.raises(PySparkException, match=r"queue '\S+\.fewer': .*no column 'name'"):
        write(f"if(id < 3, '{names[0]}', '{names[1]}')")
    assert [each.stats().next for each in (more, fewer)] == [0, 0]
    write(f"'{names[0]}'")

    found = [row.asDict() for row in more.browse().orderBy("id").collect()]
    assert found == [{"extra": None, "id": at, "name": str(at)} for at in range(4)]


def test_two_queries_of_one_group_share_fifty_queues_though_one_of_them_fails_in_between(
    queue: QueueOnSpark,
):
    name = queue.definition.name
    queues = [
        replace(queue, definition=create_queue(queue.store, f"{name}.{at}")) for at in range(50)
    ]
    to = f"concat('{name}.', id % 50)"
    rows = queue.spark.range(1_000).selectExpr(f"{to} as to", "cast(id as string) as value")
    writer = rows.write.format("cassieq").options(**queue.connection)
    writer.option("queueColumn", "to").mode("append").save()
    options = {"queuePattern": rf"{name}\.\d+", "maxMessagesPerTrigger": "150"}
    processed: list[int] = []
    lock, failed = threading.Lock(), threading.Event()

    def process(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        if number == 1 and not failed.is_set():
            failed.set()
            raise RuntimeError("not ready")
        with lock:
            processed.extend(int(bytes(row.value)) for row in rows)

    def run(checkpoint: str) -> None:
        while True:
            query = queue.start(several(queues, **options), process, checkpoint=checkpoint)
            try:
                return query.awaitTermination()
            except PySparkException as error:
                if "not ready" not in str(error):
                    raise

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(run, checkpoint) for checkpoint in ("one", "two")]:
            each.result(PATIENCE)

    assert failed.is_set()
    assert Counter(processed) == Counter(range(1_000))
    assert {each.group_stats("g").depth for each in queues} == {0}
