"""Acks of whatever leases that ride along with a lease, and going on from what it has left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from cassieq_spark.groups.changes import apply
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.plan import plan_lease
from cassieq_spark.groups.settle import kept_token, settled_of, were_settled
from cassieq_spark.groups.state import GroupState, Settlement, Slot, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op
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
from tests.unit.groups.test_plan import NOW, NOW_MS, OURS, PAST, THEIRS, make_slot, make_state

MOMENT = timedelta(milliseconds=1)


def ranges(text: str) -> Ranges:
    return Ranges.parse(text)


class Scene:
    """Twelve messages, three of them leased by each of two readers."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.group = make_group(self.store, make_queue(self.store, [12]).queue_id)
        self.one, self.two = (self.lease(max_messages=3) for _ in range(2))
        self.store.reset()

    def lease(self, **request: object) -> UUID:
        return self.exchange(**request).token

    def exchange(self, known: GroupState | None = None, **request: object) -> Lease:
        return self.group.lease(make_request(stop=12, **request), known)

    @property
    def floor(self) -> int:
        return self.group.read(every_waiting=True).floor


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_acks_of_several_leases_and_a_lease_are_one_lwt(scene: Scene):
    acks = {scene.one: ranges("0-3"), scene.two: ranges("3-4,5-6")}

    batch = scene.exchange(max_messages=2, receipt_acks=acks)

    assert (scene.store.cas_count, scene.store.read_count) == (1, 2)
    assert monotons_of(batch.leased) == [ranges("6-8")]
    assert [settled_of(batch.settled, lease) for lease in acks] == list(acks.values())
    assert scene.floor == 4


def test_what_a_lease_does_not_hold_is_not_acked(scene: Scene):
    lease = scene.exchange(
        max_messages=0, receipt_acks={scene.one: ranges("2-4"), uuid4(): ranges("5-6")}
    )

    assert settled_of(lease.settled, scene.one) == ranges("2-3")
    assert sum(each.count for each in lease.settled.values()) == 1


def test_acks_without_a_lease_are_one_lwt_and_stale_ones_are_none(scene: Scene):
    acks = {scene.one: ranges("0-3")}
    scene.exchange(max_messages=0, receipt_acks=acks)
    assert scene.store.cas_count == 1

    lease = scene.exchange(max_messages=0, receipt_acks=acks)

    assert (scene.store.cas_count, dict(lease.settled)) == (1, {})


def test_messages_that_were_extended_one_by_one_are_acked_under_their_lease(scene: Scene):
    scene.group.settle(scene.one, Settlement(extended={2 * LEASE: ranges("1-2")}))

    lease = scene.exchange(max_messages=0, receipt_acks={scene.one: ranges("0-3")})

    assert settled_of(lease.settled, scene.one) == ranges("0-3")


def test_what_is_left_of_a_lease_that_ran_out_comes_with_the_next_batch(scene: Scene):
    scene.clock.advance(LEASE + MOMENT)

    now = scene.exchange(
        receipt_acks={scene.one: ranges("0-1"), scene.two: ranges("3-4")}, max_messages=1
    )
    then = scene.exchange(max_messages=9)

    assert monotons_of(now.leased) == [ranges("6-7")]
    assert monotons_of(then.leased) == [ranges("1-3")]


def test_in_strict_order_acks_make_way_for_what_comes_next(scene: Scene):
    some = scene.exchange(strict_fifo=True, receipt_acks={scene.one: ranges("0-3")})
    rest = scene.exchange(strict_fifo=True, receipt_acks={scene.two: ranges("3-6")})

    assert some.leased == ()
    assert monotons_of(rest.leased) == [ranges("6-12")]


@pytest.mark.parametrize(
    "settlement",
    [
        Settlement(released={MOMENT: Ranges.parse("1-2")}),
        Settlement(extended={LEASE: Ranges.parse("1-2")}),
    ],
)
def test_in_strict_order_what_leaves_a_batch_meanwhile_is_waited_for(
    scene: Scene, settlement: Settlement
):
    scene.exchange(held=scene.two, max_messages=0)
    scene.trouble.interrupt(lambda: scene.group.settle(scene.one, settlement), after=2)

    lease = scene.exchange(held=scene.one, strict_fifo=True)

    assert lease.leased == ()
    assert scene.floor == 1


