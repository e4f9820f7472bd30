from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.client import Client
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.store.tables import Table
from tests.support.builders import last_batch
from tests.support.spark_session import QueueOnSpark, numbers_of

PROGRAMS = Path(__file__).parent / "programs"


def test_a_batch_write_is_visible_in_the_order_of_its_rows(queue: QueueOnSpark):
    queue.publish(queue.numbers(5_000))

    rows = queue.browse().orderBy("monoton").collect()

    assert [row.monoton for row in rows] == list(range(5_000))
    assert numbers_of(rows) == list(range(5_000))


def test_key_value_and_headers_come_back_as_they_were(queue: QueueOnSpark):
    schema = "key STRING, value STRING, headers MAP<STRING, STRING>"
    messages = [("a", "one", {"from": "test"}), (None, "two", None), ("c", "", {"empty": None})]
    queue.publish(queue.spark.createDataFrame(messages, schema))

    found = queue.browse(includeHeaders="true").orderBy("monoton")

    assert_df_equality(
        found.selectExpr("string(key) as key", "string(value) as value", "headers"),
        queue.spark.createDataFrame(messages, schema),
        ignore_nullable=True,
    )


def test_an_empty_dataframe_publishes_nothing_and_succeeds(queue: QueueOnSpark):
    queue.publish(queue.numbers(0))

    assert queue.stats().next == 0


def test_a_write_with_a_transaction_id_is_published_once(queue: QueueOnSpark):
    for _ in range(2):
        queue.publish(queue.numbers(100), txnAppId="loader", txnVersion="7")
    assert queue.stats().next == 100

    queue.publish(queue.numbers(10), txnAppId="loader", txnVersion="8")
    assert queue.stats().next == 110


def test_a_stream_publishes_every_micro_batch_once_in_order(queue: QueueOnSpark):
    _publish_stream(queue, batches=4)

    assert numbers_of(queue.browse().orderBy("monoton").collect()) == list(range(4_000))


def test_a_replayed_micro_batch_publishes_nothing(queue: QueueOnSpark):
    _publish_stream(queue, batches=3)
    checkpoint = queue.folder / "checkpoint"
    before = Ledger(queue.store, queue.definition.queue_id).read_head()
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    written = _chunk_rows(queue)

    # As if the driver had died after the publish, before Spark's commit log.
    _forget_last_commit(checkpoint)
    _publish_stream(queue, batches=3)

    assert Ledger(queue.store, queue.definition.queue_id).read_head() == before
    assert last_batch(queue.store, queue.definition.queue_id, f"query:{query_id}") == 2
    assert _chunk_rows(queue) == written, "the tasks of the replay wrote nothing either"


def test_a_checkpoint_from_before_a_batch_was_planned_is_an_error(queue: QueueOnSpark):
    _publish_stream(queue, batches=2)
    checkpoint = queue.folder / "checkpoint"
    _forget_last_commit(checkpoint)
    (last,) = (each for each in (checkpoint / "offsets").glob("1"))
    last.unlink()
    (checkpoint / "offsets" / ".1.crc").unlink()

    with pytest.raises(PySparkException, match="has published batch 1 by another plan"):
        _publish_stream(queue, batches=3)

    assert queue.stats().next == 2_000


def test_a_write_inside_foreach_batch_is_exactly_once_with_its_batch(queue: QueueOnSpark):
    attempts = []

    def publish_then_fail_once(batch: DataFrame, batch_id: int) -> None:
        values = batch.selectExpr("value")
        queue.publish(values, exactlyOnce="batch")
        queue.publish(values.limit(1), exactlyOnce="batch", txnAppId="a second one")
        attempts.append(batch_id)
        if attempts == [0]:
            raise RuntimeError("after the publish")

    source = _text_source(queue, batches=2)
    with pytest.raises(PySparkException, match="after the publish"):
        queue.start(source, publish_then_fail_once).awaitTermination()
    queue.start(source, publish_then_fail_once).awaitTermination()

    assert attempts == [0, 0, 1]
    published = [*range(1_000), 0, *range(1_000, 2_000), 1_000]
    assert numbers_of(queue.browse().orderBy("monoton").collect()) == published

    # Another checkpoint is another query, although its batches begin at 0 again.
    queue.start(source, publish_then_fail_once, checkpoint="new").awaitTermination()
    assert attempts == [0, 0, 1, 0, 1]
    assert numbers_of(queue.browse().orderBy("monoton").collect()) == 2 * published


def test_a_fixed_name_after_a_new_checkpoint_is_an_error_and_not_a_loss(queue: QueueOnSpark):
    def publish(batch: DataFrame, batch_id: int) -> None:
        queue.publish(batch.selectExpr("value"), txnAppId="relay", txnVersion=str(batch_id))

    source = _text_source(queue, batches=2)
    queue.start(source, publish).awaitTermination()

    with pytest.raises(PySparkException, match=r"has published up to batch 1.* it is batch 0"):
        queue.start(source, publish, checkpoint="new").awaitTermination()
    assert queue.stats().next == 2_000


