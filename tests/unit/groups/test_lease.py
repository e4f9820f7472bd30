from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups import group as group_module
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
    monotons_of,
)
from tests.support.faults import FakeClock

MOMENT = timedelta(milliseconds=1)
#: The queue of these tests, handed out for the first time.
WHOLE = (LeasedSlot(0, Ranges.parse("0-10"), 1),)


@pytest.fixture
def store_and_clock() -> tuple[FaultyStore, FakeClock]:
    memory, clock = make_clocked_store()
    return FaultyStore(memory), clock


@pytest.fixture
def store(store_and_clock: tuple[FaultyStore, FakeClock]) -> FaultyStore:
    return store_and_clock[0]


@pytest.fixture
def clock(store_and_clock: tuple[FaultyStore, FakeClock]) -> FakeClock:
    return store_and_clock[1]


@pytest.fixture
def group(store: FaultyStore) -> ConsumerGroup:
    return make_group(store, make_queue(store, [10]).queue_id)


def test_a_batch_is_acked_and_the_next_leased_by_one_lwt_and_two_reads():
    store = CountingStore(MemoryStore())
    group = make_group(store, make_queue(store, [10]).queue_id)
    first = group.lease(make_request(stop=10, max_messages=4))
    store.reset()

    second = group.lease(make_request(held=first.token, stop=10, max_messages=4))

    assert (store.cas_count, store.read_count, store.serial_read_count) == (1, 2, 0)
    assert (first.leased, first.pointer) == ((LeasedSlot(0, Ranges.parse("0-4"), 1),), 4)
    assert (second.leased, second.pointer) == ((LeasedSlot(0, Ranges.parse("4-8"), 1),), 8)
    assert second.acked == 4


def test_idle_costs_no_lwt():
    store = CountingStore(MemoryStore())
    group = make_group(store, make_queue(store).queue_id)
    store.reset()

    lease = group.lease(make_request(stop=0))

    assert (lease.leased, lease.acked, store.cas_count) == ((), 0, 0)


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_of_a_lease_leases_nothing_twice(
    store: FaultyStore, group: ConsumerGroup, fault: Fault
):
    held = group.lease(make_request(stop=10, max_messages=4)).token
    store.fault = fault

    lease = group.lease(make_request(held=held, stop=10, max_messages=4))
    store.arrive()

    assert monotons_of(lease.leased) == [Ranges.parse("4-8")]
    assert lease.acked == 4
    assert [slot.monotons for slot in group.read().slots] == [Ranges.parse("4-8")]
    assert group.read().held_by(lease.token)


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_of_an_ack_alone_is_resolved(
    store: FaultyStore, group: ConsumerGroup, fault: Fault
):
    held = group.lease(make_request(stop=10)).token
    store.fault = fault

    lease = group.lease(make_request(held=held, stop=10))

    assert (lease.acked, lease.leased) == (10, ())
    assert group.read().floor == 10


@pytest.mark.parametrize("after", range(2, 9))
def test_a_request_that_arrives_late_is_the_lease_that_is_handed_out(
    store: FaultyStore, group: ConsumerGroup, clock: FakeClock, after: int
):
    # I8: the messages of a lease that nobody knew of counted as delivered when it had run out.
    store.fault = Fault.REQUEST_LATE
    store.interrupt(store.arrive, after=after)

    lease = group.lease(make_request(stop=10, max_messages=4))
    store.arrive()
    clock.advance(LEASE + MOMENT)
    again = group.lease(make_request(stop=10, max_messages=4))

    assert lease.leased == (LeasedSlot(0, Ranges.parse("0-4"), 1),)
    assert again.leased == (LeasedSlot(0, Ranges.parse("0-4"), 2),)


