from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.groups.state import Settlement, Slot, slot_key
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Insert, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue, make_request
from tests.support.faults import FakeClock

MOMENT = timedelta(milliseconds=1)


class Scene:
    """A hundred messages, leased as one batch by a reader that fails; of five deliveries."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(memory)
        self.store = CountingStore(self.trouble)
        self.group: ConsumerGroup = make_group(self.store, make_queue(self.store, [100]).queue_id)
        self.held = self.group.lease(make_request(stop=100)).token

    def replay(
        self, *, limit: int | None = 100, max_deliveries: int = 5, held: UUID | None = None
    ) -> list[tuple[str, int]]:
        """What is handed out again, and for the how many-th time."""
        request = make_request(
            held=held or self.held, max_messages=limit, max_deliveries=max_deliveries
        )
        leased = self.group.take_again(request)
        return [(str(each.monotons), each.deliveries) for each in leased]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.group.read().slots

    @property
    def waiting(self) -> list[tuple[str, int]]:
        waiting = self.group.read(every_waiting=True).waiting
        return [(str(each.monotons), each.deliveries) for each in waiting]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def clock(scene: Scene) -> FakeClock:
    return scene.clock


def test_a_replay_costs_one_lwt_and_two_reads(scene: Scene):
    scene.store.reset()

    scene.replay()

    counts = (scene.store.cas_count, scene.store.read_count, scene.store.serial_read_count)
    assert counts == (1, 2, 0)


@pytest.mark.parametrize("limit", [None, 100, 30])
@pytest.mark.parametrize("max_deliveries", [0, 4, 5, 9])
def test_the_second_delivery_is_the_batch_as_it_was_whatever_the_limit_is_by_now(
    scene: Scene, limit: int | None, max_deliveries: int
):
    assert scene.replay(limit=limit, max_deliveries=max_deliveries) == [("0-100", 2)]
    assert scene.waiting == []


def test_without_a_limit_of_deliveries_every_replay_is_the_batch_as_it_was(scene: Scene):
    replays = [scene.replay(limit=30, max_deliveries=0) for _ in range(4)]

    assert replays == [[("0-100", 2)], [("0-100", 3)], [("0-100", 4)], [("0-100", 5)]]
    assert scene.waiting == []


@pytest.mark.parametrize("max_deliveries", [2, 3])
def test_with_few_deliveries_the_second_is_of_a_single_message(scene: Scene, max_deliveries: int):
    assert scene.replay(max_deliveries=max_deliveries) == [("0-1", 2)]
    assert scene.waiting == [("1-100", 1)]


def test_the_third_delivery_is_cut_and_the_rest_waits_with_its_count(scene: Scene):
    replays = [scene.replay(), scene.replay(), scene.replay()]

    assert replays == [[("0-100", 2)], [("0-10", 3)], [("0-1", 4)]]
    assert scene.waiting == [("1-10", 3), ("10-100", 2)]
    assert scene.group.read().head.waiting_version == 2


def test_what_waits_is_offered_to_other_readers_at_once(scene: Scene):
    scene.replay()
    scene.replay()

    lease = scene.group.lease(make_request(stop=100, max_messages=100, max_deliveries=5))

    assert lease.leased == (LeasedSlot(1, Ranges.parse("10-19"), 3),)


def test_a_replayed_lease_lasts_from_now_on(scene: Scene, clock: FakeClock):
    clock.advance(LEASE + MOMENT)
    scene.replay()
    clock.advance(LEASE)

    assert scene.group.lease(make_request(stop=100)).leased == ()
    assert scene.group.lease(make_request(held=scene.held, stop=100)).acked == 100


@pytest.mark.parametrize("max_deliveries", [1, 2, 3, 4, 5, 6])
def test_no_message_is_handed_out_more_often_than_allowed(scene: Scene, max_deliveries: int):
    # I8
    replays = [
        deliveries
        for _ in range(10)
        for _, deliveries in scene.replay(max_deliveries=max_deliveries)
    ]

    assert replays == [*range(2, max_deliveries + 1)]


def test_what_was_handed_out_too_often_leaves_the_token_and_no_ack_settles_it(scene: Scene):
    for _ in range(4):
        scene.replay()
    assert scene.replay() == []

    lease = scene.group.lease(make_request(held=scene.held, stop=1, max_deliveries=5))

    assert (lease.acked, lease.acked_slots) == (0, frozenset())
    assert "0-1" not in [str(slot.monotons) for slot in scene.slots]
    assert (lease.dead[0].monotons, lease.dead[0].deliveries) == (Ranges.parse("0-1"), 5)


def test_what_was_handed_out_too_often_is_dead_at_once_and_for_everyone(
    scene: Scene, clock: FakeClock
):
    for _ in range(5):
        scene.replay()
    clock.advance(MOMENT)

    lease = scene.group.lease(make_request(stop=1, max_deliveries=5))

    assert lease.leased == ()
    (dead,) = lease.dead
    assert (dead.monotons, dead.deliveries) == (Ranges.parse("0-1"), 5)
    assert scene.group.remove_dead(dead)
    assert not scene.group.remove_dead(dead), "someone else did"
    assert Ranges.parse("0-1") not in [each.monotons for each in scene.group.read().waiting]


def test_of_several_slots_one_is_taken_again_and_the_exhausted_one_is_not(scene: Scene):
    # Only leases of other releases have several slots under one token.
    due = scene.clock.now + LEASE
    values = {"ranges": "200-203", "lease": scene.held, "due_at": due, "deliveries": 5}
    ops = [Insert(slot_key(1), values, if_absent=True)]
    assert scene.store.cas(partition_of_group(scene.group.queue_id, "g"), ops)
    scene.trouble.fault = Fault.ANSWER_LOST

    assert scene.replay() == [("0-100", 2)]

    lease = scene.group.lease(make_request(held=scene.held, stop=100))
    assert (lease.acked, lease.acked_slots) == (100, frozenset({0}))
    assert [str(slot.monotons) for slot in scene.slots] == ["", ""]
    assert [(str(each.monotons), each.deliveries) for each in lease.state.waiting] == [
        ("200-203", 5)
    ]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("replays", [0, 1, 2, 4])
def test_a_lost_answer_hands_out_once_and_counts_once(scene: Scene, fault: Fault, replays: int):
    other = Scene()
    for _ in range(replays):
        scene.replay()
        other.replay()
    scene.trouble.fault = fault

    again = scene.replay()
    scene.trouble.arrive()

    assert again == other.replay()
    assert [(slot.monotons, slot.deliveries) for slot in scene.slots] == [
        (slot.monotons, slot.deliveries) for slot in other.slots
    ]
    assert [slot.lease == scene.held for slot in scene.slots] == [bool(again)]
    assert scene.waiting == other.waiting


def test_what_was_settled_message_by_message_is_not_handed_out_again(scene: Scene):
    scene.group.settle(scene.held, Settlement(acked=Ranges.parse("0-40,50-60")))

    assert scene.replay() == [("40-50,60-100", 2)]


def test_what_is_settled_between_look_and_replay_is_not_brought_back(scene: Scene):
    # I5
    acked = Ranges.parse("0-99")
    scene.trouble.interrupt(
        lambda: scene.group.settle(scene.held, Settlement(acked=acked)) and None, after=2
    )

    assert scene.replay() == [("99-100", 2)]


def test_an_emptied_slot_is_taken_up_so_that_it_is_not_lost(scene: Scene):
    scene.group.settle(scene.held, Settlement(acked=Ranges.parse("0-100")))

    assert scene.replay() == [("", 2)]
    lease = scene.group.lease(make_request(held=scene.held, stop=100))
    assert lease.acked_slots == {0}


def test_two_drivers_that_replay_one_batch_count_twice(scene: Scene):
    # I8
    scene.trouble.interrupt(lambda: scene.replay(max_deliveries=0) and None, after=2)

    assert scene.replay(max_deliveries=0) == [("0-100", 3)]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REQUEST_LATE, Fault.ANSWER_LOST])
def test_of_two_drivers_that_replay_one_batch_at_once_one_has_it_whatever_answers_are_lost(
    scene: Scene, fault: Fault
):
    # I6: the request of the one is refused, and it is told that nobody knows.
    others: list[tuple[str, int]] = []

    def replay_in_another_process() -> None:
        others.extend(scene.replay())
        scene.trouble.fault = fault

    scene.trouble.interrupt(replay_in_another_process, after=2)
    ours = scene.replay(max_deliveries=0)
    scene.trouble.arrive()

    assert (others, ours) == ([("0-100", 2)], [("0-100", 3)])
    assert [slot.deliveries for slot in scene.slots] == [3]


def test_a_driver_whose_request_was_lost_does_not_take_the_mark_of_another_one_for_its_own(
    scene: Scene,
):
    # I6: the other one comes between the request and the look at what became of it.
    scene.trouble.fault = Fault.REQUEST_LOST
    others: list[tuple[str, int]] = []
    scene.trouble.interrupt(lambda: others.extend(scene.replay()), after=3)

    ours = scene.replay(max_deliveries=0)

    assert (others, ours) == ([("0-100", 2)], [("0-100", 3)])


def test_what_others_take_between_look_and_replay_is_left_out(scene: Scene, clock: FakeClock):
    # I6
    clock.advance(LEASE + MOMENT)
    scene.trouble.interrupt(lambda: scene.group.lease(make_request(stop=100)) and None, after=2)

    assert scene.replay() == []


def test_a_takeover_that_looked_before_a_replay_counts_it(scene: Scene, clock: FakeClock):
    # I8: the slot was due, its reader came back and left again; only the count had changed.
    clock.advance(LEASE + MOMENT)

    def come_and_go() -> None:
        again = scene.group.take_again(make_request(held=scene.held))
        scene.group.release(scene.held, again)
        clock.advance(MOMENT)

    scene.trouble.interrupt(come_and_go, after=2)

    batch = scene.group.lease(make_request(stop=100))
    assert batch.leased == (LeasedSlot(0, Ranges.parse("0-100"), 3),)


# -- a batch that its sink has published ---------------------------------------------------------


def test_a_published_batch_is_replayed_whole_beyond_the_limit_of_deliveries(scene: Scene):
    scene.store.reset()
    assert scene.group.keep_whole(scene.held)
    assert (scene.store.cas_count, scene.store.read_count) == (1, 2)

    assert [scene.replay(max_deliveries=3) for _ in range(4)] == [
        [("0-100", 2)],
        [("0-100", 3)],
        [("0-100", 4)],
        [("0-100", 5)],
    ]
    assert scene.waiting == []
    scene.store.reset()
    assert scene.group.keep_whole(scene.held)
    assert scene.store.cas_count == 0, "it is marked already"


def test_a_batch_that_was_replayed_in_part_before_it_was_published_loses_no_more(scene: Scene):
    sizes = [scene.replay()[0][0] for _ in range(2)]
    assert sizes == ["0-100", "0-10"]

    scene.group.keep_whole(scene.held)

    assert scene.replay() == [("0-10", 4)]
    assert scene.replay() == [("0-10", 5)]
    assert scene.replay() == [("0-10", 6)]


def test_a_retry_backoff_does_not_put_off_a_published_batch(scene: Scene):
    scene.group.keep_whole(scene.held)
    request = make_request(held=scene.held, max_deliveries=5, retry_backoff=timedelta(minutes=1))

    counts = [[each.monotons.count for each in scene.group.take_again(request)] for _ in range(3)]

    assert counts == [[100]] * 3


def test_outcomes_that_are_recorded_later_leave_the_mark(scene: Scene):
    scene.group.keep_whole(scene.held)
    rejected = Settlement(rejected={"bad": Ranges.parse("7-8")})

    scene.group.settle(scene.held, rejected, with_batch=True)

    (slot,) = scene.slots
    assert slot.is_published
    assert slot.outcomes == rejected
    assert [scene.replay(max_deliveries=2) for _ in range(2)] == [[("0-100", 2)], [("0-100", 3)]]


def test_the_mark_is_of_its_lease_and_delivery_only(scene: Scene, clock: FakeClock):
    scene.group.keep_whole(scene.held)
    clock.advance(LEASE + MOMENT)

    other = scene.group.lease(make_request(stop=100, max_deliveries=5))

    assert not any(slot.is_published for slot in scene.slots)
    assert not scene.group.keep_whole(scene.held)
    assert scene.replay(held=other.token) == [("0-10", 3)]


def test_an_answer_that_was_lost_marks_once(scene: Scene):
    scene.trouble.fault = Fault.ANSWER_LOST

    assert scene.group.keep_whole(scene.held)

    assert [slot.is_published for slot in scene.slots] == [True]


def test_an_outcome_that_is_recorded_while_a_batch_is_marked_is_kept(scene: Scene):
    rejected = Settlement(rejected={"bad": Ranges.parse("7-8")})
    scene.trouble.interrupt(
        lambda: scene.group.settle(scene.held, rejected, with_batch=True) and None, after=2
    )

    scene.group.keep_whole(scene.held)

    (slot,) = scene.slots
    assert (slot.is_published, slot.outcomes) == (True, rejected)


def test_a_replay_that_comes_while_its_batch_is_marked_is_marked(scene: Scene):
    scene.trouble.interrupt(lambda: scene.replay() and None, after=2)

    scene.group.keep_whole(scene.held)

    (slot,) = scene.slots
    assert (slot.is_published, slot.deliveries) == (True, 2)
