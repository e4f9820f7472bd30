from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark import Client, Message
from cassieq_spark.client.receiver import READ_AGAIN_AFTER
from cassieq_spark.errors import (
    NotAppliedError,
    NotFoundError,
    OptionError,
    QueueStateError,
    StoreError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import delete_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.queues import delete_queue, pause_queue, purge_queue, resume_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock

LEASE = timedelta(seconds=60)
MOMENT = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def monotons(messages: list[Message]) -> list[int]:
    return [message.monoton for message in messages]


def test_messages_are_leased_by_one_lwt_and_say_all_about_their_lease(
    client: Client, store: CountingStore, clock: FakeClock
):
    client.put_many("q", ["a", "b", "c"])
    client.receive("q", "g")
    store.reset()

    messages = client.receive("q", "g", max=10)

    assert (store.cas_count, store.serial_read_count) == (1, 0)
    assert [(each.monoton, each.value) for each in messages] == [(1, b"b"), (2, b"c")]
    assert {(each.queue, each.group, each.delivery_count) for each in messages} == {("q", "g", 1)}
    assert {each.lease_until for each in messages} == {clock.now + LEASE}
    assert len({*messages}) == 2
    assert messages[0].receipt.endswith("/1")


def test_nothing_there_is_no_lwt(client: Client, store: CountingStore):
    assert client.receive("q", "g") == []
    store.reset()

    assert client.receive("q", "g") == []
    assert (store.cas_count, store.read_count) == (0, 4)


def test_every_group_gets_every_message(client: Client):
    client.put("q", "v")

    assert monotons(client.receive("q", "one")) == [0]
    assert monotons(client.receive("q", "two")) == [0]


def test_a_lease_of_its_own_length_runs_out(client: Client, clock: FakeClock):
    client.put("q", "v")
    assert client.receive("q", "g", lease=SECOND)[0].lease_until == clock.now + SECOND
    clock.advance(SECOND)
    assert client.receive("q", "g") == []

    clock.advance(MOMENT)
    (again,) = client.receive("q", "g")

    assert again.delivery_count == 2


def test_what_is_delivered_too_often_is_dead_lettered(client: Client, clock: FakeClock):
    client.put("q", "bad", key="k")
    for delivery in (1, 2, 3):
        (message,) = client.receive("q", "g")
        assert message.delivery_count == delivery
        clock.advance(LEASE + MOMENT)

    assert client.receive("q", "g") == []
    (dead,) = client.peek("q.dead")
    assert (dead.value, dead.key, dead.headers["cassieq.origin-queue"]) == (b"bad", b"k", "q")
    assert client.stats("q").groups[0].depth == 0


def test_fresh_messages_and_those_that_come_again_take_turns(client: Client):
    client.put_many("q", map(str, range(6)))
    client.release(*client.receive("q", "g", max=2))

    received = [client.receive("q", "g")[0] for _ in range(4)]

    assert [each.delivery_count for each in received] in ([1, 2, 1, 2], [2, 1, 2, 1])


def test_a_queue_that_is_paused_has_nothing(client: Client, store: CountingStore):
    client.put("q", "v")
    pause_queue(store, "q")
    assert client.receive("q", "g") == []

    resume_queue(store, "q")
    assert monotons(client.receive("q", "g")) == [0]


def test_a_strict_queue_offers_nothing_before_what_came_before_is_settled(
    store: CountingStore, clock: FakeClock
):
    client = Client.from_store(store)
    client.create_queue("strict", order="strict")
    client.put_many("strict", ["a", "b"])
    (first,) = client.receive("strict", "g")

    assert client.receive("strict", "g") == []
    client.ack(first)
    assert monotons(client.receive("strict", "g")) == [1]


@pytest.mark.parametrize(
    "bad",
    [{"max": 0}, {"wait": -SECOND}, {"lease": timedelta(0)}, {"lease": timedelta(days=400)}],
)
def test_values_out_of_range_are_refused_before_anything_is_leased(
    client: Client, store: CountingStore, bad: dict[str, object]
):
    with pytest.raises(OptionError, match=next(iter(bad))):
        client.receive("q", "g", **bad)
    with pytest.raises(OptionError, match="group name"):
        client.receive("q", "no group")
    assert (store.cas_count, store.read_count) == (0, 0)


def test_a_group_that_is_deleted_does_not_come_back_by_itself(
    client: Client, store: CountingStore
):
    client.put("q", "v")
    client.receive("q", "g")
    queue_id = client.queue("q").queue_id

    delete_group(ConsumerGroup(Ledger(store, queue_id), "g"), force=True)

    for _ in range(2):
        with pytest.raises(QueueStateError, match="group 'g'"):
            client.receive("q", "g")
    assert client.stats("q").groups == ()


def test_a_group_is_made_unless_it_is_not_to_be(client: Client):
    client.put("q", "a")

    with pytest.raises(NotFoundError, match="no group 'g'"):
        client.receive("q", "g", make_group=False)
    assert client.stats("q").groups == ()
    client.create_group("q", "g")
    assert len(client.receive("q", "g", make_group=False)) == 1


def test_as_many_as_fit_are_leased_and_one_at_least(client: Client):
    client.put_many("q", [os.urandom(1000) for _ in range(20)])

    assert 5 <= len(client.receive("q", "g", max=20, max_bytes=10_000)) <= 10
    assert len(client.receive("q", "g", max=20, max_bytes=1)) == 1
    with pytest.raises(OptionError, match="max_bytes must be at least 1"):
        client.receive("q", "g", max_bytes=0)


def test_a_waiting_receive_wakes_up_soon_after_a_put(client: Client, trouble: FaultyStore):
    looked = threading.Event()
    client.receive("q", "g")
    trouble.interrupt(looked.set, after=3)
    with ThreadPoolExecutor(1) as threads:
        begun = time.monotonic()
        waiting = threads.submit(client.receive, "q", "g", wait=timedelta(seconds=60))
        assert looked.wait(30)
        client.put("q", "v")

        (message,) = waiting.result(30)

    assert message.value == b"v"
    assert time.monotonic() - begun < 10


def test_waiting_in_vain_ends_in_time_and_costs_few_reads(client: Client, store: CountingStore):
    client.receive("q", "g")
    store.reset()

    begun = time.monotonic()
    assert client.receive("q", "g", wait=SECOND) == []
    waited = time.monotonic() - begun

    assert waited >= 1
    assert store.cas_count == 0
    assert store.read_count <= 4 + 3 * 6


def test_closing_ends_those_who_wait(client: Client, trouble: FaultyStore):
    looked = threading.Event()
    client.receive("q", "g")
    trouble.interrupt(looked.set, after=3)
    with ThreadPoolExecutor(1) as threads:
        begun = time.monotonic()
        waiting = threads.submit(client.receive, "q", "g", wait=timedelta(seconds=100))
        assert looked.wait(30)

        client.close()

        assert waiting.done()
        assert waiting.result() == []
    assert time.monotonic() - begun < 50


@pytest.mark.parametrize("fault", Fault)
def test_a_lease_whose_answer_is_lost_leases_nothing_twice(
    client: Client, trouble: FaultyStore, clock: FakeClock, fault: Fault
):
    client.put_many("q", ["a", "b"])
    client.receive("q", "g")
    trouble.fault = fault

    messages = client.receive("q", "g")
    trouble.arrive()

    assert monotons(messages) == [1]
    assert client.ack(*messages) == []
    clock.advance(LEASE + MOMENT)
    assert monotons(client.receive("q", "g")) == [0]


def test_what_could_not_be_fetched_is_due_in_a_minute_and_counts(
    client: Client, trouble: FaultyStore, clock: FakeClock
):
    client.put("q", "v")
    assert client.receive("q", "other")

    def fail() -> None:
        raise NotAppliedError("no replicas")

    client.receive("q", "g", max=1)
    client.put("q", "w")
    # read the queue, the head, the group twice, lease; then the fetch fails
    trouble.interrupt(fail, after=5)
    with pytest.raises(NotAppliedError):
        client.receive("q", "g")

    assert client.receive("q", "g") == []
    clock.advance(READ_AGAIN_AFTER)
    (message,) = client.receive("q", "g")
    assert (message.value, message.delivery_count) == (b"w", 2)


class UnreadStore(WrappedStore):
    """Refuses all reads of chunks of the queue ``q``, or those of one block."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_down = True
        self.block: UUID | None = None

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        wanted = list(slices)
        blocks = {each.block for each in wanted}
        if self.is_down and queue_id == "q@1" and self.block in {None, *blocks}:
            raise StoreError("the read failed")
        return super().read_chunks(queue_id, wanted)


def receive_in_vain(client: Client, times: int, **options: Any) -> None:
    for _ in range(times):
        with suppress(StoreError):
            assert client.receive("q", "g", **options) == []


@pytest.mark.parametrize("most", [1, 100])
def test_a_short_outage_of_reads_kills_no_message_however_often_programs_try(
    client: Client, store: CountingStore, clock: FakeClock, most: int
):
    client.put_many("q", map(str, range(10)))
    unread = UnreadStore(store)
    broken = Client.from_store(unread)

    for _ in range(2):
        receive_in_vain(broken, 30, max=most)
        clock.advance(READ_AGAIN_AFTER - MOMENT)
        receive_in_vain(broken, 30, max=most)
        clock.advance(MOMENT)
    unread.is_down = False

    received = [each for _ in range(10) for each in client.receive("q", "g", max=most)]
    assert sorted(monotons(received)) == [*range(10)]
    assert client.ack(*received) == []
    assert client.peek("q.dead") == []


def test_a_message_that_can_never_be_read_stops_no_other_and_is_dead_in_the_end(
    client: Client, store: CountingStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    client.put("q", "bad")
    client.put("q", "good")
    unread = UnreadStore(store)
    unread.block = Ledger(store, client.queue("q").queue_id).read_block_of(0).block
    broken = Client.from_store(unread)

    with pytest.raises(StoreError):
        broken.receive("q", "g")
    (message,) = broken.receive("q", "g")
    assert message.value == b"good"
    assert broken.ack(message) == []
    for _ in range(3):
        clock.advance(READ_AGAIN_AFTER)
        receive_in_vain(broken, 2)

    assert "dead.failed" in {each.action for each in caplog.records}
    clock.advance(READ_AGAIN_AFTER)
    unread.is_down = False
    assert broken.receive("q", "g") == []
    assert [each.value for each in client.peek("q.dead")] == [b"bad"]


def test_what_is_interrupted_while_it_is_fetched_is_due_at_once_and_does_not_count(
    client: Client, trouble: FaultyStore, clock: FakeClock
):
    def interrupt() -> None:
        raise KeyboardInterrupt

    client.receive("q", "g")
    client.put("q", "v")
    trouble.interrupt(interrupt, after=5)
    with pytest.raises(KeyboardInterrupt):
        client.receive("q", "g")

    clock.advance(MOMENT)
    (message,) = client.receive("q", "g")
    assert message.delivery_count == 1


def test_what_can_not_even_be_given_back_is_due_when_its_lease_runs_out(
    client: Client, trouble: FaultyStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    def fail() -> None:
        trouble.interrupt(fail, after=0)
        raise NotAppliedError("no replicas")

    client.receive("q", "g")
    client.put("q", "v")
    trouble.interrupt(fail, after=5)
    with pytest.raises(NotAppliedError):
        client.receive("q", "g")
    trouble.calm()

    assert [each.action for each in caplog.records] == ["receive.give_back_failed"]
    clock.advance(LEASE)
    assert client.receive("q", "g") == []
    clock.advance(MOMENT)
    assert monotons(client.receive("q", "g")) == [0]


@pytest.mark.parametrize("end", [purge_queue, delete_queue])
def test_who_waits_while_the_queue_comes_to_its_end_is_told(
    client: Client, trouble: FaultyStore, end: Callable[..., object]
):
    client.receive("q", "g")
    trouble.interrupt(lambda: end(trouble, "q", force=True), after=4)

    with pytest.raises(QueueStateError, match=r"(purged|deleted)"):
        client.receive("q", "g", wait=timedelta(seconds=60))

    if end is delete_queue:
        client.create_queue("q")
    client.put("q", "new")
    assert [each.value for each in client.receive("q", "g")] == [b"new"]


def test_many_receivers_hold_no_message_twice_and_lose_none():
    client = Client.from_store(MemoryStore())
    client.create_queue("q")
    client.put_many("q", map(str, range(1_000)))
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def consume() -> None:
        while messages := client.receive("q", "g", max=7):
            with lock:
                seen.update(monotons(messages))
            assert client.ack(*messages) == []

    with ThreadPoolExecutor(12) as threads:
        for done in [threads.submit(consume) for _ in range(12)]:
            done.result(120)

    assert seen == Counter(range(1_000))
    (figures,) = client.stats("q").groups
    assert (figures.depth, figures.floor) == (0, 1_000)


def test_peeking_leases_nothing_and_begins_where_it_is_told(
    client: Client, store: CountingStore, clock: FakeClock
):
    client.put_many("q", ["a", "b", "c"])
    clock.advance(SECOND)
    later = clock.now
    client.put("q", "d")
    store.reset()

    assert [each.value for each in client.peek("q", max=2)] == [b"a", b"b"]
    assert [each.value for each in client.peek("q", start=2)] == [b"c", b"d"]
    assert [each.value for each in client.peek("q", start=later)] == [b"d"]
    assert client.peek("q", start="latest") == []
    assert store.cas_count == 0
    with pytest.raises(QueueStateError, match="no monoton 9 yet"):
        client.peek("q", start=9)
    with pytest.raises(OptionError, match="max"):
        client.peek("q", max=0)
