from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as replace_fields
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cassieq_spark.consumer.consumer import REPLACED_TWICE, Consumer, Replacements
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Order, QueueDefinition, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_request

SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)


class Scene:
    """Ten messages of a queue with a dead-letter queue, all of them leased."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.queue = create_queue(
            self.store, "q", lease=LEASE, max_deliveries=5, dead_letter_queue="q.dead"
        )
        batch = pa.record_batch({"value": pa.array([str(number) for number in range(10)])})
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue="q"))
        publish(Ledger(self.store, self.queue.queue_id), [written])
        self.group = make_group(self.store, self.queue.queue_id)
        self.lease = self.take()

    def take(self, held: UUID | None = None) -> UUID:
        head = Ledger(self.store, self.queue.queue_id).read_head()
        request = make_request(held=held, stop=head.next, delayed_stop=head.delayed_stop)
        return self.group.lease(request).token

    def replace(self, monotons: list[int], **columns: Any) -> tuple[int, str]:
        delay = columns.pop("delay", timedelta(0))
        values = {"value": pa.array([f"new {each}" for each in monotons])} | columns
        new = Replacements(monotons, pa.record_batch(values))
        done = Consumer(self.store, self.queue, "g").replace(self.lease, new, delay=delay)
        return done.count, str(done.stale)

    def messages(self, queue: QueueDefinition, monotons: str) -> list[dict[str, Any]]:
        pieces = find_pieces(
            Ledger(self.store, queue.queue_id), Ranges.parse(monotons), deliveries=None
        )
        batches = fetch(self.store, queue, pieces)
        return [row for batch in batches for row in batch.to_pylist()]

    @property
    def outstanding(self) -> str:
        state = self.group.read(every_waiting=True)
        every = [*state.slots, *state.waiting]
        return str(Ranges.of(*(part for each in every for part in each.monotons)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_rejected_is_in_the_dead_letter_queue_when_the_call_returns(scene: Scene):
    rejected = {"bad": Ranges.parse("2-4"), "worse": Ranges.parse("7-8")}

    settled = Consumer(scene.store, scene.queue, "g").settle(
        scene.lease, Settlement(rejected=rejected)
    )

    assert (settled.count, settled.stale) == (3, Ranges())
    assert scene.outstanding == "0-2,4-7,8-10"
    letters = scene.messages(read_queue(scene.store, "q.dead"), "0-3")
    assert [letter["value"] for letter in letters] == [b"2", b"3", b"7"]
    assert [dict(letter["headers"])["cassieq.reason"] for letter in letters] == [
        "bad",
        "bad",
        "worse",
    ]


def test_a_replacement_is_a_new_message_and_the_old_one_is_settled(scene: Scene):
    keys = pa.array(["k"] * 2)

    assert scene.replace([3, 5], key=keys) == (2, "")

    assert scene.outstanding == "0-3,4-5,6-10"
    new = scene.messages(scene.queue, "10-12")
    assert [(each["value"], each["key"]) for each in new] == [(b"new 3", b"k"), (b"new 5", b"k")]


def test_replacing_costs_three_lwts_whatever_the_number(scene: Scene):
    scene.store.reset()

    scene.replace([1, 3, 5, 7])

    assert scene.store.cas_count == 3


def test_a_replacement_may_come_later(scene: Scene):
    scene.replace([3], delay=10 * SECOND)
    held = scene.take(scene.lease)

    assert scene.outstanding == "10-11", "waits"
    scene.clock.advance(10 * SECOND)
    again = scene.take(held)
    assert [str(slot.monotons) for slot in scene.group.read().held_by(again)] == ["10-11"]


def test_nothing_is_delayed_in_a_strictly_ordered_queue(scene: Scene):
    scene.queue = replace_fields(scene.queue, order=Order.STRICT)

    with pytest.raises(OptionError, match="strictly ordered"):
        scene.replace([3], delay=SECOND)
    assert scene.replace([3]) == (1, "")


def test_what_others_have_got_is_not_replaced(scene: Scene):
    scene.clock.advance(LEASE + MOMENT)
    scene.take()

    assert scene.replace([3, 5]) == (0, "3-4,5-6")
    assert Ledger(scene.store, scene.queue.queue_id).read_head().next == 10


def test_what_is_settled_already_is_not_replaced_but_the_others_are(scene: Scene):
    Consumer(scene.store, scene.queue, "g").settle(
        scene.lease, Settlement(acked=Ranges.parse("3-4"))
    )

    assert scene.replace([3, 5]) == (1, "3-4")
    assert [each["value"] for each in scene.messages(scene.queue, "10-11")] == [b"new 5"]


def test_a_new_message_that_the_queue_does_not_take_changes_nothing(scene: Scene):
    with pytest.raises(MessageError, match="row 1 "):
        scene.replace([3, 5], value=pa.array(["good", None]))

    state = scene.group.read()
    assert [(str(slot.monotons), slot.lease) for slot in state.slots] == [("0-10", scene.lease)]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(10))
def test_a_lost_answer_replaces_once(scene: Scene, fault: Fault, after: int):
    scene.trouble.interrupt(lambda: setattr(scene.trouble, "fault", fault), after=after)

    assert scene.replace([3]) == (1, "")
    scene.trouble.arrive()

    assert Ledger(scene.store, scene.queue.queue_id).read_head().next == 11
    assert scene.outstanding == "0-3,4-10"


@pytest.mark.parametrize("after", range(12))
def test_a_crash_anywhere_loses_neither_the_old_message_nor_both(scene: Scene, after: int):
    def crash() -> None:
        raise KeyboardInterrupt

    scene.trouble.interrupt(crash, after=after)
    with suppress(KeyboardInterrupt):
        scene.replace([3])
    scene.trouble.calm()
    published = Ledger(scene.store, scene.queue.queue_id).read_head().next == 11
    settled = 3 not in Ranges.parse(scene.outstanding)
    assert published or not settled


def test_a_lease_lost_after_the_publication_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    def others_take_it() -> None:
        scene.clock.advance(3 * LEASE)
        for _ in range(2):
            scene.take()

    scene.trouble.interrupt(others_take_it, after=7)

    assert scene.replace([3]) == (1, "")

    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert record.action == REPLACED_TWICE  # type: ignore[attr-defined]
    assert "messages 3 were" in record.getMessage()
    assert 3 in Ranges.parse(scene.outstanding)


def settle_as_released(consumer: Consumer, lease: Lease) -> None:
    consumer.settle(lease.token, Settlement(released={timedelta(0): Ranges.parse("10-12")}))


def release(consumer: Consumer, lease: Lease) -> None:
    assert consumer.release(lease.token, lease.leased) == 2


@pytest.mark.parametrize("give_back", [settle_as_released, release])
def test_what_a_consumer_gave_back_is_seen_by_its_next_poll(
    scene: Scene, give_back: Callable[[Consumer, Lease], None]
):
    scene.replace([0, 1, 2, 3])
    consumer = Consumer(scene.store, scene.queue, "g", cache_for=timedelta(days=1))
    lease = consumer.poll(LeaseRequest(max_messages=2))
    give_back(consumer, lease)
    scene.clock.advance(MOMENT)

    again = consumer.poll(LeaseRequest(max_messages=2))

    assert [str(each.monotons) for each in again.leased] == ["10-12"]
    assert not consumer.was_misled
