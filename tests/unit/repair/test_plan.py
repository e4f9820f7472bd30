from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range
from cassieq_spark.repair.actions import (
    DeleteSettled,
    DeleteUnpublished,
    Finalise,
    RaiseFence,
    RepairAction,
    Trim,
)
from cassieq_spark.repair.plan import aged, plan_clean, plan_fence, plan_finalise, stays_from
from cassieq_spark.repair.scan import Run
from cassieq_spark.store.protocol import CLOCKS_APART
from tests.support.faults import make_block_id

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
QUEUE = QueueDefinition("orders", 1, bucket_size=4, chunk_size=2)
A, B, C = (make_block_id(NOON) for _ in range(3))
#: A has [0, 10): buckets 0 to 2; B has [10, 13): bucket 0; C has [13, 33): buckets 0 to 4.
BLOCKS = [
    LedgerBlock(Range(0, 10), A, NOON),
    LedgerBlock(Range(10, 13), B, NOON),
    LedgerBlock(Range(13, 33), C, NOON),
]


def head(*, finalised: int = 0, fence: datetime = NOON) -> LedgerHead:
    return LedgerHead(next=33, finalised=finalised, fence=fence, groups_version=1)


def plan(
    finalised: int, floor: int | None, blocks: list[LedgerBlock] = BLOCKS
) -> list[RepairAction]:
    return plan_finalise(QUEUE, head(finalised=finalised), blocks, floor)


def test_finalised_goes_first_then_buckets_and_ledger_rows_last():
    assert plan(0, 13) == [
        Finalise(QUEUE.queue_id, head(), 13),
        DeleteSettled(QUEUE.queue_id, ((A, 0), (A, 1), (A, 2), (B, 0))),
        Trim(QUEUE.queue_id, finalised=13, below=13, count=2),
    ]


def test_of_a_straddling_block_only_the_buckets_wholly_below_the_floor_go():
    assert plan(0, 9) == [
        Finalise(QUEUE.queue_id, head(), 9),
        DeleteSettled(QUEUE.queue_id, ((A, 0), (A, 1))),
    ]


def test_a_later_run_does_not_delete_the_buckets_of_a_straddling_block_again():
    assert plan(18, 26, BLOCKS[2:]) == [
        Finalise(QUEUE.queue_id, head(finalised=18), 26),
        DeleteSettled(QUEUE.queue_id, ((C, 1), (C, 2))),
    ]


def test_a_block_that_is_settled_at_last_loses_all_its_buckets():
    assert plan(9, 10) == [
        Finalise(QUEUE.queue_id, head(finalised=9), 10),
        DeleteSettled(QUEUE.queue_id, ((A, 0), (A, 1), (A, 2))),
        Trim(QUEUE.queue_id, finalised=10, below=10, count=1),
    ]


def test_a_block_of_one_message_loses_its_bucket():
    block = LedgerBlock(Range(0, 1), A, NOON)

    assert DeleteSettled(QUEUE.queue_id, ((A, 0),)) in plan(0, 1, [block])


def test_what_was_too_old_without_a_group_is_told_as_such():
    finalise, *_ = plan_finalise(QUEUE, head(), BLOCKS, 13, unconsumed=True)

    assert finalise == Finalise(QUEUE.queue_id, head(), 13, unconsumed=True)


def test_a_floor_within_a_bucket_moves_finalised_alone():
    assert plan(0, 3) == [Finalise(QUEUE.queue_id, head(), 3)]


def test_nothing_new_is_nothing_to_do():
    assert plan(18, 18, BLOCKS[2:]) == []


@pytest.mark.parametrize("floor", [13, None])
def test_rows_below_finalised_stand_for_deletions_that_a_crash_left(floor: int | None):
    assert plan(13, floor, BLOCKS[:2]) == [
        DeleteSettled(QUEUE.queue_id, ((A, 0), (A, 1), (A, 2), (B, 0))),
        Trim(QUEUE.queue_id, finalised=13, below=13, count=2),
    ]


def test_without_groups_nothing_is_finalised():
    assert plan(0, None, []) == []


def test_what_was_published_after_the_head_was_read_waits_for_the_next_run():
    (finalise, *_) = plan(0, 99)

    assert finalise == Finalise(QUEUE.queue_id, head(), 33)


def test_a_group_that_is_owed_less_than_what_is_finalised_is_an_error():
    with pytest.raises(
        InvariantError, match=r"not settled monoton 9, .* below 10 is finalised \(I7\)"
    ):
        plan(10, 9)


