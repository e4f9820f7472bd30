"""Outcomes that are recorded for the batch in hand, and carried out by its ack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark.errors import TooLargeError
from cassieq_spark.groups import settle
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeasedSlot
from cassieq_spark.groups.plan import plan_lease
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.groups.settle import (
    MOST_ACK_BYTES,
    MOST_OUTCOMES,
    Settled,
    kept_token,
    plan_settle,
)
from cassieq_spark.groups.state import (
    GroupState,
    Head,
    Settlement,
    Slot,
    decode_outcomes,
    encode_outcomes,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range, Ranges, to_millis
from cassieq_spark.store.protocol import MOST_OPS, Insert, Update
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue, make_request
from tests.support.faults import FakeClock

MOMENT = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
AT_ONCE = timedelta(0)
LEASE_1, LEASE_2 = UUID(int=16), UUID(int=32)


def ranges(text: str) -> Ranges:
    return Ranges.parse(text)


class Scene:
    """Twelve messages, ten of which are one reader's batch."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.queue = make_queue(self.store, [12])
        self.group = make_group(self.store, self.queue.queue_id)
        lease = self.group.lease(make_request(stop=12, max_messages=10))
        self.lease, self.leased = lease.token, lease.leased
        self.store.reset()

    def record(self, **what: Any) -> Settled:
        return self.group.settle(self.lease, Settlement(**what), with_batch=True)

    def release(self, text: str, delay: timedelta = MINUTE) -> Settled:
        return self.record(released={delay: ranges(text)})

    def ack(self, **changes: object) -> Lease:
        request = {"held": self.lease, "stop": 0} | changes
        return self.group.lease(make_request(**request))

    def replay(self) -> tuple[LeasedSlot, ...]:
        return self.group.take_again(make_request(held=self.lease, stop=12))

    @property
    def state(self) -> GroupState:
        return self.group.read(every_waiting=True)

    @property
    def held(self) -> dict[UUID, str]:
        return {slot.lease: str(slot.monotons) for slot in self.state.slots if slot.monotons}

    @property
    def waiting(self) -> list[tuple[timedelta, str, str | None]]:
        now = to_millis(self.clock.now)
        rows = self.state.waiting
        return [(MOMENT * (row.due - now), str(row.monotons), row.reason) for row in rows]


@pytest.fixture
def scene() -> Scene:
    return Scene()


# -- before the batch is done ---------------------------------------------------------------------


def test_nothing_leaves_the_batch_before_it_is_acked(scene: Scene):
    scene.record(
        acked=ranges("0-2"),
        rejected={"bad": ranges("2-3")},
        released={MINUTE: ranges("3-5")},
        extended={MINUTE: ranges("5-6")},
    )

    assert (scene.held, scene.waiting) == ({scene.lease: "0-10"}, [])


def test_recording_costs_one_lwt_and_two_reads(scene: Scene):
    scene.release("3-5")

    assert (scene.store.cas_count, scene.store.read_count) == (1, 2)


def test_recording_nothing_but_acks_costs_no_lwt(scene: Scene):
    settled = scene.record(acked=ranges("0-9"))

    assert (settled.count, scene.store.cas_count) == (9, 0)


def test_what_the_batch_does_not_hold_is_stale(scene: Scene):
    assert str(scene.release("8-12").stale) == "10-12"

    scene.ack()
    late = scene.release("0-3")
    assert (late.count, str(late.stale)) == (0, "0-3")


def test_what_is_held_beyond_its_batch_is_settled_at_once(scene: Scene):
    scene.group.settle(scene.lease, Settlement(extended={MINUTE: ranges("0-2")}))

    settled = scene.record(acked=ranges("0-1"), released={MINUTE: ranges("4-5")})

    assert (settled.count, scene.store.cas_count) == (2, 2)
    assert scene.held == {scene.lease: "2-10", kept_token(scene.lease): "1-2"}
    assert scene.waiting == []


# -- the ack --------------------------------------------------------------------------------------


