"""Where a group begins: at a monoton, at an instant, and where messages are deleted already."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import delete_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings.position import show_position
from cassieq_spark.store.protocol import Store
from tests.support.spark_session import QueueOnSpark


def monotons(batches: list[list[object]]) -> list[int]:
    return sorted(row.monoton for batch in batches for row in batch)  # type: ignore[attr-defined]


def test_a_group_begins_at_a_monoton_or_at_an_instant(queue: QueueOnSpark):
    for _ in range(2):
        queue.publish(queue.numbers(50, partitions=1))
    second = Ledger(queue.store, queue.definition.queue_id).read_blocks()[1]
    instant = show_position(second.published_at)

    at_a_monoton = queue.drain("m", checkpoint="m", startingPosition="42")
    at_an_instant = queue.drain("t", checkpoint="t", startingPosition=instant)

    assert monotons(at_a_monoton) == list(range(42, 100))
    assert monotons(at_an_instant) == list(range(50, 100))


def test_a_position_that_is_not_there_yet_fails_the_query(queue: QueueOnSpark):
    queue.publish(queue.numbers(50))

    with pytest.raises(PySparkException, match="no monoton 51 yet"):
        queue.drain("g", startingPosition="51")


def test_deleted_messages_fail_a_new_group_unless_it_bears_that(queue: QueueOnSpark):
    queue.publish(queue.numbers(50))
    queue.drain("first", checkpoint="first", maxMessagesPerTrigger="30")
    queue.publish(queue.numbers(10))
    repair(queue.store, queue.definition.name)

    with pytest.raises(PySparkException, match=r"monotons \[20, 50\) are settled .*failOnData"):
        queue.drain("strict", checkpoint="strict", startingPosition="20")
    assert "strict" not in [group.group for group in queue.stats().groups]
    rows = queue.drain(
        "lenient", checkpoint="lenient", startingPosition="20", failOnDataLoss="false"
    )

    assert monotons(rows) == list(range(50, 60))


def test_a_query_goes_on_where_its_group_was_sought_and_fails_when_it_is_deleted(
    queue: QueueOnSpark,
):
    queue.publish(queue.numbers(50))
    assert monotons(queue.drain("g")) == list(range(50))

    seek_group(ConsumerGroup(Ledger(queue.store, queue.definition.queue_id), "g"), 40, force=True)
    again = queue.drain("g")
    assert monotons(again) == list(range(40, 50))
    assert {row.delivery_count for batch in again for row in batch} == {1}

    deletions: list[int] = []

    def delete(batch: object, batch_id: int) -> None:
        del batch
        deletions.append(batch_id)
        delete_group(
            ConsumerGroup(Ledger(queue.store, queue.definition.queue_id), "g"), force=True
        )

    queue.publish(queue.numbers(5))
    with pytest.raises(PySparkException, match="does not exist"):
        queue.start(queue.stream("g", maxMessagesPerTrigger="1"), delete).awaitTermination()
    assert len(deletions) == 1


def repair(store: Store, name: str) -> None:
    report = run_once(store, scan=lambda _: (), queues=[name], steps=[Step.FINALISE])
    assert report.totals.finalised > 0
