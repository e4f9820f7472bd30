"""What a plan leaves behind, as the next plan sees it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark.groups.changes import Changes, state_after
from cassieq_spark.groups.deliveries import too_often
from cassieq_spark.groups.lanes import encode_lanes, lanes_of
from cassieq_spark.groups.lease import spare_token
from cassieq_spark.groups.plan import plan_lease, plan_replay
from cassieq_spark.groups.settle import (
    SettlePlan,
    kept_token,
    plan_keep_whole,
    plan_settle,
    put_away,
    was_settled,
)
from cassieq_spark.groups.state import (
    GroupState,
    Head,
    Settlement,
    Slot,
    Waiting,
    holder_values,
)
from cassieq_spark.model import Ranges, to_millis
from cassieq_spark.store.protocol import Update, When
from tests.support.builders import LEASE, make_request

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
FIRST_AT, LAST_AT = NOW - timedelta(hours=2), NOW - timedelta(hours=1)
MINUTE = timedelta(minutes=1)
OURS, THEIRS, FRESH = UUID(int=16), UUID(int=32), UUID(int=64)
POINTER = 100


def ranges(text: str) -> Ranges:
    return Ranges.parse(text)


def make_state(*slots: Slot, waiting: tuple[Waiting, ...] = ()) -> GroupState:
    return GroupState(Head(POINTER, 5, 3), slots, waiting, NOW, of_one_moment=True)


def make_slot(monotons: str = "0-6", number: int = 0, **changes: Any) -> Slot:
    slot = Slot(number, ranges(monotons), OURS, NOW + MINUTE, 3, FIRST_AT, LAST_AT)
    return replace(slot, **changes)


def settle(state: GroupState, *, with_batch: bool = False, **what: Any) -> SettlePlan:
    return plan_settle(state, OURS, Settlement(**what), FRESH, with_batch=with_batch)


# -- settling -------------------------------------------------------------------------------------


def test_what_is_held_for_longer_keeps_its_lanes():
    lanes = encode_lanes({7: ranges("0-3"), 9: ranges("3-6")})
    state = make_state(make_slot(lanes=lanes))

    then = state_after(state, settle(state, extended={MINUTE: ranges("2-4")}).ops)

    (kept,) = then.held_by(kept_token(OURS))
    assert lanes_of(kept.lanes, kept.monotons) == {7: ranges("2-3"), 9: ranges("3-4")}


def test_what_is_held_for_longer_is_held_by_the_same_reader():
    state = make_state(make_slot(**holder_values(OURS, "ann")))

    then = state_after(state, settle(state, extended={MINUTE: ranges("2-4")}).ops)

    assert [slot.by for slot in then.slots] == ["ann", "ann"]


@pytest.mark.parametrize("deliveries", [1, 3])
def test_what_is_put_away_is_told_as_it_will_be_read(deliveries: int):
    slot = make_slot(deliveries=deliveries)
    changes = Changes(make_state(slot))
    outcomes = Settlement(
        extended={MINUTE: ranges("0-1")},
        released={MINUTE: ranges("1-2")},
        rejected={"bad": ranges("2-3")},
        unread=ranges("3-4"),
    )

    told = put_away(changes, slot, OURS, outcomes)

    then = state_after(changes.state, changes.ops())
    read = {*then.slots[1:], *then.waiting}
    assert (set(told), len(told)) == (read, 4)


@pytest.mark.parametrize("deliveries", [1, 2, 3])
def test_what_nobody_has_seen_waits_as_if_it_was_not_handed_out(deliveries: int):
    state = make_state(make_slot(deliveries=deliveries))

    then = state_after(state, settle(state, unread=ranges("0-6")).ops)

    (row,) = then.waiting
    times = (FIRST_AT, LAST_AT) if deliveries > 1 else (None, None)
    assert (row.monotons, row.deliveries) == (ranges("0-6"), deliveries - 1)
    assert (row.first_at, row.last_at) == times
    assert row.by_receipts
    assert row.due <= to_millis(NOW) + 1


def test_what_is_held_for_longer_once_more_stays_in_its_slot_and_the_rest_is_settled():
    state = make_state(make_slot(lease=kept_token(OURS)))

    plan = settle(state, acked=ranges("0-2"), extended={2 * MINUTE: ranges("2-6")})

    (slot,) = state_after(state, plan.ops).slots
    assert (slot.monotons, slot.lease) == (ranges("2-6"), kept_token(OURS))
    assert slot.due_at == NOW + 2 * MINUTE
    (kept,) = plan.ops
    assert isinstance(kept, Update)
    assert When("ranges", "=", "0-6") in kept.when


def test_messages_of_two_slots_that_are_rejected_are_dead():
    state = make_state(make_slot("0-3", 0), make_slot("3-6", 1, lease=kept_token(OURS)))

    plan = settle(state, rejected={"bad": ranges("2-4")})

    assert [row.monotons for row in plan.dead] == [ranges("2-3"), ranges("3-4")]


def test_all_of_a_slot_is_settled_only_for_the_delivery_that_was_read():
    (freed,) = settle(make_state(make_slot(by_receipts=True)), acked=ranges("0-6")).ops

    assert When("deliveries", "=", 3) in freed.when


def test_a_batch_is_marked_as_published_once_and_whatever_comes_before_its_slot():
    batch = make_slot("2-6", 3)
    marked = plan_keep_whole(make_state(batch), OURS).texts[batch]
    of_a_client, empty = make_slot("0-1", 0, by_receipts=True), make_slot("", 1)
    state = make_state(of_a_client, empty, make_slot("1-2", 2, recorded=marked), batch)

    plan = plan_keep_whole(state, OURS)

    assert plan == SettlePlan(plan.ops, {}, Ranges(), (), texts={batch: marked})
    published = [slot.number for slot in state_after(state, plan.ops).slots if slot.is_published]
    assert published == [2, 3]


@pytest.mark.parametrize(
    "what",
    [
        {"acked": ranges("0-2")},
        {"acked": ranges("0-2"), "extended": {MINUTE: ranges("2-4")}},
        {"released": {MINUTE: ranges("0-6")}},
    ],
)
def test_what_was_settled_by_a_lost_answer_is_known_by_what_is_read(what: dict[str, Any]):
    state = make_state(make_slot(by_receipts=True))
    plan = settle(state, **what)

    then = state_after(state, plan.ops)

    assert was_settled(plan, OURS, then.slots, NOW)
    assert not was_settled(plan, OURS, state.slots, NOW)


def test_what_was_recorded_by_a_lost_answer_is_known_by_what_is_read():
    state = make_state(make_slot())
    plan = settle(state, with_batch=True, rejected={"bad": ranges("0-2")})

    then = state_after(state, plan.ops)

    assert was_settled(plan, OURS, then.slots, NOW)
    assert not was_settled(plan, OURS, state.slots, NOW)


# -- replays --------------------------------------------------------------------------------------


def test_a_replay_of_a_published_batch_has_a_lease_of_its_own():
    state = make_state(make_slot())
    state = state_after(state, plan_keep_whole(state, OURS).ops)

    plan = plan_replay(state, make_request(held=OURS, token=FRESH, max_deliveries=3))

    (slot,) = state_after(state, plan.ops).slots
    assert (slot.monotons, slot.due_at, slot.taken_up_by) == (ranges("0-6"), NOW + LEASE, FRESH)
    assert slot.is_published
    assert slot.first_at == FIRST_AT


def test_a_replay_is_handed_over_with_the_time_of_the_first_delivery_to_the_reader_that_asks():
    state = make_state(make_slot(**holder_values(OURS, "ann")))

    plan = plan_replay(state, make_request(held=OURS, by="bob"))

    assert [each.first_at for each in plan.leased] == [FIRST_AT]
    assert [slot.by for slot in state_after(state, plan.ops).slots] == ["bob"]


def test_a_replay_tells_by_which_state_it_was_planned():
    state = make_state(make_slot())

    plan = plan_replay(state, make_request(held=OURS))

    assert (plan.state, plan.pointer) == (state, POINTER)


def test_a_replay_goes_on_behind_a_slot_that_was_handed_out_too_often():
    state = make_state(make_slot("0-6", 0, deliveries=5), make_slot("6-7", 1, deliveries=1))

    plan = plan_replay(state, make_request(held=OURS, max_deliveries=5))

    assert [(each.slot, each.deliveries) for each in plan.leased] == [(1, 2)]


def test_a_replay_that_has_to_pause_leaves_a_free_slot_and_all_messages_waiting():
    state = make_state(make_slot())
    request = make_request(held=OURS, token=FRESH, max_deliveries=9, retry_backoff=MINUTE)

    plan = plan_replay(state, request)

    then = state_after(state, plan.ops)
    assert [(slot.monotons, slot.lease) for slot in then.slots] == [(Ranges(), FRESH)]
    assert [row.monotons for row in then.waiting] == [ranges("0-6")]
    (freed,) = (op for op in plan.ops if getattr(op, "row", ("",))[0] == "slot")
    assert {When("ranges", "=", "0-6"), When("deliveries", "=", 3)} <= set(freed.when)


@pytest.mark.parametrize(("limit", "taken"), [(None, "0-57"), (10, "0-10"), (99, "0-57")])
def test_a_third_delivery_is_no_larger_than_the_limit_of_a_batch(limit: int | None, taken: str):
    state = make_state(make_slot("0-60", deliveries=2))

    plan = plan_replay(state, make_request(held=OURS, max_messages=limit, max_deliveries=90))

    assert [each.monotons for each in plan.leased] == [ranges(taken)]


def test_what_was_handed_out_too_often_is_taken_from_the_delivery_that_was_read_alone():
    state = make_state(make_slot(lease=THEIRS, due_at=NOW - MINUTE, deliveries=5))

    request = make_request(stop=POINTER, max_deliveries=5, token=FRESH)
    plan = plan_lease(state, request, [])

    (freed,) = (op for op in plan.ops if getattr(op, "row", ("",))[0] == "slot")
    assert isinstance(freed, Update)
    assert {When("ranges", "=", "0-6"), When("deliveries", "=", 5)} <= set(freed.when)
    assert [slot.lease for slot in state_after(state, plan.ops).slots] == [spare_token(FRESH)]
    assert [(row.monotons, row.reason) for row in plan.dead] == [(ranges("0-6"), too_often(5))]


# -- leases ---------------------------------------------------------------------------------------


def test_a_lease_of_what_waits_takes_the_slot_of_the_batch_that_it_acks():
    waits = Waiting(6, ranges("6-9"), 1, FIRST_AT, LAST_AT)
    state = make_state(make_slot(first_at=LAST_AT), waiting=(waits,))

    plan = plan_lease(state, make_request(held=OURS, stop=POINTER, token=FRESH), [])

    (slot,) = state_after(state, plan.ops).slots
    assert (slot.lease, slot.monotons, slot.first_at) == (FRESH, ranges("6-9"), FIRST_AT)
    assert [each.first_at for each in plan.leased] == [FIRST_AT]


def test_a_lease_that_ran_out_is_taken_over_with_the_time_of_the_first_delivery():
    state = make_state(make_slot(lease=THEIRS, due_at=NOW - MINUTE))

    plan = plan_lease(state, make_request(stop=POINTER), [])

    assert [(each.monotons, each.first_at) for each in plan.leased] == [(ranges("0-6"), FIRST_AT)]


@pytest.mark.parametrize(("counted", "acked"), [(3, 6), (2, 0)])
def test_a_batch_that_another_process_has_taken_up_is_not_acked(counted: int, acked: int):
    state = make_state(make_slot())
    request = make_request(held=OURS, held_deliveries={0: counted}, stop=POINTER)

    plan = plan_lease(state, request, [])

    (slot,) = state_after(state, plan.ops).slots
    assert (plan.acked, slot.monotons.count) == (acked, 6 - acked)


def test_what_is_recorded_for_each_slot_of_a_batch_is_left():
    slots = (make_slot("0-3", 0), make_slot("3-6", 1))
    state = make_state(*slots)
    recorded = settle(state, with_batch=True, released={MINUTE: ranges("2-4")})
    state = state_after(state, recorded.ops)

    plan = plan_lease(state, make_request(held=OURS, stop=POINTER), [])

    assert [row.monotons for row in plan.left] == [ranges("2-3"), ranges("3-4")]
    assert [row.monotons for row in state_after(state, plan.ops).waiting] == [
        ranges("2-3"),
        ranges("3-4"),
    ]


def test_what_waits_by_a_later_read_and_is_in_a_slot_by_an_earlier_one_is_not_leased():
    state = make_state(make_slot())
    recorded = settle(state, with_batch=True, released={MINUTE: ranges("0-2")})
    slots = state_after(state, recorded.ops).slots
    state = make_state(*slots, waiting=(Waiting(6, ranges("0-2"), 3),))

    plan = plan_lease(state, make_request(held=OURS, stop=POINTER), [])

    assert plan.leased == ()


def test_what_was_handed_out_before_is_not_put_together_with_what_was_not():
    state = make_state(waiting=(Waiting(6, ranges("0-6"), 2),))

    plan = plan_lease(state, make_request(stop=POINTER, prefer_fresh=True), [])

    assert [(each.monotons, each.deliveries) for each in plan.leased] == [(ranges("0-6"), 3)]


def test_delayed_messages_of_several_rows_are_no_more_than_the_limit():
    rows = (Waiting(6, ranges("0-6"), 0), Waiting(7, ranges("6-12"), 0))
    state = make_state(waiting=rows)

    plan = plan_lease(state, make_request(stop=POINTER, max_messages=8), [])

    assert [each.monotons for each in plan.leased] == [ranges("0-8")]
    assert [row.monotons for row in state_after(state, plan.ops).waiting] == [ranges("8-12")]


def test_what_receipts_leave_in_a_slot_is_in_flight():
    waits = Waiting(6, ranges("6-12"), 0)
    state = make_state(make_slot(by_receipts=True), waiting=(waits,))
    request = make_request(
        receipt_acks={OURS: ranges("0-2")}, by_receipts=True, max_in_flight=6, stop=POINTER
    )

    plan = plan_lease(state, request, [])

    assert [each.monotons for each in plan.leased] == [ranges("6-8")]


@pytest.mark.parametrize(("later", "leased"), [(timedelta(0), []), (-MINUTE, [ranges("6-9")])])
def test_a_lease_is_in_flight_up_to_the_moment_at_which_it_ends(
    later: timedelta, leased: list[Ranges]
):
    slot = make_slot(lease=THEIRS, due_at=NOW + later)
    state = make_state(slot, waiting=(Waiting(6, ranges("6-9"), 0),))
    request = make_request(stop=POINTER, max_in_flight=6, prefer_fresh=True, retry_backoff=LEASE)

    plan = plan_lease(state, request, [])

    assert [each.monotons for each in plan.leased] == leased


@pytest.mark.parametrize(("least", "leased"), [(1, [ranges("6-7")]), (2, [])])
def test_fewer_messages_than_the_least_number_are_left(least: int, leased: list[Ranges]):
    state = make_state(waiting=(Waiting(6, ranges("6-7"), 0),))

    plan = plan_lease(state, make_request(stop=POINTER, min_messages=least), [])

    assert [each.monotons for each in plan.leased] == leased
