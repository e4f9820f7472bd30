from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import InvariantError
from cassieq_spark.groups import singly
from cassieq_spark.groups.lanes import (
    ANY_LANE,
    LANES,
    NO_LANE,
    Window,
    by_lane,
    decode_lanes,
    encode_lanes,
    lanes_of,
    lanes_within,
    restrict,
)
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.plan import plan_lease
from cassieq_spark.groups.state import LONG_AGO, GroupState, Head, Slot, Waiting
from cassieq_spark.model import Ranges, to_millis
from cassieq_spark.producer.partitioner import lanes_of_keys, partition_of_key
from cassieq_spark.store.protocol import Delete, Insert, Update

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
BEFORE = NOW - timedelta(minutes=1)
LANE = st.integers(0, NO_LANE)


def ranges(text: str) -> Ranges:
    return Ranges.parse(text)


# -- the text -----------------------------------------------------------------------------------


@given(start=st.integers(0, 10**12), lanes=st.lists(LANE, max_size=60))
def test_lanes_come_back_from_their_text(start: int, lanes: list[int]):
    found = by_lane(start, lanes)

    assert decode_lanes(encode_lanes(found)) == found


@given(lanes=st.lists(st.sampled_from([3, 7, NO_LANE]), max_size=40), data=st.data())
def test_the_text_of_a_part_says_the_same_of_it(lanes: list[int], data: st.DataObject):
    every, some = by_lane(0, lanes), data.draw(st.sets(st.integers(0, 40)))
    part = Ranges.union(ranges(f"{at}-{at + 1}") for at in some)

    text = lanes_within(encode_lanes(every), part)

    assert decode_lanes(text) == restrict(every, part)


@given(
    lanes=st.lists(st.sampled_from([3, 7, NO_LANE]), max_size=40),
    start=st.integers(0, 20),
    some=st.sets(st.integers(0, 60)),
)
def test_a_window_knows_the_lanes_of_a_part_as_of_all(
    lanes: list[int], start: int, some: set[int]
):
    part = Ranges.union(ranges(f"{at}-{at + 1}") for at in some)

    assert Window(start, lanes).by_lane(part) == restrict(by_lane(start, lanes), part)


def test_no_text_says_nothing_and_has_no_part():
    assert decode_lanes(None) == decode_lanes("") == {}
    assert lanes_within(None, ranges("0-9")) is None
    assert lanes_within("0-3|7*3", ranges("5-9")) is None


@pytest.mark.parametrize(
    "text",
    ["0-3", "0-3|", "0-3|7", "0-3|7*4", "0-3|7*0,7*3", "x|7", "0-3|x*3", "0-1|65537", "0-1|-1"],
)
def test_a_text_that_is_not_ours_is_told_by_name(text: str):
    with pytest.raises(InvariantError, match="can't be read"):
        decode_lanes(text)


def test_a_row_whose_text_is_of_other_messages_has_unknown_lanes_there():
    """Earlier releases write the messages of a row, and leave the lanes as they are."""
    assert lanes_of("0-3|7*3", ranges("2-5")) == {7: ranges("2-3"), ANY_LANE: ranges("3-5")}
    assert lanes_of(None, ranges("2-5")) == {ANY_LANE: ranges("2-5")}


@given(keys=st.lists(st.none() | st.binary(max_size=8), min_size=1), partitions=st.integers(1, 64))
def test_the_lane_of_a_key_is_always_the_same(keys: list[bytes | None], partitions: int):
    found = lanes_of_keys(pa.array(keys, pa.binary()), partitions)

    for key, lane in zip(keys, found, strict=True):
        assert lane == (NO_LANE if key is None else lane)
        assert key is None or lane < LANES
        assert [lane] == lanes_of_keys(pa.array([key], pa.binary()), partitions)


def test_keys_of_one_partition_are_spread_over_its_lanes():
    keys = [key for key in map(str, range(16_000)) if partition_of_key(key, 16) == 3]

    lanes = set(lanes_of_keys(pa.array(keys), 16))

    assert len(lanes) > 0.98 * len(keys)


# -- who gets what ------------------------------------------------------------------------------


def held(number: int, text: str, lanes: str | None = None, due_at: datetime = LATER) -> Slot:
    return Slot(number, ranges(text), uuid4(), due_at, 1, BEFORE, BEFORE, None, True, None, lanes)


def lapsed(number: int, text: str, lanes: str | None = None, deliveries: int = 1) -> Slot:
    return replace(held(number, text, lanes, BEFORE), deliveries=deliveries)


def parked(number: int, text: str, lane: int) -> Slot:
    lanes = encode_lanes({lane: ranges(text)})
    return Slot(number, ranges(text), uuid4(), LONG_AGO, 0, lanes=lanes)


