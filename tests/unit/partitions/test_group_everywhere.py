"""A group that a client or a stream makes is in all partitions before its first lease."""

from __future__ import annotations

from datetime import datetime

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
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.protocol import Store
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
            return self._exchange.round([], ONE).messages
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
        messages = exchange.round([], ONE).messages

    assert len(messages) == 1
    assert groups(queue) == [{"slow"}] * PARTITIONS


def test_a_group_that_no_partition_has_is_made_only_if_it_may_be(queue: PartitionedQueue):
    queue.put(*ALL)

    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.receive("orders", "slow", make_group=False)
    with pytest.raises(NotFoundError, match="queue 'orders' has no group 'slow'"):
        queue.client.exchange("orders", "slow", make_group=False).round([], ONE)

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
        queue.client.exchange("orders", "slow", make_group=False).round([], ONE)

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
            exchange.round([], ONE)

    store.down.clear()
    messages = [*exchange.round([], ONE).messages, *client.receive("orders", "slow", max=4)]
    assert [each.delivery_count for each in messages] == [1] * 5
    assert groups(queue) == [{"slow"}] * PARTITIONS
    receipts = [Receipt.parse(each.receipt) for each in messages]
    assert exchange.round(receipts, NOTHING).stale == frozenset()


# -- streams, and where a new group begins --------------------------------------------------------


def stream(
    queue: PartitionedQueue, starting: StartingPosition, store: Store | None = None
) -> QueueReader:
    return QueueReader(store or queue.store, queue.definition, "slow", starting=starting)


def depths(queue: PartitionedQueue) -> list[int]:
    """How many messages the group ``slow`` is owed, by partition."""
    parts = queue.client.stats("orders").partitions
    return [group.depth for part in parts for group in part.groups if group.group == "slow"]


def lose_messages(queue: PartitionedQueue) -> datetime:
    """Put four messages into each partition, and delete half of those of partition 2.

    Returns:
        When they were put.
    """
    queue.client.create_group("orders", "fast")
    begun = queue.clock.now
    queue.put(*ALL, *ALL)
    queue.client.ack(*[each for each in queue.receive(group="fast") if each.partition == 2][:2])
    assert not run_once(queue.store, scan=DriverScan(queue.store)).failed
    return begun


def test_a_stream_that_may_not_begin_there_in_one_partition_leaves_no_group_in_the_others(
    queue: PartitionedQueue,
):
    begun = lose_messages(queue)
    with pytest.raises(QueueStateError, match=r"orders@1\.2 .* are settled .* and deleted"):
        stream(queue, begun)
    assert groups(queue) == [{"fast"}] * PARTITIONS

    stream(queue, "latest").stop()

    assert depths(queue) == [0] * PARTITIONS


def test_a_group_that_may_not_begin_there_in_one_partition_is_created_in_none(
    queue: PartitionedQueue,
):
    begun = lose_messages(queue)
    with pytest.raises(QueueStateError, match=r"orders@1\.2 .* are settled .* and deleted"):
        queue.client.create_group("orders", "slow", begun)
    assert groups(queue) == [{"fast"}] * PARTITIONS

    queue.client.create_group("orders", "slow", "latest")

    assert depths(queue) == [0] * PARTITIONS


def test_a_stream_that_may_lose_data_begins_with_what_is_left(queue: PartitionedQueue):
    begun = lose_messages(queue)

    QueueReader(
        queue.store, queue.definition, "slow", starting=begun, fail_on_data_loss=False
    ).stop()

    assert depths(queue) == [4, 4, 2, 4]


def test_where_a_new_group_begins_does_not_matter_to_one_that_exists(queue: PartitionedQueue):
    stream(queue, "latest").stop()
    begun = lose_messages(queue)

    stream(queue, begun).stop()

    assert depths(queue) == [4] * PARTITIONS


def test_a_stream_makes_its_group_in_the_first_partition_first(queue: PartitionedQueue):
    store = PartlyDownStore(queue.memory)
    store.down = {("cas", "orders@1.0")}
    with pytest.raises(NotAppliedError, match="no replicas"):
        stream(queue, "earliest", store)
    assert groups(queue) == [set()] * PARTITIONS

    store.down = {("cas", f"orders@1.{number}") for number in range(1, PARTITIONS)}
    with pytest.raises(NotAppliedError, match="no replicas"):
        stream(queue, "earliest", store)

    assert groups(queue) == [{"slow"}] + [set()] * (PARTITIONS - 1)


@pytest.mark.parametrize(
    ("starting", "owed"), [("earliest", [0, 2, 2, 2]), ("latest", [0, 0, 0, 0])]
)
def test_a_group_that_a_stream_has_not_made_everywhere_is_completed_by_the_next_stream(
    queue: PartitionedQueue, starting: StartingPosition, owed: list[int]
):
    queue.put(*ALL)
    store = PartlyDownStore(queue.memory)
    store.down = {("cas", f"orders@1.{number}") for number in range(1, PARTITIONS)}
    with pytest.raises(NotAppliedError, match="no replicas"):
        stream(queue, "latest", store)

    # Where it begins in the first partition is decided; in the others this one decides.
    stream(queue, starting).stop()

    assert groups(queue) == [{"slow"}] * PARTITIONS
    assert depths(queue) == owed


def test_a_group_that_a_stream_has_not_made_everywhere_is_completed_by_a_client(
    queue: PartitionedQueue,
):
    queue.put(*ALL)
    store = PartlyDownStore(queue.memory)
    store.down = {("cas", "orders@1.3")}
    with pytest.raises(NotAppliedError, match="no replicas"):
        stream(queue, "latest", store)

    messages = queue.client.receive("orders", "slow", max=100, make_group=False)

    assert [each.partition for each in messages] == [3, 3]
    assert groups(queue) == [{"slow"}] * PARTITIONS
