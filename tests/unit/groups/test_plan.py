from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.groups.deliveries import LONGEST_BACKOFF, backoff
from cassieq_spark.groups.lease import Lease, LeasedSlot, spare_token
from cassieq_spark.groups.plan import plan_lease
from cassieq_spark.groups.state import (
    HEAD,
    LONG_AGO,
    GroupState,
    Head,
    Slot,
    Waiting,
    slot_key,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Delete, Insert, ServerNow, Update, When
from tests.support.builders import LEASE, make_request

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW_MS = 1795176000000
MONTH_MS = 30 * 24 * 3_600_000
OURS, THEIRS = UUID(int=1), UUID(int=2)
PAST, FUTURE = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)


def make_state(
    *slots: Slot,
    waiting: tuple[Waiting, ...] = (),
    pointer: int = 100,
    waiting_from: int = 5,
    all_waiting: bool = True,
) -> GroupState:
    return GroupState(Head(pointer, waiting_from, 3), slots, waiting, NOW, all_waiting)


def make_slot(
    number: int,
    monotons: str,
    lease: UUID = THEIRS,
    due_at: datetime = FUTURE,
    *,
    by_receipts: bool = False,
) -> Slot:
    ranges = Ranges.parse(monotons)
    return Slot(number, ranges, lease, due_at, deliveries=2, by_receipts=by_receipts)


def op_on(plan: Lease, row: tuple[str | int, ...]) -> Update | Insert:
    (found,) = (op for op in plan.ops if getattr(op, "row", None) == row)
    assert isinstance(found, Update | Insert)
    return found


def test_nothing_to_ack_and_nothing_to_deliver_is_nothing_to_do():
    state, request = make_state(), make_request(stop=100)

    assert plan_lease(state, request) == Lease(request, state, (), (), 100)


def test_fresh_messages_move_the_pointer_and_fill_a_new_slot():
    request = make_request(max_messages=7)

    plan = plan_lease(make_state(), request)

    assert plan.leased == (LeasedSlot(0, Ranges.parse("100-107"), 1),)
    assert op_on(plan, HEAD) == Update(HEAD, {"pointer": 107}, (When("pointer", "=", 100),))
    assert op_on(plan, slot_key(0)) == Insert(
        slot_key(0),
        {
            "ranges": "100-107",
            "lease": request.token,
            "due_at": ServerNow(LEASE),
            "by_receipts": False,
            "deliveries": 1,
            "first_at": ServerNow(),
            "last_at": ServerNow(),
        },
        if_absent=True,
    )


def test_without_a_limit_everything_fresh_is_leased_but_not_beyond_the_stop():
    (leased,) = plan_lease(make_state(), make_request(stop=250)).leased

    assert leased.monotons == Ranges.parse("100-250")


def test_a_stop_below_the_pointer_offers_nothing():
    assert plan_lease(make_state(), make_request(stop=50)).ops == ()


def test_an_ack_empties_the_slot_under_a_fresh_token():
    slot, request = make_slot(0, "3-9", OURS), make_request(held=OURS, stop=100)

    plan = plan_lease(make_state(slot), request)

    assert (plan.acked, plan.acked_slots) == (slot.monotons.count, {slot.number})
    assert plan.leased == ()
    assert plan.ops == (
        Update(
            slot_key(0),
            {"ranges": "", "lease": spare_token(request.token), "due_at": LONG_AGO},
            when=(
                When("lease", "=", OURS),
                When("outcomes", "=", None),
                When("deliveries", "=", slot.deliveries),
            ),
        ),
    )


def test_a_slot_that_acks_empty_takes_what_is_leased_on_what_was_read_there():
    state = make_state(make_slot(0, "3-9", OURS, by_receipts=True))

    plan = plan_lease(state, make_request(receipt_acks={OURS: Ranges.parse("3-9")}))

    assert [each.slot for each in plan.leased] == [0]
    assert op_on(plan, slot_key(0)).when == (
        When("lease", "=", OURS),
        When("ranges", "=", "3-9"),
    )


def test_a_slot_that_acks_empty_is_free_if_there_is_nothing_to_lease():
    state = make_state(make_slot(0, "3-9", OURS, by_receipts=True))
    request = make_request(receipt_acks={OURS: Ranges.parse("3-9")}, max_messages=0)

    plan = plan_lease(state, request)

    values = {"ranges": "", "lease": spare_token(request.token), "due_at": LONG_AGO}
    when = (When("lease", "=", OURS), When("ranges", "=", "3-9"))
    assert plan.ops == (Update(slot_key(0), values, when=when),)


