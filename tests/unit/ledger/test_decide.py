from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.ledger.decide import (
    MOST_LANE_BYTES,
    AlreadyPublished,
    Fenced,
    FromTheFuture,
    Publication,
    decide_publish,
    place_seek_pin,
    register_group,
    remove_group,
)
from cassieq_spark.ledger.identity import PlanIdentity, Standing, standing_of
from cassieq_spark.ledger.state import (
    HEAD,
    Group,
    LedgerHead,
    SeekPin,
    block_key,
    block_values,
    group_key,
    group_values,
    seek_pin_key,
    seek_pin_values,
    sink_key,
)
from cassieq_spark.ledger.unique import ID_BYTES
from cassieq_spark.model import Kept, Range, Ranges, SinkBatch
from cassieq_spark.store.protocol import CLOCKS_APART, Delete, Insert, ServerNow, Update, When
from tests.support.builders import BEGUN_AT, make_pending

OPEN = LedgerHead(
    next=7, size=70, finalised=0, fence=datetime(1970, 1, 1, tzinfo=UTC), groups_version=0
)
BATCH = SinkBatch("sink", 3)


def test_blocks_get_consecutive_monotons_in_their_order():
    first_block, second_block = make_pending([2, 5])
    pending = [replace(first_block, size=5), replace(second_block, size=15)]

    decision = decide_publish(OPEN, pending, batch=None, last=None, now=BEGUN_AT)

    assert isinstance(decision, Publication)
    assert decision.monotons == Range(7, 14)
    head, first, second = decision.ops
    assert head == Update(
        HEAD,
        {"next": 14, "size": 90},
        when=(
            When("next", "=", 7),
            When("fence", "<", BEGUN_AT),
            When("unfenced_until", "=", None),
        ),
    )
    assert first == Insert(
        block_key(7),
        {
            "stop": 9,
            "block": pending[0].block,
            "published_at": ServerNow(),
            "size": 5,
            "size_before": 70,
        },
    )
    assert second == Insert(
        block_key(9),
        {
            "stop": 14,
            "block": pending[1].block,
            "published_at": ServerNow(),
            "size": 15,
            "size_before": 75,
        },
    )


def test_the_first_batch_of_a_sink_claims_a_row_that_must_not_be_there():
    decision = decide_publish(OPEN, make_pending([1]), batch=BATCH, last=None, now=BEGUN_AT)

    assert isinstance(decision, Publication)
    claim = Insert(sink_key("sink"), {"batch_id": 3}, if_absent=True)
    assert claim in decision.ops


def test_a_later_batch_claims_the_row_as_it_was_read():
    decision = decide_publish(
        OPEN, make_pending([1]), batch=BATCH, last=SinkBatch("sink", 2), now=BEGUN_AT
    )

    assert isinstance(decision, Publication)
    claim = Update(sink_key("sink"), {"batch_id": 3}, when=(When("batch_id", "=", 2),))
    assert claim in decision.ops


@pytest.mark.parametrize(
    ("number", "fingerprint", "standing"),
    [
        (2, "a", Standing.NEW),
        (3, "a", Standing.PUBLISHED),
        (3, None, Standing.PUBLISHED),
        (3, "b", Standing.CHANGED),
        (4, "a", Standing.BEHIND),
    ],
)
def test_what_a_batch_is_to_its_sink(number: int, fingerprint: str | None, standing: Standing):
    batch, last = replace(BATCH, fingerprint="a"), SinkBatch("sink", number, fingerprint)

    assert standing_of(batch, last) is standing
    assert standing_of(batch, None) is Standing.NEW
    decision = decide_publish(OPEN, make_pending([1]), batch=batch, last=last, now=BEGUN_AT)
    assert isinstance(decision, Publication) == (standing is Standing.NEW)
    assert decision == AlreadyPublished(last) or standing is Standing.NEW


@pytest.mark.parametrize(
    ("fingerprint", "standing"),
    [
        ("2:9:9:a", Standing.PUBLISHED),
        ("2:9:9:b", Standing.CHANGED),
        ("1:9:9:b", Standing.PUBLISHED),
        ("22:9:9:b", Standing.PUBLISHED),
        ("b", Standing.PUBLISHED),
    ],
)
def test_a_fingerprint_that_was_made_in_another_way_is_not_compared(
    fingerprint: str, standing: Standing
):
    batch, last = replace(BATCH, fingerprint="2:9:9:a"), SinkBatch("sink", 3, fingerprint)

    assert standing_of(batch, last) is standing


@pytest.mark.parametrize(
    ("published", "now", "standing"),
    [
        ("plan:aa", "plan:aa", Standing.PUBLISHED),
        ("plan:aa", "plan:bb", Standing.CHANGED),
        ("plan:aa:5:3:2:0:f", "plan:aa:1:3:2:0:e", Standing.PUBLISHED),
        ("plan:aa:5:3:2:0:f", "plan:ab:5:3:2:0:f", Standing.CHANGED),
        ("plan:aa", "3:9:9:b", Standing.CHANGED),
        ("plan:aa", None, Standing.PUBLISHED),
        ("3:9:9:b", "plan:aa", Standing.PUBLISHED),
    ],
)
def test_a_batch_with_a_plan_is_told_by_its_plan(
    published: str, now: str | None, standing: Standing
):
    """If only the published batch has one, nothing shows that the other is a replay of it."""
    assert standing_of(SinkBatch("s", 3, now), SinkBatch("s", 3, published)) is standing