def test_what_a_client_holds_on_to_meanwhile_is_in_flight(scene: Scene):
    scene.exchange(held=scene.two, max_messages=0)
    extended = Settlement(extended={LEASE: ranges("0-3")})
    scene.trouble.interrupt(lambda: scene.group.settle(scene.one, extended), after=2)

    lease = scene.exchange(held=scene.one, max_in_flight=4)

    assert monotons_of(lease.leased) == [ranges("6-7")]


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_acks_and_leases_once(scene: Scene, fault: Fault, limit: int):
    scene.trouble.fault = fault

    lease = scene.exchange(max_messages=limit, receipt_acks={scene.one: ranges("0-3")})
    scene.trouble.arrive()

    assert settled_of(lease.settled, scene.one) == ranges("0-3")
    state = scene.group.read()
    held = {slot.monotons for slot in state.held_by(lease.token)}
    assert held == ({ranges("6-8")} if limit else set())
    assert (state.floor, state.head.pointer) == (3, 6 + limit)


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_acks_once_where_others_are_dead(scene: Scene, fault: Fault):
    scene.group.settle(scene.two, Settlement(rejected={"bad": ranges("3-6")}))
    scene.trouble.fault = fault

    lease = scene.exchange(max_messages=0, receipt_acks={scene.one: ranges("0-3")})

    assert settled_of(lease.settled, scene.one) == ranges("0-3")
    assert [each.monotons for each in lease.dead] == [ranges("3-6")]


def test_of_two_acks_at_once_both_count(scene: Scene):
    scene.trouble.interrupt(
        lambda: scene.group.settle(scene.one, Settlement(acked=ranges("0-1"))), after=2
    )

    lease = scene.exchange(max_messages=1, receipt_acks={scene.one: ranges("1-3")})

    assert settled_of(lease.settled, scene.one) == ranges("1-3")
    assert scene.floor == 3


def test_what_a_batch_has_left_is_gone_on_from_without_a_read(scene: Scene):
    first = scene.exchange(max_messages=1, receipt_acks={scene.one: ranges("0-3")})
    scene.store.reset()

    second = scene.exchange(first.after, max_messages=1, receipt_acks={scene.two: ranges("3-6")})
    third = scene.exchange(second.after, max_messages=1, receipt_acks={first.token: ranges("6-7")})

    assert (scene.store.cas_count, scene.store.read_count) == (2, 0)
    assert monotons_of(second.leased + third.leased) == [ranges("7-8"), ranges("8-9")]
    assert scene.floor == 7


def test_who_goes_on_from_what_is_so_no_more_is_refused_and_reads(scene: Scene):
    first = scene.exchange(max_messages=1)
    other = scene.exchange(max_messages=1)
    scene.store.reset()

    lease = scene.exchange(first.after, max_messages=1, receipt_acks={scene.one: ranges("0-3")})

    assert (scene.store.cas_count, scene.store.read_count) == (2, 2)
    assert monotons_of(other.leased + lease.leased) == [ranges("7-8"), ranges("8-9")]
    assert settled_of(lease.settled, scene.one) == ranges("0-3")


def test_an_ack_from_what_is_so_no_more_takes_nothing_from_who_has_it_now(scene: Scene):
    known = scene.exchange(max_messages=0, receipt_acks={scene.two: ranges("3-4")}).after
    scene.clock.advance(LEASE + MOMENT)
    taken = scene.exchange(max_messages=9)
    assert monotons_of(taken.leased) == [ranges("0-3")]

    lease = scene.exchange(known, max_messages=0, receipt_acks={scene.one: ranges("0-3")})

    assert dict(lease.settled) == {}
    assert scene.floor == 0


def test_the_state_after_a_batch_is_what_is_read_then(scene: Scene):
    batch = scene.exchange(max_messages=2, receipt_acks={scene.one: ranges("0-3")})

    def told(slot: Slot) -> tuple[object, ...]:
        return slot.number, slot.monotons, slot.lease, slot.due_at, slot.deliveries

    read = scene.group.read()
    assert batch.after is not None
    assert (batch.after.head, batch.after.waiting) == (read.head, read.waiting)
    assert [told(each) for each in batch.after.slots] == [told(each) for each in read.slots]


def test_a_plan_that_changes_what_waits_is_not_followed():
    waiting = Waiting(NOW_MS - 1, ranges("3-9"), 1)
    state = make_state(waiting=(waiting,))
    ops: tuple[Op, ...] = plan_lease(state, make_request()).ops

    assert apply(state, ops) is None