@pytest.mark.parametrize("acked", ["3-8", "3-9"])
def test_a_slot_that_acks_do_not_empty_or_that_is_acked_as_a_batch_takes_nothing(acked: str):
    state = make_state(make_slot(0, "3-9", OURS, by_receipts=acked != "3-9"))

    plan = plan_lease(state, make_request(receipt_acks={OURS: Ranges.parse(acked)}))

    assert [each.slot for each in plan.leased] == [1]


@pytest.mark.parametrize("by_receipts", [True, False])
def test_a_slot_says_whether_its_messages_are_settled_one_by_one(by_receipts: bool):
    plan = plan_lease(make_state(), make_request(by_receipts=by_receipts))

    assert op_on(plan, slot_key(0)).values["by_receipts"] is by_receipts


def test_the_slot_just_acked_takes_the_next_batch():
    state = make_state(
        make_slot(0, "1-2"), make_slot(1, "3-9", OURS), make_slot(2, "", due_at=PAST)
    )

    plan = plan_lease(state, make_request(held=OURS))

    assert [each.slot for each in plan.leased] == [1]
    assert op_on(plan, slot_key(1)).values["ranges"] == "100-1000"
    assert len(plan.ops) == 2


def test_a_free_slot_is_used_before_a_new_one_is_made():
    state = make_state(make_slot(0, "1-2"), make_slot(1, "", due_at=PAST))

    plan = plan_lease(state, make_request())

    still_free = (When("lease", "=", THEIRS), When("due_at", "<=", ServerNow()))
    assert op_on(plan, slot_key(1)).when == still_free  # type: ignore[union-attr]


def test_a_slot_emptied_message_by_message_stays_its_readers_until_it_is_due():
    empty = make_slot(0, "", due_at=FUTURE)

    assert [each.slot for each in plan_lease(make_state(empty), make_request()).leased] == [1]
    assert plan_lease(make_state(empty), make_request(held=THEIRS)).acked_slots == {0}


def test_an_empty_slot_that_is_due_is_not_taken_over():
    state, request = make_state(make_slot(0, "", due_at=PAST)), make_request(stop=100)

    assert plan_lease(state, request) == Lease(request, state, (), (), 100)


def test_of_several_slots_acked_one_is_filled_and_the_others_emptied():
    state = make_state(make_slot(0, "1-2", OURS), make_slot(1, "3-9", OURS))

    plan = plan_lease(state, make_request(held=OURS))

    assert op_on(plan, slot_key(0)).values["ranges"] == "100-1000"
    assert op_on(plan, slot_key(1)).values["ranges"] == ""


def test_a_lease_that_ran_out_is_taken_over_in_its_slot_if_it_is_still_run_out_then():
    state = make_state(make_slot(0, "3-9", due_at=PAST))

    plan = plan_lease(state, make_request())

    assert plan.leased == (LeasedSlot(0, Ranges.parse("3-9"), 3),)
    (op,) = plan.ops
    assert isinstance(op, Update)
    assert op.when == (
        When("lease", "=", THEIRS),
        When("due_at", "<", ServerNow()),
        When("ranges", "=", "3-9"),
        When("deliveries", "=", 2),
    )


def test_a_lease_due_this_very_moment_still_runs():
    state = make_state(make_slot(0, "3-9", due_at=NOW))

    assert plan_lease(state, make_request(stop=100)).leased == ()


def test_what_the_reader_has_finished_is_acked_even_if_its_lease_ran_out():
    state = make_state(make_slot(0, "3-9", OURS, due_at=PAST))

    plan = plan_lease(state, make_request(held=OURS, stop=100))

    assert (plan.acked, plan.leased) == (6, ())


def test_what_does_not_fit_of_a_lease_that_ran_out_waits_with_its_count():
    state = make_state(make_slot(0, "3-9", due_at=PAST))

    plan = plan_lease(state, make_request(max_messages=2))

    assert plan.leased == (LeasedSlot(0, Ranges.parse("3-5"), 3),)
    assert op_on(plan, ("waiting", NOW_MS, 5)).values == {"ranges": "5-9", "deliveries": 2}
    assert op_on(plan, HEAD) == Update(
        HEAD,
        {"waiting_version": 4},
        when=(When("waiting_version", "=", 3), When("waiting_from", "=", 5)),
    )


