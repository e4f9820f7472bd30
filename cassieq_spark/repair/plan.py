"""Plans what to finalise, fence and clean, and computes how old blocks are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.state import LedgerHead, check_tiling
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range, block_time
from cassieq_spark.repair.actions import (
    DeleteSettled,
    DeleteUnpublished,
    Finalise,
    RaiseFence,
    RepairAction,
    Trim,
)
from cassieq_spark.repair.scan import Run, buckets_of
from cassieq_spark.store.protocol import CLOCKS_APART


def plan_finalise(
    queue: QueueDefinition,
    head: LedgerHead,
    blocks: Sequence[LedgerBlock],
    floor: int | None,
    *,
    unconsumed: bool = False,
) -> list[RepairAction]:
    """Plan how to delete settled messages, in an order in which a crash leaves no hole.

    First ``finalised`` is raised, then buckets are deleted, and ledger rows last: a row below
    ``finalised`` says that its buckets may still exist. If ``finalised`` ends within a block, only
    the buckets that become settled now are deleted; once the whole block is settled, all of its
    buckets are deleted again.

    Args:
        queue: The queue.
        head: The head of the ledger, read before the floors of the groups (I7).
        blocks: The blocks that begin below the floor or ``finalised`` and are not trimmed.
        floor: Lowest monoton that any group is owed, or the first monoton that stays for another
            reason; None without groups: finish only what an earlier repair run has left.
        unconsumed: True if there is no group, and the messages are too old.

    Raises:
        InvariantError: A group is owed less than what is finalised (I7), or the ledger has a hole
            below the floor (I1).
    """
    reached = head.finalised if floor is None else min(floor, head.next)
    if reached < head.finalised:
        raise InvariantError(
            f"queue {queue.queue_id}: a group has not settled monoton {reached}, "
            f"but everything below {head.finalised} is finalised (I7)"
        )
    settled = Range(head.finalised, reached)
    try:
        check_tiling(blocks, settled)
    except InvariantError as error:
        raise InvariantError(
            f"queue {queue.queue_id}: {error}; nothing of it was deleted, the audit shows more"
        ) from error
    actions: list[RepairAction] = []
    if settled:
        actions.append(Finalise(queue.queue_id, head, reached, unconsumed))
    if buckets := tuple(_settled_buckets(blocks, settled, queue.bucket_size)):
        actions.append(DeleteSettled(queue.queue_id, buckets))
    if done := [block for block in blocks if block.monotons.stop <= reached]:
        actions.append(Trim(queue.queue_id, reached, done[-1].monotons.stop, len(done)))
    return actions


def stays_from(queue: QueueDefinition, now: datetime, *, has_groups: bool) -> datetime | None:
    """The time from which on visible messages must stay; None if none must stay.

    Args:
        queue: The queue.
        now: The time, by a clock that others agree with.
        has_groups: True if there are groups; without groups, messages expire by their age alone.
    """
    periods = [queue.keep_settled, None if has_groups else queue.expire_after]
    return min((now - period for period in periods if period is not None), default=None)


def plan_fence(
    queue: QueueDefinition, head: LedgerHead, now: datetime, write_timeout: timedelta
) -> list[RepairAction]:
    """Plan to raise the fence to ``now - write_timeout``; never down (I10)."""
    fence = now - write_timeout
    return [RaiseFence(queue.queue_id, head, fence)] if fence > head.fence else []


def plan_clean(
    queue: QueueDefinition, runs: Iterable[Run], *, fence: datetime, published: AbstractSet[UUID]
) -> list[RepairAction]:
    """Plan to delete the blocks that can never be published (I10).

    Args:
        queue: The queue.
        runs: What is stored of the queue's blocks.
        fence: The fence, read before ``published``.
        published: The blocks in the ledger, read serially.
    """
    unpublished: dict[UUID, set[int]] = {}
    for run in runs:
        if run.block not in published and block_time(run.block) <= fence:
            buckets = unpublished.setdefault(run.block, set())
            buckets.update(buckets_of(run.covered, queue.bucket_size), run.misplaced_buckets)
    return [
        DeleteUnpublished(queue.queue_id, block, tuple(sorted(buckets)))
        for block, buckets in unpublished.items()
    ]


def is_of_the_future(block: LedgerBlock, now: datetime) -> bool:
    """True if the clock of the block's writer, or of its server, was ahead of ``now``."""
    return max(block.published_at, block_time(block.block)) > now + CLOCKS_APART


def aged(blocks: Iterable[LedgerBlock], now: datetime) -> Iterator[LedgerBlock]:
    """The same blocks, each block of the future with the time of the next block that is not.

    The ledger has blocks in the order in which they were published. So a block whose clock was a
    month ahead does not keep the blocks after it for a month. A block of the future without a next
    block has no such time.

    Args:
        blocks: The blocks, in order.
        now: The time, by a clock that others agree with.
    """
    ahead: list[LedgerBlock] = []
    for block in blocks:
        if is_of_the_future(block, now):
            ahead.append(block)
            continue
        # The clock of the server that published it may have been behind.
        by = max(block.published_at, block_time(block.block))
        yield from (replace(each, there_by=_no_older(each, by, now)) for each in ahead)
        ahead.clear()
        yield block
    yield from ahead


def _settled_buckets(
    blocks: Iterable[LedgerBlock], settled: Range, bucket_size: int
) -> Iterator[tuple[UUID, int]]:
    for block in blocks:
        if block.monotons.stop <= settled.stop:
            buckets = buckets_of(Range(0, block.count), bucket_size)
        else:
            before, after = (
                block.offset_of(end) // bucket_size for end in (settled.start, settled.stop)
            )
            buckets = range(before, after)
        yield from ((block.block, bucket) for bucket in buckets)


def _no_older(block: LedgerBlock, by: datetime, now: datetime) -> datetime:
    """``by``, but not earlier than the block was begun, if the clock of its writer was right."""
    begun_at = block_time(block.block)
    return by if begun_at > now + CLOCKS_APART else max(by, begun_at)
