from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.dead_letters import claims as claims_module
from cassieq_spark.dead_letters.claims import Claim, batches_of, claim, plan_claim
from cassieq_spark.errors import ContentionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Head, Slot, Waiting
from cassieq_spark.model import Range, Ranges
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import (
    BEGUN_AT,
    LEASE,
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
)
from tests.unit.dead_letters.dead_queue import numbers_of

WINDOW = 8
COUNT = 40


@pytest.fixture(autouse=True, scope="module")
def _small_portions():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_module, "WINDOW", WINDOW)
        yield


def make_delivery() -> tuple[ConsumerGroup, FaultyStore]:
    memory, _ = make_clocked_store()
    store = FaultyStore(memory)
    return make_group(store, make_queue(memory, [COUNT]).queue_id), store


def outstanding(group: ConsumerGroup) -> list[str]:
    state = group.read(every_waiting=True)
    return [str(each.monotons) for each in (*state.slots, *state.waiting) if each.monotons]


def taken_now(group: ConsumerGroup, text: str, length: timedelta | None = LEASE) -> str | None:
    taken = claim(group, Ranges.parse(text), token=uuid4, length=length)
    return None if taken is None else str(taken.monotons)


def test_what_is_wanted_is_leased_and_the_rest_waits():
    group, _ = make_delivery()

    taken = claim(group, Ranges.parse("17-19,21-22"), token=uuid4, length=LEASE)

    assert taken is not None
    state = group.read(every_waiting=True)
    (slot,) = state.held_by(taken.lease)
    assert (slot.monotons, slot.due_at) == (Ranges.parse("17-19,21-22"), state.now + LEASE)
    assert state.head.pointer == 22
    assert [str(each.monotons) for each in state.waiting] == ["0-16", "16-17,19-21"]


def test_what_is_settled_at_once_leaves_only_a_token():
    group, _ = make_delivery()

    assert taken_now(group, "2-4", None) == "2-4"

    assert outstanding(group) == ["0-2"]


def test_what_others_have_is_not_to_be_had():
    group, _ = make_delivery()
    assert taken_now(group, "2-4") == "2-4"
    assert taken_now(group, "5-6", None) == "5-6"

    assert taken_now(group, "0-8") == "0-2,4-5,6-8"
    assert taken_now(group, "0-8") is None


def test_what_a_lease_holds_is_not_to_be_had_even_if_it_ran_out():
    group, _ = make_delivery()
    lease = group.lease(make_request(max_messages=4, stop=COUNT))
    group.release(lease.token, lease.leased)

    assert taken_now(group, "0-8") == "4-8"


def test_a_row_that_comes_has_never_the_key_of_one_that_goes():
    # The clock stands still, so both are due at the same time unless care is taken.
    group, _ = make_delivery()
    for monoton in (39, 7, 6, 5, 1):
        assert taken_now(group, f"{monoton}-{monoton + 1}", None) == f"{monoton}-{monoton + 1}"

    assert Ranges.union(map(Ranges.parse, outstanding(group))) == Ranges.parse("0-1,2-5,8-39")


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("length", [LEASE, None])
def test_a_lost_answer_takes_nothing_twice(fault: Fault, length: timedelta | None):
    group, store = make_delivery()
    store.fault = fault

    assert taken_now(group, "2-4", length) == "2-4"
    store.arrive()

    assert store.troubles == 1
    assert sorted(outstanding(group)) == sorted(["0-2", *(["2-4"] if length else [])])
    assert taken_now(group, "0-4") == "0-2"


def test_a_request_that_arrives_after_it_was_looked_for_is_found():
    group, store = make_delivery()
    store.fault = Fault.REQUEST_LATE
    tokens = iter(UUID(int=4 * number) for number in range(9))
    # Four reads of the state, one that looks for the token; then the state is read again.
    store.interrupt(store.arrive, after=5)

    taken = claim(group, Ranges.parse("2-4"), token=lambda: next(tokens), length=None)

    assert store.troubles == 2
    assert taken == Claim(Ranges.parse("2-4"), UUID(int=0))


def test_a_race_that_is_lost_again_and_again_is_given_up():
    memory, _ = make_clocked_store()
    store = FaultyStore(memory)
    group = make_group(store, make_queue(memory, [COUNT]).queue_id)
    store.fault, store.lasting = Fault.REQUEST_LOST, True

    with pytest.raises(ContentionError, match="again and again"):
        taken_now(group, "2-4")


def test_batches_are_cut_at_windows_and_at_their_size():
    monotons = Ranges.parse("1-3,6-17,39-40")

    assert [str(each) for each in batches_of(monotons, 100)] == [
        "1-3,6-8",
        "8-16",
        "16-17",
        "39-40",
    ]
    assert [str(each) for each in batches_of(monotons, 3)][:4] == [
        "1-3,6-7",
        "7-8",
        "8-11",
        "11-14",
    ]


SUBSETS = st.tuples(
    st.integers(0, COUNT // WINDOW - 1), st.sets(st.integers(0, WINDOW - 1), min_size=1)
)


@given(steps=st.lists(SUBSETS, max_size=30))
def test_whatever_is_taken_everything_else_stays_owed_and_rows_stay_small(
    steps: list[tuple[int, set[int]]],
):
    # I5
    group, _ = make_delivery()
    gone: set[int] = set()
    for window, offsets in steps:
        wanted = {window * WINDOW + offset for offset in offsets}
        ranges = Ranges.of(*(Range(each, each + 1) for each in wanted))

        taken = claim(group, ranges, token=uuid4, length=None)

        assert set(numbers_of(taken.monotons) if taken else ()) == wanted - gone
        gone |= wanted
        state = group.read(every_waiting=True)
        waiting = [number for row in state.waiting for number in numbers_of(row.monotons)]
        owed = [*waiting, *range(state.head.pointer, COUNT)]
        assert sorted(owed) == sorted(set(range(COUNT)) - gone)
        for row in state.waiting:
            windows = {part.start // WINDOW for part in row.monotons}
            assert len(windows) == 1 or len(row.monotons.parts) == 1
            assert row.due >= state.head.waiting_from


def test_a_plan_reuses_a_slot_that_is_free():
    free = Slot(0, Ranges(), uuid4(), BEGUN_AT, 1)
    waiting = (Waiting(0, Ranges.parse("0-4"), 3),)
    state = GroupState(Head(10, 0, 5), (free,), waiting, BEGUN_AT)

    taken, ops = plan_claim(state, Ranges.parse("2-3"), uuid4(), LEASE)

    assert taken == Ranges.parse("2-3")
    slots = [op for op in ops if op.row[0] == "slot"]  # type: ignore[union-attr]
    assert [op.row for op in slots] == [("slot", 0, 0)]  # type: ignore[union-attr]
    assert slots[0].values["deliveries"] == 4  # type: ignore[union-attr]
