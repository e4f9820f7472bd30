from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from cassieq_spark.ledger.ledger import Ledger
from tests.support.spark_session import QueueOnSpark, numbers_of


def test_delayed_messages_come_when_it_is_time_and_hold_up_nobody(queue: QueueOnSpark):
    later = queue.numbers(100).selectExpr(
        "value", "CASE WHEN int(value) % 2 = 0 THEN INTERVAL 10 SECONDS END AS delay"
    )
    queue.publish(later)
    published = [
        each.published_at for each in Ledger(queue.store, queue.definition.queue_id).read_blocks()
    ]
    batches: list[tuple[datetime, list[Row]]] = []
    query = queue.start(
        queue.stream("g"),
        lambda batch, _: batches.append((datetime.now(UTC), batch.collect())),
        processingTime="0 seconds",
    )
    try:
        while sum(len(rows) for _, rows in batches) < 100:
            assert query.exception() is None
            query.awaitTermination(0.1)
    finally:
        query.stop()

    at_once, *rest = batches
    assert sorted(numbers_of(at_once[1])) == list(range(1, 100, 2))
    assert sorted(n for _, rows in rest for n in numbers_of(rows)) == list(range(0, 100, 2))
    assert min(when for when, _ in rest) >= min(published) + timedelta(seconds=10)
    assert query.lastProgress is not None


def test_messages_become_visible_at_their_instant(queue: QueueOnSpark):
    messages = queue.numbers(10).selectExpr(
        "value",
        "CASE int(value) % 3 WHEN 0 THEN timestamp '2020-01-01' "
        "WHEN 1 THEN current_timestamp() + INTERVAL 1 HOUR END AS visible_at",
    )
    queue.publish(messages)

    (rows,) = queue.drain("g")

    assert sorted(numbers_of(rows)) == [0, 2, 3, 5, 6, 8, 9]
    assert queue.group_stats("g").waiting == 3


def test_a_delay_that_makes_no_sense_is_refused(queue: QueueOnSpark):
    with pytest.raises(PySparkException, match="negative delay"):
        queue.publish(queue.numbers(3).selectExpr("value", "-1 AS delay"))
    with pytest.raises(PySparkException, match="expected a day-time interval"):
        queue.publish(queue.numbers(3).selectExpr("value", "'soon' AS delay"))
    assert queue.stats().next == 0
