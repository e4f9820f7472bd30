from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import (
    ExistsError,
    InvariantError,
    NotFoundError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import create_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import set_paused
from cassieq_spark.model import (
    Order,
    QueueDefinition,
    id_of,
    name_of,
    partition_of_id,
    parts_of_id,
)
from cassieq_spark.queues import (
    alter_queue,
    create_queue,
    delete_queue,
    is_paused,
    pause_queue,
    purge_queue,
    read_mended,
    read_queue,
    read_record,
    resume_queue,
)
from cassieq_spark.queues.definition import count_of, parse_counts, show_counts
from cassieq_spark.queues.record import ledgers_of
from cassieq_spark.queues.stats import read_stats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_queue
from cassieq_spark.testing.stores import CountingStore
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue


@pytest.fixture
def queue() -> PartitionedQueue:
    return PartitionedQueue()


def test_each_partition_has_an_id_of_its_own():
    whole = QueueDefinition("orders", 3, partitions=2)

    assert [each.queue_id for each in whole.by_partition] == ["orders@3.0", "orders@3.1"]
    assert [each.label for each in whole.by_partition] == ["orders/0", "orders/1"]
    assert QueueDefinition("orders", 3).by_partition == (QueueDefinition("orders", 3),)
    assert whole.of_partition(1).by_partition == (whole.of_partition(1),)


@pytest.mark.parametrize(
    "text", ["", "orders", "@1", "orders@", "orders@x", "orders@01", "orders@1.", "orders@1.02",
             "orders@1.x", "orders@-1", "orders@1.3.4", "a@b@1"]
)  # fmt: skip
def test_what_is_no_id_is_refused(text: str):
    with pytest.raises(ValueError, match="is not the id of a queue"):
        parts_of_id(text)


@pytest.mark.parametrize("partition", [None, 0, 12])
def test_an_id_tells_its_parts(partition: int | None):
    queue_id = id_of("acme:orders.2", 7, partition)

    assert parts_of_id(queue_id) == ("acme:orders.2", 7, partition)
    assert name_of(queue_id) == "acme:orders.2"


@pytest.mark.parametrize(
    ("queue_id", "found"),
    [
        ("orders@2.0", 0),
        ("orders@2.3", 3),
        ("orders@2.4", None),
        ("orders@2", None),
        ("orders@1.0", None),
        ("bills@2.0", None),
    ],
)
def test_only_the_ids_of_its_partitions_are_those_of_a_queue(queue_id: str, found: int | None):
    queue = QueueDefinition("orders", 2, partitions=4)

    partition = partition_of_id(queue, queue_id)  # type: ignore[arg-type]

    assert (partition and partition.partition) == found


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_queue_ordered_by_key_stays_so_whatever_its_partitions(partitions: int):
    client = Client.from_store(MemoryStore())
    client.create_queue("q", partitions=partitions, order="key")

    assert client.queue("q").order is Order.KEY
    assert client.purge_queue("q").order is Order.KEY
    assert client.alter_queue("q", max_deliveries=3).order is Order.KEY
    client.delete_queue("q")
    assert client.create_queue("q", order="strict").order is Order.STRICT


def test_a_queue_that_an_earlier_release_creates_anew_is_strictly_ordered_as_it_says():
    store = MemoryStore()
    create_queue(store, "q", order="key")
    # It knows nothing of the column.
    store.cas(
        partition_of_queue("q"), [Update((), {"version": 2}, when=(When("version", "=", 1),))]
    )

    assert read_queue(store, "q").order is Order.STRICT


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"partitions": 0}, "partitions must be"),
        ({"partitions": 257}, "partitions must be"),
        ({"partitions": True}, "partitions must be"),
        ({"order": "keys"}, "did you mean 'key'"),
        ({"order": 1}, "order must be one of none, key, strict"),
        ({"order": "strict", "partitions": 2}, "give order 'key'"),
    ],
)
def test_what_no_queue_can_be_is_refused_before_anything_is_made(
    settings: dict[str, object], problem: str
):
    store = MemoryStore()

    with pytest.raises(OptionError, match=problem):
        create_queue(store, "q", **settings)  # type: ignore[arg-type]

    assert read_record(store, "q") is None


