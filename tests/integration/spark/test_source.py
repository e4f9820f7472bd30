from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import spark_partition_id

from tests.support.spark_session import QueueOnSpark, numbers_of

PROGRAMS = Path(__file__).parent / "programs"


def test_available_now_drains_a_backlog_in_many_batches_and_stops(queue: QueueOnSpark):
    queue.publish(queue.numbers(10_000))

    batches = queue.drain("g", maxMessagesPerTrigger="1500")

    assert [len(batch) for batch in batches] == [1500] * 6 + [1000]
    assert [row.monoton for batch in batches for row in batch] == list(range(10_000))
    assert {row.delivery_count for batch in batches for row in batch} == {1}
    stats = queue.group_stats("g")
    assert (stats.depth, stats.leased, stats.waiting, stats.oldest_age) == (0, 0, 0, None)


def test_spark_refuses_real_time_mode_for_a_source_in_python(queue: QueueOnSpark):
    queue.publish(queue.numbers(1))
    shown = queue.stream("g").writeStream.format("console").outputMode("update")
    shown = shown.option("checkpointLocation", str(queue.folder / "checkpoint"))

    with pytest.raises(PySparkException, match="INPUT_STREAM_NOT_SUPPORTED"):
        shown.trigger(realTime="5 seconds").start().awaitTermination(60)

    assert sum(each.leased for each in queue.stats().groups) == 0


def test_available_now_ends_at_once_where_nothing_is_left(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))
    queue.drain("g")

    assert [row for batch in queue.drain("g") for row in batch] == []


def test_a_batch_may_be_cut_into_many_tasks(queue: QueueOnSpark):
    queue.publish(queue.numbers(20_000))

    batches = queue.drain("g", messagesPerTask="3000")

    assert sorted(numbers_of(batches[0])) == list(range(20_000))


def test_min_partitions_cuts_a_batch_into_tasks_in_the_order_of_the_messages(queue: QueueOnSpark):
    queue.publish(queue.numbers(8_000))
    stream = queue.stream("g", minPartitions="4").withColumn("task", spark_partition_id())
    rows: list[Row] = []

    queue.start(stream, lambda batch, _: rows.extend(batch.collect())).awaitTermination()

    assert [row.monoton for row in rows] == list(range(8_000))
    assert [row.task for row in rows] == sorted(row.task for row in rows)
    sizes = Counter(row.task for row in rows)
    assert len(sizes) == 4
    assert all(1000 < size < 3000 for size in sizes.values())
    assert queue.browse(minPartitions="4").rdd.getNumPartitions() == 4


def test_every_group_gets_every_message(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))

    for group in ("a", "b"):
        (rows,) = queue.drain(group, checkpoint=group)
        assert numbers_of(rows) == list(range(100))


def test_a_new_group_may_start_at_the_latest_message(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))
    queue.drain("late", startingPosition="latest")
    queue.publish(queue.numbers(7))

    batches = queue.drain("late", startingPosition="latest")

    assert [row.monoton for batch in batches for row in batch] == list(range(100, 107))


def test_a_failed_batch_comes_again_as_the_same_rows(queue: QueueOnSpark):
    queue.publish(queue.numbers(3_000))
    failed: list[Row] = []

    def fail_on_the_second(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            failed.extend(batch.collect())
            raise RuntimeError("the batch fails")

    stream = queue.stream("g", maxMessagesPerTrigger="1000")
    with pytest.raises(PySparkException, match="the batch fails"):
        queue.start(stream, fail_on_the_second).awaitTermination()
    # The backlog grows meanwhile, and options change: the replay has the same rows all the same.
    queue.publish(queue.numbers(500))
    again, rest = queue.drain(
        "g", maxMessagesPerTrigger="9999", messagesPerTask="100", minPartitions="12"
    )

    assert [row.monoton for row in failed] == list(range(1000, 2000))
    assert sorted(row.monoton for row in again) == list(range(1000, 2000))
    assert {row.value for row in again} == {row.value for row in failed}
    assert {row.delivery_count for row in failed} == {row.delivery_count for row in again} == {1}
    assert sorted(row.monoton for row in rest) == list(range(2000, 3500))
    assert queue.group_stats("g").depth == 0


@pytest.mark.parametrize(
    ("victim", "leased"),
    [("all of it", 1_000), ("the JVM alone", 1_000), ("the program alone", 0)],
)
def test_the_batch_of_a_killed_consumer_comes_again_at_once_as_the_same_rows(
    queue: QueueOnSpark, victim: str, leased: int
):
    """If the JVM outlives its program, it ends the query in order, as if it was stopped."""
    queue.publish(queue.numbers(3_000))
    limited = {"maxMessagesPerTrigger": "1000", "leaseSeconds": "3600"}
    options = json.dumps(queue.options | {"group": "g"} | limited)
    checkpoint, reached = str(queue.folder / "checkpoint"), queue.folder / "reached"
    os.mkfifo(reached)
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "consume_and_hang.py"), options, checkpoint, reached],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    had = json.loads(reached.read_text())
    (jvm,) = children_of(program.pid, "java")
    reader = os.pidfd_open(*children_of(jvm, "python_streaming_source_runner"))
    match victim:
        case "all of it":
            os.killpg(program.pid, signal.SIGKILL)
        case "the JVM alone":
            os.kill(jvm, signal.SIGKILL)
        case "the program alone":
            program.kill()
    program.wait()
    # Where the JVM is gone, its reader sees that, and ends by itself.
    select.select([reader], [], [])
    os.close(reader)
    stats = queue.group_stats("g")
    assert (stats.leased, stats.due) == (leased, 1_000 - leased)

    again, rest = queue.drain("g", **limited)

    assert had == list(range(1000, 2000))
    assert sorted(row.monoton for row in again) == had
    assert {row.delivery_count for row in again} == {1}, "the same row in each column"
    assert sorted(row.monoton for row in rest) == list(range(2000, 3000))
    assert queue.group_stats("g").depth == 0


