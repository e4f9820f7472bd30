from __future__ import annotations

import logging
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.sink import receipt_writer as settle_module
from cassieq_spark.spark.sink.receipt_writer import SETTLED, SETTLED_EARLY, ReceiptWriter
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store, make_group, make_queue, make_request

SCHEMA = StructType([StructField("receipt", StringType())])


class Scene:
    """A batch of ten messages, and tasks of writes that have their receipts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.queue = make_queue(self.store, [10])
        self.group = make_group(self.store, self.queue.queue_id)
        self.lease = self.group.lease(make_request(stop=10)).token
        self.patch = monkeypatch
        monkeypatch.setattr(settle_module, "open_store", self._open)

    def _open(self, _: object) -> Store:
        return self.store

    def write(self, *monotons: int, in_batch: bool, **options: str) -> None:
        """One write of receipts, by a task that is part of a micro-batch or not."""
        self.patch.setattr(settle_module, "is_in_batch", lambda: in_batch)
        parsed = SinkOptions.parse({"queue": "q", "operation": "release"} | options)
        writer = ReceiptWriter(parsed, SCHEMA, overwrite=False)
        prefix = receipt_prefix(self.queue.queue_id, "g", self.lease)
        rows = pa.record_batch({"receipt": [f"{prefix}{monoton}" for monoton in monotons]})
        writer.commit([writer.write(iter([rows])), writer.write(iter([]))])

    @property
    def waiting(self) -> list[str]:
        return [str(row.monotons) for row in self.group.read().waiting]

    def ack(self) -> None:
        self.group.lease(make_request(held=self.lease, stop=0))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_inside_foreach_batch_a_write_takes_effect_with_its_batch(scene: Scene):
    scene.write(3, 4, in_batch=True, delay="1m")

    assert scene.waiting == []
    scene.ack()
    assert scene.waiting == ["3-5"]


def test_elsewhere_it_takes_effect_at_once(scene: Scene):
    scene.write(3, 4, in_batch=False, delay="1m")

    assert scene.waiting == ["3-5"]


def test_a_thread_of_which_spark_does_not_tell_may_ask_for_it(scene: Scene):
    scene.write(3, 4, in_batch=False, delay="1m", settle="batch")

    assert scene.waiting == []


def test_at_once_inside_foreach_batch_is_possible_and_its_danger_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)

    scene.write(3, in_batch=True, settle="now", delay="1m")

    assert scene.waiting == ["3-4"]
    told, done = caplog.records
    assert (told.levelname, told.action) == ("WARNING", SETTLED_EARLY)  # type: ignore[attr-defined]
    assert "if the driver dies before Spark commits the batch" in told.message
    assert done.action == SETTLED  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_batch", [True, False])
def test_nothing_is_told_where_there_is_no_danger(
    scene: Scene, caplog: pytest.LogCaptureFixture, *, in_batch: bool
):
    scene.write(3, in_batch=in_batch, delay="1m")

    assert caplog.records == []


def test_a_write_with_its_batch_costs_one_lwt_whatever_the_number_of_tasks(scene: Scene):
    scene.store.reset()

    scene.write(*range(8), in_batch=True, delay="1m")

    assert scene.store.cas_count == 1


def test_when_it_takes_effect_is_nothing_to_ask_of_what_is_published():
    with pytest.raises(OptionError, match="option 'settle' is for 'operation' = ack"):
        SinkOptions.parse({"queue": "q", "settle": "batch"})


def test_a_replacement_is_published_at_once_and_the_old_message_acked_with_its_batch(
    scene: Scene,
):
    schema = StructType([*SCHEMA.fields, StructField("value", StringType())])
    scene.patch.setattr(settle_module, "is_in_batch", lambda: True)
    options = SinkOptions.parse({"queue": "q", "operation": "replace"})
    writer = ReceiptWriter(options, schema, overwrite=False)
    receipt = receipt_prefix(scene.queue.queue_id, "g", scene.lease) + "3"
    rows = pa.record_batch({"receipt": [receipt], "value": ["new"]})

    writer.commit([writer.write(iter([rows]))])

    (held,) = scene.group.read().held_by(scene.lease)
    assert str(held.monotons) == "0-10"
    lease = scene.group.lease(make_request(held=scene.lease, stop=11))
    assert (lease.acked, [str(each.monotons) for each in lease.leased]) == (10, ["10-11"])
    scene.clock.advance(timedelta(days=1))
    assert scene.waiting == []


@pytest.mark.parametrize("in_batch", [True, False])
@pytest.mark.parametrize("other", ["replace", "ack"])
def test_a_message_that_is_replaced_and_named_by_a_row_of_another_task_is_refused(
    scene: Scene, other: str, *, in_batch: bool
):
    fields = [StructField(name, StringType()) for name in ("receipt", "operation", "value")]
    scene.patch.setattr(settle_module, "is_in_batch", lambda: in_batch)
    options = SinkOptions.parse({"queue": "q", "operation": "each"})
    writer = ReceiptWriter(options, StructType(fields), overwrite=False)
    prefix = receipt_prefix(scene.queue.queue_id, "g", scene.lease)
    tasks = [
        pa.record_batch(
            {"receipt": [f"{prefix}2", f"{prefix}3"], "operation": pair, "value": ["new"] * 2}
        )
        for pair in (["ack", "replace"], ["ack", other])
    ]
    written = [writer.write(iter([task])) for task in tasks]
    before = scene.group.read()
    scene.store.reset()

    with pytest.raises(MessageError, match=rf"^a row replaces message '{prefix}3', and another"):
        writer.commit([*written])

    assert (scene.group.read(), scene.store.cas_count) == (before, 0)