def test_nothing_is_quiet_while_something_comes_again():
    waiting = Waiting(NOW_MS + 5, ranges("3-9"), 1)

    assert make_state(make_slot(0, "0-3", OURS), make_slot(1, "", THEIRS, PAST)).is_quiet
    assert not make_state(make_slot(0, "0-3", OURS, PAST)).is_quiet
    state = make_state(waiting=(waiting,))
    assert state.is_quiet
    assert not replace(state, now=state.now + timedelta(milliseconds=5)).is_quiet


def client_scene(fault: Fault, meanwhile: Callable[[ConsumerGroup, UUID], object]) -> Lease:
    """The batch of a round that only acks, in trouble; the client had leased one message."""
    memory, _ = make_clocked_store()
    trouble = FaultyStore(memory)
    group = make_group(trouble, make_queue(trouble, [12]).queue_id)
    others = ConsumerGroup(Ledger(memory, group.queue_id), group.name)
    lease = group.lease(make_request(stop=12, max_messages=1, by_receipts=True)).token
    trouble.fault = fault
    trouble.interrupt(lambda: meanwhile(others, lease) and None, after=3)
    return group.lease(
        make_request(
            stop=12, max_messages=0, by_receipts=True, receipt_acks={lease: ranges("0-1")}
        )
    )


def lease_one(others: ConsumerGroup) -> None:
    others.lease(make_request(stop=12, max_messages=1, by_receipts=True))


def test_an_ack_is_not_stale_as_its_freed_slot_is_leased_before_a_lost_answer_is_resolved():
    batch = client_scene(Fault.ANSWER_LOST, lambda others, _: lease_one(others))

    assert list(batch.settled.values()) == [ranges("0-1")]


def test_what_is_extended_and_its_slot_leased_while_an_ack_gets_lost_is_acked_where_it_is():
    moved: list[ConsumerGroup] = []

    def extend(others: ConsumerGroup, lease: UUID) -> None:
        others.settle(lease, Settlement(extended={LEASE: ranges("0-1")}))
        lease_one(others)
        moved.append(others)

    batch = client_scene(Fault.REQUEST_LOST, extend)

    assert list(batch.settled.values()) == [ranges("0-1")]
    assert moved[0].read(every_waiting=True).floor == 1


SLOT = Slot(0, ranges("0-3"), OURS, NOW, 1, by_receipts=True)
FREED, PART = {SLOT: ranges("0-3")}, {SLOT: ranges("0-1")}
KEPT = replace(SLOT, number=1, lease=kept_token(OURS), monotons=ranges("0-1"))
REUSED = replace(SLOT, lease=THEIRS, monotons=ranges("3-6"))
LEFT = replace(SLOT, monotons=ranges("1-3"))


@pytest.mark.parametrize(
    ("settled", "slots", "late", "gone"),
    [
        pytest.param(FREED, [REUSED], 0, True, id="leased by others while ours"),
        pytest.param(FREED, [REUSED], 1, False, id="maybe taken over"),
        pytest.param(FREED, [REUSED], None, False, id="at an unknown time"),
        pytest.param(FREED, [REUSED, KEPT], 0, False, id="extended, then leased by others"),
        pytest.param(FREED, [replace(SLOT, monotons=Ranges())], 0, False, id="not freed by us"),
        pytest.param(PART, [LEFT], 1, True, id="left its slot"),
        pytest.param(PART, [LEFT, KEPT], 0, False, id="left it by an extension"),
        pytest.param(PART, [SLOT], 0, False, id="still there"),
        pytest.param(PART, [REUSED], 0, True, id="left it, and the rest as well"),
        pytest.param(PART, [], 0, False, id="no slot"),
    ],
)
def test_what_slots_tell_of_a_settlement_whose_token_is_nowhere(
    settled: dict[Slot, Ranges], slots: list[Slot], late: int | None, gone: bool
):
    now = None if late is None else SLOT.due_at + late * MOMENT

    assert were_settled(settled, {OURS}, slots, now) is gone


def test_a_slot_whose_batch_was_acked_does_not_tell_that_messages_had_left_it():
    slot = replace(SLOT, by_receipts=False)

    assert not were_settled({slot: ranges("0-1")}, {OURS}, [REUSED], slot.due_at)


def test_what_was_to_be_moved_is_gone_from_where_it_was():
    assert were_settled(PART, {OURS}, [LEFT, KEPT], SLOT.due_at, moved=ranges("0-1"))
