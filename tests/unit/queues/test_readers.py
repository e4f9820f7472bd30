"""What a streaming query meets while its queue is paused, purged or deleted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import delete_queue, pause_queue, purge_queue, read_queue, resume_queue
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE
from tests.unit.queues.scene import Scene

FIRST = initial_offset("q", "idle")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(idle_backoff, "LONGEST_PAUSE", timedelta(0))
    monkeypatch.setattr(idle_backoff, "RECHECK", timedelta(0))
    return Scene()


def make_reader(
    scene: Scene, queue: QueueDefinition, group: str = "idle", store: Store | None = None
) -> QueueReader:
    request = LeaseRequest(lease=LEASE)
    return QueueReader(store or scene.store, queue, group, starting="earliest", request=request)


def test_a_reader_of_a_paused_queue_acks_its_batch_and_gets_the_next_when_it_is_resumed(
    scene: Scene,
):
    reader = make_reader(scene, scene.old)
    done = reader.next_batch(FIRST, limit=3)
    pause_queue(scene.store, "q")

    assert reader.next_batch(done, limit=3) == done
    assert reader.next_batch(done, limit=3) == done

    resume_queue(scene.store, "q")
    end = reader.next_batch(done, limit=None)
    ((part,),) = reader.tasks(end, messages_per_task=100)
    assert [each.first_monoton for each in part.pieces] == [3, 5]
    reader.stop()


def test_looking_whether_a_queue_is_paused_costs_nothing(scene: Scene):
    scene.run_out()
    store = CountingStore(scene.store)
    reader = make_reader(scene, scene.old, store=store)
    store.reset()

    reader.next_batch(FIRST, limit=3)

    assert store.read_count == 3, "the head and, twice, the group, which it reads anyway"
    reader.stop()


def test_a_query_with_available_now_ends_if_the_queue_is_paused(scene: Scene):
    pause_queue(scene.store, "q")
    reader = make_reader(scene, scene.old)
    reader.aim()

    assert reader.next_batch(FIRST, limit=None) == FIRST
    reader.stop()


@pytest.mark.parametrize(
    ("end", "told"),
    [(purge_queue, "q@1 was purged.*new checkpoint"), (delete_queue, "q@1 was deleted")],
)
def test_a_reader_whose_queue_is_over_is_told(scene: Scene, end, told: str):
    reader = make_reader(scene, scene.old)
    done = reader.next_batch(FIRST, limit=3)

    end(scene.store, "q", force=True)

    with pytest.raises(QueueStateError, match=told):
        reader.next_batch(done, limit=3)
    reader.stop()


def test_a_reader_that_starts_with_an_old_definition_is_told_with_its_first_batch(scene: Scene):
    purge_queue(scene.store, "q", force=True)

    with pytest.raises(QueueStateError, match="was purged"):
        make_reader(scene, scene.old, "new")
    reader = make_reader(scene, scene.old)
    with pytest.raises(QueueStateError, match="was purged"):
        reader.next_batch(FIRST, limit=3)
    reader.stop()


def test_a_checkpoint_of_the_version_before_is_refused_and_a_new_one_gets_what_comes(
    scene: Scene,
):
    old = make_reader(scene, scene.old)
    done = old.next_batch(FIRST, limit=3)
    old.stop()
    purge_queue(scene.store, "q", force=True)
    queue = read_queue(scene.store, "q")
    scene.publish(queue)
    reader = make_reader(scene, queue)

    with pytest.raises(QueueStateError, match=r"version 1 of queue 'q'.*new checkpoint location"):
        reader.next_batch(done, limit=3)

    end = reader.next_batch(FIRST, limit=3)
    assert end["ranges"] == [[0, "0-2", 1]]
    reader.stop()