def test_a_batch_of_foreach_batch_cannot_be_named_outside_of_it(queue: QueueOnSpark):
    with pytest.raises(PySparkException, match="'exactlyOnce' = 'batch' is for writes inside"):
        queue.publish(queue.numbers(10), exactlyOnce="batch")

    assert queue.stats().next == 0
    assert not _chunk_rows(queue)


def test_a_batch_with_another_content_is_an_error_unless_it_is_to_be_skipped(queue: QueueOnSpark):
    named = {"txnAppId": "loader", "txnVersion": "7"}
    queue.publish(queue.numbers(100), **named)
    queue.publish(queue.numbers(100).repartition(5), **named)

    with pytest.raises(PySparkException, match="batch 7 with another content"):
        queue.publish(queue.numbers(101), **named)
    queue.publish(queue.numbers(101), failOnChangedBatch="false", **named)
    with pytest.raises(PySparkException, match=r"has published up to batch 7.* it is batch 6"):
        queue.publish(queue.numbers(10), txnAppId="loader", txnVersion="6")

    assert queue.stats().next == 100


def test_what_a_failed_task_wrote_is_never_visible_and_its_retry_is(queue: QueueOnSpark):
    marker = queue.folder / "failed-once"
    messages = queue.numbers(60_000, partitions=2).mapInArrow(
        _fail_at_end_of_partition_once(str(marker)), "value STRING"
    )

    queue.publish(messages)

    assert marker.exists()
    assert numbers_of(queue.browse().orderBy("monoton").collect()) == list(range(60_000))


def test_what_a_failed_job_wrote_is_never_visible(queue: QueueOnSpark):
    gate = queue.folder / "gate"
    os.mkfifo(gate)
    failing = _fail_at_end_when(str(gate))
    messages = queue.numbers(60_000, partitions=1).mapInArrow(failing, "value STRING")
    failed = threading.Event()

    def open_when_something_is_written() -> int:
        while not _chunk_rows(queue) and not failed.is_set():
            pass
        return os.open(gate, os.O_RDWR)

    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(open_when_something_is_written)
        with pytest.raises(PySparkException, match="the data is bad"):
            queue.publish(messages)
        failed.set()
        os.close(opening.result())

    assert _chunk_rows(queue)
    assert queue.stats().next == 0
    assert queue.browse().count() == 0


def test_what_a_killed_driver_wrote_is_never_visible(queue: QueueOnSpark):
    reached = queue.folder / "reached"
    os.mkfifo(reached)
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "write_and_hang.py"), json.dumps(queue.options), reached],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    reached.read_bytes()
    while not _chunk_rows(queue):
        assert program.poll() is None, "the writer ended before it had written anything"
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()

    assert _chunk_rows(queue)
    assert queue.stats().next == 0
    assert queue.browse().count() == 0


