"""Finalising: what is settled for every group goes, some thousand blocks at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cassieq_spark.errors import ContentionError, InvariantError
from cassieq_spark.ledger.read import read_block_at, read_head, stream_blocks
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition
from cassieq_spark.repair.actions import Action
from cassieq_spark.repair.idle import has_nothing_to_finalise, is_trimmed
from cassieq_spark.repair.plan import plan_finalise
from cassieq_spark.repair.read import read_floor, read_head_and_time
from cassieq_spark.repair.work import Scanned, Work

#: Blocks that are let go of at once: so many are in memory, and so much is done between two
#: questions to the guard, when a group has caught up after weeks.
BLOCKS_AT_ONCE = 10_000


def plan_finalising(work: Work, queue: QueueDefinition, _: Scanned | None) -> Iterator[Action]:
    """Let go of all that is settled. No read if nothing is; one, if it ends within a block.

    Each part goes by what the one before it leaves, so it is refused unless that went in, and
    nobody else came between (I7).
    """
    seen = work.seen(queue)
    if (
        seen is not None
        and has_nothing_to_finalise(seen)
        and (is_trimmed(seen) or not _has_settled_block(work, queue, seen.ledger.head))
    ):
        return
    # I7: the head first; a group registered from here on makes its compare-and-set fail.
    head, _now = read_head_and_time(work.store, queue.queue_id)
    floor = read_floor(work.store, queue.queue_id)
    until = min(head.next, head.finalised if floor is None else max(floor, head.finalised))
    while True:
        blocks = stream_blocks(work.store, queue.queue_id, start=head.trimmed, stop=until)
        part = _first_part(blocks, head.finalised)
        end = part[-1].monotons.stop if part else until
        if len(part) < BLOCKS_AT_ONCE or end >= until:
            yield from _plan(work, queue, head, part, floor)
            return
        yield from _plan(work, queue, head, part, end)
        head = replace(head, finalised=end, trimmed=end)


def _plan(
    work: Work,
    queue: QueueDefinition,
    head: LedgerHead,
    blocks: Sequence[LedgerBlock],
    floor: int | None,
) -> list[Action]:
    try:
        return plan_finalise(queue, head, blocks, floor)
    except InvariantError as error:
        if read_head(work.store, queue.queue_id, serial=True).finalised <= head.finalised:
            raise
        # Finalised and trimmed by another sweep since.
        raise ContentionError(
            f"queue {queue.queue_id}: another sweep goes on while it is looked at"
        ) from error


def _has_settled_block(work: Work, queue: QueueDefinition, head: LedgerHead) -> bool:
    """Whether a crash has left the row of a block that is settled, and perhaps its buckets."""
    first = read_block_at(work.store, queue.queue_id, head.trimmed)
    # None: an earlier release has trimmed without saying so, or another sweep has since.
    return first is None or first.monotons.stop <= head.finalised


def _first_part(blocks: Iterable[LedgerBlock], finalised: int) -> list[LedgerBlock]:
    """What a crash has left below ``finalised``, and as much more as is done at once."""
    part: list[LedgerBlock] = []
    for block in blocks:
        part.append(block)
        if len(part) >= BLOCKS_AT_ONCE and block.monotons.stop > finalised:
            break
    return part
