"""Modes of writing, tables and views of Spark SQL, and which messages a DataFrame has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from cassieq_spark.client import Client
from cassieq_spark.queues import create_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from tests.support.spark_session import QueueOnSpark


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def last_error_of_ours(text: str) -> str:
    """What a reader of Spark's error comes to last; no other error comes after it."""
    *_, (name, message) = re.findall(r"^([\w.]*(?:Error|Exception)): (.*)$", text, re.MULTILINE)
    assert name.startswith("cassieq_spark.errors.")
    return str(message)


def options_of(queue: QueueOnSpark) -> str:
    return ", ".join(f"`{key}` '{value}'" for key, value in queue.options.items())


@pytest.fixture
def name(queue: QueueOnSpark) -> str:
    """A name for a table or a view."""
    return queue.definition.name.replace("-", "_")


@pytest.fixture
def typed(queue: QueueOnSpark) -> QueueOnSpark:
    schema = "vendor string not null, fare decimal(10,2)"
    definition = create_queue(queue.store, f"{queue.definition.name}.typed", schema=schema)
    return replace(queue, definition=definition)


@pytest.mark.parametrize("mode", [None, "errorifexists", "ignore"])
def test_a_write_needs_the_mode_append(queue: QueueOnSpark, mode: str | None):
    """Spark says so before it asks the sink."""
    writer = queue.numbers(1).write.format("cassieq").options(**queue.options)

    text = refusal((writer.mode(mode) if mode else writer).save)

    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in text
    assert queue.stats().next == 0


def test_the_output_mode_update_is_refused(queue: QueueOnSpark):
    """By Spark, before it asks the sink."""
    queue.publish(queue.numbers(10))

    text = refusal(lambda: _count_into(queue, "update"))

    assert "cassieq does not support Update mode" in text
    assert queue.stats().next == 10


def test_the_output_mode_complete_is_refused_with_what_to_do(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))

    message = last_error_of_ours(refusal(lambda: _count_into(queue, "complete")))

    assert message == (
        "a queue can only be appended to: use outputMode('append'), or write the rows of another "
        "mode inside foreachBatch"
    )


def _count_into(queue: QueueOnSpark, mode: str) -> None:
    counted = queue.stream("g").groupBy("value").count().select("value")
    writer = counted.writeStream.format("cassieq").options(**queue.options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(queue.folder / mode))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_table_of_the_catalog_is_refused_with_one_sentence(queue: QueueOnSpark, name: str):
    make = f"CREATE TABLE {name} USING cassieq OPTIONS ({options_of(queue)})"

    message = last_error_of_ours(refusal(lambda: queue.spark.sql(make)))

    assert message.startswith("a queue is no table of Spark's catalog, which keeps no options: ")
    assert "CREATE TEMPORARY VIEW ... USING cassieq OPTIONS (queue '...')" in message


@pytest.mark.parametrize(
    "use", ["SELECT * FROM {}", "INSERT INTO {} VALUES ('a')", "INSERT OVERWRITE {} VALUES ('a')"]
)
def test_a_table_that_spark_makes_without_asking_is_refused_when_it_is_used(
    queue: QueueOnSpark, name: str, use: str
):
    make = f"CREATE TABLE {name} (value STRING) USING cassieq OPTIONS ({options_of(queue)})"
    queue.spark.sql(make)

    message = last_error_of_ours(refusal(lambda: queue.spark.sql(use.format(name)).collect()))
    queue.spark.sql(f"DROP TABLE {name}")

    assert "if this is a table of Spark's catalog, drop it" in message
    assert queue.stats().next == 0


def test_a_table_made_of_a_query_is_refused(queue: QueueOnSpark, name: str):
    make = f"CREATE TABLE {name} USING cassieq OPTIONS ({options_of(queue)}) AS SELECT 'a' value"

    message = last_error_of_ours(refusal(lambda: queue.spark.sql(make)))

    assert "if this is a table of Spark's catalog, drop it" in message


