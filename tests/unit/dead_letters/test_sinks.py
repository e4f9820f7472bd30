from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.dead_letters.burial import bury
from cassieq_spark.dead_letters.claims import ADMIN_GROUP, batch_of
from cassieq_spark.dead_letters.sinks import is_over, publishes_once, sink_of_key
from cassieq_spark.delivery.groups import ensure_group
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.settle import Settlement, settle
from cassieq_spark.ledger.read import read_head
from cassieq_spark.ledger.sinks import read_sinks
from cassieq_spark.ledger.sweep import finalise
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_group, make_wish
from tests.unit.dead_letters.test_burial import Scene


def sinks(store: MemoryStore, queue_id: QueueId) -> list[str]:
    return [row.name for row in read_sinks(store, queue_id)[0]]


def test_the_sink_of_a_burial_is_over_once_its_messages_are_finalised():
    scene = Scene()
    scene.bury()
    (sink,) = sinks(scene.memory, scene.target.queue_id)
    queue_id = scene.queue.queue_id
    assert publishes_once(sink)

    assert not is_over(scene.memory, sink), "a group may be moved back to them"
    assert finalise(scene.memory, queue_id, read_head(scene.memory, queue_id), 1)

    assert is_over(scene.memory, sink)


@pytest.mark.parametrize("name", ["a:b", "a:1:2", "x"])
@pytest.mark.parametrize("group", ["g:h", "g:7:i", "y"])
def test_names_with_colons_are_no_trouble(name: str, group: str):
    scene = Scene()
    # Handed out without an end, and rejected by nobody: only the names matter.
    queue = create_queue(
        scene.memory,
        name,
        bucket_size=8,
        chunk_size=4,
        max_deliveries=1,
        dead_letter_queue="q.dead",
    )
    scene.queue = queue
    scene.publish(["0", "1", "2"])
    delivery = make_group(scene.memory, queue.queue_id, group)
    delivery.ack_and_lease(make_wish(stop=3, limit=2))
    scene.clock.advance(timedelta(hours=1))
    dead = delivery.ack_and_lease(make_wish(stop=1, max_deliveries=1)).dead
    bury(scene.memory, queue, delivery, dead)
    (sink,) = sinks(scene.memory, scene.target.queue_id)

    assert not is_over(scene.memory, sink)
    assert finalise(scene.memory, queue.queue_id, read_head(scene.memory, queue.queue_id), 1)
    assert is_over(scene.memory, sink)


def test_the_sink_of_a_redrive_is_over_once_its_claim_is_resolved():
    scene = Scene()
    scene.bury()
    dead = scene.target.queue_id
    ensure_group(scene.memory, dead, ADMIN_GROUP, starting="earliest")
    claims = Delivery(scene.memory, dead, ADMIN_GROUP)
    claim = claims.ack_and_lease(make_wish(stop=6))
    sink = batch_of(dead, claim.lease).sink
    assert publishes_once(sink)

    scene.clock.advance(timedelta(days=100))
    assert not is_over(scene.memory, sink), "the next redrive wants to know"
    claims.ack_and_lease(make_wish(held=claim.lease, stop=0))

    assert is_over(scene.memory, sink)


def test_the_sink_of_a_redrive_is_over_once_its_messages_are_given_back():
    scene = Scene()
    scene.bury()
    dead = scene.target.queue_id
    ensure_group(scene.memory, dead, ADMIN_GROUP, starting="earliest")
    claims = Delivery(scene.memory, dead, ADMIN_GROUP)
    claim = claims.ack_and_lease(make_wish(stop=6))
    sink = batch_of(dead, claim.lease).sink

    settle(claims, claim.lease, Settlement(released={timedelta(0): Ranges.parse("0-6")}))

    assert claims.read().held_by(claim.lease), "an empty slot stays under its token"
    assert is_over(scene.memory, sink)


def test_of_a_queue_that_never_was_every_sink_is_over():
    store = MemoryStore()

    assert is_over(store, "dead:gone@1:g:3:0123456789abcdef")
    assert is_over(store, "redrive:gone@1:00000000-0000-0000-0000-000000000001")


def test_what_is_named_otherwise_is_never_over():
    store = MemoryStore()

    assert not is_over(store, "dead:q@1:g:x:0123")
    assert not is_over(store, "redrive:q@1:g")


def test_the_sink_of_an_idempotency_key_is_over_as_soon_as_the_sweep_likes():
    sink = sink_of_key("a:b@1")

    assert publishes_once(sink)
    assert is_over(MemoryStore(), sink)


def test_queries_and_applications_publish_again_and_again():
    assert not publishes_once("query:dead:1")
    assert not publishes_once("app:redrive:1")
    assert not publishes_once("deadline:1")