def test_the_ack_carries_all_of_it_out_by_the_lwt_that_leases_the_next_batch(scene: Scene):
    scene.record(
        acked=ranges("0-2"),
        rejected={"bad": ranges("2-3")},
        released={MINUTE: ranges("3-5"), LEASE * 9: ranges("8-9")},
        extended={MINUTE: ranges("5-6")},
    )
    scene.store.reset()

    batch = scene.ack(stop=12)

    assert scene.store.cas_count == 1
    assert [str(each.monotons) for each in batch.leased] == ["10-12"]
    assert scene.held == {batch.token: "10-12", kept_token(scene.lease): "5-6"}
    assert sorted(scene.waiting) == [
        (AT_ONCE, "2-3", "bad"),
        (MINUTE, "3-5", None),
        (LEASE * 9, "8-9", None),
    ]
    assert [(str(row.monotons), row.reason) for row in batch.dead] == [("2-3", "bad")]
    assert batch.acked == 5
    assert all(slot.outcomes == Settlement() for slot in scene.state.slots)


def test_time_counts_from_the_ack(scene: Scene):
    scene.record(released={MINUTE: ranges("0-1")}, extended={MINUTE: ranges("1-2")})
    scene.clock.advance(timedelta(hours=1))

    scene.ack()

    assert scene.waiting == [(MINUTE, "0-1", None)]
    (kept,) = scene.state.held_by(kept_token(scene.lease))
    assert kept.due_at == scene.clock.now + MINUTE


def test_what_is_released_without_a_delay_comes_again_if_there_is_nothing_else(scene: Scene):
    scene.release("3-5", AT_ONCE)

    batch = scene.ack(stop=10)

    assert [(str(each.monotons), each.deliveries) for each in batch.leased] == [("3-5", 2)]
    assert (batch.acked, scene.waiting) == (8, [])


def test_in_strict_order_what_a_batch_releases_holds_up_what_follows(scene: Scene):
    scene.release("3-5")

    assert scene.ack(stop=12, strict_fifo=True).leased == ()
    scene.clock.advance(MINUTE)
    lease = scene.group.lease(make_request(stop=12, strict_fifo=True))
    assert [str(each.monotons) for each in lease.leased] == ["3-5"]


def test_what_stays_extended_counts_as_in_flight(scene: Scene):
    scene.record(extended={MINUTE: ranges("0-3")})

    batch = scene.ack(stop=12, max_in_flight=4)

    assert [str(each.monotons) for each in batch.leased] == ["10-11"]


# -- several writes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ({"acked": ranges("3-5")}, []),
        ({"released": {LEASE * 2: ranges("3-4")}}, [(MINUTE, "4-5"), (LEASE * 2, "3-4")]),
        ({"released": {MINUTE: ranges("7-8")}}, [(MINUTE, "3-5,7-8")]),
        ({"acked": ranges("0-1")}, [(MINUTE, "3-5")]),
    ],
)
def test_what_is_recorded_last_counts(
    scene: Scene, later: dict[str, Any], left: list[tuple[timedelta, str]]
):
    scene.release("3-5")
    scene.record(**later)

    scene.ack()

    assert [row[:2] for row in scene.waiting] == left


def test_within_one_write_the_first_of_ack_reject_release_and_extend_counts():
    every = ranges("0-4")
    asked = Settlement(
        acked=ranges("0-1"),
        rejected={"bad": ranges("0-2"), "worse": ranges("0-2")},
        released={MINUTE: ranges("0-3")},
        extended={MINUTE: every},
    )

    assert asked.within(every) == Settlement(
        acked=ranges("0-1"),
        rejected={"bad": ranges("1-2")},
        released={MINUTE: ranges("2-3")},
        extended={MINUTE: ranges("3-4")},
    )


def test_what_is_settled_at_once_meanwhile_is_not_settled_again(scene: Scene):
    scene.release("3-5")
    scene.group.settle(scene.lease, Settlement(acked=ranges("4-6")))

    scene.ack()

    assert [row[:2] for row in scene.waiting] == [(MINUTE, "3-4")]


# -- how much of it one ack carries out -----------------------------------------------------------