def test_a_hole_in_the_ledger_stops_everything():
    with pytest.raises(
        InvariantError, match=r"queue orders@1: .* one at 13 \(I1\); nothing of it was deleted"
    ):
        plan(0, 20, [BLOCKS[0], BLOCKS[2]])


def test_the_fence_goes_up_to_the_write_timeout_ago():
    before = head(fence=NOON - 2 * HOUR)

    assert plan_fence(QUEUE, before, NOON, HOUR) == [
        RaiseFence(QUEUE.queue_id, before, NOON - HOUR)
    ]


@pytest.mark.parametrize("fence", [NOON - HOUR, NOON])
def test_the_fence_never_goes_down(fence: datetime):
    assert plan_fence(QUEUE, head(fence=fence), NOON, HOUR) == []


def test_an_unpublished_block_at_the_fence_is_deleted():
    runs = [Run(QUEUE.queue_id, A, Range(0, 6)), Run(QUEUE.queue_id, A, Range(9, 10))]

    assert plan_clean(QUEUE, runs, fence=NOON, published={B}) == [
        DeleteUnpublished(QUEUE.queue_id, A, (0, 1, 2))
    ]


def test_a_published_block_is_never_deleted_as_unpublished():
    run = Run(QUEUE.queue_id, A, Range(0, 6))

    assert plan_clean(QUEUE, [run], fence=NOON, published={A}) == []


def test_a_block_younger_than_the_fence_may_still_be_published():
    run = Run(QUEUE.queue_id, A, Range(0, 6))

    assert plan_clean(QUEUE, [run], fence=NOON - timedelta(milliseconds=1), published=set()) == []


def test_an_unpublished_block_in_the_wrong_bucket_is_deleted_there():
    run = Run(QUEUE.queue_id, A, Range(0, 2), (), (Range(0, 2),), (7,))

    (action,) = plan_clean(QUEUE, [run], fence=NOON, published=set())

    assert action == DeleteUnpublished(QUEUE.queue_id, A, (0, 7))


@pytest.mark.parametrize(
    ("kept", "expires", "has_groups", "stays"),
    [
        (None, None, False, None),
        (HOUR, None, True, HOUR),
        (None, HOUR, True, None),
        (None, HOUR, False, HOUR),
        (HOUR, 2 * HOUR, True, HOUR),
        (HOUR, 2 * HOUR, False, 2 * HOUR),
        (2 * HOUR, HOUR, False, 2 * HOUR),
    ],
)
def test_messages_stay_as_long_as_settled_ones_are_kept_and_without_groups_until_they_expire(
    kept: timedelta | None, expires: timedelta | None, stays: timedelta | None, *, has_groups: bool
):
    queue = replace(QUEUE, keep_settled=kept, expire_after=expires)

    assert stays_from(queue, NOON, has_groups=has_groups) == (stays and NOON - stays)


# -- blocks of the future -------------------------------------------------------------------------


def block_of(first: int, begun_at: datetime, published_at: datetime) -> LedgerBlock:
    return LedgerBlock(Range(first, first + 1), make_block_id(begun_at), published_at)


@pytest.mark.parametrize("by", ["writer", "server"])
def test_a_block_of_the_future_is_there_by_the_time_of_the_next_that_is_not(by: str):
    ahead, then = NOON + 700 * HOUR, NOON - HOUR
    future = block_of(0, ahead, NOON) if by == "writer" else block_of(0, then - HOUR, ahead)
    blocks = [block_of(0, then, then), future, future, block_of(1, then, then)]

    found = list(aged(blocks, NOON))

    assert [each.there_by for each in found] == [None, then, then, None]
    assert [each.block for each in found] == [each.block for each in blocks]


@pytest.mark.parametrize("begun_at", [NOON - HOUR, NOON, NOON + CLOCKS_APART])
def test_a_block_is_not_there_before_its_writer_began_it(begun_at: datetime):
    behind = NOON - 2 * HOUR
    future = block_of(0, begun_at, NOON + 700 * HOUR)

    (found, _) = aged([future, block_of(1, behind, behind)], NOON)

    assert found.there_by == begun_at


def test_without_a_later_block_a_block_of_the_future_has_no_other_time():
    future = block_of(0, NOON + 700 * HOUR, NOON)

    assert list(aged([future], NOON)) == [future]


def test_a_clock_that_is_ahead_by_what_clocks_may_be_apart_is_not_of_the_future():
    ahead = NOON + CLOCKS_APART
    earlier = NOON - HOUR
    blocks = [block_of(0, ahead, ahead), block_of(1, earlier, earlier)]

    assert list(aged(blocks, NOON)) == blocks
