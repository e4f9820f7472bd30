"""Acking and leasing at once, in a queue with several partitions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark import Client
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.client.exchange import Exchange, RoundResult
from cassieq_spark.client.receiver import READ_AGAIN_AFTER
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.errors import NotAppliedError, NotFoundError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.presence import Presence
from cassieq_spark.groups.registration import delete_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import id_of
from cassieq_spark.queues import CACHED_FOR
from cassieq_spark.store.protocol import Op, Partition
from tests.support.builders import make_request
from tests.support.faults import Age
from tests.support.partly_down import PartlyDownStore
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue, text

SECOND = timedelta(seconds=1)
PATIENCE = 30
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
def test_the_first_round_finds_a_message_in_any_partition(
    queue: PartitionedQueue, exchange: Exchange, partition: int, max_bytes: int | None
):
    queue.put(KEYS[partition][0])

    told = exchange.round([], LeaseRequest(max_messages=1, max_bytes=max_bytes))

    assert [each.partition for each in told.messages] == [partition]


@pytest.mark.parametrize("max_bytes", [None, 1000])
def test_a_receipt_is_good_after_rounds_that_had_enough_of_other_partitions(
    queue: PartitionedQueue, exchange: Exchange, max_bytes: int | None
):
    queue.put(KEYS[0][0], KEYS[1][0])
    one = LeaseRequest(max_messages=1, max_bytes=max_bytes)
    got = {each.partition: each for _ in range(2) for each in exchange.round([], one).messages}

    told = exchange.round(receipts(got[1]), NOTHING)

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
        told = exchange.round(receipts(*held), ONE)
        assert told.stale == frozenset()
        values += [text(each) for each in told.messages]
        held = told.messages

    assert len(values) == len({*values}) == 20
    assert depth(queue) == 0


def test_a_receipt_of_an_earlier_version_reaches_no_partition(
    queue: PartitionedQueue, exchange: Exchange
):
    queue.put(KEYS[2][0])
    (old,) = receipts(*exchange.round([], ONE).messages)
    queue.client.delete_queue("orders", force=True)
    queue.client.create_queue("orders", partitions=PARTITIONS)
    queue.put(KEYS[2][0])
    (new,) = receipts(*exchange.round([], ONE).messages)

    told = exchange.round([old, new], NOTHING)

    assert told.stale == {old}
    assert depth(queue) == 0


def test_partitions_share_one_read_of_the_definition():
    queue = PartitionedQueue()
    exchange = queue.client.exchange("orders", "billing")
    queue.put(*(key for keys in KEYS.values() for key in keys))
    everything = LeaseRequest(max_messages=1000)
    for _ in range(PARTITIONS):
        exchange.round([], everything)
    exchange._queue = None
    queue.store.reset()

    told: RoundResult = exchange.round([], everything)

    assert told.messages == []
    # The ledger's head and the group twice.
    assert (queue.store.read_count, queue.store.cas_count) == (1 + 3 * PARTITIONS, 0)


# -- partitions that fail -----------------------------------------------------------------------


class Scene:
    """A queue of which a partition fails, and its exchange, which knows group and definition."""

    def __init__(self, queue: PartitionedQueue) -> None:
        self.queue = queue
        self.store = PartlyDownStore(queue.memory)
        self.client = Client.from_store(self.store)
        self.exchange = self.client.exchange("orders", "billing")
        self.exchange.round([], ONE)

    def lease(self, *partitions: int) -> dict[int, Receipt]:
        """Put and lease a message of each of these partitions; the receipts by partition."""
        self.queue.put(*(KEYS[each][0] for each in partitions))
        held: dict[int, Receipt] = {}
        while held.keys() != {*partitions}:
            messages = self.exchange.round([], LeaseRequest(max_messages=100)).messages
            held |= {each.partition: Receipt.parse(each.receipt) for each in messages}
        return held


@pytest.fixture
def scene(queue: PartitionedQueue) -> Scene:
    return Scene(queue)


@pytest.fixture
def age(monkeypatch: pytest.MonkeyPatch) -> Age:
    age = Age()
    # Of the definition, and of the states of the group: what is known of both stays known.
    for module in (exchange_module, consumer_module):
        monkeypatch.setattr(module, "monotonic", age)
    return age


def ids(*partitions: int, call: str = "cas") -> set[tuple[str, str]]:
    return {(call, f"orders@1.{each}") for each in partitions}


def test_acks_of_other_partitions_are_done_when_messages_of_one_cannot_be_fetched(scene: Scene):
    held = scene.lease(0, 1)
    # Read ahead was what was there.
    scene.exchange._parts.clear()
    scene.exchange._queue = None
    scene.queue.put(KEYS[0][1])
    scene.store.down = ids(0, call="read_chunks")

    told = scene.exchange.round([held[0], held[1]], ONE)

    assert (told.messages, told.stale, dict(told.failed)) == ([], frozenset(), {})
    assert isinstance(told.error, NotAppliedError)
    assert depth(scene.queue) == 1
    scene.store.down.clear()
    scene.queue.clock.advance(READ_AGAIN_AFTER)
    (again,) = scene.queue.receive()
    assert (again.partition, again.delivery_count) == (0, 2)


def test_when_a_partition_is_down_the_others_are_acked_at_the_same_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    held = scene.lease(0, 1, 2)
    scene.store.down = ids(0)
    cas, both = scene.store.cas, threading.Barrier(2)

    def together(partition: Partition, ops: Sequence[Op]) -> bool:
        if "orders@1.0" not in partition.key:
            both.wait(PATIENCE)
        return cas(partition, ops)

    monkeypatch.setattr(scene.store, "cas", together)

    told = scene.exchange.round([held[0], held[1], held[2]], NOTHING)

    assert (told.failed.keys(), told.stale) == ({held[0]}, frozenset())
    assert depth(scene.queue) == 1


@pytest.mark.parametrize("down", range(3))
@pytest.mark.parametrize("most", [0, 1, 100])
def test_each_receipt_is_told_settled_or_failed_as_it_is(scene: Scene, down: int, most: int):
    held = scene.lease(0, 1, 2)
    scene.store.down = ids(down)

    told = scene.exchange.round([*held.values()], LeaseRequest(max_messages=most))

    assert told.stale == frozenset()
    assert told.failed.keys() == {held[down]}
    assert isinstance(told.failed[held[down]], NotAppliedError)
    assert isinstance(told.error, NotAppliedError) is (most > 0)
    assert depth(scene.queue) == 1
    scene.store.down.clear()
    assert scene.exchange.round([held[down]], NOTHING).stale == frozenset()
    assert depth(scene.queue) == 0


def test_messages_of_other_partitions_are_handed_over_when_one_fails():
    scene = Scene(PartitionedQueue())
    scene.queue.put(*(KEYS[each][0] for each in range(PARTITIONS)))
    scene.store.down = ids(3)
    got: list[Message] = []

    for _ in range(2 * PARTITIONS):
        with suppress(NotAppliedError):
            told = scene.exchange.round([], LeaseRequest(max_messages=100))
            assert told.messages
            got += told.messages

    assert {each.partition: each.delivery_count for each in got} == {0: 1, 1: 1, 2: 1}
    assert scene.exchange.round(receipts(*got), NOTHING).stale == frozenset()


def test_messages_of_other_partitions_are_handed_over_once_when_those_of_one_cannot_be_read():
    scene = Scene(PartitionedQueue(max_deliveries=3))
    scene.queue.put(*(KEYS[each][0] for each in range(PARTITIONS)))
    scene.store.down = ids(3, call="read_chunks")
    got: list[Message] = []

    for _ in range(2 * PARTITIONS):
        with suppress(NotAppliedError):
            got += scene.exchange.round([], LeaseRequest(max_messages=100)).messages

    assert {each.partition: each.delivery_count for each in got} == {0: 1, 1: 1, 2: 1}
    assert scene.exchange.round(receipts(*got), NOTHING).stale == frozenset()
    scene.store.down.clear()
    scene.queue.clock.advance(READ_AGAIN_AFTER)
    assert [(each.partition, each.delivery_count) for each in scene.queue.receive()] == [(3, 2)]


def test_a_round_of_which_nothing_is_done_fails(scene: Scene):
    held = scene.lease(0, 1)
    scene.store.down = ids(*range(PARTITIONS))

    with pytest.raises(NotAppliedError, match="no replicas"):
        scene.exchange.round([*held.values()], ONE)

    scene.store.down.clear()
    assert scene.exchange.round([*held.values()], NOTHING).stale == frozenset()


def test_acks_are_done_when_the_group_cannot_be_made_in_all_partitions(scene: Scene):
    held = scene.lease(0, 1)
    ledger = Ledger(scene.queue.store, id_of("orders", 1, 3))
    delete_group(ConsumerGroup(ledger, "billing"))
    scene.store.down = ids(3)
    exchange = Client.from_store(scene.store).exchange("orders", "billing")

    told = exchange.round([held[0], held[1]], ONE)

    assert (told.messages, told.stale, dict(told.failed)) == ([], frozenset(), {})
    assert isinstance(told.error, NotAppliedError)


def test_of_query_batches_each_is_told_settled_or_failed_as_it_is(scene: Scene):
    scene.queue.put(KEYS[0][0], KEYS[1][0])
    given: dict[int, Receipt] = {}
    for number in (0, 1):
        group = ConsumerGroup(Ledger(scene.queue.store, id_of("orders", 1, number)), "billing")
        lease = group.lease(make_request(stop=1))
        given[number] = Receipt(group.queue_id, "billing", lease.token, 0, 1)
    scene.store.down = ids(0)

    told = scene.exchange.round([*given.values()], NOTHING)

    assert told.failed.keys() == {given[0]}
    assert told.stale == frozenset()
    assert depth(scene.queue) == 1


def test_a_purge_between_two_rounds_fails_no_round_and_loses_no_receipt(scene: Scene):
    held = scene.lease(0, 1)
    scene.client.purge_queue("orders", force=True)
    scene.queue.put(KEYS[2][0])

    told = scene.exchange.round([*held.values()], ONE)

    assert (told.stale, told.error, dict(told.failed)) == (frozenset(held.values()), None, {})
    assert [each.partition for each in told.messages] == [2]


def test_a_deletion_between_two_rounds_is_told(age: Age, scene: Scene):
    held = scene.lease(0, 1)
    scene.client.delete_queue("orders", force=True)

    told = scene.exchange.round([*held.values()], ONE)

    assert (told.messages, {*told.stale, *told.failed}) == ([], {*held.values()})
    assert isinstance(told.error, NotFoundError)
    with pytest.raises(NotFoundError, match="no queue 'orders'"):
        scene.exchange.round([], ONE)


def test_a_round_that_finds_the_queue_deleted_fails(age: Age, scene: Scene):
    held = scene.lease(0, 1)
    scene.client.delete_queue("orders", force=True)
    age.seconds += CACHED_FOR.total_seconds()

    with pytest.raises(NotFoundError, match="no queue 'orders'"):
        scene.exchange.round([*held.values()], ONE)
