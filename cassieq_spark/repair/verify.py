"""Whether the messages that are stored can be read: the audit's look at the data itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from cassieq_spark.arrow.chunks import decode
from cassieq_spark.errors import UnreadableError
from cassieq_spark.fetch import bucket_slices, pieces_of
from cassieq_spark.ledger.read import read_head
from cassieq_spark.model import BucketSlice, Chunk, LedgerBlock, QueueDefinition, Range, Ranges
from cassieq_spark.repair.audit import Finding, Problem, merged
from cassieq_spark.repair.guard import Guard
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: A chunk can't be decoded.
UNREADABLE = "audit.unreadable"


def verify(
    store: Store,
    queue: QueueDefinition,
    blocks: Sequence[LedgerBlock],
    alive: Range,
    guard: Guard,
) -> list[Finding]:
    """Read and decode every message. One read for each bucket; all data pass through here.

    What can't be decoded is read once more before it is called unreadable: another replica may
    answer. What is not there is not looked at: that is seen without the data.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        blocks: The ledger's, in order.
        alive: Which messages to read.
        guard: Ends it early when it says no.
    """
    first = {block.block: block.monotons.start for block in blocks}
    suspects = [
        BucketSlice(piece.block, chunk.bucket, chunk.start, _latest_end(chunk, queue))
        for piece, chunk in _chunks(store, queue, blocks, alive, guard)
        if fault_of(chunk) is not None
    ]
    bad: dict[UUID, list[Range]] = {}
    for each in suspects:
        if fault := _fault_now(store, queue, each):
            _log(queue, each.block, fault)
            start, offsets = first[each.block], _looked_for(each, queue)
            bad.setdefault(each.block, []).append(
                Range(start + offsets.start, start + offsets.stop)
            )
    if not bad:
        return []
    # I7: read after the chunks, as what is below is not owed to anybody.
    finalised = read_head(store, queue.queue_id, serial=True).finalised
    owed = alive & Range(finalised, max(finalised, alive.stop))
    return [
        Finding(Problem.UNREADABLE, monotons & owed, block)
        for block, ranges in bad.items()
        for monotons in merged(ranges)
        if monotons & owed
    ]


def fault_of(chunk: Chunk) -> str | None:
    """Why the messages of a chunk can't be read; None if they can."""
    try:
        decode(chunk, Range(chunk.start, max(chunk.start, chunk.stop)))
    except UnreadableError as error:
        return f"the chunk at offset {chunk.start} of bucket {chunk.bucket} can't be read: {error}"
    return None


def _latest_end(chunk: Chunk, queue: QueueDefinition) -> int:
    """Where a chunk ends; at the next multiple of the chunk size, if what it says can't be."""
    most = chunk.start - chunk.start % queue.chunk_size + queue.chunk_size
    return chunk.stop if chunk.start < chunk.stop <= most else most


def _chunks(
    store: Store,
    queue: QueueDefinition,
    blocks: Sequence[LedgerBlock],
    alive: Range,
    guard: Guard,
) -> Iterator[tuple[BucketSlice, Chunk]]:
    pieces = pieces_of(blocks, Ranges.of(alive), deliveries=None)
    slices = (each for piece in pieces for each in bucket_slices(piece, queue))
    for found in store.read_chunks(queue.queue_id, slices):
        if not guard.is_open():
            return
        yield found


def _looked_for(chunk: BucketSlice, queue: QueueDefinition) -> Range:
    """The offsets of a chunk for which readers look in its bucket, and not in the next one."""
    first = chunk.bucket * queue.bucket_size
    return Range(chunk.start, chunk.stop) & Range(first, first + queue.bucket_size)


def _fault_now(store: Store, queue: QueueDefinition, suspect: BucketSlice) -> str | None:
    just_it = replace(suspect, stop=suspect.start + 1)
    faults = (fault_of(chunk) for _, chunk in store.read_chunks(queue.queue_id, [just_it]))
    return next(filter(None, faults), None)


def _log(queue: QueueDefinition, block: UUID, fault: str) -> None:
    logger.error(
        "queue %s, block %s: %s",
        queue.queue_id,
        block,
        fault,
        extra={"action": UNREADABLE, "queue": queue.queue_id, "block": str(block)},
    )
