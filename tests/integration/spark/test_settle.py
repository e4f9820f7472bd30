from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from cassieq_spark.queues import create_queue
from tests.support.spark_session import QueueOnSpark, numbers_of


def test_released_messages_come_again_and_the_rest_of_the_batch_does_not(queue: QueueOnSpark):
    queue.publish(queue.numbers(1_000))
    batches: list[list[Row]] = []

    def release_every_hundredth_once(batch: DataFrame, _: int) -> None:
        batch = batch.persist()
        batches.append(batch.collect())
        failed = batch.where("delivery_count = 1 AND monoton % 100 = 7")
        _settle(queue, failed, "release")
        batch.unpersist()

    stream = queue.stream("g", includeReceipts="true")
    queue.start(stream, release_every_hundredth_once).awaitTermination()

    first, again = batches
    assert numbers_of(first) == list(range(1_000))
    assert numbers_of(again) == list(range(7, 1_000, 100))
    assert {row.delivery_count for row in again} == {2}
    assert queue.group_stats("g").depth == 0


def test_messages_released_with_a_delay_wait_and_hold_up_nobody(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))

    def release_some(batch: DataFrame, _: int) -> None:
        _settle(queue, batch.where("monoton < 3"), "release", delay="1h")

    stream = queue.stream("g", includeReceipts="true")
    queue.start(stream, release_some).awaitTermination()
    queue.publish(queue.numbers(10))
    (rows,) = queue.drain("g")

    assert [row.monoton for row in rows] == list(range(100, 110))
    stats = queue.group_stats("g")
    assert (stats.depth, stats.waiting, stats.leased, stats.floor) == (3, 3, 0, 0)


def test_messages_settled_at_once_do_not_come_again_when_their_batch_fails(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))

    def ack_half_then_fail(batch: DataFrame, _: int) -> None:
        _settle(queue, batch.where("monoton < 50"), "ack", settle="now")
        raise RuntimeError("half done")

    stream = queue.stream("g", includeReceipts="true")
    with pytest.raises(PySparkException, match="half done"):
        queue.start(stream, ack_half_then_fail).awaitTermination()
    (rows,) = queue.drain("g", includeReceipts="true")

    assert numbers_of(rows) == list(range(50, 100))
    assert queue.group_stats("g").depth == 0


def test_stale_receipts_harm_nobody(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))
    receipts: list[str] = []

    def keep(batch: DataFrame, _: int) -> None:
        receipts.extend(row.receipt for row in batch.collect())

    queue.start(queue.stream("g", includeReceipts="true"), keep).awaitTermination()
    queue.publish(queue.numbers(5))
    stale = queue.spark.createDataFrame([(each,) for each in receipts], "receipt STRING")

    for operation in ("release", "ack"):
        _settle(queue, stale, operation)

    assert queue.group_stats("g").depth == 5
    (rows,) = queue.drain("g")
    assert [row.monoton for row in rows] == list(range(10, 15))


def test_a_batch_of_mixed_outcomes_is_settled_by_one_write(queue: QueueOnSpark):
    """The example of docs/settling.md: what does not parse is rejected, and so on."""
    name = f"{queue.definition.name}-mixed"
    definition = create_queue(
        queue.store, name, max_deliveries=5, dead_letter_queue=f"{name}.dead"
    )
    mixed = replace(queue, definition=definition)
    mixed.publish(mixed.numbers(100))
    batches: list[list[Row]] = []

    def sort_out(batch: DataFrame, _: int) -> None:
        batches.append(batch.collect())
        outcomes = batch.selectExpr(
            "receipt",
            """CASE WHEN monoton % 10 = 1 THEN 'reject' WHEN monoton % 10 = 2 THEN 'release'
                    WHEN monoton % 10 = 3 THEN 'extend' WHEN monoton % 10 = 4 THEN 'replace'
                    ELSE 'ack' END AS operation""",
            "CASE WHEN monoton % 10 = 2 THEN INTERVAL 1 HOUR END AS delay",
            "CASE WHEN monoton % 10 = 1 THEN 'ends in one' END AS reason",
            "3600L AS seconds",
            "concat('new ', value) AS value",
        )
        _settle(mixed, outcomes, "each", select=False)

    mixed.start(mixed.stream("g", includeReceipts="true"), sort_out).awaitTermination()

    stats = mixed.group_stats("g")
    assert (stats.waiting, stats.leased, stats.dead, stats.depth) == (10, 10, 0, 30)
    dead = mixed.browse(queue=f"{name}.dead", includeHeaders="true").collect()
    assert numbers_of(dead) == list(range(1, 100, 10))
    assert {row.headers["cassieq.reason"] for row in dead} == {"ends in one"}
    new = mixed.browse().where("monoton >= 100").collect()
    assert [bytes(row.value).decode() for row in new] == [f"new {n}" for n in range(4, 100, 10)]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("'nonsense' as receipt", "'nonsense' is not a receipt"),
        ("string(null) as receipt", "is not a receipt"),
        (f"'other@1/g/{UUID(int=1)}/3' as receipt", "is of queue other@1"),
        ("id", "a column 'receipt' is missing"),
        ("1 as receipt", "column 'receipt' is int, expected string"),
    ],
)
def test_what_is_no_receipt_is_refused(queue: QueueOnSpark, columns: str, complaint: str):
    with pytest.raises(PySparkException, match=complaint):
        _settle(queue, queue.spark.range(1).selectExpr(columns), "ack", select=False)


def test_a_stream_of_receipts_and_a_batch_read_with_receipts_are_refused(queue: QueueOnSpark):
    with pytest.raises(
        PySparkException, match="'includeReceipts' is for a stream, not for a batch read"
    ):
        queue.browse(includeReceipts="true").count()
    with pytest.raises(PySparkException, match="'operation' is for batch writes"):
        _write_stream(queue)


def _settle(
    queue: QueueOnSpark, rows: DataFrame, operation: str, *, select: bool = True, **options: str
) -> None:
    receipts = rows.select("receipt") if select else rows
    writer = receipts.write.format("cassieq").options(**queue.options, operation=operation)
    writer.options(**options).mode("append").save()


def _write_stream(queue: QueueOnSpark) -> None:
    rate = queue.spark.readStream.format("rate").load().selectExpr("string(value) as value")
    writer = rate.writeStream.format("cassieq").options(**queue.options, operation="ack")
    query = writer.option("checkpointLocation", str(queue.folder / "settle")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