@pytest.mark.parametrize("after", range(2, 9))
def test_an_ack_settles_what_was_handed_out_whichever_attempt_leased_it(
    store: FaultyStore, group: ConsumerGroup, after: int
):
    # I5: under one token for all attempts, messages that were never delivered were acked.
    store.fault = Fault.REQUEST_LATE
    store.interrupt(store.arrive, after=after)
    lease = group.lease(make_request(stop=10, max_messages=4))
    store.arrive()

    acked = group.lease(make_request(held=lease.token, stop=10, max_messages=4)).acked

    assert (monotons_of(lease.leased), acked) == ([Ranges.parse("0-4")], 4)
    assert group.read().floor == 4


@pytest.mark.parametrize("after", range(2, 9))
def test_a_settlement_that_arrives_late_is_not_told_to_be_stale(
    store: FaultyStore, group: ConsumerGroup, after: int
):
    # Who is told that an ack was stale may undo what was done for messages that are settled.
    held = group.lease(make_request(stop=10)).token
    store.fault = Fault.REQUEST_LATE
    store.interrupt(store.arrive, after=after)

    told = group.settle(held, Settlement(acked=Ranges.parse("2-5")))
    store.arrive()

    assert (told.count, told.stale) == (3, Ranges())
    assert group.read().slots[0].monotons == Ranges.parse("0-2,5-10")


def test_what_is_acked_while_another_reader_takes_it_over_is_not_delivered_again(
    store: FaultyStore, group: ConsumerGroup, clock: FakeClock
):
    # I5: the emptied slot kept its token, so the takeover went in and brought it all back.
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE + MOMENT)
    store.interrupt(lambda: group.lease(make_request(held=held, stop=10)) and None, after=2)

    lease = group.lease(make_request(stop=10))

    assert lease.leased == ()
    assert group.read().floor == 10


def test_an_extension_keeps_others_away(
    store: FaultyStore, group: ConsumerGroup, clock: FakeClock
):
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE)

    assert group.extend(held, WHOLE, by=LEASE)
    clock.advance(LEASE)

    assert group.lease(make_request(stop=10)).leased == ()


def test_an_extension_between_a_look_and_a_takeover_wins(
    store: FaultyStore, group: ConsumerGroup, clock: FakeClock
):
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE + MOMENT)
    store.interrupt(lambda: group.extend(held, WHOLE, by=LEASE) and None, after=2)

    assert group.lease(make_request(stop=10)).leased == ()


def test_an_extension_between_a_look_and_marking_dead_wins(
    store: FaultyStore, group: ConsumerGroup, clock: FakeClock
):
    # I6
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE + MOMENT)
    store.interrupt(lambda: group.extend(held, WHOLE, by=LEASE) and None, after=2)

    lease = group.lease(make_request(stop=10, max_deliveries=1))

    assert lease.dead == ()
    assert group.lease(make_request(held=held, stop=10)).acked == 10


def test_a_lost_lease_cannot_be_extended(group: ConsumerGroup, clock: FakeClock):
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE + MOMENT)
    group.lease(make_request(stop=10))

    assert not group.extend(held, WHOLE, by=LEASE)


def test_an_extension_whose_answer_is_lost_counts_as_one(store: FaultyStore, group: ConsumerGroup):
    held = group.lease(make_request(stop=10)).token
    store.fault = Fault.REQUEST_LOST

    assert group.extend(held, WHOLE, by=LEASE)


def test_released_messages_are_due_at_once_for_whoever_comes(
    group: ConsumerGroup, clock: FakeClock
):
    held = group.lease(make_request(stop=10)).token

    assert group.release(held, WHOLE) == 10
    clock.advance(MOMENT)

    (leased,) = group.lease(make_request(stop=10)).leased
    assert leased == LeasedSlot(0, Ranges.parse("0-10"), 2)
    assert group.release(held, WHOLE) == 0


def test_a_replay_takes_up_its_lease_and_counts_as_another_delivery(
    group: ConsumerGroup, clock: FakeClock
):
    held = group.lease(make_request(stop=10)).token
    clock.advance(2 * LEASE)

    again = group.take_again(make_request(held=held))

    assert again == (LeasedSlot(0, Ranges.parse("0-10"), 2),)
    assert group.lease(make_request(stop=10)).leased == ()
    assert group.lease(make_request(held=held, stop=10)).acked == 10


