"""A query with availableNow ends when it has processed what was there at its start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.client import LeaseRequest
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Settlement, Waiting
from cassieq_spark.model import Ranges
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import read_queue
from cassieq_spark.spark.source.offsets import decode, initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store

FIRST = initial_offset("orders", "billing")
#: A key of each of two partitions.
HERE, THERE = (
    next(key for key in map(str, range(100)) if partition_of_key(key, 2) == partition)
    for partition in (0, 1)
)


class Scene:
    """A queue with an order, whose dead messages step aside, and a reader of it."""

    def __init__(self, order: str = "strict", **settings: Any) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.client = Client.from_store(self.store)
        self.client.create_queue("orders", order=order, max_deliveries=3, **settings)
        self.client.create_group("orders", "billing")
        self.readers: list[QueueReader] = []

    def put(self, count: int, key: str = HERE) -> list[str]:
        values = [f"{key}:{number}" for number in range(count)]
        self.client.put_many("orders", [NewMessage(value, key) for value in values])
        return values

    def wear_out(self) -> None:
        """Hand out the first message as often as it may be."""
        for _ in range(3):
            assert len(self.client.receive("orders", "billing", max=1)) == 1
            self.clock.advance(2 * self.client.queue("orders").lease)

    def aimed(self) -> QueueReader:
        reader = QueueReader(
            self.store,
            read_queue(self.store, "orders"),
            "billing",
            starting="earliest",
            request=LeaseRequest(lease=LEASE),
        )
        self.readers.append(reader)
        reader.aim()
        return reader

    def values(self, reader: QueueReader, end: Mapping[str, Any]) -> list[str]:
        return [
            bytes(message.value).decode()
            for parts in reader.tasks(end, messages_per_task=100)
            for part in parts
            for message in stored_messages(fetch(self.store, part.queue, part.pieces))
        ]

    def drain(
        self, reader: QueueReader, done: Mapping[str, Any] = FIRST, limit: int | None = None
    ) -> list[str]:
        """What it delivers until it ends."""
        values = []
        while (end := reader.next_batch(done, limit=limit)) is not done:
            values += self.values(reader, end)
            done = end
        return values

    def reject(self, end: Mapping[str, Any], *monotons: str) -> None:
        """Have messages of the batch that ends at ``end`` rejected with its ack."""
        queue = read_queue(self.store, "orders")
        offset = decode(end, queue_id=queue.queue_id, group="billing")
        assert offset is not None
        rejected = {f"bad {each}": Ranges.parse(each) for each in monotons}
        consumer = Consumer(self.store, queue, "billing")
        consumer.settle(offset.lease, Settlement(rejected=rejected), with_batch=True)

    def note_deferrals(self, monkeypatch: pytest.MonkeyPatch, takes: timedelta) -> list[Waiting]:
        """What is deferred from now on; it ends a test that defers without an end."""
        defer, deferrals = ConsumerGroup.defer_dead, []

        def noted(group: ConsumerGroup, dead: Waiting, *, by: timedelta) -> bool:
            deferrals.append(dead)
            assert len(deferrals) < 20, "it tries again and again"
            self.clock.advance(takes)
            return defer(group, dead, by=by)

        monkeypatch.setattr(ConsumerGroup, "defer_dead", noted)
        return deferrals

    def dead(self) -> list[str]:
        return [bytes(each.value).decode() for each in self.client.peek("orders.dead", max=100)]


@pytest.fixture
def make():
    scenes = []

    def make_scene(*args: Any, **settings: Any) -> Scene:
        scenes.append(Scene(*args, **settings))
        return scenes[-1]

    yield make_scene
    for scene in scenes:
        for reader in scene.readers:
            reader.stop()


def test_what_is_behind_a_message_that_is_rejected_is_delivered(make: Any):
    scene = make()
    values = scene.put(10)
    reader = scene.aimed()
    end = reader.next_batch(FIRST, limit=3)
    scene.reject(end, "1-2")

    assert scene.drain(reader, end, limit=3) == values[3:]
    assert scene.dead() == [values[1]]
    assert scene.client.stats("orders").groups[0].depth == 0


def test_what_is_behind_a_message_that_was_delivered_too_often_is_delivered(make: Any):
    scene = make()
    values = scene.put(10)
    scene.wear_out()

    assert scene.drain(scene.aimed(), limit=4) == values[1:]
    assert scene.dead() == values[:1]


def test_in_order_by_key_what_is_behind_dead_messages_is_delivered(make: Any):
    scene = make("key", partitions=2)
    here = scene.put(5)
    scene.wear_out()
    there = scene.put(2, THERE)

    delivered = scene.drain(scene.aimed(), limit=4)

    assert sorted(delivered) == sorted(here[1:] + there)


def test_what_is_behind_a_dead_message_that_another_reader_removes_is_delivered(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    values = scene.put(10)
    scene.wear_out()
    remove = ConsumerGroup.remove_dead

    def by_another_first(group: ConsumerGroup, dead: Waiting) -> bool:
        assert remove(group, dead)
        return remove(group, dead)

    monkeypatch.setattr(ConsumerGroup, "remove_dead", by_another_first)

    assert scene.drain(scene.aimed(), limit=4) == values[1:]
    assert scene.dead() == values[:1]


def test_so_is_what_is_behind_one_whose_removal_loses_a_race(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    values = scene.put(10)
    reader = scene.aimed()
    end = reader.next_batch(FIRST, limit=4)
    scene.reject(end, "1-2", "2-3")
    consumer = Consumer(scene.store, read_queue(scene.store, "orders"), "billing")
    remove = ConsumerGroup.remove_dead

    def in_a_race(group: ConsumerGroup, dead: Waiting) -> bool:
        monkeypatch.setattr(ConsumerGroup, "remove_dead", remove)
        other = next(each for each in group.read().waiting if each != dead)
        # Between the reads of our removal and its compare-and-set.
        scene.trouble.interrupt(lambda: consumer.dead_letter([other]) and None, after=2)
        return remove(group, dead)

    monkeypatch.setattr(ConsumerGroup, "remove_dead", in_a_race)

    assert scene.drain(reader, end, limit=4) == values[4:]
    assert sorted(scene.dead()) == values[1:3]


def test_a_message_that_cannot_be_dead_lettered_holds_what_is_behind_it_and_the_query_ends(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    scene.put(10)
    scene.wear_out()
    scene.client.delete_queue("orders.dead", force=True)
    reader = scene.aimed()

    assert scene.drain(reader) == []
    # Not even if it stays due, as the store fails.
    monkeypatch.setattr(ConsumerGroup, "defer_dead", not_deferred)
    scene.clock.advance(2 * LEASE)
    assert scene.drain(reader) == []
    assert scene.client.stats("orders").groups[0].depth == 10


def test_a_query_ends_although_the_clock_of_the_server_makes_a_deferred_message_due_at_once(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    scene.clock.ahead = timedelta(minutes=5)
    scene.put(10)
    scene.wear_out()
    scene.client.delete_queue("orders.dead", force=True)
    deferrals = scene.note_deferrals(monkeypatch, takes=timedelta(milliseconds=5))

    assert scene.drain(scene.aimed()) == []
    assert len(deferrals) == 2


def test_a_query_ends_although_dead_lettering_takes_longer_to_fail_than_it_is_deferred(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    scene.put(10)
    reader = scene.aimed()
    end = reader.next_batch(FIRST, limit=4)
    scene.reject(end, "1-2", "2-3", "3-4")
    scene.client.delete_queue("orders.dead", force=True)
    deferrals = scene.note_deferrals(monkeypatch, takes=timedelta(seconds=35))

    assert scene.drain(reader, end, limit=4) == []
    assert 3 < len(deferrals) <= 6


def test_what_is_behind_a_dead_message_that_is_removed_at_the_second_attempt_is_delivered(
    make: Any, monkeypatch: pytest.MonkeyPatch
):
    scene = make()
    values = scene.put(10)
    reader = scene.aimed()
    end = reader.next_batch(FIRST, limit=4)
    scene.reject(end, "1-2", "2-3")
    remove, failures = ConsumerGroup.remove_dead, [NotAppliedError("of a node that is busy")]

    def at_last(group: ConsumerGroup, dead: Waiting) -> bool:
        if dead.monotons == Ranges.parse("2-3") and failures:
            raise failures.pop()
        return remove(group, dead)

    monkeypatch.setattr(ConsumerGroup, "remove_dead", at_last)
    monkeypatch.setattr(ConsumerGroup, "defer_dead", not_deferred)

    assert scene.drain(reader, end, limit=4) == values[4:]


def not_deferred(group: ConsumerGroup, dead: Waiting, **_: Any) -> bool:
    assert group.name == "billing"
    assert dead.monotons
    return False


def test_a_group_that_stops_at_a_dead_message_is_given_nothing_behind_it(make: Any):
    scene = make(on_dead="stop")
    scene.put(10)
    scene.wear_out()

    assert scene.drain(scene.aimed()) == []
    assert scene.dead() == []


def test_a_group_that_stops_reads_none_of_its_dead_messages_one_by_one(make: Any):
    scene = make(on_dead="stop")
    scene.put(30)
    reader = scene.aimed()
    end = reader.next_batch(FIRST, limit=30)
    scene.reject(end, *(f"{at}-{at + 1}" for at in range(20)))
    reader.next_batch(end, limit=30)
    later = scene.aimed()
    scene.store.reset()

    assert scene.drain(later) == []
    assert scene.store.serial_read_count <= 2
