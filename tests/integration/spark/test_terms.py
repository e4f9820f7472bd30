"""How much a stream takes at a time, and of what."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock
from cassieq_spark.queues import create_queue
from tests.support.faults import make_block_id
from tests.support.spark_session import QueueOnSpark, numbers_of


def test_a_stream_waits_for_enough_messages_but_not_for_ever(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))
    counts: list[int] = []
    query = queue.start(
        queue.stream("g", minMessagesPerTrigger="20", maxTriggerDelay="6s"),
        lambda batch, _: counts.append(batch.count()),
        processingTime="0 seconds",
    )
    try:
        wait_for(lambda: counts == [10], "the first batch does not wait")
        first_at = time.monotonic()
        queue.publish(queue.numbers(15))
        wait_for(lambda: counts == [10, 15], "too few for too long")
        assert time.monotonic() - first_at > 3
        queue.publish(queue.numbers(20))
        wait_for(lambda: counts == [10, 15, 20], "enough")
        wait_for(lambda: queue.group_stats("g").depth == 0, "acked while waiting for more")
    finally:
        query.stop()


def test_available_now_does_not_wait_for_enough_messages(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))

    assert [len(rows) for rows in queue.drain("g", minMessagesPerTrigger="1000")] == [10]


def test_a_limit_of_bytes_makes_smaller_batches(queue: QueueOnSpark):
    wide = queue.spark.range(1000, numPartitions=1).selectExpr(
        "concat(repeat('x', 100), uuid()) as value"
    )
    queue.publish(wide, compression="none")

    batches = [len(rows) for rows in queue.drain("g", maxBytesPerTrigger="64k")]

    assert sum(batches) == 1000
    assert 2 <= len(batches) <= 6
    assert max(batches) <= 600


def test_messages_that_are_too_old_are_skipped(queue: QueueOnSpark):
    old = datetime.now(UTC) - timedelta(minutes=30)
    written = PendingBlock(make_block_id(old), 10, visible=old)
    publish(Ledger(queue.store, queue.definition.queue_id), [written])
    queue.publish(queue.numbers(5))

    (rows,) = queue.drain("g", skipOlderThan="15m")

    assert [row.monoton for row in rows] == list(range(10, 15))
    assert queue.group_stats("g").depth == 0


def test_readers_of_a_group_hold_no_more_than_the_limit_in_flight(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))
    held: list[tuple[int, int]] = []

    def look(batch: DataFrame, _: int) -> None:
        held.append((batch.count(), queue.group_stats("g").leased))
        held.append(
            (0, sum(len(rows) for rows in queue.drain("g", checkpoint="other", maxInFlight="30")))
        )

    stream = queue.stream("g", maxInFlight="30", maxMessagesPerTrigger="30")
    queue.start(stream, look).awaitTermination()

    assert max(leased for _, leased in held) == 30
    assert sum(count for count, _ in held) == 100
    assert [taken for count, taken in held if not count] == [0] * 4, "the other gets nothing"


def test_a_strictly_ordered_queue_comes_in_order_whatever_fails(queue: QueueOnSpark):
    name = f"{queue.definition.name}-strict"
    strict = replace(queue, definition=create_queue(queue.store, name, order="strict"))
    strict.publish(strict.numbers(40))
    processed: list[int] = []
    failures = 0

    def process(batch: DataFrame, _: int) -> None:
        numbers = [row.monoton for row in batch.collect()]
        if failures < 2 and 17 in numbers:
            raise RuntimeError("17 is not ready")
        processed.extend(numbers)

    while len(processed) < 40:
        stream = strict.stream("g", maxMessagesPerTrigger="10")
        try:
            strict.start(stream, process).awaitTermination()
        except PySparkException:
            failures += 1

    assert processed == list(range(40))
    assert failures == 2
    with pytest.raises(PySparkException, match="strictly ordered"):
        strict.publish(strict.numbers(1).selectExpr("value", "10 as delay"))


def test_messages_that_failed_are_left_alone_while_others_are_delivered(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))
    failures = 0

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError(f"{batch.count()} messages")

    for _ in range(2):
        try:
            queue.start(queue.stream("g", retryBackoff="1h"), fail).awaitTermination()
        except PySparkException:
            failures += 1
    assert failures == 2, "at once the first time"
    queue.publish(queue.numbers(5))

    batches = queue.drain("g", retryBackoff="1h")

    assert [numbers_of(rows) for rows in batches if rows] == [[0, 1, 2, 3, 4]]
    assert queue.group_stats("g").waiting == 10


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again, for a minute."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.05)