def test_save_as_table_publishes_and_leaves_a_table_that_cannot_be_read(
    queue: QueueOnSpark, name: str
):
    """Spark gives the sink the same as by save, so the sink cannot refuse it."""
    writer = queue.numbers(5).write.format("cassieq").options(**queue.options)

    writer.mode("append").saveAsTable(name)

    message = last_error_of_ours(refusal(lambda: queue.spark.table(name).count()))
    queue.spark.sql(f"DROP TABLE {name}")
    assert "if this is a table of Spark's catalog, drop it" in message
    assert queue.stats().next == 5


def test_insert_into_a_view_publishes_if_the_queue_has_a_schema(typed: QueueOnSpark, name: str):
    spark = typed.spark
    spark.sql(f"CREATE TEMPORARY VIEW {name} USING cassieq OPTIONS ({options_of(typed)})")

    spark.sql(f"INSERT INTO {name} VALUES ('a', 1.5), ('b', null)")
    message = last_error_of_ours(
        refusal(lambda: spark.sql(f"INSERT OVERWRITE {name} VALUES ('a', 1.5)"))
    )

    assert sorted(row.vendor for row in typed.browse().collect()) == ["a", "b"]
    assert message.startswith("a queue can only be appended to: use mode('append')")


def test_insert_into_a_view_of_a_queue_without_a_schema_is_refused(queue: QueueOnSpark, name: str):
    queue.publish(queue.numbers(3))
    queue.browse().createTempView(name)

    message = last_error_of_ours(
        refusal(lambda: queue.spark.sql(f"INSERT INTO {name} SELECT * FROM {name}"))
    )

    assert "publish df.select('key', 'value')" in message
    assert queue.stats().next == 3


def test_a_dataframe_and_what_is_made_of_it_have_the_messages_of_its_first_action(
    queue: QueueOnSpark, name: str
):
    queue.publish(queue.numbers(3))
    frame = queue.browse()
    queue.publish(queue.numbers(2))
    assert frame.count() == 5

    queue.publish(queue.numbers(4))

    assert frame.count() == 5
    assert len(frame.where("monoton >= 0").select("value").collect()) == 5
    frame.createTempView(name)
    queue.spark.catalog.refreshTable(name)
    assert queue.spark.table(name).count() == 5
    assert queue.browse().count() == 9


def test_a_view_of_sql_has_the_messages_of_its_first_query(queue: QueueOnSpark, name: str):
    make = f"CREATE OR REPLACE TEMPORARY VIEW {name} USING cassieq OPTIONS ({options_of(queue)})"
    queue.spark.sql(make)
    assert queue.spark.table(name).count() == 0

    queue.publish(queue.numbers(4))

    assert queue.spark.table(name).count() == 0
    queue.spark.sql(make)
    assert queue.spark.table(name).count() == 4


def test_a_dataframe_whose_messages_were_deleted_meanwhile_says_what_to_do(queue: QueueOnSpark):
    queue.publish(queue.numbers(3))
    frame = queue.browse()
    assert frame.count() == 3
    with Client.from_store(queue.store) as client:
        client.ack(*client.receive(queue.definition.name, "g", max=3))
    one = [queue.definition.name]
    run_once(queue.store, scan=DriverScan(queue.store), steps=tuple(Step), queues=one)

    message = last_error_of_ours(refusal(frame.count))

    assert "messages below 3 are deleted, as every group has settled them" in message
    assert message.endswith("load it again")
    assert queue.browse().count() == 0


def test_a_limit_of_64_bits_is_no_limit(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))
    most = str(2**63 - 1)

    (batch,) = queue.drain("g", maxMessagesPerTrigger=most, messagesPerTask=most)

    assert len(batch) == 10


def test_a_stream_that_cannot_be_read_ends_with_our_error(queue: QueueOnSpark):
    """Spark would end it with an UnboundLocalError of its own, and ours above that."""
    stream = queue.spark.readStream.format("cassieq").options(**queue.options).load()

    text = refusal(queue.start(stream, lambda batch, _: None).awaitTermination)

    assert "option 'group' is missing: give it with" in last_error_of_ours(text)