def test_a_lease_of_several_ranges_that_ran_out_is_taken_over_whole():
    state = make_state(make_slot(0, "0-3,5-9", due_at=PAST))

    plan = plan_lease(state, make_request(max_messages=7))

    assert plan.leased == (LeasedSlot(0, Ranges.parse("0-3,5-9"), 3),)
    assert op_on(plan, slot_key(0)).values["ranges"] == "0-3,5-9"
    assert len(plan.ops) == 1


@pytest.mark.parametrize(
    ("limit", "taken", "rest"),
    [(2, "0-2", "2-3,5-9"), (3, "0-3", "5-9"), (5, "0-3,5-7", "7-9")],
)
def test_a_takeover_of_several_ranges_is_cut_by_messages(limit: int, taken: str, rest: str):
    state = make_state(make_slot(0, "0-3,5-9", due_at=PAST))

    plan = plan_lease(state, make_request(max_messages=limit))

    assert plan.leased == (LeasedSlot(0, Ranges.parse(taken), 3),)
    assert op_on(plan, slot_key(0)).values["ranges"] == taken
    waits = ("waiting", NOW_MS, Ranges.parse(rest).start)
    assert op_on(plan, waits).values == {"ranges": rest, "deliveries": 2}


def test_a_row_that_comes_below_where_reads_begin_lowers_that():
    # A coordinator whose clock is behind the one that raised waiting_from, if only by a month.
    state = make_state(make_slot(0, "3-9", due_at=PAST), waiting_from=NOW_MS + MONTH_MS)

    plan = plan_lease(state, make_request(max_messages=2))

    assert op_on(plan, ("waiting", NOW_MS, 5))
    assert op_on(plan, HEAD).values["waiting_from"] == NOW_MS


def test_a_waiting_range_is_leased_and_its_row_deleted():
    state = make_state(waiting=(Waiting(10, Ranges.parse("3-9"), 2),))

    plan = plan_lease(state, make_request())

    assert plan.leased == (LeasedSlot(0, Ranges.parse("3-9"), 3),)
    assert Delete(("waiting", 10, 3)) in plan.ops
    assert op_on(plan, HEAD).values == {"waiting_version": 4, "waiting_from": 11}


def test_what_does_not_fit_of_a_waiting_range_waits_on_at_the_same_time():
    state = make_state(waiting=(Waiting(10, Ranges.parse("3-9"), 2),))

    plan = plan_lease(state, make_request(max_messages=4))

    assert plan.leased == (LeasedSlot(0, Ranges.parse("3-7"), 3),)
    assert Delete(("waiting", 10, 3)) in plan.ops
    assert op_on(plan, ("waiting", 10, 7)).values == {"ranges": "7-9", "deliveries": 2}
    assert op_on(plan, HEAD).values["waiting_from"] == 10


@pytest.mark.parametrize(
    ("limit", "taken", "rest"),
    [(2, "0-2", "2-3,5-9"), (3, "0-3", "5-9"), (5, "0-3,5-7", "7-9")],
)
def test_several_ranges_that_wait_are_cut_by_messages(limit: int, taken: str, rest: str):
    state = make_state(waiting=(Waiting(10, Ranges.parse("0-3,5-9"), 2),))

    plan = plan_lease(state, make_request(max_messages=limit))

    assert plan.leased == (LeasedSlot(0, Ranges.parse(taken), 3),)
    assert op_on(plan, slot_key(0)).values["ranges"] == taken
    assert Delete(("waiting", 10, 0)) in plan.ops
    waits = ("waiting", 10, Ranges.parse(rest).start)
    assert op_on(plan, waits).values == {"ranges": rest, "deliveries": 2}


def test_waiting_from_rises_to_just_beyond_what_goes_or_to_what_is_left():
    waiting = (Waiting(10, Ranges.parse("3-4"), 2), Waiting(20, Ranges.parse("7-8"), 2))
    next_to_it = (waiting[0], Waiting(10, Ranges.parse("7-8"), 2))

    far = plan_lease(make_state(waiting=waiting), make_request())
    near = plan_lease(make_state(waiting=next_to_it), make_request())

    assert op_on(far, HEAD).values["waiting_from"] == 11
    assert op_on(near, HEAD).values["waiting_from"] == 10


