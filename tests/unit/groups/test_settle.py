from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups import group as group_module
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.groups.settle import kept_token, plan_settle
from cassieq_spark.groups.state import (
    HEAD,
    GroupState,
    Head,
    Settlement,
    Slot,
    slot_key,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Ranges, to_millis
from cassieq_spark.store.protocol import Insert, Op, Update, When, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
    monotons_of,
)
from tests.support.faults import FakeClock

MOMENT = timedelta(milliseconds=1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OURS, THEIRS, FRESH = UUID(int=2), UUID(int=4), UUID(int=8)
AT_ONCE = timedelta(0)
Outcome = tuple[int, int]


class Scene:
    """Ten messages, all of them leased by one reader."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.group = make_group(self.store, make_queue(self.store, [10]).queue_id)
        lease = self.group.lease(make_request(stop=10))
        self.lease, self.leased = lease.token, lease.leased

    def settle(self, lease: UUID | None = None, **what: Any) -> Outcome:
        """How many were settled, and how many were stale."""
        settled = self.group.settle(lease or self.lease, Settlement(**what))
        return settled.count, settled.stale.count

    def ack(self, monotons: str, lease: UUID | None = None) -> Outcome:
        return self.settle(lease, acked=Ranges.parse(monotons))

    def release(self, monotons: str, delay: timedelta = AT_ONCE) -> Outcome:
        return self.settle(released={delay: Ranges.parse(monotons)})

    def extend(self, monotons: str, by: timedelta) -> Outcome:
        return self.settle(extended={by: Ranges.parse(monotons)})

    def reject(self, monotons: str, reason: str = "bad") -> Outcome:
        return self.settle(rejected={reason: Ranges.parse(monotons)})

    def take(self, **changes: object) -> list[LeasedSlot]:
        request = {"stop": 10} | changes
        return list(self.group.lease(make_request(**request)).leased)

    @property
    def state(self) -> GroupState:
        return self.group.read(every_waiting=True)

    @property
    def held(self) -> str:
        return ",".join(str(slot.monotons) for slot in self.state.held_by(self.lease))

    @property
    def waiting(self) -> list[tuple[int, str, int]]:
        """How much later than now, what, and how often it was handed out."""
        now = to_millis(self.clock.now)
        return [
            (each.due - now, str(each.monotons), each.deliveries) for each in self.state.waiting
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def clock(scene: Scene) -> FakeClock:
    return scene.clock


def make_state(*slots: Slot, waiting_from: int = 5) -> GroupState:
    return GroupState(Head(100, waiting_from, 3), slots, (), NOW)


def make_slot(number: int, monotons: str, lease: UUID = OURS, deliveries: int = 2) -> Slot:
    return Slot(number, Ranges.parse(monotons), lease, NOW, deliveries)


def ops_of(state: GroupState, **what: Any) -> tuple[Op, ...]:
    return plan_settle(state, OURS, Settlement(**what), FRESH).ops


# -- the plan ---------------------------------------------------------------------------------


def test_what_is_acked_leaves_its_slot_if_nothing_else_has_left_it_meanwhile():
    settled = Ranges.parse("2-4")

    ops = ops_of(make_state(make_slot(0, "0-6")), acked=settled)

    still = (When("lease", "=", OURS), When("ranges", "=", "0-6"), When("deliveries", "=", 2))
    assert ops == (Update(slot_key(0), {"ranges": "0-2,4-6"}, when=still),)


def test_what_is_released_waits_with_its_count_and_the_waiting_rows_have_a_new_version():
    settled = Ranges.parse("2-4")
    delay = timedelta(seconds=7)

    state = make_state(make_slot(0, "0-6", deliveries=3))
    head, slot, waits = ops_of(state, released={delay: settled})

    assert isinstance(slot, Update)
    assert slot.values == {"ranges": "0-2,4-6"}
    unchanged = (When("waiting_version", "=", 3), When("waiting_from", "=", 5))
    assert head == Update(HEAD, {"waiting_version": 4}, when=unchanged)
    key = ("waiting", to_millis(NOW + delay), 2)
    assert waits == Insert(key, {"ranges": "2-4", "deliveries": 3, "by_receipts": True})


def test_slots_under_other_tokens_and_those_that_hold_none_of_it_are_left_alone():
    state = make_state(make_slot(0, "0-6", THEIRS), make_slot(1, "6-8"), make_slot(2, "8-10"))
    settled = Ranges.parse("8-9")

    (op,) = ops_of(state, acked=settled)

    assert isinstance(op, Update)
    assert op.row == slot_key(2)


def test_what_is_released_waits_no_longer_than_it_was_told_wherever_reads_begin():
    # A coordinator whose clock is behind the one that raised waiting_from.
    now = to_millis(NOW)
    state = make_state(make_slot(0, "0-6"), make_slot(1, "6-8"), waiting_from=now + 10**9)
    released = {AT_ONCE: Ranges.parse("1-2,6-7"), MOMENT: Ranges.parse("3-4")}

    ops = ops_of(state, released=released)

    rows = [op.row for op in ops if isinstance(op, Insert)]
    assert rows == [("waiting", now, 1), ("waiting", now + 1, 3), ("waiting", now, 6)]
    assert isinstance(ops[0], Update)
    assert ops[0].values["waiting_from"] == now


def test_a_message_released_under_two_delays_waits_once_for_the_shorter():
    released = {timedelta(seconds=9): Ranges.parse("0-3"), MOMENT: Ranges.parse("2-6")}

    ops = ops_of(make_state(make_slot(0, "0-6")), released=released)

    waits = {op.row[1]: op.values["ranges"] for op in ops if isinstance(op, Insert)}
    now = to_millis(NOW)
    assert waits == {now + 1: "2-6", now + 9000: "0-2"}


# -- settling ---------------------------------------------------------------------------------


def test_settling_costs_one_lwt_and_two_reads(scene: Scene):
    scene.store.reset()

    scene.settle(
        acked=Ranges.parse("0-2,5-6"),
        released={AT_ONCE: Ranges.parse("3-4"), LEASE: Ranges.parse("7-8")},
        rejected={"bad": Ranges.parse("2-3"), "worse": Ranges.parse("9-10")},
        extended={LEASE: Ranges.parse("6-7")},
    )

    counts = (scene.store.cas_count, scene.store.read_count, scene.store.serial_read_count)
    assert counts == (1, 2, 0)


def test_acked_messages_are_settled_and_the_rest_stays_leased(scene: Scene):
    assert scene.ack("0-2,5-6") == (3, 0)

    assert scene.held == "2-5,6-10"
    assert scene.state.floor == 2
    assert scene.waiting == []
    assert scene.take() == []


def test_what_is_released_without_a_delay_is_offered_again_at_once(scene: Scene):
    assert scene.release("3-5") == (2, 0)

    assert (scene.held, scene.waiting) == ("0-3,5-10", [(0, "3-5", 1)])
    assert scene.take() == [LeasedSlot(1, Ranges.parse("3-5"), 2)]


def test_what_is_released_with_a_delay_is_offered_when_that_is_over(
    scene: Scene, clock: FakeClock
):
    delay = timedelta(seconds=9)
    scene.release("3-5", delay)

    assert scene.waiting == [(9000, "3-5", 1)]
    clock.advance(delay - MOMENT)
    assert scene.take() == []
    clock.advance(MOMENT)
    assert scene.take() == [LeasedSlot(1, Ranges.parse("3-5"), 2)]


def test_what_is_acked_as_well_as_released_is_acked(scene: Scene):
    settled = scene.settle(acked=Ranges.parse("0-5"), released={AT_ONCE: Ranges.parse("3-7")})

    assert settled == (7, 0)
    assert (scene.held, scene.waiting) == ("7-10", [(0, "5-7", 1)])


def test_a_lease_that_ran_out_can_be_settled_until_someone_takes_it(
    scene: Scene, clock: FakeClock
):
    clock.advance(LEASE + MOMENT)

    assert scene.ack("0-9") == (9, 0)
    assert scene.take() == [LeasedSlot(0, Ranges.parse("9-10"), 2)]
    assert scene.ack("9-10") == (0, 1)


def test_messages_of_several_slots_are_settled_at_once(scene: Scene):
    # Only leases of other releases have several slots under one token.
    ops = [
        Insert(
            slot_key(1),
            {"ranges": "20-25", "lease": scene.lease, "due_at": NOW + LEASE, "deliveries": 4},
            if_absent=True,
        )
    ]
    assert scene.store.cas(partition_of_group(scene.group.queue_id, "g"), ops)
    scene.store.reset()

    assert scene.ack("8-22") == (4, 10)
    assert scene.release("0-1,24-25") == (2, 0)

    assert scene.store.cas_count == 2
    assert scene.held == "1-8,22-24"
    assert scene.waiting == [(0, "0-1", 1), (0, "24-25", 4)]


def test_messages_that_the_lease_does_not_hold_are_stale_and_cost_no_lwt(scene: Scene):
    scene.store.reset()

    assert scene.ack("0-3", uuid4()) == (0, 3)
    assert scene.ack("10-14") == (0, 4)
    assert scene.ack("") == (0, 0)
    assert scene.store.cas_count == 0
    assert scene.held == "0-10"


@pytest.mark.parametrize("again", ["ack", "release"])
def test_what_is_settled_twice_is_stale_the_second_time(scene: Scene, again: str):
    scene.ack("0-3")

    second: Callable[[str], Outcome] = getattr(scene, again)
    assert second("0-4") == (1, 3)
    assert scene.ack("0-4") == (0, 4)
    assert scene.held == "4-10"


def test_messages_of_one_slot_settled_by_others_meanwhile_are_not_brought_back(scene: Scene):
    # I6: the slot's ranges are written whole, so both must not start from the same ones.
    scene.trouble.interrupt(lambda: scene.ack("5-7") and None, after=2)

    assert scene.ack("0-3") == (3, 0)

    assert scene.trouble.troubles == 1
    assert scene.held == "3-5,7-10"


def test_the_same_message_acked_by_others_meanwhile_is_not_released(scene: Scene):
    scene.trouble.interrupt(lambda: scene.ack("0-2") and None, after=2)

    assert scene.release("0-3") == (1, 2)
    assert (scene.held, scene.waiting) == ("3-10", [(0, "2-3", 1)])


def test_releases_of_others_meanwhile_do_not_hide_ours(scene: Scene):
    scene.trouble.interrupt(lambda: scene.release("5-7") and None, after=2)

    assert scene.release("0-3") == (3, 0)
    assert scene.waiting == [(0, "0-3", 1), (0, "5-7", 1)]
    assert scene.state.head.waiting_version == 2


def test_a_takeover_in_between_makes_it_all_stale(scene: Scene, clock: FakeClock):
    clock.advance(LEASE + MOMENT)
    scene.trouble.interrupt(lambda: scene.take() and None, after=2)

    assert scene.ack("0-3") == (0, 3)
    assert [str(slot.monotons) for slot in scene.state.slots] == ["0-10"]


def test_a_takeover_that_looked_before_brings_back_nothing_that_is_settled(
    scene: Scene, clock: FakeClock
):
    # I5: the takeover's ranges would have what was acked after it had read them.
    clock.advance(LEASE + MOMENT)
    scene.trouble.interrupt(lambda: scene.ack("0-3") and None, after=2)

    assert scene.take() == [LeasedSlot(0, Ranges.parse("3-10"), 2)]


def test_an_extension_goes_with_settling(scene: Scene, clock: FakeClock):
    scene.trouble.interrupt(
        lambda: scene.group.extend(scene.lease, scene.leased, by=2 * LEASE) and None, after=2
    )

    assert scene.ack("0-3") == (3, 0)
    clock.advance(LEASE + MOMENT)
    assert scene.take() == []


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("released", [False, True])
def test_a_lost_answer_settles_once(scene: Scene, fault: Fault, released: bool):
    scene.trouble.fault = fault

    settled = scene.release("0-3") if released else scene.ack("0-3")
    scene.trouble.arrive()

    assert settled == (3, 0)
    assert scene.held == "3-10"
    assert scene.waiting == ([(0, "0-3", 1)] if released else [])


def test_a_lost_answer_and_a_takeover_before_anyone_could_look(scene: Scene, clock: FakeClock):
    clock.advance(LEASE + MOMENT)
    scene.trouble.fault = Fault.REQUEST_LOST
    scene.trouble.interrupt(
        lambda: scene.trouble.interrupt(lambda: scene.take() and None, after=0), after=2
    )

    assert scene.ack("0-3") == (0, 3)
    assert [slot.monotons.count for slot in scene.state.slots] == [10]


def test_a_slot_emptied_message_by_message_is_not_lost_to_its_readers_ack(scene: Scene):
    scene.ack("0-4")
    scene.release("4-10", LEASE)
    assert scene.held == ""

    lease = scene.group.lease(make_request(held=scene.lease, stop=10))

    assert (lease.acked, lease.acked_slots) == (0, frozenset({0}))
    assert lease.leased == ()
    assert scene.waiting == [(60_000, "4-10", 1)]


def test_the_ack_of_a_batch_settles_what_is_left_and_not_what_was_released(scene: Scene):
    scene.release("4-6")

    lease = scene.group.lease(make_request(held=scene.lease, stop=10))

    assert (lease.acked, lease.acked_slots) == (8, frozenset({0}))
    assert monotons_of(lease.leased) == [Ranges.parse("4-6")]
    assert scene.ack("0-10") == (0, 10), "the lease is over"


def test_released_once_too_often_is_dead(scene: Scene):
    scene.release("4-6")

    lease = scene.group.lease(make_request(stop=10, max_deliveries=1))

    assert (monotons_of(lease.leased), monotons_of(lease.dead)) == ([], [Ranges.parse("4-6")])


def test_losing_every_race_is_said_so(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_module, "attempts", lambda: range(2))
    monkeypatch.setattr(scene.trouble, "cas", lambda *_: False)

    with pytest.raises(ContentionError, match="lost the race to settle"):
        scene.ack("0-3")


def test_settling_for_a_group_that_does_not_exist_is_refused(scene: Scene):
    group = ConsumerGroup(Ledger(scene.store, scene.group.queue_id), "none")

    with pytest.raises(QueueStateError, match="group 'none'"):
        group.settle(scene.lease, Settlement(acked=Ranges.parse("0-3")))


# -- holding on, and rejecting ----------------------------------------------------------------


def test_what_is_extended_is_left_alone_by_the_ack_of_its_batch(scene: Scene, clock: FakeClock):
    assert scene.extend("3-5", 2 * LEASE) == (2, 0)

    assert scene.group.lease(make_request(held=scene.lease, stop=10)).acked == 8
    clock.advance(2 * LEASE)
    assert scene.take() == []
    clock.advance(MOMENT)
    assert [(str(each.monotons), each.deliveries) for each in scene.take()] == [("3-5", 2)]


@pytest.mark.parametrize("what", ["ack", "release", "reject"])
def test_what_is_extended_can_be_settled_by_its_receipt_after_its_batch(scene: Scene, what: str):
    scene.extend("3-5", 2 * LEASE)
    scene.group.lease(make_request(held=scene.lease, stop=10))

    settle_it: Callable[[str], Outcome] = getattr(scene, what)
    assert settle_it("3-4") == (1, 0)
    assert settle_it("3-5") == (1, 1)
    assert all(not slot.monotons for slot in scene.state.slots)


def test_what_is_extended_twice_is_held_from_the_second_time_on(scene: Scene, clock: FakeClock):
    scene.extend("3-5", LEASE)
    clock.advance(LEASE)
    assert scene.extend("3-5", LEASE) == (2, 0)
    scene.group.lease(make_request(held=scene.lease, stop=10))
    clock.advance(LEASE)

    assert scene.take() == []
    assert len(scene.state.slots) == 2, "in the same slot"


def test_part_of_what_was_extended_is_held_for_longer_than_the_rest(
    scene: Scene, clock: FakeClock
):
    scene.extend("3-7", LEASE)
    scene.extend("4-5", 3 * LEASE)
    scene.group.lease(make_request(held=scene.lease, stop=10))
    clock.advance(LEASE + MOMENT)

    assert monotons_of(scene.take()) == [Ranges.parse("3-4,5-7")]
    clock.advance(2 * LEASE)
    assert [str(slot.monotons) for slot in scene.state.slots if slot.lease != scene.lease] != []


def test_an_extension_of_nothing_that_is_held_is_stale(scene: Scene):
    scene.ack("0-3")

    assert scene.extend("0-5", LEASE) == (2, 3)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("what", ["extend", "extend again", "reject"])
def test_a_lost_answer_extends_or_rejects_once(scene: Scene, fault: Fault, what: str):
    if what == "extend again":
        scene.extend("0-3", LEASE)
    scene.trouble.fault = fault

    done = scene.reject("0-3") if what == "reject" else scene.extend("0-3", 2 * LEASE)
    scene.trouble.arrive()

    assert done == (3, 0)
    state = scene.group.read(every_waiting=True)
    waiting = [(str(each.monotons), each.reason) for each in state.waiting]
    assert waiting == ([("0-3", "bad")] if what == "reject" else [])
    kept = [str(slot.monotons) for slot in state.held_by(kept_token(scene.lease))]
    assert kept == ([] if what == "reject" else ["0-3"])


def test_what_is_rejected_is_dead_whatever_its_count_and_never_offered(scene: Scene):
    settled = scene.group.settle(scene.lease, Settlement(rejected={"bad": Ranges.parse("2-4")}))

    assert [(str(each.monotons), each.reason) for each in settled.dead] == [("2-4", "bad")]
    lease = scene.group.lease(make_request(stop=10))
    assert (lease.leased, lease.dead) == ((), settled.dead)
    assert scene.ack("2-4") == (0, 2), "out of reach"


def test_each_message_has_one_fate_whatever_is_asked_for(scene: Scene):
    everything = Ranges.parse("0-10")

    settled = scene.settle(
        acked=Ranges.parse("0-2"),
        rejected={"bad": Ranges.parse("0-4"), "worse": Ranges.parse("3-5")},
        released={AT_ONCE: Ranges.parse("0-7")},
        extended={LEASE: everything},
    )

    assert settled == (10, 0)
    state = scene.group.read(every_waiting=True)
    assert [(str(each.monotons), each.reason) for each in state.waiting] == [
        ("2-4", "bad"),
        ("4-5", "worse"),
        ("5-7", None),
    ]
    assert [str(slot.monotons) for slot in state.slots] == ["", "7-10"]


def test_a_free_slot_is_used_for_what_is_extended(scene: Scene, clock: FakeClock):
    other = scene.group.lease(make_request(stop=10))
    scene.release("0-1")
    (taken,) = scene.group.lease(make_request(stop=10)).leased
    free = scene.group.read().slots[taken.slot].lease
    scene.group.lease(make_request(held=free, stop=0))
    clock.advance(MOMENT)
    assert not other.leased

    scene.extend("3-5", LEASE)

    assert [str(slot.monotons) for slot in scene.state.slots] == ["1-3,5-10", "3-5"]


# -- slots of clients -------------------------------------------------------------------------


def test_a_slot_is_freed_only_if_nothing_has_left_it_meanwhile(scene: Scene):
    # I6: what was released in between is somebody else's to have, and not done.
    scene.group.lease(make_request(held=scene.lease, stop=0))
    publish(Ledger(scene.store, scene.group.queue_id), make_pending([4]))
    lease = scene.group.lease(make_request(stop=14, by_receipts=True)).token
    scene.trouble.interrupt(
        lambda: scene.settle(lease, released={AT_ONCE: Ranges.parse("10-11")}) and None, after=2
    )

    assert scene.ack("10-14", lease) == (3, 1)
    state = scene.group.read(every_waiting=True)
    assert [str(each.monotons) for each in state.waiting] == ["10-11"]


def test_a_slot_whose_batch_is_to_be_acked_stays_its_readers_when_it_is_empty(scene: Scene):
    assert scene.ack("0-10") == (10, 0)

    (slot,) = scene.group.read().held_by(scene.lease)

    assert not slot.is_free(scene.clock.now)


def test_a_slot_of_what_was_extended_is_free_once_that_is_settled(scene: Scene):
    scene.extend("3-5", LEASE)

    assert scene.ack("3-5") == (2, 0)

    free = [slot for slot in scene.group.read().slots if slot.is_free(scene.clock.now)]
    assert len(free) == 1


def test_what_a_client_holds_is_settled_at_once_also_by_who_settles_with_a_batch(scene: Scene):
    # Nobody acks it as a batch, so what is recorded there would never be carried out.
    scene.group.lease(make_request(held=scene.lease, stop=0))
    publish(Ledger(scene.store, scene.group.queue_id), make_pending([4]))
    lease = scene.group.lease(make_request(stop=14, by_receipts=True)).token

    done = Settlement(acked=Ranges.parse("10-14"))
    settled = scene.group.settle(lease, done, with_batch=True)

    assert settled.count == 4
    assert scene.group.read().floor == 14


# -- lost answers, while others act -----------------------------------------------------------


class ClientScene:
    """Ten messages, one or more of them leased by a client; others have a connection of theirs."""

    def __init__(self, *, limit: int = 1, by_receipts: bool = True) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.group = make_group(self.trouble, make_queue(self.trouble, [10]).queue_id)
        self.others = ConsumerGroup(Ledger(memory, self.group.queue_id), "g")
        self.lease = self.group.lease(
            make_request(stop=10, max_messages=limit, by_receipts=by_receipts)
        ).token

    def meanwhile(self, action: Callable[[], object], fault: Fault) -> None:
        """Lose the next LWT or its answer, and act before anyone looks what became of it."""
        self.trouble.fault = fault
        self.trouble.interrupt(lambda: action() and None, after=3)

    def lease_one(self) -> LeasedSlot:
        (leased,) = self.others.lease(
            make_request(stop=10, max_messages=1, by_receipts=True)
        ).leased
        return leased

    def told(self, *, with_batch: bool = False, **what: str) -> Outcome:
        """How many are told to be settled, and how many to be stale."""
        reached = {name: Ranges.parse(monotons) for name, monotons in what.items()}
        settlement = Settlement(
            acked=reached.get("acked", Ranges()),
            rejected={"bad": reached["rejected"]} if "rejected" in reached else {},
            released={AT_ONCE: reached["released"]} if "released" in reached else {},
            extended={LEASE: reached["extended"]} if "extended" in reached else {},
        )
        settled = self.group.settle(self.lease, settlement, with_batch=with_batch)
        return settled.count, settled.stale.count

    def extend_meanwhile(self, monotons: str) -> None:
        extended = Settlement(extended={2 * LEASE: Ranges.parse(monotons)})
        assert self.others.settle(self.lease, extended).count


@pytest.mark.parametrize("what", ["acked", "rejected", "released", "extended"])
def test_a_settlement_is_not_stale_as_its_freed_slot_is_leased_before_a_lost_answer_is_resolved(
    what: str,
):
    scene = ClientScene()
    scene.meanwhile(scene.lease_one, Fault.ANSWER_LOST)

    assert scene.told(**{what: "0-1"}) == (1, 0)


@pytest.mark.parametrize("what", ["acked", "rejected", "released"])
def test_a_settlement_is_not_stale_as_its_lease_ends_before_a_lost_answer_is_resolved(what: str):
    scene = ClientScene()
    scene.meanwhile(lambda: scene.clock.advance(LEASE + MOMENT), Fault.ANSWER_LOST)

    assert scene.told(**{what: "0-1"}) == (1, 0)


def test_a_part_of_a_slot_is_not_stale_as_others_free_and_lease_it_before_the_answer_is_resolved():
    scene = ClientScene(limit=2)

    def ack_the_rest() -> None:
        scene.others.settle(scene.lease, Settlement(acked=Ranges.parse("1-2")))
        scene.lease_one()

    scene.meanwhile(ack_the_rest, Fault.ANSWER_LOST)

    assert scene.told(acked="0-1") == (1, 0)


def test_a_settlement_that_did_not_go_in_is_stale_once_others_have_taken_its_lease_over():
    scene = ClientScene()
    scene.clock.advance(LEASE + MOMENT)
    scene.meanwhile(scene.lease_one, Fault.REQUEST_LOST)

    assert scene.told(acked="0-1") == (0, 1)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("what", ["acked", "rejected"])
def test_what_is_extended_while_a_settlement_gets_lost_is_settled_where_it_is(
    limit: int, what: str
):
    scene = ClientScene(limit=limit)
    scene.meanwhile(lambda: scene.extend_meanwhile("0-1"), Fault.REQUEST_LOST)

    assert scene.told(**{what: "0-1"}) == (1, 0)

    slots = scene.others.read().slots
    assert not any(slot.monotons & Ranges.parse("0-1") for slot in slots)


def test_what_is_extended_and_its_slot_leased_while_an_ack_gets_lost_is_acked_where_it_is():
    scene = ClientScene()

    def extend() -> None:
        scene.extend_meanwhile("0-1")
        scene.lease_one()

    scene.meanwhile(extend, Fault.REQUEST_LOST)

    assert scene.told(acked="0-1") == (1, 0)
    assert scene.others.read(every_waiting=True).floor == 1


def test_a_text_that_others_have_written_too_does_not_tell_that_something_else_was_settled():
    scene = ClientScene(limit=10, by_receipts=False)
    assert scene.told(extended="7-8") == (1, 0)
    same = Settlement(rejected={"bad": Ranges.parse("5-6")})
    scene.meanwhile(
        lambda: scene.others.settle(scene.lease, same, with_batch=True), Fault.REQUEST_LOST
    )

    assert scene.told(acked="7-8", rejected="5-6", with_batch=True) == (2, 0)

    kept = scene.others.read().held_by(kept_token(scene.lease))
    assert kept == ()


def test_a_text_that_others_have_written_too_does_not_tell_that_something_was_extended():
    scene = ClientScene(limit=10, by_receipts=False)
    assert scene.told(extended="7-8") == (1, 0)
    scene.clock.advance(LEASE / 2)
    same = Settlement(rejected={"bad": Ranges.parse("5-6")})
    scene.meanwhile(
        lambda: scene.others.settle(scene.lease, same, with_batch=True), Fault.REQUEST_LOST
    )

    assert scene.told(extended="7-8", rejected="5-6", with_batch=True) == (2, 0)

    (kept,) = scene.others.read().held_by(kept_token(scene.lease))
    assert kept.due_at == scene.clock.now + LEASE
