"""Batch reads of a part of a queue: by position and by count."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.client import Client
from cassieq_spark.ledger.ledger import Ledger
from tests.support.spark_session import QueueOnSpark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def hundred(queue: QueueOnSpark) -> QueueOnSpark:
    """A queue of two blocks of 50 messages."""
    with Client.from_store(queue.store) as client:
        for _ in range(2):
            client.put_many(queue.definition.name, map(str, range(50)))
    return queue


def monotons(frame: DataFrame) -> list[int]:
    return sorted(row.monoton for row in frame.select("monoton").collect())


def published_at(queue: QueueOnSpark) -> list[str]:
    """When the two blocks were published."""
    blocks = Ledger(queue.store, queue.definition.queue_id).read_blocks()
    return [block.published_at.isoformat() for block in blocks]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(100)),
        ({"startingPosition": "97"}, range(97, 100)),
        ({"startingPosition": "latest"}, range(0)),
        ({"endingPosition": "3"}, range(3)),
        ({"endingPosition": "earliest"}, range(0)),
        ({"startingPosition": "40", "endingPosition": "60"}, range(40, 60)),
        ({"startingPosition": "60", "endingPosition": "60"}, range(0)),
        ({"maxMessages": "7"}, range(7)),
        ({"startingPosition": "45", "maxMessages": "7"}, range(45, 52)),
        ({"endingPosition": "3", "maxMessages": "700"}, range(3)),
    ],
)
def test_a_batch_read_begins_and_ends_where_it_is_told(
    hundred: QueueOnSpark, options: dict[str, str], expected: range
):
    assert monotons(hundred.browse(**options)) == list(expected)


def test_an_instant_is_the_border_between_blocks(hundred: QueueOnSpark):
    _, second = published_at(hundred)

    assert monotons(hundred.browse(startingPosition=second)) == list(range(50, 100))
    assert monotons(hundred.browse(endingPosition=second)) == list(range(50))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingPosition": "101"}, "no monoton 101 yet: it holds"),
        ({"endingPosition": "101"}, "no monoton 100 yet.*end at 100, or at latest"),
        ({"startingPosition": "9", "endingPosition": "8"}, "8 is before startingPosition 9"),
        ({"maxMessages": "0"}, "'maxMessages' must be a whole number of at least 1"),
        ({"group": "g"}, "'group' is for a stream, the view leases and the view history, not"),
        ({"maxMessagesPerTrigger": "5"}, "'maxMessagesPerTrigger' is for a stream, not for a b"),
        ({"view": "stats", "maxMessages": "5"}, "'maxMessages' is for a batch read.* not for the"),
        ({"view": "blocks", "startingPosition": "5"}, "'startingPosition' is for .* view blocks"),
    ],
)
def test_what_makes_no_sense_is_refused(
    hundred: QueueOnSpark, options: dict[str, str], problem: str
):
    with pytest.raises(PySparkException, match=problem):
        hundred.browse(**options).collect()


def test_a_stream_refuses_what_is_for_batch_reads(hundred: QueueOnSpark):
    query = hundred.start(hundred.stream("g", maxMessages="5"), lambda *_: None)

    with pytest.raises(PySparkException, match="'maxMessages' is for a batch read of messages, n"):
        query.awaitTermination()


def test_a_start_that_is_deleted_is_refused_unless_loss_is_fine(hundred: QueueOnSpark):
    ledger = Ledger(hundred.store, hundred.definition.queue_id)
    assert ledger.finalise(ledger.read_head(), 30)

    with pytest.raises(PySparkException, match=r"\[20, 30\) from startingPosition 20 on are"):
        hundred.browse(startingPosition="20").collect()
    kept = hundred.browse(startingPosition="20", failOnDataLoss="false", endingPosition="32")
    assert monotons(kept) == [30, 31]


def test_filters_of_one_dataframe_do_not_mix(hundred: QueueOnSpark):
    """Spark's own filter pushdown for Python sources mixes them up; so it gets none to push."""
    hundred.spark.conf.set(PUSHDOWN, "true")
    try:
        stored = hundred.browse()

        assert monotons(stored.where("monoton < 3")) == [0, 1, 2]
        assert stored.count() == 100
        both = stored.where("monoton < 3").union(stored.where("monoton >= 98"))
        assert monotons(both) == [0, 1, 2, 98, 99]
    finally:
        hundred.spark.conf.unset(PUSHDOWN)


def test_of_a_part_only_its_tasks_are_there(hundred: QueueOnSpark):
    parts = {"messagesPerTask": "10"}

    assert hundred.browse(**parts).rdd.getNumPartitions() == 10
    assert hundred.browse(**parts, endingPosition="10").rdd.getNumPartitions() == 1
