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
