"""A round does for each thread what it would have done by itself, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from cassieq_spark import backoff
from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import CassieqError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.rounds import Change, Leasing, Settling, plan_round
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.protocol import EVERYTHING, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
)

MESSAGES, MOST_DELIVERIES = 24, 4
#: How long the first leases last, in seconds: some run out before the round.
BEFORE = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([10, 600]), st.integers(0, 3)), max_size=4
)
PARTS = st.lists(st.integers(0, MESSAGES - 1), max_size=6).map(
    lambda each: Ranges.of(*(Range(at, at + 1) for at in each))
)
SETTLEMENTS = st.builds(
    Settlement,
    acked=PARTS,
    released=st.dictionaries(st.sampled_from([timedelta(0), LEASE]), PARTS, max_size=2),
    rejected=st.dictionaries(st.sampled_from(["bad", "worse"]), PARTS, max_size=1),
    extended=st.dictionaries(st.just(LEASE), PARTS, max_size=1),
    unread=PARTS,
)
#: Of each lease, by its number: what to settle, or what to ack by receipts and lease.
CHANGES = st.lists(
    st.tuples(st.integers(0, 4), SETTLEMENTS, st.none())
    | st.tuples(st.integers(0, 4), PARTS, st.integers(0, 5)),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True, scope="module")
def _no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


class Scene:
    """A group, some of whose messages are delayed, leased, given back, or due again."""

    def __init__(self, before: Sequence[tuple[int, int, int]], delayed: bool) -> None:
        memory, self.clock = make_clocked_store()
        self.store = FaultyStore(memory)
        queue_id = make_queue(memory, [MESSAGES // 2]).queue_id
        ledger = Ledger(memory, queue_id)
        pending = make_pending([MESSAGES // 4, MESSAGES // 4], self.clock.now)
        if delayed:
            pending[0] = replace(pending[0], visible=self.clock.now + timedelta(seconds=30))
        publish(ledger, pending)
        head = ledger.read_head()
        self.group: ConsumerGroup = make_group(self.store, queue_id)
        self.request = make_request(
            stop=MESSAGES,
            delayed_stop=head.delayed_stop,
            max_deliveries=MOST_DELIVERIES,
            by_receipts=True,
        )
        self.leases: list[UUID] = []
        for number, (most, lasting, released) in enumerate(before):
            token = UUID(int=1000 + 8 * number)
            lease = timedelta(seconds=lasting)
            wanted = replace(self.request, token=token, lease=lease, max_messages=most)
            leased = self.group.lease(wanted).leased
            self.leases.append(token)
            back = Ranges.union(each.monotons for each in leased).split(released)[0]
            self.group.settle(token, Settlement(released={timedelta(0): back}))
        self.clock.advance(timedelta(seconds=60))

    def changes(self, drawn: Sequence[tuple[int, object, int | None]]) -> list[Change]:
        made: list[Change] = []
        for number, (of, what, most) in enumerate(drawn):
            lease = self.leases[of] if of < len(self.leases) else UUID(int=1)
            token = UUID(int=9000 + 8 * number)
            if isinstance(what, Settlement):
                made.append(Settling(lease, what, token=token))
            else:
                acks = {lease: what} if what else {}
                request = replace(self.request, receipt_acks=acks, max_messages=most)
                made.append(Leasing(request, token=token))
        return made

    def rows(self) -> list[tuple[object, ...]]:
        """All rows of the group, but for empty slots, which only hold tokens."""
        partition = partition_of_group(self.group.queue_id, self.group.name)
        rows = self.store.read_rows(partition, EVERYTHING).rows
        return [
            tuple(sorted(row.items(), key=str))
            for row in rows
            if row["kind"] != "registration" and (row["kind"] != "slot" or row["ranges"])
        ]


def told(change: Change, outcome: Lease | Settled | CassieqError) -> object:
    if isinstance(outcome, Lease):
        return outcome.leased, outcome.dead, {*outcome.settled.values()}, outcome.pointer
    return outcome if isinstance(outcome, Settled) else type(outcome)


def drawn_scenes() -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({"before": BEFORE, "delayed": st.booleans()})


@given(scene=drawn_scenes(), drawn=CHANGES)
def test_a_round_is_as_if_one_came_after_the_other(
    scene: dict, drawn: list[tuple[int, object, int | None]]
):
    together, apart = Scene(**scene), Scene(**scene)
    changes = together.changes(drawn)

    planned = together.group._carry_out_round(changes, Backoff())
    one_by_one = [
        (each, apart.group._carry_out_round([each], Backoff())) for each in apart.changes(drawn)
    ]

    assert [told(each, planned.outcome_of(each)) for each in changes] == [
        told(each, done.outcome_of(each)) for each, done in one_by_one
    ]
    assert together.rows() == apart.rows()
    event(f"leased by {sum(bool(getattr(each, 'leased', ())) for each in planned.plans.values())}")


@given(scene=drawn_scenes(), drawn=CHANGES, fault=st.sampled_from(Fault), loses=st.booleans())
def test_a_round_whose_answer_is_lost_is_carried_out_once(
    scene: dict, drawn: list[tuple[int, object, int | None]], fault: Fault, loses: bool
):
    troubled, calm = Scene(**scene), Scene(**scene)
    changes = troubled.changes(drawn)
    troubled.store.fault = fault
    if loses:
        # Another program fills a free slot in between, also one that the round has freed.
        troubled.store.interrupt(lambda: _fill_a_slot(troubled), after=3)

    planned = troubled.group._carry_out_round(changes, Backoff())
    expected = calm.group._carry_out_round(calm.changes(drawn), Backoff())
    troubled.store.calm()
    while troubled.store.late:
        troubled.store.arrive()

    if not loses:
        assert [_stale(planned.outcome_of(each)) for each in changes] == [
            _stale(expected.outcome_of(each)) for each in expected.plans
        ]
    state = troubled.group.read(every_waiting=True)
    held = [slot.monotons for slot in state.slots]
    named = [*held, *(row.monotons for row in state.waiting)]
    assert sum(each.count for each in named) == Ranges.union(named).count
    for change in changes:
        outcome = planned.outcome_of(change)
        for leased in outcome.leased if isinstance(outcome, Lease) else ():
            slots = {slot.number: slot for slot in state.slots}
            assert slots[leased.slot].lease == outcome.token


def _stale(outcome: object) -> object:
    return outcome.stale if isinstance(outcome, Settled) else None


def _fill_a_slot(scene: Scene) -> None:
    scene.store.calm()
    scene.group.lease(replace(scene.request, token=UUID(int=77), max_messages=1))


def test_a_round_of_changes_that_do_nothing_has_no_operations():
    scene = Scene([], delayed=False)
    changes = scene.changes([(4, Settlement(), None), (4, Ranges(), 0)])

    assert plan_round(scene.group.read(), changes).ops == ()
