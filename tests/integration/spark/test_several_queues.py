"""A query that reads several queues, with a real Spark and a real Cassandra."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from cassieq_spark.queues import create_queue, delete_queue
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
    return reader.options(
        **({} if "queuePattern" in options else names), group="g", **options
    ).load()


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
    processed: list[Row] = []
    new = threading.Condition()

    def process(batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        with new:
            processed.extend(rows)
            new.notify_all()

    def wait_for(count: int) -> None:
        with new:
            assert new.wait_for(lambda: len(processed) >= count, PATIENCE), counts(processed)

    stream = several(queues, queuePattern=rf"{name}\..*", failOnDataLoss="false")
    query = queue.start(stream, process, processingTime="100 milliseconds")
    try:
        wait_for(3)
        made = replace(queue, definition=create_queue(queue.store, f"{name}.made"))
        made.publish(made.numbers(2))
        wait_for(5)
        delete_queue(queue.store, queues[1].definition.name, force=True)
        queues[2].publish(queues[2].numbers(4))
        wait_for(9)
        (told,) = progress(query.lastProgress)
    finally:
        query.stop()

    assert counts(processed) == Counter(
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