def test_the_identity_of_a_plan_says_where_the_rows_go():
    plan = PlanIdentity("ab12")
    dealt = plan.dealt([0, 2, 2, 63], "3:9:9:ff")

    assert PlanIdentity.of(str(plan)) == plan
    assert PlanIdentity.of(str(dealt)) == dealt
    assert [each for each in range(64) if dealt.reaches(each)] == [0, 2, 63]
    assert PlanIdentity.of("3:9:9:ff") is None
    assert PlanIdentity.of(None) is None


def test_the_fingerprint_of_a_batch_is_written_with_it_and_names_it():
    batch = replace(BATCH, fingerprint="a")

    decision = decide_publish(OPEN, make_pending([1]), batch=batch, last=None, now=BEGUN_AT)

    assert isinstance(decision, Publication)
    values = {"batch_id": 3, "fingerprint": "3 a"}
    assert Insert(sink_key("sink"), values, if_absent=True) in decision.ops


def test_a_block_as_old_as_the_fence_is_refused_and_one_younger_is_not():
    pending = make_pending([1], BEGUN_AT + timedelta(seconds=1)) + make_pending([1])
    at_fence = replace(OPEN, fence=BEGUN_AT)
    before_fence = replace(OPEN, fence=BEGUN_AT - timedelta(milliseconds=1))

    refused = decide_publish(at_fence, pending, batch=None, last=None, now=BEGUN_AT)
    accepted = decide_publish(before_fence, pending, batch=None, last=None, now=BEGUN_AT)

    assert refused == Fenced(BEGUN_AT, BEGUN_AT)
    assert isinstance(accepted, Publication)


def test_a_published_batch_is_a_success_also_behind_the_fence():
    fenced = replace(OPEN, fence=BEGUN_AT)

    decision = decide_publish(
        fenced, make_pending([1]), batch=BATCH, last=SinkBatch("sink", 3), now=BEGUN_AT
    )

    assert decision == AlreadyPublished(SinkBatch("sink", 3))


def test_of_a_clock_that_is_ahead_a_block_is_refused_up_to_a_fence_that_was_taken_back():
    until = BEGUN_AT + timedelta(days=30)
    taken_back = replace(OPEN, unfenced_until=until)
    soon, late = BEGUN_AT + CLOCKS_APART, BEGUN_AT + CLOCKS_APART + timedelta(milliseconds=1)

    def decided(begun_at: datetime, head: LedgerHead = taken_back) -> object:
        pending = make_pending([1]) + make_pending([1], begun_at)
        return decide_publish(head, pending, batch=None, last=None, now=BEGUN_AT)

    for begun_at in (late, until):
        assert decided(begun_at) == FromTheFuture(begun_at, BEGUN_AT)
        assert isinstance(decided(begun_at, OPEN), Publication)
    for begun_at in (soon, until + timedelta(milliseconds=1)):
        assert isinstance(decided(begun_at), Publication)


def test_the_row_of_a_block_says_which_of_its_messages_are_published():
    (block,) = make_pending([3])
    once, twice = b"1" * ID_BYTES, b"2" * ID_BYTES
    block = replace(block, ids=twice + once + twice)

    decision = decide_publish(OPEN, [block], batch=None, last=None, now=BEGUN_AT)

    assert isinstance(decision, Publication)
    assert decision.monotons == Range(7, 9)
    kept = Kept(Ranges.parse("0-2"), 3)
    assert Insert(block_key(7), block_values(block, 9, 70, kept)) in decision.ops


def test_a_publish_tells_the_lanes_of_its_first_blocks_only():
    told = [replace(block, lanes="7" * (MOST_LANE_BYTES // 2)) for block in make_pending([1] * 3)]

    decision = decide_publish(OPEN, told, batch=None, last=None, now=BEGUN_AT)

    assert isinstance(decision, Publication)
    rows = [op for op in decision.ops if isinstance(op, Insert)]
    assert [row.values.get("lanes") for row in rows] == [told[0].lanes, told[1].lanes, None]


class Known:
    """What is known of unique ids: none, and rows of ids to delete below a position."""

    def __init__(self, below: int | None) -> None:
        self.monotons: dict[bytes, int] = {}
        self._below = below

    def forget_below(self) -> int | None:
        return self._below


@pytest.mark.parametrize(("below", "has_deleted"), [(3, True), (None, False)])
def test_a_publish_says_which_rows_of_unique_ids_are_behind_it(
    below: int | None, *, has_deleted: bool
):
    (block,) = make_pending([1])
    head = replace(OPEN, last_ids=5)

    decision = decide_publish(head, [block], batch=None, last=None, now=BEGUN_AT, ids=Known(below))

    assert isinstance(decision, Publication)
    assert (decision.ids_before, decision.has_deleted) == (5, has_deleted)


# -- groups ---------------------------------------------------------------------------------------


def test_a_group_is_registered_under_the_groups_version_that_the_same_change_claims():
    head = replace(OPEN, groups_version=4)

    ops = register_group(head, "g", 3)

    assert Insert(group_key("g"), group_values(3, 5), if_absent=True) in ops


def test_a_seek_pin_is_placed_under_the_groups_version_that_the_same_change_claims():
    head = replace(OPEN, groups_version=4)

    ops = place_seek_pin(head, Group("g", 0, 2), 5)

    assert Insert(seek_pin_key(5, "g"), seek_pin_values(5), if_absent=True) in ops
    assert [op.values for op in ops if isinstance(op, Update) and op.row == HEAD] == [
        {"groups_version": 5}
    ]


def test_a_group_goes_with_all_of_its_seek_pins():
    ops = remove_group(OPEN, Group("g", 0, 2), [SeekPin(3, "g", 5), SeekPin(4, "g", 6)])

    assert [op.row for op in ops if isinstance(op, Delete)] == [
        group_key("g"),
        seek_pin_key(3, "g"),
        seek_pin_key(4, "g"),
    ]