def test_a_clock_that_is_ahead_moves_waiting_from_no_further_than_the_rows_that_go():
    a_month_ahead = NOW + timedelta(days=30)
    state = make_state(waiting=(Waiting(NOW_MS, Ranges.parse("3-4"), 2),))

    plan = plan_lease(replace(state, now=a_month_ahead), make_request())

    assert op_on(plan, HEAD).values["waiting_from"] == NOW_MS + 1


def test_waiting_from_does_not_pass_rows_that_were_not_read():
    waiting = (Waiting(10, Ranges.parse("3-4"), 2),)

    plan = plan_lease(make_state(waiting=waiting, all_waiting=False), make_request())

    assert op_on(plan, HEAD).values["waiting_from"] == 10


def test_a_range_that_waits_for_later_is_not_offered():
    state = make_state(waiting=(Waiting(NOW_MS + 1, Ranges.parse("3-9"), 2),))

    assert plan_lease(state, make_request(stop=100)).leased == ()


def test_of_what_is_due_again_the_lowest_comes_first():
    state = make_state(
        make_slot(0, "30-40", due_at=PAST),
        make_slot(1, "10-20", due_at=PAST),
        waiting=(Waiting(10, Ranges.parse("20-25"), 2), Waiting(10, Ranges.parse("25-30"), 2)),
    )

    (leased,) = plan_lease(state, make_request()).leased

    assert leased.monotons == Ranges.parse("10-20")


def test_in_strict_order_what_is_due_again_waits_for_what_is_lower_and_still_held():
    state = make_state(make_slot(0, "10-20"), make_slot(1, "30-40", due_at=PAST))

    assert plan_lease(state, make_request(strict_fifo=True)).ops == ()


@pytest.mark.parametrize(
    "state", [make_state(), make_state(make_slot(0, "30-35", due_at=PAST))], ids=["fresh", "again"]
)
@pytest.mark.parametrize("limit", [{"strict_fifo": True}, {"max_in_flight": 50}], ids=str)
def test_what_depends_on_all_that_others_hold_is_refused_if_what_waits_changes(
    limit: dict[str, int], state: GroupState
):
    def conditions(**limit: int) -> set[str]:
        plan = plan_lease(state, make_request(max_messages=5, **limit))
        assert plan.leased
        return {each.column for op in plan.ops if isinstance(op, Update) for each in op.when}

    assert "waiting_version" in conditions(**limit)
    assert "waiting_version" not in conditions()


def test_what_is_due_again_beyond_the_stop_is_not_offered():
    state = make_state(make_slot(0, "30-40", due_at=PAST))

    assert plan_lease(state, make_request(stop=30)).leased == ()


def test_fresh_messages_and_those_due_again_take_turns_and_never_share_a_batch():
    state = make_state(make_slot(0, "30-40", due_at=PAST))

    again = plan_lease(state, make_request(prefer_fresh=False)).leased
    fresh = plan_lease(state, make_request(prefer_fresh=True)).leased
    nothing_fresh = plan_lease(state, make_request(prefer_fresh=True, stop=100)).leased

    assert [each.monotons for each in again] == [Ranges.parse("30-40")]
    assert [each.monotons for each in fresh] == [Ranges.parse("100-1000")]
    assert nothing_fresh == again


def test_an_ack_goes_with_a_takeover():
    state = make_state(make_slot(0, "1-3", OURS), make_slot(1, "30-40", due_at=PAST))

    plan = plan_lease(state, make_request(held=OURS, token=uuid4()))

    assert op_on(plan, slot_key(0)).values["ranges"] == ""
    assert op_on(plan, slot_key(1)).values["ranges"] == "30-40"


#: The bounds of the option `retryBackoff`.
PAUSES = st.timedeltas(timedelta(milliseconds=1), timedelta(days=30))
DELIVERIES = st.integers(1, 70) | st.integers(1, 2**31 - 1)


@given(first=PAUSES, deliveries=DELIVERIES)
def test_whatever_the_pause_it_doubles_up_to_an_hour_and_never_falls(
    first: timedelta, deliveries: int
):
    pause, next_pause = backoff(first, deliveries), backoff(first, deliveries + 1)

    assert backoff(first, 1) == first
    assert first <= pause <= max(first, LONGEST_BACKOFF)
    assert next_pause == max(first, min(2 * pause, LONGEST_BACKOFF))
    assert backoff(timedelta(0), deliveries) == backoff(first, 0) == timedelta(0)
