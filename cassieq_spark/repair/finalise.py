"""Finalising: what is settled for every group goes, some thousand blocks at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from cassieq_spark.errors import ContentionError, InvariantError
from cassieq_spark.ledger.read import read_block_at, read_block_of, read_head, stream_blocks
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition
from cassieq_spark.repair.actions import Action
from cassieq_spark.repair.ages import aged, is_of_the_future
from cassieq_spark.repair.idle import has_nothing_to_finalise, is_trimmed
from cassieq_spark.repair.plan import plan_finalise, stays_from
from cassieq_spark.repair.read import read_floor, read_head_and_time
from cassieq_spark.repair.survey import Seen
from cassieq_spark.repair.work import Scanned, Work

#: Blocks that are let go of at once: so many are in memory, and so much is done between two
#: questions to the guard, when a group has caught up after weeks.
BLOCKS_AT_ONCE = 10_000


def plan_finalising(work: Work, queue: QueueDefinition, _: Scanned | None) -> Iterator[Action]:
    """Let go of all that is settled, or too old without a group that it could be kept for.

    No read if there is nothing to let go of; one, if it ends within a block, or if the queue keeps
    what is settled and all of that is young, or if it has no groups and all of it is young. Each
    part is conditioned on the head that the part before it leaves. So it is refused if that part
    did not go in, or if another repair run or a new group came between (I7).
    """
    seen = work.seen(queue)
    if seen is not None and _is_idle(work, queue, seen):
        return
    # I7: the head first; a group registered from here on makes its compare-and-set fail.
    head, now = read_head_and_time(work, queue.queue_id)
    floor = read_floor(work.store, queue.queue_id)
    unconsumed = floor is None and queue.expire_after is not None
    if unconsumed:
        floor = head.next
    until = min(head.next, head.finalised if floor is None else max(floor, head.finalised))
    young = stays_from(queue, now, has_groups=not unconsumed)
    while True:
        blocks = stream_blocks(work.store, queue.queue_id, start=head.trimmed, stop=until)
        part, end, is_last = _first_part(aged(blocks, now), head.finalised, until, young)
        reached = floor if end >= until else end
        yield from _plan(work, queue, head, part, reached, unconsumed=unconsumed)
        if is_last:
            return
        head = replace(head, finalised=end, trimmed=end)


def _is_idle(work: Work, queue: QueueDefinition, seen: Seen) -> bool:
    head = seen.ledger.head
    has_nothing = has_nothing_to_finalise(queue, seen) or _is_young(work, queue, seen)
    return has_nothing and (is_trimmed(seen) or not _has_settled_block(work, queue, head))


def _is_young(work: Work, queue: QueueDefinition, seen: Seen) -> bool:
    """Whether what comes next stays. One read, if the queue lets anything stay."""
    young = stays_from(queue, seen.now, has_groups=bool(seen.ledger.groups))
    if young is None:
        return False
    first = read_block_of(work.store, queue.queue_id, seen.ledger.head.finalised)
    if first is None or is_of_the_future(first, seen.now):
        return False
    return first.young_since >= young


def _plan(  # noqa: PLR0913 (what is there, and what is to go)
    work: Work,
    queue: QueueDefinition,
    head: LedgerHead,
    blocks: Sequence[LedgerBlock],
    floor: int | None,
    *,
    unconsumed: bool,
) -> list[Action]:
    try:
        return plan_finalise(queue, head, blocks, floor, unconsumed=unconsumed)
    except InvariantError as error:
        if read_head(work.store, queue.queue_id, serial=True).finalised <= head.finalised:
            raise
        # Finalised and trimmed by another repair run since.
        raise ContentionError(
            f"queue {queue.queue_id}: another repair run goes on while it is looked at"
        ) from error


def _has_settled_block(work: Work, queue: QueueDefinition, head: LedgerHead) -> bool:
    """Whether a crash has left the row of a block that is settled, and perhaps its buckets."""
    first = read_block_at(work.store, queue.queue_id, head.trimmed)
    # None: an earlier release has trimmed without saying so, or another repair run has since.
    return first is None or first.monotons.stop <= head.finalised


def _first_part(
    blocks: Iterable[LedgerBlock], finalised: int, until: int, young: datetime | None
) -> tuple[list[LedgerBlock], int, bool]:
    """What a crash has left below ``finalised``, and as much more as is done at once.

    Returns:
        The blocks; where what can be let go of ends among them; whether nothing more comes.
    """
    part: list[LedgerBlock] = []
    for block in blocks:
        goes_on = block.monotons.stop > finalised
        if goes_on and young is not None and block.young_since >= young:
            part += [block] * (block.monotons.start < finalised)
            return part, max(finalised, block.monotons.start), True
        part.append(block)
        if goes_on and len(part) >= BLOCKS_AT_ONCE:
            return part, block.monotons.stop, block.monotons.stop >= until
    return part, until, True
