"""Acking and leasing at once, in a queue with several partitions."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Exchanged, LeaseRequest, Message
from cassieq_spark.client.exchange import Exchange
from cassieq_spark.groups.presence import Presence
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue, text

SECOND = timedelta(seconds=1)
ONE, NOTHING = LeaseRequest(max_messages=1), LeaseRequest(max_messages=0)


@pytest.fixture(params=["none", "key"])
def queue(request: pytest.FixtureRequest) -> PartitionedQueue:
    return PartitionedQueue(request.param)


@pytest.fixture
def exchange(queue: PartitionedQueue) -> Exchange:
    return queue.client.exchange("orders", "billing")


def receipts(*messages: Message) -> list[Receipt]:
    return [Receipt.parse(each.receipt) for each in messages]


def depth(queue: PartitionedQueue) -> int:
    return queue.client.stats("orders").groups[0].depth


@pytest.mark.parametrize("partition", range(PARTITIONS))
@pytest.mark.parametrize("max_bytes", [None, 1000])
def test_the_first_turn_finds_a_message_in_any_partition(
    queue: PartitionedQueue, exchange: Exchange, partition: int, max_bytes: int | None
):
    queue.put(KEYS[partition][0])

    told = exchange.turn([], LeaseRequest(max_messages=1, max_bytes=max_bytes))

    assert [each.partition for each in told.messages] == [partition]


@pytest.mark.parametrize("max_bytes", [None, 1000])
def test_a_receipt_is_good_after_turns_that_had_enough_of_other_partitions(
    queue: PartitionedQueue, exchange: Exchange, max_bytes: int | None
):
    queue.put(KEYS[0][0], KEYS[1][0])
    one = LeaseRequest(max_messages=1, max_bytes=max_bytes)
    got = {each.partition: each for _ in range(2) for each in exchange.turn([], one).messages}

    told = exchange.turn(receipts(got[1]), NOTHING)

    assert told.stale == frozenset()
    assert depth(queue) == 1


def test_acks_are_good_while_the_first_partition_is_anothers_and_has_nothing(
    queue: PartitionedQueue, exchange: Exchange
):
    keys = [key for partition in (1, 2, 3) for key in KEYS[partition]]
    queue.put(*keys, *keys, *keys, *keys[:2])
    other = Presence(queue.store, queue.definition, "billing", lease=60 * SECOND)
    other._reader = UUID(int=0)
    other.share()
    values, held = [], list[Message]()

    for _ in range(25):
        told = exchange.turn(receipts(*held), ONE)
        assert told.stale == frozenset()
        values += [text(each) for each in told.messages]
        held = told.messages

    assert len(values) == len({*values}) == 20
    assert depth(queue) == 0


def test_a_receipt_of_an_earlier_version_reaches_no_partition(
    queue: PartitionedQueue, exchange: Exchange
):
    queue.put(KEYS[2][0])
    (old,) = receipts(*exchange.turn([], ONE).messages)
    queue.client.delete_queue("orders", force=True)
    queue.client.create_queue("orders", partitions=PARTITIONS)
    queue.put(KEYS[2][0])
    (new,) = receipts(*exchange.turn([], ONE).messages)

    told = exchange.turn([old, new], NOTHING)

    assert told.stale == {old}
    assert depth(queue) == 0


def test_partitions_share_one_read_of_the_definition():
    queue = PartitionedQueue()
    exchange = queue.client.exchange("orders", "billing")
    queue.put(*(key for keys in KEYS.values() for key in keys))
    everything = LeaseRequest(max_messages=1000)
    for _ in range(PARTITIONS):
        exchange.turn([], everything)
    exchange._queue = None
    queue.store.reset()

    told: Exchanged = exchange.turn([], everything)

    assert told.messages == []
    # The ledger's head and the group twice.
    assert (queue.store.read_count, queue.store.cas_count) == (1 + 3 * PARTITIONS, 0)
