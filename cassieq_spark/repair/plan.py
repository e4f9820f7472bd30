"""What to finalise, fence and clean, given what was read; how old blocks are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.state import LedgerHead, check_tiling
from cassieq_spark.model import (
    LedgerBlock,
    QueueDefinition,
    Range,
    block_time,
)
from cassieq_spark.repair.actions import (
    Action,
    DeleteSettled,
    DeleteUnpublished,
    Finalise,
    RaiseFence,
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
) -> list[Action]:
    """Plan how to delete what is settled, in an order in which a crash leaves no hole.

    ``finalised`` first, then buckets, ledger rows last: a row below ``finalised`` stands for
    deletions that may not have happened. Of the block that straddles it, only the buckets that
    become settled now are deleted; when all of it is settled, all of its buckets are, once more.

    Args:
        queue: Which queue.
        head: As read before the floors of the groups were (I7).
        blocks: Those that begin below the floor or ``finalised``, also those not trimmed yet.
        floor: Lowest monoton that any group is owed, or the first one that stays for another
            reason; None without groups: finish only what an earlier repair run has left.
        unconsumed: Whether what goes is too old, and there is no group that it could be kept for.

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
            f"queue {queue.queue_id}: {error}; nothing of it was deleted, the audit tells more"
        ) from error
    actions: list[Action] = []
    if settled:
        actions.append(Finalise(queue.queue_id, head, reached, unconsumed))
    if buckets := tuple(_settled_buckets(blocks, settled, queue.bucket_size)):
        actions.append(DeleteSettled(queue.queue_id, buckets))
    if done := [block for block in blocks if block.monotons.stop <= reached]:
        actions.append(Trim(queue.queue_id, reached, done[-1].monotons.stop, len(done)))
    return actions


def stays_from(queue: QueueDefinition, now: datetime, *, has_groups: bool) -> datetime | None:
    """What became visible then or later stays, whatever is settled; None: nothing has to.

    Args:
        queue: Which queue.
        now: By a clock that others agree with.
        has_groups: Without, nothing is settled, and what expires goes by its age alone.
    """
    periods = [queue.keep_settled, None if has_groups else queue.expire_after]
    return min((now - period for period in periods if period is not None), default=None)


def plan_fence(
    queue: QueueDefinition, head: LedgerHead, now: datetime, write_timeout: timedelta
) -> list[Action]:
    """Plan to raise the fence to ``now - write_timeout``; never down (I10)."""
    fence = now - write_timeout
    return [RaiseFence(queue.queue_id, head, fence)] if fence > head.fence else []


def plan_clean(
    queue: QueueDefinition, runs: Iterable[Run], *, fence: datetime, published: AbstractSet[UUID]
) -> list[Action]:
    """Plan to delete the blocks that were not published and never will be (I10).

    Args:
        queue: Which queue.
        runs: What is stored of its blocks.
        fence: As it stood before ``published`` was read.
        published: The blocks in the ledger, read serially.
    """
    garbage: dict[UUID, set[int]] = {}
    for run in runs:
        if run.block not in published and block_time(run.block) <= fence:
            buckets = garbage.setdefault(run.block, set())
            buckets.update(buckets_of(run.covered, queue.bucket_size), run.misplaced_buckets)
    return [
        DeleteUnpublished(queue.queue_id, block, tuple(sorted(buckets)))
        for block, buckets in garbage.items()
    ]


def is_of_the_future(block: LedgerBlock, now: datetime) -> bool:
    """Whether the clock of its writer, or of the server that published it, was ahead.

    Args:
        block: As the ledger has it.
        now: By a clock that others agree with.
    """
    return max(block.published_at, block_time(block.block)) > now + CLOCKS_APART


def aged(blocks: Iterable[LedgerBlock], now: datetime) -> Iterator[LedgerBlock]:
    """The same blocks; those of the future were there by the time of the next one that is not.

    The ledger has them in the order in which they were published. So one whose clock was a month
    ahead does not keep what is behind it for a month. Without such a next one it stays so.

    Args:
        blocks: In order.
        now: By a clock that others agree with.
    """
    ahead: list[LedgerBlock] = []
    for block in blocks:
        if is_of_the_future(block, now):
            ahead.append(block)
            continue
        # The server that published it may have had a clock that was behind.
        by = max(block.published_at, block_time(block.block))
        yield from (replace(each, there_by=_no_older(each, by, now)) for each in ahead)
        ahead.clear()
        yield block
    yield from ahead


def _settled_buckets(
    blocks: Iterable[LedgerBlock], settled: Range, bucket_size: int
) -> Iterator[tuple[UUID, int]]:
    for block in blocks:
        length = len(block.monotons)
        if block.monotons.stop <= settled.stop:
            buckets = buckets_of(Range(0, length), bucket_size)
        else:
            before, after = (
                max(0, end - block.monotons.start) // bucket_size
                for end in (settled.start, settled.stop)
            )
            buckets = range(before, after)
        yield from ((block.block, bucket) for bucket in buckets)


def _no_older(block: LedgerBlock, by: datetime, now: datetime) -> datetime:
    """The same time, but not before the block was begun, if the clock of its writer was right."""
    begun_at = block_time(block.block)
    return by if begun_at > now + CLOCKS_APART else max(by, begun_at)
