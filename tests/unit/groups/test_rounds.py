"""Rounds: changes of several threads, planned one after the other and carried out by one LWT."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import InvariantError, OutcomeUnknownError
from cassieq_spark.groups.changes import merge_ops, state_after
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.rounds import Change, Leasing, Round, Settling, _fit, plan_round
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Settlement, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.protocol import Delete, Insert, Op, Update, When
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

ROW = ("slot", 0, 0)
NOW = timedelta(0)


class Scene:
    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.group: ConsumerGroup = make_group(self.store, make_queue(memory, [20]).queue_id)

    def leased(self, most: int) -> UUID:
        request = make_request(stop=20, max_messages=most, by_receipts=True)
        return self.group.lease(request).token

    def carry_out(self, *changes: Change) -> Round:
        return self.group._carry_out_round(changes, Backoff())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def leasing(**asked: object) -> Leasing:
    return Leasing(make_request(**({"stop": 20, "by_receipts": True} | asked)))


def settling(lease: UUID, **asked: object) -> Settling:
    return Settling(lease, Settlement(**asked))


def part(text: str) -> Ranges:
    return Ranges.parse(text)


# -- the operations of two plans as one -----------------------------------------------------------


def test_of_two_changes_of_a_row_the_second_counts_and_the_first_says_on_what_it_depends():
    first = Update(
        ROW, {"ranges": "1-2", "lease": UUID(int=2)}, (When("lease", "=", UUID(int=1)),)
    )
    then = Update(
        ROW,
        {"ranges": "5-6"},
        (When("lease", "=", UUID(int=2)), When("deliveries", "=", 3)),
    )

    assert merge_ops([first], [then]) == (
        Update(
            ROW,
            {"ranges": "5-6", "lease": UUID(int=2)},
            (When("lease", "=", UUID(int=1)), When("deliveries", "=", 3)),
        ),
    )


def test_a_row_that_is_added_and_then_changed_is_added_as_it_is_in_the_end():
    added = Insert(ROW, {"ranges": "1-2"}, if_absent=True)
    changed = Update(ROW, {"ranges": "", "lease": UUID(int=1)}, (When("ranges", "=", "1-2"),))

    assert merge_ops([added], [changed]) == (
        Insert(ROW, {"ranges": "", "lease": UUID(int=1)}, if_absent=True),
    )


def test_a_row_that_is_added_and_then_removed_was_never_there():
    added: list[Op] = [Insert(("waiting", 5, 1), {"ranges": "1-2"}), Delete(("waiting", 4, 1))]

    assert merge_ops(added, [Delete(("waiting", 5, 1))]) == (Delete(("waiting", 4, 1)),)


def test_rows_beyond_those_that_were_read_stay_unknown(scene: Scene):
    read = tuple(Waiting(due, Ranges.of(Range(due, due + 1)), 1) for due in (3, 5))
    state = replace(scene.group.read(), waiting=read, all_waiting=False)

    after = state_after(
        state,
        [
            Insert(("waiting", 4, 9), {"ranges": "9-10", "deliveries": 1}),
            Insert(("waiting", 6, 8), {"ranges": "8-9", "deliveries": 1}),
            Delete(("waiting", 3, 3)),
        ],
    )

    assert [(each.due, each.monotons.hull.start) for each in after.waiting] == [(4, 9), (5, 5)]


# -- rounds ---------------------------------------------------------------------------------------


def test_each_change_finds_what_the_ones_before_have_left(scene: Scene):
    held = scene.leased(4)
    first, second, third = leasing(max_messages=3), leasing(max_messages=9), leasing()
    back = settling(held, released={NOW: part("0-4")})

    done = scene.carry_out(back, first, second, third)

    leases = [done.outcome_of(each) for each in (first, second, third)]
    assert [monotons_of(each.leased) for each in leases if isinstance(each, Lease)] == [
        [part("0-3")],
        # What was given back singly goes together with what is fresh.
        [part("3-4"), part("4-12")],
        [part("12-20")],
    ]
    assert scene.group.read().waiting == ()


def test_what_was_settled_by_one_is_stale_for_the_next(scene: Scene):
    held = scene.leased(4)
    first = settling(held, acked=part("0-3"))
    second = settling(held, acked=part("2-4"))

    done = scene.carry_out(first, second)

    assert done.outcome_of(first) == Settled(3, Ranges())
    assert done.outcome_of(second) == Settled(1, part("2-3"))


def test_a_round_is_refused_if_what_its_first_change_depends_on_has_changed(scene: Scene):
    state = scene.group.read()
    planned = plan_round(state, [leasing(max_messages=2), leasing(max_messages=2)])
    scene.leased(1)

    assert not scene.group.cas(planned.ops)


def test_a_lost_answer_is_resolved_although_no_change_had_to_leave_a_token(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    one, other = scene.leased(2), scene.leased(2)
    scene.group.settle(other, Settlement(extended={LEASE: part("2-4")}))
    changes = [settling(one, acked=part("0-1")), settling(other, extended={LEASE: part("2-4")})]
    monkeypatch.setattr(ConsumerGroup, "cas", losing_the_answer(ConsumerGroup.cas))
    scene.store.reset()

    done = scene.carry_out(*changes)

    told = [done.outcome_of(each) for each in changes]
    assert told == [Settled(1, Ranges()), Settled(2, Ranges())]
    assert scene.store.cas_count == 1


def losing_the_answer(cas):
    def lose(group: ConsumerGroup, ops: object) -> bool:
        cas(group, ops)
        raise OutcomeUnknownError("lost")

    return lose


def test_a_round_of_which_a_part_only_seems_done_was_not_carried_out(scene: Scene):
    """Another program has acked what one thread was to ack."""
    one, other = scene.leased(2), scene.leased(2)
    changes = [settling(one, acked=part("0-2")), settling(other, acked=part("2-4"))]
    planned = plan_round(scene.group.read(), changes)
    scene.group.settle(one, Settlement(acked=part("0-2")))

    state = scene.group.read()
    assert not planned.was_applied(state.slots, state.now)


def test_a_round_that_is_shared_does_not_tell_the_state_of_the_group(scene: Scene):
    first, second = leasing(max_messages=1), leasing(max_messages=1)
    together = scene.carry_out(first, second)
    alone = scene.carry_out(third := leasing(max_messages=1))

    shared, single = together.outcome_of(first), alone.outcome_of(third)
    assert isinstance(shared, Lease)
    assert isinstance(single, Lease)
    assert shared.after is None
    assert single.after is not None


def test_what_depends_on_all_that_others_hold_has_a_round_of_its_own():
    strict, limited, plain = leasing(strict_fifo=True), leasing(max_in_flight=3), leasing()

    assert not _fit([strict], plain)
    assert not _fit([plain], strict)
    assert not _fit([plain], limited)
    assert _fit([plain], settling(UUID(int=1)))


def test_damage_ahead_fails_what_looks_ahead_and_no_ack(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    held = scene.leased(2)

    def damaged(*_: object, **__: object) -> object:
        raise InvariantError("a hole")

    monkeypatch.setattr(Ledger, "locate", damaged)
    ahead, ack = leasing(max_messages=2, max_bytes=10), settling(held, acked=part("0-2"))
    plain = leasing(max_messages=2)

    done = scene.carry_out(ahead, ack, plain)

    assert isinstance(done.outcome_of(ahead), InvariantError)
    assert done.outcome_of(ack) == Settled(2, Ranges())
    leased = done.outcome_of(plain)
    assert isinstance(leased, Lease)
    assert monotons_of(leased.leased) == [part("2-4")]


def test_a_round_reads_blocks_once_for_all_that_need_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Range] = []
    locate = Ledger.locate

    def located(ledger: Ledger, monotons: Range, **limits: int) -> object:
        asked.append(monotons)
        return locate(ledger, monotons, **limits)

    monkeypatch.setattr(Ledger, "locate", located)

    scene.carry_out(leasing(max_bytes=10, stop=12), leasing(max_bytes=10), leasing())

    assert asked == [Range(0, 20)]


def test_waiting_rows_are_read_serially_once_for_all_that_lease_them(scene: Scene):
    held = scene.leased(6)
    scene.group.settle(held, Settlement(released={NOW: part("0-2"), LEASE: part("2-6")}))
    scene.clock.advance(LEASE)
    scene.store.reset()

    scene.carry_out(leasing(max_messages=2), leasing(max_messages=4))

    assert (scene.store.cas_count, scene.store.serial_read_count) == (1, 1)
    assert [str(each.monotons) for each in scene.group.read().slots] == ["0-2", "2-6"]


def test_the_clock_of_the_server_ends_the_leases_of_a_round(scene: Scene):
    clock: FakeClock = scene.clock
    scene.carry_out(leasing(max_messages=1, lease=LEASE), leasing(max_messages=1, lease=2 * LEASE))
    clock.advance(LEASE + timedelta(seconds=1))

    again = scene.group.lease(make_request(stop=2))

    assert monotons_of(again.leased) == [part("0-1")]
