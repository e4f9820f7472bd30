from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadMaxRows

from cassieq_spark import Progress, progress
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source import stream
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.spark.source.views import VIEWS
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import FaultyStore
from tests.support.builders import make_queue, make_request
from tests.support.spark_session import QueueOnSpark

LEASE = timedelta(hours=1)


def expected(queue: QueueOnSpark, view: str, *rows: tuple[Any, ...]) -> DataFrame:
    name = queue.definition.name
    return queue.spark.createDataFrame([(name, *row) for row in rows], VIEWS[view].ddl)


def lease(queue: QueueOnSpark, group: str, **request: object) -> str:
    """Lease messages as a reader of the group would; its token."""
    queue_id = queue.definition.queue_id
    ensure_group(ConsumerGroup(Ledger(queue.store, queue_id), group), starting="earliest")
    lease_request = make_request(lease=LEASE, stop=queue.stats().next, **request)
    return str(ConsumerGroup(Ledger(queue.store, queue_id), group).lease(lease_request).token)


@pytest.mark.parametrize("view", sorted(set(VIEWS) - {"messages"}))
def test_every_view_has_the_schema_that_the_docs_show_and_is_there_for_a_new_queue(
    queue: QueueOnSpark, view: str
):
    frame = queue.browse(view=view)

    empty = queue.spark.createDataFrame([], VIEWS[view].ddl)
    assert frame.schema == empty.schema
    assert frame.count() == (1 if view in {"queues", "stats"} else 0)


@pytest.fixture
def other_settings(queue: QueueOnSpark) -> Iterator[None]:
    """Settings of a session that change the meaning of DDL."""
    changed = {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
    }
    before = {name: queue.spark.conf.get(name) for name in changed}
    for name, value in changed.items():
        queue.spark.conf.set(name, value)
    yield
    for name, value in before.items():
        queue.spark.conf.set(name, value)


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_a_view_is_the_same_whatever_the_settings_of_the_session_say(
    queue: QueueOnSpark, other_settings: None, view: str
):
    queue.publish(queue.numbers(3))

    frame = queue.browse(view=view)

    assert (frame.count() > 0) == (view not in {"leases", "groups", "history"})
    types = {each.name: each.type.lower() for each in VIEWS[view].columns}
    assert all(
        field.dataType.simpleString() == types[field.name].replace(" ", "")
        for field in frame.schema
    )


def test_a_stream_runs_whatever_the_settings_of_the_session_say(
    queue: QueueOnSpark, other_settings: None
):
    queue.publish(queue.numbers(3))
    found: list[Any] = []

    writer = queue.stream("g").writeStream.foreachBatch(
        lambda rows, _: found.extend(rows.collect())
    )
    writer = writer.option("checkpointLocation", str(queue.folder / "settings"))
    writer.trigger(availableNow=True).start().awaitTermination()

    assert len(found) == 3
    assert all(row.published_at is not None for row in found)


def test_blocks_tile_the_queue(queue: QueueOnSpark):
    queue.publish(queue.numbers(100, partitions=2))
    queue.publish(queue.numbers(10, partitions=1))

    blocks = queue.browse(view="blocks")

    columns = ("queue", "first_monoton", "stop_monoton", "messages")
    ddl = "queue STRING, first_monoton BIGINT, stop_monoton BIGINT, messages BIGINT"
    ranges = [(0, 50, 50), (50, 100, 50), (100, 110, 10)]
    rows = [(queue.definition.name, *each) for each in ranges]
    assert_df_equality(blocks.select(*columns), queue.spark.createDataFrame(rows, ddl))
    assert blocks.select("block").distinct().count() == 3
    times = {row.published_at for row in queue.browse().select("published_at").collect()}
    assert {row.published_at for row in blocks.collect()} == times


def test_leases_show_who_has_what_until_when(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))
    before = datetime.now(UTC)
    token = lease(queue, "g", max_messages=30)
    other = lease(queue, "h", max_messages=10)

    leases = queue.browse(view="leases").orderBy("consumer_group")

    assert_df_equality(
        leases.drop("due_at"),
        expected(
            queue,
            "leases",
            (0, "g", "leased", 0, 0, 30, 30, token, None, 1, None),
            (0, "h", "leased", 0, 0, 10, 10, other, None, 1, None),
        ).drop("due_at"),
    )
    # As seconds since 1970: what `collect` makes of a timestamp depends on the time zone.
    due_at = leases.selectExpr("cast(due_at as double) as due_at").collect()[0].due_at
    assert abs(due_at - (before + LEASE).timestamp()) < 60
    assert [row.consumer_group for row in queue.browse(view="leases", group="h").collect()] == [
        "h"
    ]


def test_groups_and_stats_show_the_exact_figures(queue: QueueOnSpark):
    queue.publish(queue.numbers(100))
    done = ConsumerGroup(Ledger(queue.store, queue.definition.queue_id), "g")
    ensure_group(
        ConsumerGroup(Ledger(queue.store, queue.definition.queue_id), "g"), starting="earliest"
    )
    first = done.lease(make_request(lease=LEASE, stop=100, max_messages=20)).token
    lease(queue, "g", held=first, max_messages=30)

    groups = queue.browse(view="groups")
    stats = queue.browse(view="stats")

    assert_df_equality(groups, expected(queue, "groups", (0, "g", 0, 50, 20, 80)))
    figures = expected(queue, "stats", (0, "g", 0, 100, 80, 30, 0, 0, 0, None, 50, 20, 0, 0))
    age = "oldest_age_seconds"
    assert_df_equality(stats.drop(age), figures.drop(age))
    assert 0 <= stats.first()[age] < 120


