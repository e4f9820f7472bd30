"""A group that a client makes is in all partitions before the client leases its first message."""

from __future__ import annotations

import pytest

from cassieq_spark import Client
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest, Message
from cassieq_spark.errors import NotAppliedError, NotFoundError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import create_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import id_of
from cassieq_spark.queues import open_ledgers
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from tests.support.partly_down import PartlyDownStore
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue

ALL = [key for keys in KEYS.values() for key in keys]
ONE, NOTHING = LeaseRequest(max_messages=1), LeaseRequest(max_messages=0)


@pytest.fixture
def queue() -> PartitionedQueue:
    return PartitionedQueue()


class Reader:
    """Receives one message, and acks all that it is given, in one of three ways."""

    def __init__(self, queue: PartitionedQueue, how: str) -> None:
        self.client = Client.from_store(queue.store)
        self._how = how
        self._exchange = self.client.exchange("orders", "slow")

    def one(self) -> list[Message]:
        if self._how == "exchange":
            return self._exchange.turn([], ONE).messages
        if self._how == "receive":
            return self.client.receive("orders", "slow")
        receipts = self.client.receive_table("orders", "slow", max=1).column("receipt")
        return [receipt.as_py() for receipt in receipts]

    def ack(self, messages: list[Message]) -> None:
        assert self.client.ack(*messages) == []


@pytest.fixture(params=["receive", "table", "exchange"])
def reader(request: pytest.FixtureRequest, queue: PartitionedQueue) -> Reader:
    return Reader(queue, request.param)


def groups(queue: PartitionedQueue) -> list[set[str]]:
    """The groups that each partition knows."""
    ledgers = open_ledgers(queue.memory, "orders")
    return [{each.name for each in ledger.read_groups(serial=True)} for ledger in ledgers]


def create_in_part(queue: PartitionedQueue, *partitions: int) -> None:
    for number in partitions:
        ledger = Ledger(queue.store, id_of("orders", 1, number))
        create_group(ConsumerGroup(ledger, "slow"), "earliest")


def test_no_message_is_deleted_that_a_group_is_owed_which_has_received_one(
    queue: PartitionedQueue, reader: Reader
):
    queue.client.create_group("orders", "fast")
    queue.put(*ALL, *ALL)
    received = reader.one()
    reader.ack(received)
    queue.client.ack(*queue.receive(group="fast"))

    assert not run_once(queue.store, scan=DriverScan(queue.store)).failed

    while messages := reader.one():
        reader.ack(messages)
        received += messages
    assert len(received) == 2 * len(ALL)


def test_after_the_first_message_every_partition_has_the_group(
    queue: PartitionedQueue, reader: Reader
):
    queue.put(*ALL)

    assert len(reader.one()) == 1

    assert groups(queue) == [{"slow"}] * PARTITIONS
    assert queue.client.stopped("orders", "slow") == []
    queue.client.seek_group("orders", "slow", "earliest", force=True)


def test_a_queue_that_is_purged_or_made_anew_has_the_group_everywhere_again(
    queue: PartitionedQueue, reader: Reader
):
    queue.put(*ALL)
    reader.one()
    queue.client.delete_queue("orders", force=True)
    queue.client.create_queue("orders", partitions=2 * PARTITIONS)
    queue.put(*ALL)
    assert len(reader.one()) == 1
    assert groups(queue) == [{"slow"}] * (2 * PARTITIONS)

    queue.client.purge_queue("orders", force=True)
    queue.put(*ALL)

    assert len(reader.one()) == 1
    assert groups(queue) == [{"slow"}] * (2 * PARTITIONS)


@pytest.mark.parametrize(("make_group", "has"), [(True, 2), (True, 0), (False, 0)])
@pytest.mark.parametrize("way", ["receive", "exchange"])
def test_a_group_that_some_partitions_have_is_completed(
    queue: PartitionedQueue, way: str, has: int, *, make_group: bool
):
    create_in_part(queue, has)
    queue.put(*ALL)

    if way == "receive":
        messages = queue.client.receive("orders", "slow", make_group=make_group)
    else:
        exchange = queue.client.exchange("orders", "slow", make_group=make_group)
        messages = exchange.turn([], ONE).messages

    assert len(messages) == 1
    assert groups(queue) == [{"slow"}] * PARTITIONS


def test_a_group_that_no_partition_has_is_made_only_if_it_may_be(queue: PartitionedQueue):
    queue.put(*ALL)

    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.receive("orders", "slow", make_group=False)
    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.exchange("orders", "slow", make_group=False).turn([], ONE)

    assert groups(queue) == [set()] * PARTITIONS


def test_a_group_that_is_deleted_in_all_partitions_does_not_come_back_by_itself(
    queue: PartitionedQueue, reader: Reader
):
    queue.put(*ALL)
    reader.one()
    queue.client.delete_group("orders", "slow", force=True)

    for _ in range(PARTITIONS):
        with pytest.raises(QueueStateError, match="slow"):
            reader.one()

    assert groups(queue) == [set()] * PARTITIONS


def test_a_group_whose_deletion_is_not_over_does_not_come_back(queue: PartitionedQueue):
    queue.put(*ALL)
    queue.client.create_group("orders", "slow")
    store = PartlyDownStore(queue.memory)
    store.down = {("cas", "orders@1.3")}
    with pytest.raises(NotAppliedError):
        Client.from_store(store).delete_group("orders", "slow")

    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.receive("orders", "slow", make_group=False)
    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.exchange("orders", "slow", make_group=False).turn([], ONE)

    assert groups(queue) == [set()] * (PARTITIONS - 1) + [{"slow"}]
    assert queue.client.delete_group("orders", "slow")
    assert groups(queue) == [set()] * PARTITIONS


def test_a_group_that_is_known_costs_nothing_more(queue: PartitionedQueue):
    queue.put(*ALL)
    queue.receive(1)
    queue.store.reset()

    queue.receive(1)

    # The definition, the presences, the ledger's head, the group twice, a block of messages.
    assert (queue.store.cas_count, queue.store.serial_read_count) == (1, 0)
    assert queue.store.read_count <= 6


def test_nothing_is_leased_before_the_group_is_everywhere(queue: PartitionedQueue):
    queue.put(*ALL)
    store = PartlyDownStore(queue.memory)
    store.down = {("cas", "orders@1.3")}
    client = Client.from_store(store)
    exchange = client.exchange("orders", "slow")

    for _ in range(2):
        with pytest.raises(NotAppliedError, match="no replicas"):
            client.receive("orders", "slow")
        with pytest.raises(NotAppliedError, match="no replicas"):
            exchange.turn([], ONE)

    store.down.clear()
    messages = [*exchange.turn([], ONE).messages, *client.receive("orders", "slow", max=4)]
    assert [each.delivery_count for each in messages] == [1] * 5
    assert groups(queue) == [{"slow"}] * PARTITIONS
    receipts = [Receipt.parse(each.receipt) for each in messages]
    assert exchange.turn(receipts, NOTHING).stale == frozenset()
