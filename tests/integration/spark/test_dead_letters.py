from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.queues import create_queue, read_queue
from tests.support.spark_session import QueueOnSpark, numbers_of

BAD = 77


@pytest.fixture
def limited(queue: QueueOnSpark) -> QueueOnSpark:
    """A queue with a limit of five deliveries, and a dead-letter queue."""
    name = f"limited-{uuid4().hex[:12]}"
    create_queue(queue.store, f"{name}.dead")
    definition = create_queue(
        queue.store, name, max_deliveries=5, dead_letter_queue=f"{name}.dead"
    )
    return QueueOnSpark(queue.spark, queue.store, definition, queue.connection, queue.folder)


def test_a_poisonous_message_ends_up_alone_in_the_dead_letter_queue(limited: QueueOnSpark):
    limited.publish(limited.numbers(300))
    delivered: Counter[int] = Counter()
    processed: Counter[int] = Counter()

    def process(batch: DataFrame, _: int) -> None:
        numbers = numbers_of(batch.collect())
        delivered.update(numbers)
        if BAD in numbers:
            raise RuntimeError("poison")
        processed.update(numbers)

    failures: list[str] = []
    while limited.stats().groups == () or limited.group_stats("g").depth:
        stream = limited.stream("g", maxMessagesPerTrigger="100")
        try:
            limited.start(stream, process).awaitTermination()
        except PySparkException as error:
            failures.append(str(error))

    assert all("poison" in failure for failure in failures)
    assert len(failures) == 5
    assert delivered[BAD] == 5
    assert processed == {number: 1 for number in range(300) if number != BAD}
    assert max(count for number, count in delivered.items() if number != BAD) < 5
    (dead,) = limited.browse(
        queue=limited.definition.dead_letter_queue, includeHeaders="true"
    ).collect()
    assert int(bytes(dead.value)) == BAD
    assert dead.headers["cassieq.origin-queue"] == limited.definition.name
    assert dead.headers["cassieq.origin-monoton"] == str(BAD)
    assert dead.headers["cassieq.origin-group"] == "g"
    assert dead.headers["cassieq.deliveries"] == "5"
    assert "5 deliveries" in dead.headers["cassieq.reason"]


def test_a_dead_letter_is_copied_once_and_its_key_and_headers_with_it(limited: QueueOnSpark):
    messages = limited.numbers(1).selectExpr("'k' as key", "value", "map('a', 'b') as headers")
    limited.publish(messages)

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError("poison")

    readers = 0
    while limited.stats().groups == () or limited.group_stats("g").depth:
        readers += 1
        stream = limited.stream("g", leaseSeconds="2")
        query = limited.start(stream, fail, checkpoint=f"reader-{readers}")
        try:
            query.awaitTermination()
        except PySparkException:
            continue

    target = read_queue(limited.store, str(limited.definition.dead_letter_queue))
    (dead,) = limited.browse(queue=target.name, includeHeaders="true").collect()
    assert (bytes(dead.key), bytes(dead.value), dead.headers["a"]) == (b"k", b"0", "b")
    assert limited.group_stats("g").depth == 0