def parked_of_any(text: str) -> Slot:
    return replace(parked(9, text, 0), lanes=None)


def back(text: str, lanes: str | None = None, deliveries: int = 1) -> Waiting:
    row = Waiting(to_millis(BEFORE), ranges(text), deliveries, BEFORE, BEFORE)
    return replace(row, by_receipts=True, lanes=lanes)


class Scene:
    """A group of a queue ordered by key, whose fresh messages have these lanes."""

    def __init__(
        self, *rows: Slot | Waiting, pointer: int = 0, fresh: str = "", more: int = 0
    ) -> None:
        slots = tuple(each for each in rows if isinstance(each, Slot))
        waiting = tuple(each for each in rows if isinstance(each, Waiting))
        self.state = GroupState(Head(pointer, 0, 0), slots, waiting, NOW)
        self.window: Window | None = Window(pointer, [ord(each) for each in fresh])
        self.stop = pointer + len(fresh) + more

    def lease(self, *takers: int, max_deliveries: int = 5, **asked: object) -> Lease:
        request = LeaseRequest(
            max_messages=sum(takers),
            takers=takers,
            by_receipts=True,
            strict_fifo=True,
            stop=self.stop,
            max_deliveries=max_deliveries,
            lease=timedelta(minutes=1),
            **asked,  # type: ignore[arg-type]
        )
        return plan_lease(self.state, request, (), self.window)


def shares(lease: Lease) -> list[str]:
    return [str(each) for each in lease.shares]


def parks(lease: Lease) -> dict[int, Ranges]:
    """What the lease steps over, by lane."""
    found: dict[int, Ranges] = {}
    for op in lease.ops:
        if isinstance(op, Insert | Update) and op.values.get("deliveries") == 0:
            found |= decode_lanes(str(op.values.get("lanes", "")))
    return found


A, B, C = map(ord, "abc")


def test_each_receiver_gets_lanes_of_its_own():
    assert shares(Scene(fresh="aabbab").lease(10, 10)) == ["0-6", ""]
    assert shares(Scene(fresh="aabbab").lease(3, 3)) == ["0-2,4-5", "2-4,5-6"]
    assert shares(Scene(fresh="aabbc").lease(1, 1, 1)) == ["0-1", "2-3", "4-5"]


def test_what_does_not_fit_is_parked_in_its_lane():
    lease = Scene(fresh="aabbc").lease(1, 1, 1)

    assert parks(lease) == {A: ranges("1-2"), B: ranges("3-4")}
    assert lease.pointer == 5


def test_a_held_message_holds_up_its_lane_only():
    scene = Scene(held(0, "0-1", f"0-1|{A}"), pointer=1, fresh="aabacb")

    lease = scene.lease(10)

    assert shares(lease) == ["3-4,5-7"]
    assert parks(lease) == {A: ranges("1-3,4-5")}


def test_messages_in_no_lane_hold_up_nothing_and_go_to_any_receiver():
    scene = Scene(held(0, "0-1", f"0-1|{NO_LANE}"), pointer=1)
    scene.window = Window(1, [NO_LANE] * 6)
    scene.stop = 7

    assert shares(scene.lease(2, 3)) == ["1-3", "3-6"]


def test_a_held_batch_of_which_no_lane_is_known_holds_up_all_behind_it():
    scene = Scene(held(0, "2-5"), parked(1, "0-2", A), pointer=5, fresh="bb")

    assert shares(scene.lease(10)) == ["0-2"]


def test_messages_of_which_no_lane_is_known_go_out_first_and_alone():
    scene = Scene(back("0-4"), parked(1, "2-3", A), pointer=5, fresh="bb")

    assert shares(scene.lease(10, 10)) == ["0-2", ""]


def test_messages_that_wait_or_are_dead_hold_up_their_lane():
    later = replace(back("0-1", f"0-1|{A}"), due=to_millis(LATER))
    dead = replace(back("1-2", f"1-2|{B}"), reason="bad")
    scene = Scene(later, dead, pointer=2, fresh="abc")

    assert shares(scene.lease(10)) == ["4-5"]


def test_what_was_given_back_goes_before_what_is_parked_and_fresh():
    scene = Scene(
        back("4-5", f"4-5|{A}", deliveries=2), parked(1, "6-7,9-10", A), pointer=12, fresh="ba"
    )

    lease = scene.lease(10)

    assert shares(lease) == ["4-5,6-7,9-10,12-14"]
    assert [(str(each.monotons), each.deliveries) for each in lease.leased] == [
        ("4-5", 3),
        ("6-7,9-10,12-14", 1),
    ]


