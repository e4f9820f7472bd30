"""Queues with several partitions, with a real Spark and a real Cassandra."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import create_queue
from tests.support.spark_session import QueueOnSpark

PARTITIONS = 4
KEYS = 10


@pytest.fixture
def ordered(queue: QueueOnSpark) -> QueueOnSpark:
    """A queue of four partitions, in order by key."""
    name = f"{queue.definition.name}-by-key"
    made = create_queue(queue.store, name, order="key", partitions=PARTITIONS)
    return replace(queue, definition=made)


def orders(queue: QueueOnSpark, count: int, *, tasks: int = 1, first: int = 0) -> DataFrame:
    """Numbers with keys, each key a tenth of them; those of a key in order within a task."""
    numbers = queue.spark.range(first, first + count, numPartitions=tasks)
    return numbers.selectExpr(f"cast(id % {KEYS} as string) as key", "cast(id as string) as value")


def by_key(rows: Iterable[Row]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[bytes(row.key).decode()].append(int(bytes(row.value)))
    return dict(found)


def expected(count: int) -> dict[str, list[int]]:
    return {str(key): list(range(key, count, KEYS)) for key in range(KEYS)}


def test_what_is_written_by_key_comes_in_order_by_key_whatever_fails(ordered: QueueOnSpark):
    for first in (0, 100, 200):
        ordered.publish(orders(ordered, 100, first=first))
    processed: list[Row] = []
    failures = 0

    def process(batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        if failures < 2 and any(int(bytes(row.value)) == 117 for row in rows):
            raise RuntimeError("117 is not ready")
        processed.extend(rows)

    while len(processed) < 300 and failures < 3:
        stream = ordered.stream("g", maxMessagesPerTrigger="40")
        try:
            ordered.start(stream, process).awaitTermination()
        except PySparkException:
            failures += 1

    assert failures == 2
    assert by_key(processed) == expected(300)
    for row in processed:
        assert row.partition == partition_of_key(bytes(row.key), PARTITIONS)
    assert ordered.group_stats("g").depth == 0


def test_in_a_batch_all_messages_of_a_key_are_in_one_task_in_order(ordered: QueueOnSpark):
    ordered.publish(orders(ordered, 1000))
    tasks: list[list[Row]] = []

    def look(batch: DataFrame, _: int) -> None:
        tasks.extend(batch.rdd.glom().collect())

    stream = ordered.stream("g", messagesPerTask="10")
    ordered.start(stream, look).awaitTermination()

    assert len(tasks) == len({partition_of_key(str(key), PARTITIONS) for key in range(KEYS)})
    keys = [set(by_key(task)) for task in tasks]
    assert sum(map(len, keys)) == KEYS
    assert by_key(row for task in tasks for row in task) == expected(1000)


def test_a_stream_into_partitions_publishes_each_batch_once(ordered: QueueOnSpark):
    source = replace(
        ordered, definition=create_queue(ordered.store, f"{ordered.definition.name}-in")
    )
    source.publish(orders(ordered, 200))
    sink = ordered.folder / "sink"

    def run() -> None:
        stream = source.stream("relay", maxMessagesPerTrigger="50").select("key", "value")
        writer = stream.writeStream.format("cassieq").options(**ordered.options)
        query = writer.option("checkpointLocation", str(sink)).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    # As if the driver had died before Spark's commit log: the last batch is replayed.
    last = max((sink / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
    last.unlink()
    (sink / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run()

    assert by_key(row for rows in ordered.drain("g") for row in rows) == expected(200)
    assert [each.next for each in ordered.stats().partitions] == [
        sum(20 for key in range(KEYS) if partition_of_key(str(key), PARTITIONS) == partition)
        for partition in range(PARTITIONS)
    ]


def test_two_queries_of_a_group_get_half_of_the_partitions_each(ordered: QueueOnSpark):
    #: The partitions of each batch, by query.
    batches: dict[str, list[set[int]]] = {"first": [], "second": []}

    def note(name: str) -> Callable[[DataFrame, int], None]:
        def process(batch: DataFrame, _: int) -> None:
            batches[name].append({row.partition for row in batch.collect()})

        return process

    def have_half() -> bool:
        last = [each[-1] if each else set() for each in batches.values()]
        return [len(each) for each in last] == [2, 2] and not last[0] & last[1]

    everywhere = ordered.spark.range(40).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    queries = []
    try:
        for name in batches:
            stream = ordered.stream("g", leaseSeconds="10")
            writer = stream.writeStream.foreachBatch(note(name))
            checkpoint = str(ordered.folder / name)
            queries.append(writer.option("checkpointLocation", checkpoint).start())
        deadline = time.monotonic() + 60
        while not have_half() and time.monotonic() < deadline:
            assert all(query.isActive for query in queries)
            ordered.publish(everywhere)
    finally:
        for query in queries:
            query.stop()

    assert have_half(), batches


def test_single_messages_are_settled_in_their_partitions(ordered: QueueOnSpark):
    ordered.publish(orders(ordered, 40))

    def settle(batch: DataFrame, _: int) -> None:
        even = batch.where("cast(cast(value as string) as int) % 2 = 0")
        even.select("receipt").write.format("cassieq").options(**ordered.options).option(
            "operation", "ack"
        ).mode("append").save()
        odd = batch.where("cast(cast(value as string) as int) % 2 = 1")
        odd.selectExpr("receipt", "'bad' as reason").write.format("cassieq").options(
            **ordered.options
        ).option("operation", "reject").mode("append").save()

    stream = ordered.stream("g", includeReceipts="true")
    ordered.start(stream, settle).awaitTermination()

    assert ordered.group_stats("g").dead == 0
    assert ordered.group_stats("g").depth == 0


def test_views_and_browsing_tell_the_partition(ordered: QueueOnSpark):
    ordered.publish(orders(ordered, 100, tasks=2))

    rows = ordered.browse().collect()
    stats = ordered.browse(view="stats").collect()

    assert {row.partition for row in rows} <= set(range(PARTITIONS))
    assert [row.monoton for row in rows if row.partition == 1] == list(
        range(sum(row.partition == 1 for row in rows))
    )
    assert sum(row.next for row in stats) == 100
    with pytest.raises(PySparkException, match="4 partitions, each with monotons of its own"):
        ordered.browse(startingPosition="3").collect()


def test_nothing_is_delayed_where_order_is_by_key(ordered: QueueOnSpark):
    with pytest.raises(PySparkException, match="ordered by key"):
        ordered.publish(orders(ordered, 1).selectExpr("key", "value", "10 as delay"))