def test_a_replay_leaves_out_what_others_took(group: ConsumerGroup, clock: FakeClock):
    held = group.lease(make_request(stop=10)).token
    clock.advance(LEASE + MOMENT)
    taken = group.lease(make_request(stop=10, max_messages=3))

    assert monotons_of(taken.leased) == [Ranges.parse("0-3")]
    assert group.take_again(make_request(held=held)) == ()
    assert group.take_again(make_request(held=uuid4())) == ()


@pytest.mark.parametrize(
    ("fault", "deliveries"),
    [(Fault.REQUEST_LOST, 2), (Fault.ANSWER_LOST, 2), (Fault.REQUEST_LATE, 2)],
)
def test_a_replay_whose_answer_is_lost_counts_once(
    store: FaultyStore, group: ConsumerGroup, fault: Fault, deliveries: int
):
    held = group.lease(make_request(stop=10)).token
    store.fault = fault

    again = group.take_again(make_request(held=held))
    store.arrive()

    assert again == (LeasedSlot(0, Ranges.parse("0-10"), deliveries),)
    assert [slot.deliveries for slot in group.read().slots] == [deliveries]


@pytest.mark.parametrize("after", range(2, 9))
def test_a_replay_that_arrives_late_counts_once(
    store: FaultyStore, group: ConsumerGroup, after: int
):
    # I8
    held = group.lease(make_request(stop=10)).token
    store.fault = Fault.REQUEST_LATE
    store.interrupt(store.arrive, after=after)

    again = group.take_again(make_request(held=held))
    store.arrive()

    assert again == (LeasedSlot(0, Ranges.parse("0-10"), 2),)
    assert [slot.deliveries for slot in group.read().slots] == [2]


def test_only_the_first_waiting_ranges_are_read_on_the_way(
    group: ConsumerGroup, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_module, "_WAITING_READ", 1)
    group.lease(make_request(stop=10))
    clock.advance(LEASE + MOMENT)
    group.lease(make_request(stop=10, max_messages=4))

    assert not group.read().all_waiting
    assert group.read(every_waiting=True).all_waiting
    assert monotons_of(group.lease(make_request(stop=10)).leased) == [Ranges.parse("4-10")]
    assert group.read(every_waiting=True).waiting == ()


def test_a_group_that_was_never_made_is_said_so():
    store = MemoryStore()
    queue_id = make_queue(store).queue_id

    with pytest.raises(QueueStateError, match="group 'none' of queue q@1"):
        ConsumerGroup(Ledger(store, queue_id), "none").read()
    with pytest.raises(QueueStateError):
        ConsumerGroup(Ledger(store, QueueId("r@1")), "none").lease(make_request())


def test_losing_every_race_ends_in_advice(
    store: FaultyStore, group: ConsumerGroup, monkeypatch: pytest.MonkeyPatch
):
    held = group.lease(make_request(stop=10)).token
    monkeypatch.setattr(group_module, "attempts", lambda: range(2))
    monkeypatch.setattr(store, "cas", lambda *_: False)

    with pytest.raises(ContentionError, match="maxMessagesPerTrigger"):
        group.lease(make_request(held=held, stop=10))
    with pytest.raises(ContentionError, match="again"):
        group.take_again(make_request(held=held))


def test_competing_readers_share_the_messages_without_gap_or_overlap():
    store = MemoryStore()
    group = make_group(store, make_queue(store, [400]).queue_id)

    def read_all(_: int) -> list[Range]:
        held: UUID | None = None
        got: list[Range] = []
        while leased := (
            batch := group.lease(make_request(held=held, stop=400, max_messages=7))
        ).leased:
            held = batch.token
            got += [part for each in monotons_of(leased) for part in each]
        return got

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(read_all, range(4)))

    ranges = sorted(each for share in shares for each in share)
    assert [each.start for each in ranges] == [0, *(each.stop for each in ranges[:-1])]
    state = group.read()
    assert (state.floor, state.head.pointer) == (400, 400)
    assert len(state.slots) <= 4
