from __future__ import annotations

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import (
    delete_queue,
    is_paused,
    pause_queue,
    purge_queue,
    resume_queue,
)
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_request, monotons_of
from tests.unit.queues.scene import Scene


def next_batch(scene: Scene, name: str, done: Lease) -> Lease:
    stop = Ledger(scene.store, scene.old.queue_id).read_head().offered_below()
    group = ConsumerGroup(Ledger(scene.store, scene.old.queue_id), name)
    return group.lease(make_request(held=done.token, stop=stop))


def test_readers_of_a_paused_queue_ack_what_they_have_and_get_nothing(scene: Scene):
    done = scene.lease(scene.old, "idle")
    scene.publish(scene.old)

    assert pause_queue(scene.store, "q")

    assert is_paused(scene.store, "q")
    batch = next_batch(scene, "idle", done)
    assert (batch.acked, batch.leased) == (8, ())
    scene.run_out()
    assert not scene.lease(scene.old, "g").leased, "what is due again waits as well"


def test_writers_of_a_paused_queue_go_on(scene: Scene):
    pause_queue(scene.store, "q")

    scene.publish(scene.old)

    assert len(Ledger(scene.store, scene.old.queue_id).read_blocks()) == 3


def test_readers_of_a_resumed_queue_go_on_where_they_were(scene: Scene):
    pause_queue(scene.store, "q")
    scene.run_out()

    assert resume_queue(scene.store, "q")

    assert not is_paused(scene.store, "q")
    leased = [*scene.lease(scene.old, "g").leased, *scene.lease(scene.old, "g").leased]
    assert sorted(map(str, monotons_of(leased))) == ["0-5", "5-8"]


def test_to_pause_or_resume_twice_changes_nothing_and_says_so(scene: Scene):
    assert not resume_queue(scene.store, "q")
    assert pause_queue(scene.store, "q")
    assert not pause_queue(scene.store, "q")


def test_pausing_costs_one_lwt_and_looking_two_reads(scene: Scene):
    store = CountingStore(scene.store)

    pause_queue(store, "q")
    assert store.cas_count == 1
    store.reset()
    is_paused(store, "q")

    assert (store.cas_count, store.read_count) == (0, 2)


@pytest.mark.parametrize("fault", Fault)
def test_a_pause_that_arrives_late_does_not_undo_what_came_after(scene: Scene, fault: Fault):
    scene.store.fault = fault
    assert pause_queue(scene.store, "q")

    resume_queue(scene.store, "q")
    scene.store.arrive()

    assert not is_paused(scene.store, "q")


def test_a_queue_that_is_over_is_neither_paused_nor_resumed(scene: Scene):
    def purge() -> None:
        purge_queue(scene.store, "q", force=True)

    scene.store.interrupt(purge, after=1)
    with pytest.raises(QueueStateError, match="queue q@1 was purged"):
        pause_queue(scene.store, "q")
    assert not is_paused(scene.store, "q")
    delete_queue(scene.store, "q")
    with pytest.raises(QueueStateError, match="there is no queue 'q'"):
        resume_queue(scene.store, "q")