def test_what_is_left_of_a_lane_stays_parked_with_what_is_stepped_over():
    scene = Scene(parked(0, "0-1,3-4", A), pointer=5, fresh="ba")

    lease = scene.lease(1, 1)

    assert shares(lease) == ["0-1", "5-6"]
    (slot,) = [op for op in lease.ops if op.row == ("slot", 0, 0)]  # type: ignore[union-attr]
    assert isinstance(slot, Update)
    assert slot.values["ranges"] == "3-4"


def test_what_is_stepped_over_takes_the_place_of_all_that_was_parked_of_its_lane():
    """I5: found by the state machine, as the messages that were stepped over were lost."""
    scene = Scene(parked(0, "0-1", A), pointer=5, fresh="aba")

    lease = scene.lease(1, 1)

    assert shares(lease) == ["0-1", "6-7"]
    (slot,) = [op for op in lease.ops if op.row == ("slot", 0, 0)]  # type: ignore[union-attr]
    assert isinstance(slot, Update)
    assert slot.values["ranges"] == "5-6"
    assert decode_lanes(str(slot.values["lanes"]))[A] & ranges("5-6") == ranges("5-6")


def test_messages_that_failed_together_are_alone_with_their_receiver():
    scene = Scene(lapsed(0, "0-2", f"0-2|{A},{B}", deliveries=3), pointer=2, fresh="cab")

    lease = scene.lease(9, 9)

    # One delivery before the last, each receiver gets one of them; what is fresh comes later.
    assert shares(lease) == ["0-1", "1-2"]


def test_what_nobody_can_have_is_parked_where_more_lies_beyond():
    scene = Scene(held(0, "0-1", f"0-1|{A}"), pointer=1, fresh="aaa", more=1)

    lease = scene.lease(10)

    assert (lease.leased, lease.pointer, parks(lease)) == ((), 4, {A: ranges("1-4")})
    assert lease.asks_for_more
    scene.stop = 4
    assert scene.lease(10).ops == ()