class Large(Scene):
    """A batch with more messages than it may have different delays and reasons."""

    def __init__(self, most: int = MOST_OUTCOMES) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        count = most + 1
        self.queue = make_queue(self.store, [count])
        self.group = make_group(self.store, self.queue.queue_id)
        self.lease = self.group.lease(make_request(stop=count)).token

    @staticmethod
    def delays(start: int, stop: int) -> dict[timedelta, Ranges]:
        """A delay of its own for each of these messages."""
        return {MINUTE + at * MOMENT: Ranges.of(Range(at, at + 1)) for at in range(start, stop)}


def test_what_is_recorded_up_to_the_limit_is_carried_out_by_one_ack():
    large = Large()
    large.record(released=large.delays(1, MOST_OUTCOMES), rejected={"bad": ranges("0-1")})

    batch = large.ack()

    assert (batch.acked, len(batch.left)) == (1, MOST_OUTCOMES)
    assert len(batch.ops) < MOST_OPS / 2


FEW = 20


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Large:
    """A batch where few different delays and reasons are the most."""
    monkeypatch.setattr(settle, "MOST_OUTCOMES", FEW)
    return Large(FEW)


def test_more_different_delays_and_reasons_than_one_ack_carries_out_are_refused(large: Large):
    large.record(released=large.delays(0, FEW))

    of_lease = f"messages of lease {large.lease} have {FEW + 1} different"
    with pytest.raises(TooLargeError, match=rf"{of_lease} .* {FEW} .*round the"):
        large.record(rejected={"bad": ranges(f"{FEW}-{FEW + 1}")})

    assert large.ack().acked == 1


@pytest.mark.parametrize("extended", [0, 1])
def test_so_are_those_that_are_settled_at_once(large: Large, extended: int):
    settlement = Settlement(
        extended=large.delays(0, extended), released=large.delays(extended, FEW + 1)
    )

    problem = f"of lease {large.lease} have {FEW + 1} different delays"
    with pytest.raises(TooLargeError, match=problem):
        large.group.settle(large.lease, settlement)

    assert large.held == {large.lease: f"0-{FEW + 1}"}


