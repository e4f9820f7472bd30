"""What a reader remembers of its group, and when it goes by that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.consumer.consumer import StateCache
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import slot_key
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.store.protocol import Delete
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_queue

SECOND = timedelta(seconds=1)
LASTING = timedelta(seconds=10)


class Scene:
    """A queue of a hundred messages, and readers of one group that remember how they left it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.queue_id = make_queue(self.store, [100]).queue_id
        ensure_group(ConsumerGroup(Ledger(self.store, self.queue_id), "g"), starting="earliest")
        self.elapsed = 0.0
        monkeypatch.setattr(consumer_module, "monotonic", lambda: self.elapsed)

    def advance(self, by: timedelta) -> None:
        self.clock.advance(by)
        self.elapsed += by.total_seconds()

    def lease(self, last: StateCache, *, stop: int = 100) -> tuple[Lease, int, int]:
        """A batch of five; the LWTs and the reads that it took."""
        self.store.reset()
        request = LeaseRequest(held=None, token=uuid4(), lease=LEASE, max_messages=5, stop=stop)
        told = last.get(stop=stop)
        lease = ConsumerGroup(Ledger(self.store, self.queue_id), "g").lease(request, told)
        last.put(lease, told)
        return lease, self.store.cas_count, self.store.read_count


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def costs(scene: Scene, last: StateCache, *, batches: int) -> list[tuple[int, int]]:
    return [scene.lease(last)[1:] for _ in range(batches)]


def test_who_reads_alone_reads_the_state_once(scene: Scene):
    assert costs(scene, StateCache(LASTING), batches=4) == [(1, 2), (1, 0), (1, 0), (1, 0)]


def test_what_is_leased_by_memory_follows_what_was_leased_before(scene: Scene):
    last = StateCache(LASTING)

    leased = [str(scene.lease(last)[0].leased[0].monotons) for _ in range(3)]

    assert leased == ["0-5", "5-10", "10-15"]


def test_after_its_time_the_state_is_read_whatever_happens(scene: Scene):
    last = StateCache(LASTING)
    costs(scene, last, batches=2)
    scene.advance(LASTING)

    assert costs(scene, last, batches=2) == [(1, 2), (1, 0)]


def test_who_was_crossed_by_another_reads_until_the_state_is_as_it_was_left(scene: Scene):
    last, other = StateCache(LASTING), StateCache(LASTING)
    costs(scene, last, batches=1)
    costs(scene, other, batches=1)

    assert costs(scene, last, batches=1) == [(2, 2)]
    assert last.was_stale
    costs(scene, other, batches=1)
    assert costs(scene, last, batches=3) == [(1, 2), (1, 2), (1, 0)]
    assert not last.was_stale


def test_what_runs_out_is_looked_at(scene: Scene):
    last = StateCache(timedelta(days=1))
    costs(scene, last, batches=2)
    scene.advance(LEASE + SECOND)

    assert scene.lease(last)[1:] == (1, 2)


def test_a_queue_without_fresh_messages_is_looked_at(scene: Scene):
    last = StateCache(LASTING)
    scene.lease(last, stop=5)

    assert scene.lease(last, stop=5)[1:] == (0, 2)


def test_what_is_forgotten_is_read(scene: Scene):
    last = StateCache(LASTING)
    costs(scene, last, batches=1)
    last.clear()

    assert costs(scene, last, batches=2) == [(1, 2), (1, 0)]


def test_a_change_that_can_not_be_followed_is_read(scene: Scene):
    last = StateCache(LASTING)
    batch, _, _ = scene.lease(last)
    last.put(replace(batch, ops=(Delete(slot_key(0)),)), None)

    assert last.get(stop=100) is None