def test_creating_costs_an_lwt_and_one_for_each_partition():
    store = CountingStore(MemoryStore())

    create_queue(store, "q", partitions=16)

    assert store.cas_count == 17


def test_a_queue_of_partitions_can_t_be_a_dead_letter_queue():
    store = MemoryStore()
    create_queue(store, "many", partitions=2)

    with pytest.raises(
        OptionError, match="has 2 partitions, so it can't be the dead-letter queue"
    ):
        create_queue(store, "q", max_deliveries=3, dead_letter_queue="many")


def test_a_queue_pauses_and_goes_on_in_all_its_partitions(queue: PartitionedQueue):
    queue.put(*(key for keys in KEYS.values() for key in keys))

    assert pause_queue(queue.store, "orders")
    assert not pause_queue(queue.store, "orders")
    assert is_paused(queue.store, "orders")
    assert queue.receive() == []
    assert resume_queue(queue.store, "orders")
    assert len(queue.receive()) == 8


def test_a_pause_that_broke_off_is_finished_by_repeating_it(queue: PartitionedQueue):
    pause_queue(queue.store, "orders")
    set_paused(Ledger(queue.store, id_of("orders", 1, 2)), paused=False)

    assert is_paused(queue.store, "orders")
    assert pause_queue(queue.store, "orders")


def test_a_purge_empties_all_partitions_and_keeps_groups_and_sinks(queue: PartitionedQueue):
    queue.client.create_group("orders", "billing")
    queue.client.put_many("orders", ["a"], txn_app_id="app", txn_version=5)
    queue.put(*KEYS[0], *KEYS[1])

    purged = purge_queue(queue.store, "orders")

    assert (purged.version, purged.partitions) == (2, PARTITIONS)
    stats = read_stats(queue.store, purged)
    assert (stats.next, [group.group for group in stats.groups]) == (0, ["billing"])
    assert queue.peek() == []
    assert queue.client.put_many("orders", ["a"], txn_app_id="app", txn_version=5) is None
    assert queue.peek() == []
    queue.put(*KEYS[2])
    assert len(queue.peek()) == 2


def test_a_purge_is_refused_while_a_reader_of_any_partition_holds_messages(
    queue: PartitionedQueue,
):
    queue.put(*KEYS[3])
    held = queue.receive()
    assert {each.partition for each in held} == {3}

    with pytest.raises(QueueStateError, match=r"orders@1\.3 hold"):
        purge_queue(queue.store, "orders")
    with pytest.raises(QueueStateError, match=r"orders@1\.3 hold"):
        delete_queue(queue.store, "orders")


def test_a_queue_that_is_made_anew_may_have_other_partitions(queue: PartitionedQueue):
    queue.put(*KEYS[0])
    delete_queue(queue.store, "orders")

    made = create_queue(queue.store, "orders", partitions=2)

    record = read_record(queue.store, "orders")
    assert record is not None
    assert (made.version, made.partitions, made.queue_id) == (2, 2, "orders@2")
    assert [len(record.of_version(version)) for version in (1, 2)] == [4, 2]
    assert queue.peek() == []
    for partition in range(4):
        assert Ledger(queue.store, id_of("orders", 1, partition)).read_head().is_closed


def test_how_many_partitions_versions_have_is_text():
    counts = ((1, 16), (5, 4))

    assert show_counts(counts) == "1:16,5:4"
    assert parse_counts("1:16,5:4") == counts
    assert parse_counts("") == ()
    assert [count_of(counts, version) for version in (1, 4, 5, 9)] == [16, 16, 4, 4]
    assert count_of((), 1) == 1


@pytest.mark.parametrize("text", ["x", "1", "1:0", "1:257", "1:x"])
def test_a_row_with_other_counts_can_t_be_read_and_the_queue_can_be_deleted(
    queue: PartitionedQueue, text: str
):
    active = When("status", "=", "active")
    changed = Update((), {"partitions": text}, when=(active,))
    assert queue.memory.cas(partition_of_queue("orders"), [changed])

    with pytest.raises(InvariantError):
        read_queue(queue.store, "orders")
    mended = read_mended(queue.store, "orders")
    assert mended is not None
    assert [each.queue_id for each in mended.of_version(1)] == [
        f"orders@1.{partition}" for partition in range(4)
    ]
    delete_queue(queue.store, "orders")
    with pytest.raises(NotFoundError):
        read_queue(queue.store, "orders")
    for partition in range(4):
        assert Ledger(queue.store, id_of("orders", 1, partition)).read_head().is_closed


