"""Stopping a query between Spark's commit of a batch and the next trigger."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, QueueId, Ranges
from cassieq_spark.queues import alter_queue, read_queue
from cassieq_spark.queues.stats import GroupStats, queue_stats
from cassieq_spark.spark.checkpoint import look_up
from cassieq_spark.spark.source.offsets import Offset, decode, initial_offset
from cassieq_spark.spark.source.partition_reader import (
    ACKED_AT_LAST,
    CHECKPOINT_UNREADABLE,
    KEPT,
    RELEASED,
)
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue

FIRST = initial_offset("q", "g")
MOMENT = timedelta(milliseconds=1)


class Scene:
    """Twenty messages, and a reader that knows where its checkpoint is, which Spark writes."""

    def __init__(self, folder: Path) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.folder = folder
        make_queue(self.store, [20])
        (folder / "offsets").mkdir(parents=True)
        (folder / "commits").mkdir()

    @property
    def queue(self) -> QueueDefinition:
        return read_queue(self.store, "q")

    def reader(self, checkpoint: str | None = "") -> QueueReader:
        where = str(self.folder) if checkpoint == "" else checkpoint
        return QueueReader(
            self.store,
            self.queue,
            "g",
            starting="earliest",
            request=LeaseRequest(lease=LEASE),
            with_receipts=True,
            checkpoint=where,
        )

    def run(
        self, reader: QueueReader, batch: int, done: Any, *, commit: bool, limit: int = 5
    ) -> Any:
        """Let Spark run a batch as far as that."""
        end = reader.next_batch(done, limit=limit)
        log = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end)}\n-'
        (self.folder / "offsets" / str(batch)).write_text(log)
        (self.folder / "offsets" / f".{batch}.crc").write_text("crc")
        if commit:
            (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return end

    def offset(self, end: Any) -> Offset:
        offset = decode(end, queue_id=self.queue.queue_id, group="g")
        assert offset is not None
        return offset

    def stats(self) -> GroupStats:
        (group,) = queue_stats(Ledger(self.store, self.queue.queue_id)).groups
        return group


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "a b")


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records]  # type: ignore[attr-defined]


def test_a_batch_that_spark_has_committed_is_acked(scene: Scene, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    reader = scene.reader()
    end = scene.run(reader, 0, FIRST, commit=True)
    end = scene.run(reader, 1, end, commit=True)
    scene.store.reset()

    reader.stop()
    reader.stop()

    stats = scene.stats()
    assert (stats.floor, stats.depth, stats.leased, stats.due) == (10, 10, 0, 0)
    assert (scene.store.cas_count, actions(caplog)) == (1, [ACKED_AT_LAST])


def test_what_was_recorded_for_it_is_carried_out(scene: Scene):
    reader = scene.reader()
    end = scene.run(reader, 0, FIRST, commit=True)
    group, lease = make_group(scene.store, scene.queue.queue_id), scene.offset(end).lease
    released = Settlement(
        released={timedelta(hours=1): Ranges.parse("1-3")}, rejected={"bad": Ranges.parse("3-4")}
    )
    group.settle(lease, released, with_batch=True)

    reader.stop()

    assert [str(row.monotons) for row in group.read().waiting] == ["1-3"]


def test_receipts_say_which_delivery_of_the_batch_they_are_of(scene: Scene):
    reader = scene.reader()
    end = scene.run(reader, 0, FIRST, commit=False)
    readers = [reader, scene.reader()]

    found = [each.tasks(end, messages_per_task=10) for each in readers]

    prefix = f"{scene.queue.queue_id}/g/{scene.offset(end).lease}"
    prefixes = [part.receipt_prefix for tasks in found for (part,) in tasks]
    assert prefixes == [f"{prefix}.1/", f"{prefix}.2/"]


@pytest.mark.parametrize("logged", ["not at all", "not committed", "empty commit"])
def test_another_batch_is_released(scene: Scene, caplog: pytest.LogCaptureFixture, logged: str):
    caplog.set_level(logging.INFO)
    reader = scene.reader()
    end = scene.run(reader, 0, FIRST, commit=True)
    if logged == "not at all":
        reader.next_batch(end, limit=5)
    else:
        scene.run(reader, 1, end, commit=False)
    if logged == "empty commit":
        (scene.folder / "commits" / "1").touch()

    reader.stop()
    scene.clock.advance(MOMENT)

    assert (scene.stats().floor, scene.stats().due) == (5, 5)
    assert actions(caplog) == [RELEASED]


@pytest.mark.parametrize(
    ("where", "what"),
    [("/nowhere/at/all", "FileNotFoundError"), ("odd://x", "odd"), ("{0}/other", "no batch of")],
)
def test_a_wrong_path_is_told_and_the_batch_released(
    scene: Scene, caplog: pytest.LogCaptureFixture, where: str, what: str
):
    other = scene.folder / "other" / "offsets"
    other.mkdir(parents=True)
    (other / "7").write_text('v1\n{}\n{"group":"g","queue_id":"others@1","v":1}')
    reader = scene.reader(where.format(scene.folder))
    scene.run(reader, 0, FIRST, commit=True)

    reader.stop()
    scene.clock.advance(MOMENT)

    assert scene.stats().due == 5
    assert actions(caplog) == [CHECKPOINT_UNREADABLE]
    assert what in caplog.text
    assert "checkpoint location of the query" in caplog.text


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_path_may_be_written_as_for_spark(scene: Scene, form: str):
    reader = scene.reader(form.format(scene.folder))
    scene.run(reader, 0, FIRST, commit=True)

    reader.stop()

    assert scene.stats().depth == 15


@pytest.mark.parametrize("authority", ["", "//", "//a%2Fb:c@[::1]:80"])
@pytest.mark.parametrize(
    "path", ["my checkpoints/q", "per%20cent/q", "a#b/q", "ü/q", "day=1/a:b@c+d&e,[f]/q"]
)
def test_the_path_of_a_uri_is_taken_as_it_is_written(path: str, authority: str):
    told = look_up(f"mock:{authority}/{path}", UUID(int=1), QueueId("q@1"))

    assert f"'{path}/offsets'" in told.trouble


def test_what_follows_a_question_mark_is_for_pyarrow():
    told = look_up("s3a://bucket/a b?colour=x%20y", UUID(int=1), QueueId("q@1"))

    assert told.trouble == "ArrowInvalid: Unexpected query parameter in S3 URI: 'colour'"


def test_a_relative_path_is_one_of_the_working_directory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(scene.folder.parent)
    reader = scene.reader(scene.folder.name)
    scene.run(reader, 0, FIRST, commit=True)

    reader.stop()

    assert scene.stats().depth == 15


@pytest.mark.parametrize("is_committed", [True, False])
def test_when_spark_has_died_only_what_is_committed_is_given_up(
    scene: Scene, caplog: pytest.LogCaptureFixture, *, is_committed: bool
):
    """Its tasks may still run, and the sink may have the batch by its id."""
    reader = scene.reader()
    end = scene.run(reader, 0, FIRST, commit=is_committed)

    reader.stop(with_release=False)
    scene.clock.advance(MOMENT)

    stats = scene.stats()
    assert (stats.depth, stats.leased, stats.due) == ((15, 0, 0) if is_committed else (20, 5, 0))
    assert actions(caplog) == ([] if is_committed else [KEPT])
    restarted = scene.reader()
    assert len(restarted.tasks(end, messages_per_task=10)) == (0 if is_committed else 1)


def test_what_was_handed_out_for_the_last_time_is_not_released(scene: Scene):
    """The next reader would mark it dead, and it may be done."""
    alter_queue(scene.store, "q", max_deliveries=1)
    reader = scene.reader(checkpoint=None)
    end = scene.run(reader, 0, FIRST, commit=True)

    reader.stop()
    scene.clock.advance(MOMENT)

    assert (scene.stats().leased, scene.stats().due, scene.stats().dead) == (5, 0, 0)
    restarted = scene.reader()
    restarted.next_batch(end, limit=5)
    assert scene.stats().floor == 5