def test_longer_reasons_than_one_ack_carries_out_are_refused(scene: Scene):
    scene.release("3-5")
    reason = "ß" * (MOST_ACK_BYTES // 4)

    with pytest.raises(
        TooLargeError, match=rf"8388\d{{3}} bytes of its ack, and {MOST_ACK_BYTES} .*shorter"
    ):
        scene.record(rejected={reason: ranges("7-8")})

    scene.ack()
    assert scene.waiting == [(MINUTE, "3-5", None)]


class Scattered:
    """A batch of every second message, so that the numbers of its messages are a long text."""

    def __init__(self, count: int) -> None:
        start = 10**9
        parts = (Range(at, at + 1) for at in range(start, start + 2 * count, 2))
        now = FakeClock()()
        self.slot = Slot(0, Ranges.of(*parts), LEASE_1, now + LEASE, 1, now, now)
        self.state = GroupState(Head(start + 2 * count, 0, 0), (self.slot,), (), now)

    def has_recorded(self, text: str) -> None:
        self.slot = replace(self.slot, recorded=text)
        self.state = replace(self.state, slots=(self.slot,))

    def record(self, **what: Any) -> str:
        """The text that is recorded."""
        asked = Settlement(**what)
        plan = plan_settle(self.state, LEASE_1, asked, LEASE_2, deliveries=1, with_batch=True)
        return plan.texts[self.slot]

    def ack_bytes(self, recorded: str) -> int:
        """The bytes of text in the ack, with its conditions."""
        self.has_recorded(recorded)
        texts = []
        for op in plan_lease(self.state, make_request(held=LEASE_1, stop=0)).ops:
            assert isinstance(op, Insert | Update)
            texts += op.values.values()
            texts += [when.value for when in op.when] if isinstance(op, Update) else []
        return sum(len(text.encode()) for text in texts if isinstance(text, str))


def test_the_numbers_of_the_messages_of_a_scattered_batch_count_as_its_ack_has_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(settle, "MOST_ACK_BYTES", most := 1 << 16)
    fits, too_large = Scattered(980), Scattered(1000)

    text = fits.record(released={MINUTE: fits.slot.monotons})

    assert 0.95 * most < fits.ack_bytes(text) < most
    with pytest.raises(TooLargeError, match=rf"66\d{{3}} bytes of its ack, and {most} "):
        too_large.record(released={MINUTE: too_large.slot.monotons})
    assert too_large.record(released={MINUTE: ranges("1000000000-1000000001")})


def test_what_fills_an_ack_to_its_last_byte_is_recorded(monkeypatch: pytest.MonkeyPatch):
    scattered = Scattered(10)
    every = scattered.slot.monotons
    text = scattered.record(released={MINUTE: every})
    size = 2 * len(text) + len(str(every))

    monkeypatch.setattr(settle, "MOST_ACK_BYTES", size)
    assert scattered.record(released={MINUTE: every}) == text
    monkeypatch.setattr(settle, "MOST_ACK_BYTES", size - 1)
    with pytest.raises(TooLargeError, match=f"take {size} bytes"):
        scattered.record(released={MINUTE: every})


def test_of_a_scattered_batch_of_any_size_what_was_recorded_can_be_taken_back(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(settle, "MOST_ACK_BYTES", 1000)
    scattered = Scattered(100)
    first = Ranges.of(Range(10**9, 10**9 + 1))
    scattered.has_recorded(encode_outcomes(Settlement(released={MINUTE: first}), LEASE_1, 1))

    assert scattered.record(acked=first) == ""


# -- what drops it --------------------------------------------------------------------------------


def replayed(scene: Scene) -> None:
    scene.replay()


def stopped_and_replayed(scene: Scene) -> None:
    scene.group.release(scene.lease, scene.leased)
    scene.replay()


def taken_over(scene: Scene) -> None:
    scene.clock.advance(LEASE + MOMENT)
    (leased,) = scene.group.lease(make_request(stop=10)).leased
    assert leased.monotons == ranges("0-10")
    (slot,) = [slot for slot in scene.state.slots if slot.monotons]
    scene.lease = slot.lease


def moved(scene: Scene) -> None:
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 0, force=True)
    scene.lease = scene.group.lease(make_request(stop=10)).token


@pytest.mark.parametrize("drop", [replayed, stopped_and_replayed, taken_over, moved])
def test_whoever_hands_the_messages_out_anew_drops_it(scene: Scene, drop: Callable[[Scene], None]):
    scene.record(
        rejected={"bad": ranges("2-3")},
        released={MINUTE: ranges("3-5")},
        extended={MINUTE: ranges("5-6")},
    )

    drop(scene)

    assert scene.held == {scene.lease: "0-10"}
    batch = scene.ack()
    assert (batch.acked, scene.held, scene.waiting) == (10, {}, [])


def test_what_is_recorded_after_a_replay_is_carried_out(scene: Scene):
    scene.release("0-5")
    scene.replay()
    scene.release("7-8")

    scene.ack()

    assert scene.waiting == [(MINUTE, "7-8", None)]


def test_a_stop_after_the_batch_was_done_keeps_it_for_the_restarted_query(scene: Scene):
    scene.release("3-5")
    scene.group.release(scene.lease, scene.leased)

    assert scene.ack().acked == 8
    assert scene.waiting == [(MINUTE, "3-5", None)]


# -- a run that was cut off, and goes on ----------------------------------------------------------


def test_what_a_cut_off_run_records_after_its_batch_was_taken_up_again_is_stale(scene: Scene):
    scene.replay()
    released = Settlement(released={MINUTE: ranges("5-6")})
    scene.group.settle(scene.lease, released, deliveries=2, with_batch=True)

    acked = Settlement(acked=ranges("5-6"))
    late = scene.group.settle(scene.lease, acked, deliveries=1, with_batch=True)

    assert (late.count, str(late.stale)) == (0, "5-6")
    assert scene.ack().acked == 9
    assert scene.waiting == [(MINUTE, "5-6", None)]


def test_so_is_what_it_settles_at_once(scene: Scene):
    scene.replay()
    released = Settlement(released={AT_ONCE: ranges("5-6")})

    late = scene.group.settle(scene.lease, released, deliveries=1)

    assert (late.count, str(late.stale)) == (0, "5-6")
    assert (scene.held, scene.waiting) == ({scene.lease: "0-10"}, [])
    assert scene.group.settle(scene.lease, released, deliveries=2).count == 1


@pytest.mark.parametrize("with_batch", [True, False])
def test_so_it_is_if_the_batch_is_taken_up_while_it_is_settled(scene: Scene, *, with_batch: bool):
    released = Settlement(released={AT_ONCE: ranges("5-6")})
    scene.trouble.interrupt(lambda: scene.replay() and None, after=2)

    late = scene.group.settle(scene.lease, released, deliveries=1, with_batch=with_batch)

    assert (late.count, str(late.stale)) == (0, "5-6")
    assert (scene.ack().acked, scene.waiting) == (10, [])


def test_what_it_holds_beyond_its_batch_it_still_settles(scene: Scene):
    extended = Settlement(extended={MINUTE: ranges("5-6")})
    scene.group.settle(scene.lease, extended, deliveries=1)
    scene.replay()

    done = scene.group.settle(scene.lease, Settlement(acked=ranges("5-6")), deliveries=1)

    assert (done.count, scene.held) == (1, {scene.lease: "0-5,6-10"})


# -- at the same time, and lost answers -----------------------------------------------------------


def test_what_is_recorded_just_before_the_ack_goes_in_is_not_overlooked(scene: Scene):
    scene.trouble.interrupt(lambda: scene.release("3-5"), after=2)

    scene.ack()

    assert scene.waiting == [(MINUTE, "3-5", None)]


def test_nor_is_it_where_the_ack_leases_as_well(scene: Scene):
    scene.trouble.interrupt(lambda: scene.release("3-5"), after=2)

    assert scene.ack(stop=12).leased
    assert scene.waiting == [(MINUTE, "3-5", None)]


def test_what_is_settled_at_once_just_before_the_ack_goes_in_is_not_released(scene: Scene):
    scene.release("3-5")
    acked = Settlement(acked=ranges("4-6"))
    scene.trouble.interrupt(lambda: scene.group.settle(scene.lease, acked), after=2)

    scene.ack()

    assert scene.waiting == [(MINUTE, "3-4", None)]


def test_two_that_record_at_once_are_both_heard(scene: Scene):
    scene.trouble.interrupt(lambda: scene.release("3-5"), after=2)

    scene.record(rejected={"bad": ranges("7-8")})
    scene.ack()

    assert sorted(scene.waiting) == [(AT_ONCE, "7-8", "bad"), (MINUTE, "3-5", None)]


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
def test_a_lost_answer_is_resolved(scene: Scene, fault: Fault):
    scene.trouble.fault = fault

    settled = scene.release("3-5")
    scene.trouble.calm()

    assert (settled.count, settled.stale) == (2, Ranges())
    scene.ack()
    assert scene.waiting == [(MINUTE, "3-5", None)]


# -- the text -------------------------------------------------------------------------------------


def test_the_text_says_what_was_recorded_and_for_whom():
    outcomes = Settlement(
        rejected={'no "order"': ranges("0-1,3-4")},
        released={timedelta(seconds=1.5): ranges("5-9")},
        extended={MINUTE: ranges("9-10")},
    )

    text = encode_outcomes(outcomes, LEASE_1, 2)

    assert decode_outcomes(text, LEASE_1, 2) == outcomes
    assert decode_outcomes(text, LEASE_2, 2) == decode_outcomes(text, LEASE_1, 3) == Settlement()


def test_acks_need_no_text():
    assert encode_outcomes(Settlement(acked=ranges("0-9")), LEASE_1, 1) == ""
    assert decode_outcomes("", LEASE_1, 1) == decode_outcomes(None, LEASE_1, 1) == Settlement()


def test_a_slot_that_is_freed_keeps_no_old_text(scene: Scene):
    scene.release("3-5")
    scene.ack()

    assert [slot.recorded for slot in scene.state.slots] == [""]
    assert replace(scene.state.slots[0], recorded=None).outcomes == Settlement()
