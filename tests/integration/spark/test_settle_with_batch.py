"""Outcomes that are settled with their batch, whenever the driver dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.queues import create_queue
from tests.support import recipe
from tests.support.spark_session import QueueOnSpark, numbers_of

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "programs" / "settle_and_hang.py"
MESSAGES = 30


def test_wherever_a_driver_is_killed_each_message_is_in_the_files_once_or_dead_lettered(
    queue: QueueOnSpark,
):
    """One program runs a query for each step, so that all of them are killed at once."""
    queues = {step: _queue_for(queue, step) for step in (*recipe.STEPS, "committed")}
    reached = queue.folder / "reached"
    os.mkfifo(reached)
    options = json.dumps({step: each.options for step, each in queues.items()})
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), options, str(queue.folder), str(reached)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert reached.read_text() == "all"
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    leased = {step: each.group_stats("g").leased for step, each in queues.items()}
    assert leased == dict.fromkeys(queues, 20), "nothing takes effect before the batch is acked"

    for step, each in queues.items():
        recipe.start(queue.spark, each.options, str(queue.folder / step)).awaitTermination()

        rows = queue.spark.read.parquet(str(queue.folder / step / "rows")).collect()
        bad = [number for number in range(MESSAGES) if number % 10 == 1]
        good = sorted({*range(MESSAGES)} - {*bad})
        assert Counter(row.value for row in rows) == Counter(good), (step, "in the files, once")
        letters = each.browse(queue=f"{each.definition.name}.dead").collect()
        assert sorted(numbers_of(letters)) == bad, (step, "dead-lettered, once")
        assert each.group_stats("g").depth == 0, step


def test_what_a_failed_batch_had_acked_comes_again_with_the_rest_of_it(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))

    def ack_half_then_fail(batch: DataFrame, _: int) -> None:
        _ack(queue, batch.where("monoton < 50"))
        raise RuntimeError("half done")

    stream = queue.stream("g", includeReceipts="true")
    with pytest.raises(PySparkException, match="half done"):
        queue.start(stream, ack_half_then_fail).awaitTermination()
    (rows,) = queue.drain("g", includeReceipts="true")

    assert numbers_of(rows) == list(range(100))
    assert queue.group_stats("g").depth == 0


def test_a_query_that_is_stopped_acks_the_batch_that_spark_has_committed(queue: QueueOnSpark):
    queue.publish(queue.numbers(20))
    checkpoint = queue.folder / "checkpoint"
    stream = queue.stream("g", leaseSeconds="3600", checkpointLocation=str(checkpoint))
    query = queue.start(stream, lambda batch, _: batch.collect(), processingTime="1 day")
    while not (checkpoint / "commits" / "0").exists():
        assert query.isActive
    assert queue.group_stats("g").leased == 20

    query.stop()

    # Spark does not wait for the reader's process to end.
    while queue.group_stats("g").leased:
        assert not query.isActive
    stats = queue.group_stats("g")
    assert (stats.depth, stats.floor) == (0, 20)


def _queue_for(queue: QueueOnSpark, step: str) -> QueueOnSpark:
    name = f"{queue.definition.name}-{step}"
    definition = create_queue(
        queue.store, name, max_deliveries=5, dead_letter_queue=f"{name}.dead"
    )
    one = replace(queue, definition=definition)
    one.publish(one.numbers(MESSAGES, partitions=1))
    return one


def _ack(queue: QueueOnSpark, rows: DataFrame) -> None:
    writer = rows.select("receipt").write.format("cassieq").options(**queue.options)
    writer.option("operation", "ack").mode("append").save()