def test_no_more_is_parked_than_the_state_may_have(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(singly, "MOST_PARKED_RANGES", 3)
    scene = Scene(held(0, "0-1", f"0-1|{A}"), pointer=1, fresh="abababababac")

    lease = scene.lease(10)

    assert shares(lease) == ["2-3,4-5,6-7"]
    assert parks(lease) == {A: ranges("1-2,3-4,5-6")}


def test_no_more_lanes_are_parked_than_the_state_may_have(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(singly, "MOST_PARKED_LANES", 2)
    rows = [
        held(at, f"{at}-{at + 1}", f"{at}-{at + 1}|{lane}") for at, lane in enumerate((A, B, C))
    ]
    scene = Scene(*rows, pointer=3, fresh="abdcd")

    lease = scene.lease(10)

    assert parks(lease) == {A: ranges("3-4"), B: ranges("4-5")}
    assert (lease.leased, lease.pointer, lease.asks_for_more) == ((), 5, True)
    again = Scene(*rows, parked(3, "3-4", A), parked(4, "4-5", B), pointer=5, fresh="dcd")
    assert shares(again.lease(10)) == ["5-6"]


def test_the_bytes_of_messages_limit_a_lease():
    scene = Scene(fresh="abcd")
    scene.window = replace(scene.window, fitting=2)  # type: ignore[type-var]

    assert shares(scene.lease(10)) == ["0-2"]


def test_fresh_messages_of_other_lanes_go_first_in_turn():
    scene = Scene(back("0-1", f"0-1|{A}"), pointer=1, fresh="ab")

    assert shares(scene.lease(1)) == ["0-1"]
    assert shares(scene.lease(1, prefer_fresh=True)) == ["2-3"]


def test_a_batch_of_sparks_has_what_is_parked_together_in_its_order():
    scene = Scene(parked(0, "0-1,3-4", A), parked(1, "1-2,4-5", B), pointer=6, fresh="ab")
    request = LeaseRequest(strict_fifo=True, stop=8, max_deliveries=5)

    lease = plan_lease(scene.state, request)

    assert [str(each.monotons) for each in lease.leased] == ["0-2,3-5,6-8"]
    assert lease.pointer == 8


def test_ten_messages_that_were_given_back_one_by_one_are_one_lease():
    rows = [back(f"{at}-{at + 1}") for at in range(10)]
    state = GroupState(Head(20, 0, 0), (), tuple(rows), NOW)
    request = LeaseRequest(max_messages=10, by_receipts=True, stop=30, max_deliveries=5)

    lease = plan_lease(state, request)

    assert [(str(each.monotons), each.deliveries) for each in lease.leased] == [("0-10", 2)]


def test_messages_of_different_first_deliveries_keep_slots_of_their_own():
    """I9: their dead letters must have names of their own."""
    other = replace(back("5-6"), first_at=BEFORE + timedelta(seconds=1))
    state = GroupState(Head(20, 0, 0), (), (back("0-1"), other), NOW)
    request = LeaseRequest(max_messages=10, by_receipts=True, stop=20, max_deliveries=5)

    lease = plan_lease(state, request)

    assert [str(each.monotons) for each in lease.leased] == ["0-1", "5-6"]
    firsts = [op.values.get("first_at") for op in lease.ops if isinstance(op, Insert)]
    assert firsts == [BEFORE, other.first_at]


def test_a_lease_takes_of_so_many_rows_only():
    rows = [
        replace(back(f"{at}-{at + 1}"), first_at=BEFORE + timedelta(seconds=at))
        for at in range(80)
    ]
    state = GroupState(Head(80, 0, 0), (), tuple(rows), NOW)
    request = LeaseRequest(max_messages=100, by_receipts=True, stop=80, max_deliveries=5)

    assert len(plan_lease(state, request).leased) == 64


def test_a_lease_in_order_takes_of_so_many_rows_only():
    rows = [
        replace(back(f"{at}-{at + 1}"), first_at=BEFORE + timedelta(seconds=at))
        for at in range(80)
    ]
    state = GroupState(Head(80, 0, 0), (), tuple(rows), NOW)
    request = LeaseRequest(
        max_messages=100, by_receipts=True, strict_fifo=True, stop=90, max_deliveries=5
    )

    lease = plan_lease(state, request)

    assert [str(each.monotons) for each in lease.leased] == [f"{at}-{at + 1}" for at in range(64)]


def test_what_cannot_be_read_is_of_any_lane():
    scene = Scene(pointer=0)
    scene.window, scene.stop = Window(0, [A, ANY_LANE, A, NO_LANE]), 4

    lease = scene.lease(1, 10)

    assert shares(lease) == ["0-1", "3-4"]
    slots = [op for op in lease.ops if isinstance(op, Insert) and op.row[0] == "slot"]
    texts = {str(op.values["ranges"]): op.values["lanes"] for op in slots}
    # The text of what is parked says nothing of its lane, so it is still of any.
    assert texts == {"1-2": "", "2-3": f"2-3|{A}", "0-1,3-4": f"0-1,3-4|{A},{NO_LANE}"}
    assert shares(Scene(parked(0, "2-3", A), parked_of_any("1-2"), pointer=4).lease(9)) == ["1-2"]


def test_no_more_messages_of_a_key_are_parked_than_the_state_may_have(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(singly, "MOST_PARKED", 6)
    scene = Scene(held(0, "0-1", f"0-1|{A}"), pointer=1, fresh="aaaaaaaa", more=1)

    first = scene.lease(10)
    full = Scene(held(0, "0-1", f"0-1|{A}"), parked(1, "1-7", A), pointer=7, fresh="aa", more=1)

    assert (first.pointer, parks(first)) == (5, {A: ranges("1-5")})
    assert full.lease(10).ops == ()


def test_more_of_a_lane_that_is_parked_is_no_lane_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(singly, "MOST_PARKED_LANES", 1)
    scene = Scene(held(0, "0-1", f"0-1|{A}"), parked(1, "1-2", A), pointer=2, fresh="ab")

    assert shares(scene.lease(10)) == ["3-4"]


def test_a_lease_that_ran_out_is_not_put_together_with_others():
    state = GroupState(
        Head(20, 0, 0), (lapsed(0, "0-4"),), (back("5-6"), back("7-8")), NOW, of_one_moment=True
    )
    request = LeaseRequest(max_messages=10, by_receipts=True, stop=30, max_deliveries=5)

    first = plan_lease(state, request)
    then = plan_lease(replace(state, slots=(held(0, "0-4"),)), request)

    assert shares(first) == ["0-4"]
    assert shares(then) == ["5-6,7-8,20-28"]


def test_what_is_left_of_a_waiting_row_has_a_key_of_its_own():
    """I5: found by the state machine; under the old key it would be deleted with the row."""
    row = back("1-3", f"1-3|{A},{B}")
    scene = Scene(held(0, "0-1", f"0-1|{A}"), row, pointer=3)

    lease = scene.lease(10)

    assert shares(lease) == ["2-3"]
    (left,) = [op for op in lease.ops if isinstance(op, Insert) and op.row[0] == "waiting"]
    assert Delete(row.key) in lease.ops
    assert left.row != row.key
    assert (left.values["ranges"], left.values["lanes"]) == ("1-2", f"1-2|{A}")


def test_the_token_of_what_is_parked_is_no_lease():
    lease = Scene(fresh="aab").lease(1, 1)

    tokens = {
        UUID(str(op.values["lease"]))
        for op in lease.ops
        if isinstance(op, Insert) and op.values["deliveries"] == 0
    }
    assert tokens
    assert lease.token not in tokens