def test_queues_need_no_queue(queue: QueueOnSpark):
    reader = queue.spark.read.format("cassieq").options(**queue.connection)
    queues = reader.option("view", "queues").load()

    mine = queues.where(queues.queue == queue.definition.name)

    definition = queue.definition
    sizes = (definition.bucket_size, definition.chunk_size)
    order, periods, unique = ("none", "continue"), (None, None), (None, None, "key", None)
    row = (definition.version, "active", 60, 0, None, 1, *order, *periods, *unique, *sizes, None)
    assert_df_equality(
        mine.drop("created_at"),
        expected(queue, "queues", (*row, None)).drop("created_at"),
    )
    created = mine.selectExpr("cast(created_at as double) as at").first().at
    assert definition.created_at is not None
    assert created == pytest.approx(definition.created_at.timestamp(), abs=0.001)
    assert queues.count() >= 1


def test_a_view_is_read_anew_for_every_action(queue: QueueOnSpark):
    blocks = queue.browse(view="blocks")
    assert blocks.count() == 0

    queue.publish(queue.numbers(10, partitions=1))

    assert blocks.count() == 1


def test_views_can_be_queried_together(queue: QueueOnSpark):
    queue.publish(queue.numbers(100, partitions=4))
    lease(queue, "g", max_messages=30)
    leases, blocks = queue.browse(view="leases"), queue.browse(view="blocks")

    overlapping = blocks.join(leases, blocks.first_monoton < leases.stop_monoton)

    assert overlapping.count() == 2


@pytest.mark.parametrize("view", ["blocks", "messages"])
def test_a_view_without_its_queue_is_refused_at_load(queue: QueueOnSpark, view: str):
    reader = queue.spark.read.format("cassieq").options(**queue.connection)

    with pytest.raises(AnalysisException, match=r"option 'queue' is missing.*'queues'"):
        reader.option("view", view).load()


def test_a_view_that_there_is_not_is_refused_with_all_there_are(queue: QueueOnSpark):
    with pytest.raises(AnalysisException, match=r"must be messages, blocks, .* or history"):
        queue.browse(view="lease")


def test_a_stream_of_another_view_is_refused(queue: QueueOnSpark):
    frame = queue.stream("g", view="leases")

    with pytest.raises(PySparkException, match="a stream reads messages: option 'view'"):
        queue.start(frame, lambda *_: None).awaitTermination()


def test_progress_tells_batch_and_backlog_of_a_query(queue: QueueOnSpark):
    queue.publish(queue.numbers(2_500, partitions=1))
    time_before = time.monotonic()
    query = queue.start(
        queue.stream("g", maxMessagesPerTrigger="1000"), lambda batch, _: batch.collect()
    )
    query.awaitTermination()

    told = [progress(each) for each in query.recentProgress]

    batches = [each for (each,) in told if each.messages]
    assert [each.batch for each in batches] == [
        (Range(0, 1000),),
        (Range(1000, 2000),),
        (Range(2000, 2500),),
    ]
    assert [each.messages for each in batches] == [1000, 1000, 500]
    assert [each.backlog for each in batches] == [1500, 500, 0]
    assert [each.leased for each in batches] == [1000, 1000, 500]
    assert [each.pointer for each in batches] == [1000, 2000, 2500]
    assert {(each.queue, each.group) for each in batches} == {(queue.definition.name, "g")}
    assert {(each.next, each.waiting, each.lost_leases) for each in batches} == {(2500, 0, 0)}
    longest = timedelta(seconds=time.monotonic() - time_before + 60)
    for each in batches:
        assert each.oldest_age is not None
        assert timedelta(0) <= each.oldest_age < longest
    assert progress(query.lastProgress) == told[-1]


def test_progress_of_a_replayed_batch_has_no_figures(queue: QueueOnSpark):
    queue.publish(queue.numbers(10))

    def fail(batch: DataFrame, _: int) -> None:
        raise RuntimeError("the batch fails")

    with pytest.raises(PySparkException, match="the batch fails"):
        queue.start(queue.stream("g"), fail).awaitTermination()
    query = queue.start(queue.stream("g"), lambda batch, _: batch.collect())
    query.awaitTermination()

    (replayed,) = progress(query.recentProgress[0])

    assert replayed == Progress(
        queue=queue.definition.name, group="g", batch=(Range(0, 10),), messages=10
    )


def test_figures_that_cannot_be_read_do_not_end_a_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    store = FaultyStore(MemoryStore())
    make_queue(store, [9])
    monkeypatch.setattr(stream, "open_store", lambda _: store)
    monkeypatch.setattr(stream, "_survive_termination", lambda: None)
    source = stream.MessageStreamReader(SourceOptions(queue="q", group="g"), Columns(None))
    assert source.reportLatestOffset() is None
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(5))

    def fail() -> None:
        raise NotAppliedError("no quorum")

    store.interrupt(fail, after=0)
    assert source.reportLatestOffset() is None
    store.calm()

    (record,) = caplog.records
    assert record.action == stream.REPORT_FAILED  # type: ignore[attr-defined]
    assert source.latestOffset(end, ReadMaxRows(5)) != end
    source.stop()


def test_progress_passes_over_sources_of_another_kind(queue: QueueOnSpark):
    rate = queue.spark.readStream.format("rate").load()
    query = queue.start(rate, lambda *_: None)
    query.awaitTermination()

    assert progress(query.lastProgress) == []
