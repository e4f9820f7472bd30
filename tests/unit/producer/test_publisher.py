from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
import pytest

from cassieq_spark.client import Client
from cassieq_spark.errors import BatchChangedError, BatchOrderError, InvariantError, OptionError
from cassieq_spark.ledger.once import once_of_key
from cassieq_spark.ledger.publish import Published
from cassieq_spark.model import Order, QueueDefinition, Range, SinkBatch
from cassieq_spark.producer.publisher import Written, publish_written, write_partition
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_queue

BATCH = SinkBatch("query:q", 7)
SECOND = timedelta(seconds=1)


@dataclass
class Scene:
    store: CountingStore
    queue: QueueDefinition

    def publish(self, written: list[Written], *, fail_on_changed: bool = True) -> Published:
        return publish_written(self.store, written, fail_on_changed=fail_on_changed)

    def write(self, *values: str, batch: SinkBatch = BATCH) -> Written:
        rows = pa.record_batch({"value": pa.array(values, pa.string())})
        return write_partition(self.store, self.queue, [rows], batch)


@pytest.fixture
def scene() -> Scene:
    store = CountingStore(MemoryStore())
    return Scene(store, make_queue(store))


def test_what_all_tasks_wrote_becomes_visible_by_one_lwt(scene: Scene):
    written = [scene.write("a", "b"), scene.write("c")]
    scene.store.reset()

    published = scene.publish(written)

    assert published.monotons == Range(0, 3)
    assert scene.store.cas_count == 1


def test_a_task_that_found_the_batch_published_makes_the_whole_batch_published(scene: Scene):
    late = scene.write("b")
    scene.publish([scene.write("a"), scene.write("b")])
    found = scene.write("a")
    scene.store.reset()

    published = scene.publish([late, found])

    assert found.published is not None
    assert (found.blocks, late.published) == ((), None)
    assert published.monotons is None
    assert scene.store.cas_count == 0


def test_the_rows_of_tasks_that_wrote_nothing_count_for_the_fingerprint(scene: Scene):
    scene.publish([scene.write("a"), scene.write("b")])
    replayed = [scene.write("a"), scene.write("other")]

    with pytest.raises(BatchChangedError):
        scene.publish(replayed)

    assert scene.publish(replayed, fail_on_changed=False).monotons is None


def test_nothing_is_written_below_the_last_batch_of_a_sink(scene: Scene):
    scene.publish([scene.write("a")])

    with pytest.raises(BatchOrderError):
        scene.write("b", batch=replace(BATCH, batch_id=6))


def test_under_a_key_that_was_used_nothing_is_written_and_the_content_compared(scene: Scene):
    key = once_of_key("k")
    scene.publish([write_partition(scene.store, scene.queue, [batch_of("a"), batch_of("b")], key)])

    again = write_partition(scene.store, scene.queue, [batch_of("b"), batch_of("a")], key)
    other = write_partition(scene.store, scene.queue, [batch_of("b")], key)

    assert (again.blocks, other.blocks) == ((), ())
    assert scene.publish([again]).monotons is None
    with pytest.raises(BatchChangedError):
        scene.publish([other])


def test_tasks_of_several_batches_are_not_published_together(scene: Scene):
    other = SinkBatch(BATCH.sink, 8)

    with pytest.raises(InvariantError, match="several batches"):
        scene.publish([scene.write("a"), scene.write("b", batch=other)])


def test_tasks_of_several_versions_of_a_queue_are_not_published_together(scene: Scene):
    before = scene.write("a")
    with Client.from_store(scene.store) as client:
        client.purge_queue("q")
        scene.queue = client.queue("q")

    with pytest.raises(InvariantError, match="versions"):
        scene.publish([before, scene.write("b")])


def test_nothing_is_published_for_tasks_without_messages(scene: Scene):
    scene.store.reset()

    assert scene.publish([]).monotons == Range(0, 0)
    assert scene.publish([scene.write()]).monotons == Range(0, 0)
    assert scene.store.cas_count == 0


def test_a_strictly_ordered_queue_takes_no_delay(scene: Scene):
    strict = replace(scene.queue, order=Order.STRICT)

    with pytest.raises(OptionError, match="strictly ordered"):
        write_partition(scene.store, strict, [batch_of("a")], visible=SECOND)


def batch_of(value: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value], pa.string())})