class _Relay:
    """A query from one queue to another."""

    def __init__(self, target: QueueOnSpark, source: QueueDefinition) -> None:
        self._target = target
        self._source = source
        self.checkpoint = target.folder / "relay"

    def put(self, numbers: range) -> None:
        with Client.from_store(self._target.store) as client:
            client.put_many(self._source.name, map(str, numbers))

    def run(self) -> None:
        options = self._target.connection | {"queue": self._source.name, "group": "relay"}
        read = self._target.spark.readStream.format("cassieq").options(**options).load()
        writer = read.select("value").writeStream.format("cassieq").options(**self._target.options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()


def _text_source(queue: QueueOnSpark, *, batches: int) -> DataFrame:
    folder = queue.folder / "files"
    folder.mkdir(exist_ok=True)
    for batch in range(batches):
        file = folder / f"{batch:03}.txt"
        if not file.exists():
            file.write_text("\n".join(str(n) for n in range(batch * 1000, (batch + 1) * 1000)))
            os.utime(file, (batch, batch))  # Spark takes the oldest first
    return queue.spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def _publish_stream(queue: QueueOnSpark, *, batches: int) -> None:
    writer = _text_source(queue, batches=batches).writeStream.format("cassieq")
    writer = writer.options(**queue.options)
    writer = writer.option("checkpointLocation", str(queue.folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def _forget_last_commit(checkpoint: Path) -> None:
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def _chunk_rows(queue: QueueOnSpark) -> list[dict[str, object]]:
    rows = queue.store.scan(Table.CHUNK)
    return [dict(row) for row in rows if row["queue_id"] == queue.definition.queue_id]


def _fail_at_end_of_partition_once(marker: str):
    def pass_on(batches):
        yield from batches
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise RuntimeError("once")

    return pass_on


def _fail_at_end_when(gate: str):
    """Fail once the other end of a named pipe is opened."""

    def pass_on(batches):
        yield from batches
        os.close(os.open(gate, os.O_RDONLY))
        raise RuntimeError("the data is bad")

    return pass_on


def test_a_continuous_trigger_is_refused_before_anything_is_taken(queue: QueueOnSpark):
    ticks = queue.spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    writer = ticks.selectExpr("cast(value AS string) AS value").writeStream.format("cassieq")
    writer = writer.options(**queue.options).trigger(continuous="200 milliseconds")
    checkpoint = queue.folder / "checkpoint"

    with pytest.raises(PySparkException, match="cannot be written to with a continuous trigger"):
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(60)

    assert not list(checkpoint.glob("commits/[0-9]*"))
    assert queue.stats().next == 0


def test_spark_refuses_real_time_mode_for_a_sink_in_python_and_foreach_batch(queue: QueueOnSpark):
    ticks = queue.spark.readStream.format("rate").load().selectExpr("string(value) AS value")
    sinks = (
        ticks.writeStream.format("cassieq").options(**queue.options),
        ticks.writeStream.foreachBatch(lambda batch, batch_id: None),
    )

    for number, sink in enumerate(sinks):
        kept = sink.option("checkpointLocation", str(queue.folder / str(number)))
        with pytest.raises(PySparkException, match="OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"):
            kept.outputMode("update").trigger(realTime="5 seconds").start()


def test_a_query_whose_checkpoint_was_restored_from_a_copy_stops_and_loses_nothing(
    queue: QueueOnSpark,
):
    source = create_queue(queue.store, f"{queue.definition.name}-source")
    relay = _Relay(queue, source)
    relay.put(range(10))
    relay.run()
    shutil.copytree(relay.checkpoint, queue.folder / "copy")
    for start in (10, 20):
        relay.put(range(start, start + 10))
        relay.run()
    assert queue.stats().next == 30

    shutil.rmtree(relay.checkpoint)
    shutil.copytree(queue.folder / "copy", relay.checkpoint)
    relay.put(range(30, 40))
    with pytest.raises(PySparkException, match=r"has published up to batch 2.* it is batch 1"):
        relay.run()

    assert queue.stats().next == 30
    (group,) = queue_stats(Ledger(queue.store, source.queue_id)).groups
    assert group.depth == 10, "nothing of it is acked"
    # What the error advises.
    shutil.rmtree(relay.checkpoint)
    relay.run()
    assert sorted(numbers_of(queue.browse().collect())) == list(range(40))


WITH_IDS = "cast(id as string) as value, cast(id % 1000 as string) as unique_id"


@pytest.mark.parametrize("partitions", [1, 4])
def test_of_each_unique_id_one_message_is_published_by_whichever_task(
    queue: QueueOnSpark, partitions: int
):
    name = f"{queue.definition.name}.unique"
    made = create_queue(
        queue.store,
        name,
        deduplicate=timedelta(hours=1),
        partitions=partitions,
        bucket_size=512,
        chunk_size=64,
    )
    of_ids = replace(queue, definition=made)
    numbers = queue.spark.range(3_000, numPartitions=5)

    of_ids.publish(numbers.selectExpr(*WITH_IDS.split(", ")))
    of_ids.publish(numbers.selectExpr(*WITH_IDS.split(", ")), txnAppId="again", txnVersion="1")
    again = Client.from_store(queue.store).put(name, "one more", unique_id="17")

    rows = of_ids.browse().collect()
    assert len(rows) == 1_000
    assert {int(row.value) % 1_000 for row in rows} == set(range(1_000))
    assert again.is_repeat
    (seventeen,) = [row for row in rows if int(row.value) % 1_000 == 17]
    assert (seventeen.monoton, seventeen.partition) == (again, again.partition)


def test_a_query_leaves_out_what_another_one_has_published(queue: QueueOnSpark):
    Client.from_store(queue.store).alter_queue(
        queue.definition.name, deduplicate=timedelta(hours=1)
    )
    source = replace(queue, definition=create_queue(queue.store, f"{queue.definition.name}.in"))
    source.publish(queue.numbers(2_000))

    for name in ("one", "two"):
        source_of = source.stream(name, maxMessagesPerTrigger="700", startingPosition="earliest")
        query = (
            source_of.selectExpr("value", "string(value) as unique_id")
            .writeStream.format("cassieq")
            .options(**queue.options)
            .option("checkpointLocation", str(queue.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    assert sorted(numbers_of(queue.browse().collect())) == list(range(2_000))


def test_unique_ids_are_refused_by_a_queue_that_does_not_deduplicate(queue: QueueOnSpark):
    with pytest.raises(PySparkException, match="the queue does not deduplicate; drop the column"):
        queue.publish(queue.numbers(10).selectExpr("value", "value as unique_id"))
    assert queue.stats().next == 0
