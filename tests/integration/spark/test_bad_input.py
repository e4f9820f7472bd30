from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cassieq_spark.queues import create_queue
from tests.support.spark_session import QueueOnSpark


@pytest.fixture
def fails(queue: QueueOnSpark) -> Callable[..., str]:
    """Run something that must fail; the error's text. Nothing may have been published."""

    def run(action: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as caught:
            action()
        assert queue.stats().next == 0
        return str(caught.value)

    return run


def test_an_unknown_option_is_refused_with_the_nearest_name(queue: QueueOnSpark, fails):
    text = fails(lambda: queue.publish(queue.numbers(1), chunkbites="1m"))
    assert "unknown option 'chunkbites'; did you mean 'chunkBytes'?" in text

    text = fails(lambda: queue.stream("g", maxMessagePerTrigger="5"))
    assert "did you mean 'maxMessagesPerTrigger'?" in text


def test_a_malformed_value_is_refused(queue: QueueOnSpark, fails):
    text = fails(lambda: queue.stream("g", startingPosition="middle"))

    assert "'startingPosition'" in text
    assert "earliest" in text


def test_a_missing_queue_name_is_refused(queue: QueueOnSpark, fails):
    writer = queue.numbers(1).write.format("cassieq").options(**queue.connection).mode("append")

    text = fails(writer.save)

    assert "option 'queue' is" in text
    assert ".option('queue'," in text


def test_an_invalid_queue_name_is_refused(queue: QueueOnSpark, fails):
    assert "not valid" in fails(lambda: queue.publish(queue.numbers(1), queue="no spaces"))


def test_a_path_is_refused(queue: QueueOnSpark, fails):
    reader = queue.spark.read.format("cassieq").options(**queue.connection)

    assert "a queue, not a path" in fails(lambda: reader.load("flights"))


def test_a_queue_that_does_not_exist_is_named(queue: QueueOnSpark, fails):
    text = fails(lambda: queue.publish(queue.numbers(1), queue="nobody"))
    assert "there is no queue 'nobody'" in text
    assert "cassieq queue create nobody" in text

    assert "there is no queue 'nobody'" in fails(lambda: queue.browse(queue="nobody").count())
    assert "there is no queue 'nobody'" in fails(
        lambda: _run(queue, queue.stream("g", queue="nobody"))
    )


def test_trigger_once_is_refused_before_anything_is_leased(queue: QueueOnSpark):
    """After its only batch nothing would ack it."""
    queue.publish(queue.numbers(10))
    query = queue.start(queue.stream("g"), lambda batch, _: None, once=True)

    with pytest.raises(PySparkException, match=r"use trigger\(availableNow=True\)"):
        query.awaitTermination()

    stats = queue.group_stats("g")
    assert (stats.depth, stats.pointer) == (10, 0)


def test_a_stream_without_a_group_is_refused(queue: QueueOnSpark, fails):
    stream = queue.spark.readStream.format("cassieq").options(**queue.options)

    assert "option 'group' is" in fails(lambda: _run(queue, stream.load()))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (["id"], "a column 'value' is missing"),
        (["cast(id as string) as Value"], "did you mean 'value'?"),
        (["id as value"], "column 'value' is bigint, expected string or binary"),
        (["string(id) as value", "id as key"], "column 'key' is bigint"),
        (["string(id) as value", "id as colour"], "unknown column 'colour'"),
    ],
)
def test_columns_that_do_not_fit_are_named(queue: QueueOnSpark, fails, columns, complaint):
    messages = queue.spark.range(5).selectExpr(*columns)

    assert complaint in fails(lambda: queue.publish(messages))


def test_a_null_value_fails_the_write(queue: QueueOnSpark, fails):
    messages = queue.spark.range(1000, numPartitions=1).selectExpr(
        "if(id = 700, null, string(id)) as value"
    )

    text = fails(lambda: queue.publish(messages))

    assert "700" in text
    assert "null" in text


def test_a_message_over_the_limit_fails_the_write(queue: QueueOnSpark, fails):
    messages = queue.spark.range(3).selectExpr("repeat('x', 2000) as value")

    text = fails(lambda: queue.publish(messages, maxMessageBytes="1k"))

    assert "2000" in text
    assert "1024" in text or "1k" in text


def test_overwriting_is_refused(queue: QueueOnSpark, fails):
    writer = queue.numbers(1).write.format("cassieq").options(**queue.options).mode("overwrite")

    assert "can only be appended to" in fails(writer.save)


def test_a_schema_of_the_users_own_is_refused(queue: QueueOnSpark, fails):
    reader = queue.spark.read.format("cassieq").options(**queue.options).schema("value STRING")

    assert "Leave out .schema(...)" in fails(lambda: reader.load().count())


def test_a_cluster_that_does_not_answer_is_named_within_seconds(queue: QueueOnSpark, fails):
    nowhere = {"spark.cassandra.connection.host": "127.0.0.1:1"}

    text = fails(lambda: queue.publish(queue.numbers(1), **nowhere))

    assert "127.0.0.1:1" in text
    assert "ConnectError" in text


def test_a_missing_keyspace_is_named_with_the_remedy(queue: QueueOnSpark, fails):
    text = fails(lambda: queue.publish(queue.numbers(1), keyspace="not_there"))

    assert "not_there" in text
    assert "cassieq schema apply" in text


def test_the_checkpoint_of_another_queue_is_refused(queue: QueueOnSpark):
    queue.publish(queue.numbers(5))
    queue.drain("g")
    other = f"{queue.definition.name}-other"
    create_queue(queue.store, other)

    with pytest.raises(PySparkException, match="the checkpoint belongs to group 'g' of queue"):
        queue.drain("g", queue=other)


def test_the_checkpoint_of_another_group_is_refused(queue: QueueOnSpark):
    queue.publish(queue.numbers(5))
    queue.drain("g")

    with pytest.raises(PySparkException, match="not to group 'h'"):
        queue.drain("h")
    assert queue.group_stats("g").depth == 0


def test_a_python_without_pyarrow_is_told_what_to_install():
    program = """
import sys
sys.modules["pyarrow"] = None
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.errors import SetupError
try:
    CassieqDataSource({"queue": "q"}).schema()
except SetupError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "pyarrow is missing" in done.stdout
    assert "pip install 'cassieq-spark[spark]'" in done.stdout


def test_a_machine_without_a_jdk_is_told_how_to_get_one(tmp_path: Path):
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)

    done = subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli", "node", "up"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert done.returncode == 1
    assert "17" in done.stderr
    assert "JAVA_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def _run(queue: QueueOnSpark, stream: DataFrame) -> None:
    queue.start(stream, lambda batch, _: batch.collect()).awaitTermination()
    raise AssertionError(json.dumps(queue.options))