def test_a_failed_first_batch_comes_again_although_the_queue_has_grown(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError("the first batch fails")

    with pytest.raises(PySparkException, match="the first batch fails"):
        queue.start(queue.stream("g"), fail).awaitTermination()
    queue.publish(queue.numbers(5))
    again, rest = queue.drain("g")

    assert [row.monoton for row in again] == list(range(10))
    assert [row.monoton for row in rest] == list(range(10, 15))


def test_what_a_stopped_query_held_goes_to_the_next_reader_at_once(queue: QueueOnSpark):
    queue.publish(queue.numbers(50))
    stream = queue.stream("g", leaseSeconds="3600").mapInArrow(_never_end, "value BINARY")
    checkpoint = str(queue.folder / "first")
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    while not queue.stats().groups or queue.group_stats("g").leased < 50:
        assert query.isActive
    query.stop()
    # Spark does not wait for the reader's process to end.
    while (stats := queue.group_stats("g")).due < 50:
        assert stats.leased == 50

    (rows,) = queue.drain("g", checkpoint="second")

    assert numbers_of(rows) == list(range(50))
    assert {row.delivery_count for row in rows} == {2}


def test_a_replay_leaves_out_what_another_reader_took_meanwhile(queue: QueueOnSpark):
    queue.publish(queue.numbers(50))

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError("the batch fails")

    with pytest.raises(PySparkException, match="the batch fails"):
        queue.start(queue.stream("g"), fail, checkpoint="first").awaitTermination()
    (taken,) = queue.drain("g", checkpoint="second")
    replayed = queue.drain("g", checkpoint="first")

    assert numbers_of(taken) == list(range(50))
    assert [row for batch in replayed for row in batch] == []


def test_two_queries_of_one_group_never_get_the_same_message(queue: QueueOnSpark):
    queue.publish(queue.numbers(20_000))
    taken: dict[str, list[int]] = {"one": [], "two": []}

    def taker(name: str):
        def take(batch: DataFrame, _: int) -> None:
            taken[name].extend(row.monoton for row in batch.select("monoton").collect())

        return take

    stream = queue.stream("g", maxMessagesPerTrigger="1000")
    queries = [queue.start(stream, taker(name), checkpoint=name) for name in taken]
    for query in queries:
        query.awaitTermination()

    assert all(taken.values()), "both readers got a share"
    assert sorted(taken["one"] + taken["two"]) == list(range(20_000))
    assert queue.group_stats("g").depth == 0


def test_a_running_stream_delivers_what_is_published_later(queue: QueueOnSpark):
    got: list[int] = []
    query = queue.start(
        queue.stream("g"),
        lambda batch, _: got.extend(numbers_of(batch.collect())),
        processingTime="0 seconds",
    )
    try:
        for _ in range(3):
            queue.publish(queue.numbers(10))
            query.processAllAvailable()
        assert got == [*range(10)] * 3
    finally:
        query.stop()


def test_browsing_leases_nothing(queue: QueueOnSpark):
    queue.publish(queue.numbers(1_000))

    assert queue.browse().count() == 1_000
    assert queue.browse().count() == 1_000
    assert queue.stats().groups == ()


def test_headers_and_key_reach_a_stream(queue: QueueOnSpark):
    messages = queue.numbers(10).selectExpr(
        "value as key", "value", "map('number', value) as headers"
    )
    queue.publish(messages)

    (rows,) = queue.drain("g", includeHeaders="true")

    assert [row.headers for row in rows] == [{"number": str(n)} for n in range(10)]
    assert [bytes(row.key) for row in rows] == [str(n).encode() for n in range(10)]
    assert {row.queue for row in rows} == {queue.definition.name}


def _never_end(batches):
    yield from batches
    threading.Event().wait()


def children_of(parent: int, command: str) -> list[int]:
    """The processes that a process has started whose command line has this text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ppid = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if ppid == parent and command in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found