def test_figures_are_sums_and_those_of_each_partition(queue: PartitionedQueue):
    queue.put(*KEYS[0], *KEYS[0], *KEYS[1])
    queue.client.create_group("orders", "billing")
    for message in queue.receive(3):
        queue.client.ack(message)

    stats = queue.client.stats("orders")

    (billing,) = stats.groups
    assert (stats.queue_id, stats.next, stats.finalised) == ("orders@1", 6, 0)
    assert billing.depth == 3
    assert [each.next for each in stats.partitions] == [4, 2, 0, 0]
    assert sum(each.groups[0].depth for each in stats.partitions) == 3
    assert billing.pointer == sum(each.groups[0].pointer for each in stats.partitions)
    stored = queue.client.stored("orders")
    blocks = [
        each
        for ledger in ledgers_of(queue.store, queue.client.queue("orders"))
        for each in ledger.read_blocks()
    ]
    assert stored == (6, sum(each.size for each in blocks))
    assert stored.bytes > 0


def test_groups_are_made_moved_and_deleted_in_all_partitions(queue: PartitionedQueue):
    queue.client.create_group("orders", "billing")
    queue.put(*(key for keys in KEYS.values() for key in keys))

    with pytest.raises(ExistsError):
        queue.client.create_group("orders", "billing")
    queue.client.ack(*queue.receive())
    assert queue.client.stats("orders").groups[0].depth == 0
    assert queue.client.seek_group("orders", "billing", "earliest") == 0
    assert queue.client.stats("orders").groups[0].depth == 8
    assert queue.client.seek_group("orders", "billing", "latest") == 8
    assert queue.client.stats("orders").groups[0].depth == 0
    assert queue.client.seek_group("orders", "billing", 1, partition=2) == 1
    assert [each.groups[0].depth for each in queue.client.stats("orders").partitions] == [
        0, 0, 1, 0,
    ]  # fmt: skip
    assert queue.client.delete_group("orders", "billing")
    assert not queue.client.delete_group("orders", "billing")
    assert queue.client.stats("orders").groups == ()


def test_a_monoton_is_no_position_of_several_partitions(queue: PartitionedQueue):
    queue.client.create_group("orders", "billing")

    for ask in (
        lambda: queue.client.seek_group("orders", "billing", 0),
        lambda: queue.client.create_group("orders", "other", 0),
        lambda: queue.client.peek("orders", start=0),
    ):
        with pytest.raises(OptionError, match="4 partitions, each with monotons of"):
            ask()
    with pytest.raises(OptionError, match="partition must be"):
        queue.client.seek_group("orders", "billing", 0, partition=4)


def test_a_move_is_refused_in_all_partitions_while_a_reader_holds_messages_of_one(
    queue: PartitionedQueue,
):
    queue.put(*KEYS[0], *KEYS[3])
    queue.client.ack(*(each for each in queue.receive() if each.partition == 0))

    with pytest.raises(QueueStateError, match="hold"):
        queue.client.seek_group("orders", "billing", "earliest")
    with pytest.raises(QueueStateError, match="hold"):
        queue.client.delete_group("orders", "billing")

    assert queue.client.stats("orders").partitions[0].groups[0].depth == 0


def test_a_group_whose_creation_broke_off_is_completed(queue: PartitionedQueue):
    create_group(ConsumerGroup(Ledger(queue.store, id_of("orders", 1, 0)), "billing"), "earliest")

    queue.client.create_group("orders", "billing")

    assert all(each.groups for each in queue.client.stats("orders").partitions)


def test_what_is_altered_holds_for_all_partitions(queue: PartitionedQueue):
    altered = alter_queue(queue.store, "orders", lease=timedelta(seconds=7))

    assert (altered.partitions, altered.lease) == (4, timedelta(seconds=7))
    assert read_queue(queue.store, "orders") == altered
