"""A ledger of thousands of blocks, of which the repair has trimmed most."""

from __future__ import annotations

from uuid import uuid1, uuid4

import pytest

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueId, Range
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.repair.read import see
from cassieq_spark.store.protocol import Store


@pytest.fixture
def queue_id(cassandra_store: Store) -> QueueId:
    """2,500 blocks of four messages; of the first 2,000, nothing is left."""
    store = cassandra_store
    queue = create_queue(store, f"large-{uuid4().hex[:8]}")
    for count in (1_500, 1_000):
        publish(Ledger(store, queue.queue_id), [PendingBlock(uuid1(), 4) for _ in range(count)])
    Ledger(store, queue.queue_id).finalise(Ledger(store, queue.queue_id).read_head(), 8_002)
    assert Ledger(store, queue.queue_id).trim(finalised=8_002, below=8_000)
    return queue.queue_id


def test_the_head_tells_where_the_blocks_begin(cassandra_store: Store, queue_id: QueueId):
    head = Ledger(cassandra_store, queue_id).read_head(serial=True)

    assert (head.trimmed, head.finalised, head.next) == (8_000, 8_002, 10_000)
    for serial in (False, True):
        blocks = Ledger(cassandra_store, queue_id).read_blocks(start=head.trimmed, serial=serial)
        assert [each.monotons.start for each in blocks] == list(range(8_000, 10_000, 4))
    assert Ledger(cassandra_store, queue_id).read_blocks() == blocks


def test_what_is_left_is_found(cassandra_store: Store, queue_id: QueueId):
    head = Ledger(cassandra_store, queue_id).read_head()
    blocks = Ledger(cassandra_store, queue_id).locate(Range(8_002, 10_000))
    (last,) = Ledger(cassandra_store, queue_id).locate(Range(9_998, 10_000))

    assert (len(blocks), blocks[-1]) == (500, last)
    instant = last.published_at
    first = next(each.monotons.start for each in blocks if each.published_at >= instant)
    assert Ledger(cassandra_store, queue_id).find_position(head, instant) == first
    queue = read_queue(cassandra_store, queue_id.rpartition("@")[0])
    seen = see(Ledger(cassandra_store, queue_id))
    assert seen is not None
    assert seen.has_nothing_to_finalise(queue)


def test_a_trim_that_comes_late_changes_nothing(cassandra_store: Store, queue_id: QueueId):
    Ledger(cassandra_store, queue_id).finalise(
        Ledger(cassandra_store, queue_id).read_head(), 9_000
    )

    assert not Ledger(cassandra_store, queue_id).trim(finalised=8_002, below=8_000)
    seen = see(Ledger(cassandra_store, queue_id))
    assert seen is not None
    assert not seen.is_trimmed
    assert Ledger(cassandra_store, queue_id).read_head().trimmed == 8_000


def test_a_whole_ledger_is_read_a_thousand_blocks_at_a_time(cassandra_store: Store):
    queue = create_queue(cassandra_store, f"whole-{uuid4().hex[:8]}")
    pending = [PendingBlock(uuid1(), 4) for _ in range(2_500)]
    publish(Ledger(cassandra_store, queue.queue_id), pending)

    blocks = Ledger(cassandra_store, queue.queue_id).read_blocks()

    assert [each.block for each in blocks] == [each.block for each in pending]
    assert blocks == Ledger(cassandra_store, queue.queue_id).locate(Range(0, 10_000))
