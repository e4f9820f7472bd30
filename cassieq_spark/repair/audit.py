"""The audit: is each message from ``finalised`` on in exactly one chunk, and can it be read (I3)?

`compare` is pure. What it suspects is read again before it is called a finding, as a scan is no
snapshot. The data itself is read only on demand, and so are explanations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from cassieq_spark.arguments import abridged
from cassieq_spark.errors import MessageError, UnreadableError
from cassieq_spark.fetch.find import bucket_slices, pieces_of
from cassieq_spark.fetch.read import Decoder
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import BucketSlice, Chunk, LedgerBlock, QueueDefinition, Range, Ranges
from cassieq_spark.repair.context import Checkpoint, Context, Scanned
from cassieq_spark.repair.diagnosis import (
    Belonging,
    Diagnosis,
    Finding,
    OrphanBlock,
    Problem,
    diagnose,
    orphans_of,
)
from cassieq_spark.repair.read import missing_rows, read_ledger
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.scan import Run, buckets_of, runs_of
from cassieq_spark.store.protocol import Row, Store

logger = logging.getLogger(__name__)

#: What looks unpublished may be what the ledger has lost; it is left alone.
LACKS_ROWS = "repair.lacks_rows"
#: A chunk can't be decoded.
UNREADABLE = "audit.unreadable"

_NO_END = 2**63 - 1


def audit_step(context: Context, queue: QueueDefinition, scanned: Scanned | None) -> tuple[()]:
    """Audit a queue into its report; there is nothing to carry out."""
    if scanned is None:
        return ()
    report, head = context.report.queues[queue.label], scanned.head
    depth = context.thoroughness
    report.findings = find(
        context.store, queue, scanned, verify_data=depth.verify_data, checkpoint=context.checkpoint
    )
    report.counts += Counts(audited_messages=head.next - head.finalised)
    if depth.explain:
        report.diagnoses = explain(context.store, queue, report.findings)
        cleaned = "clean" in context.report.steps and not context.report.dry_run
        report.orphans = [
            orphan
            for orphan in find_orphans(context.store, queue, scanned)
            if not (cleaned and orphan.belonging is Belonging.NEVER_PUBLISHED)
        ]
    return ()


def compare(blocks: Sequence[LedgerBlock], runs: Iterable[Run], within: Range) -> list[Finding]:
    """Compare what the ledger says with what is stored.

    Args:
        blocks: The ledger's.
        runs: What is stored of this queue; blocks that the ledger does not have are passed over.
        within: The monotons to look at; the ledger should have a block for each.
    """
    stored: dict[UUID, list[Run]] = {}
    for run in runs:
        stored.setdefault(run.block, []).append(run)
    tiles = [block.monotons for block in blocks]
    findings = [Finding(Problem.MISSING, hole, None) for hole in missing_rows(blocks, within)]
    findings += [Finding(Problem.OVERLAPPING, each, None) for each in _doubled(tiles, within)]
    for block in blocks:
        due = block.monotons & within
        if due:
            findings += _audit_block(block, stored.get(block.block, []), due)
    return findings


def lacks_rows(queue: QueueDefinition, head: LedgerHead, blocks: Sequence[LedgerBlock]) -> bool:
    """Whether the ledger lacks rows (I1). The blocks that they named look as if unpublished.

    Args:
        queue: Which queue.
        head: The ledger's.
        blocks: The ledger's, read after ``head``.
    """
    found = missing_rows(blocks, Range(head.finalised, head.next))
    if found:
        logger.error(
            "queue %s: the ledger has no row for monotons %s; nothing unpublished is deleted",
            queue.queue_id,
            abridged(found.parts),
            extra={"action": LACKS_ROWS, "queue": queue.queue_id},
        )
    return bool(found)


def find(
    store: Store,
    queue: QueueDefinition,
    scanned: Scanned,
    *,
    verify_data: bool,
    checkpoint: Checkpoint,
) -> list[Finding]:
    """Find what is not stored as it should be. No read if nothing is suspicious.

    With ``verify_data``, one read for each bucket, and all data pass through this process.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        scanned: What is stored of it, and what must be.
        verify_data: Whether to read and decode every message.
        checkpoint: Ends that early when it says no.
    """
    alive = Range(scanned.head.finalised, scanned.head.next)
    suspects = compare(scanned.blocks, scanned.runs, alive)
    findings = confirm(store, queue, suspects, scanned.runs)
    if verify_data:
        findings += verify(store, queue, scanned.blocks, alive, checkpoint)
    return findings


def explain(store: Store, queue: QueueDefinition, findings: Sequence[Finding]) -> list[Diagnosis]:
    """Find out what findings mean. No read without any; else that of the ledger and its groups.

    Raises:
        ContentionError: A group's readers were faster again and again.
    """
    if not findings:
        return []
    ledger = Ledger(store, queue.queue_id)
    states = read_group_states(ledger)
    head = ledger.read_head(serial=True)
    blocks = ledger.read_blocks(start=head.trimmed)
    return diagnose(queue, findings, blocks, Range(head.finalised, head.next), states)


def find_orphans(store: Store, queue: QueueDefinition, scanned: Scanned) -> list[OrphanBlock]:
    """Find the stored blocks that are not published by now. Reads the ledger if there may be any.

    The fence first: a block that is older, and not in a ledger that is read later, never will be.
    """
    known = {block.block for block in scanned.blocks}
    if all(run.block in known for run in scanned.runs):
        return []
    head, blocks = read_ledger(Ledger(store, queue.queue_id))
    lacking = lacks_rows(queue, head, blocks)
    published = {block.block for block in blocks}
    return orphans_of(scanned.runs, published, head.fence, lacks_rows=lacking)


def confirm(
    store: Store, queue: QueueDefinition, suspects: Sequence[Finding], runs: Sequence[Run]
) -> list[Finding]:
    """Look again, directly, at what a scan made suspicious; a scan is no snapshot.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        suspects: What to look at.
        runs: What the scan found of this queue.
    """
    if not suspects:
        return []
    ledger = Ledger(store, queue.queue_id)
    head = ledger.read_head(serial=True)
    blocks = ledger.read_blocks(start=head.trimmed, serial=True)
    ranges = Ranges.of(*(suspect.monotons for suspect in suspects))
    orphan = [(run.block, bucket) for run in runs for bucket in run.misplaced_buckets]
    rows = list(_stored_rows(store, queue, _buckets_to_see(queue, blocks, ranges, orphan)))
    # I7: `finalised` goes up before anything is deleted, so it is read after the buckets.
    finalised = ledger.read_head(serial=True).finalised
    alive = Range(finalised, max(finalised, head.next))
    seen = list(runs_of(rows, {queue.queue_id: queue.bucket_size}))
    return [finding for each in ranges for finding in compare(blocks, seen, each & alive)]


def _buckets_to_see(
    queue: QueueDefinition,
    blocks: Sequence[LedgerBlock],
    ranges: Ranges,
    orphan: Sequence[tuple[UUID, int]],
) -> set[tuple[UUID, int]]:
    concerned = {
        block.block: {
            bucket
            for monotons in ranges
            for bucket in buckets_of(block.offsets(monotons), queue.bucket_size)
        }
        for block in blocks
        if any(block.monotons & monotons for monotons in ranges)
    }
    seen = {(block, bucket) for block, buckets in concerned.items() for bucket in buckets}
    return seen | {(block, bucket) for block, bucket in orphan if block in concerned}


def _stored_rows(
    store: Store, queue: QueueDefinition, buckets: set[tuple[UUID, int]]
) -> Iterator[Row]:
    slices = [BucketSlice(block, bucket, 0, _NO_END) for block, bucket in sorted(buckets)]
    for piece, chunk in store.read_chunks(queue.queue_id, slices):
        yield {
            "queue_id": queue.queue_id,
            "block": piece.block,
            "bucket": piece.bucket,
            "start": chunk.start,
            "stop": chunk.stop,
        }


def verify(
    store: Store,
    queue: QueueDefinition,
    blocks: Sequence[LedgerBlock],
    alive: Range,
    checkpoint: Checkpoint,
) -> list[Finding]:
    """Read and decode every message. One read for each bucket; all data pass through here.

    What can't be decoded is read once more before it is called unreadable: another replica may
    answer. What is not there is not looked at: that is seen without the data.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        blocks: The ledger's, in order.
        alive: Which messages to read.
        checkpoint: Ends it early when it says no.
    """
    decoder = Decoder(store, queue)
    first = {block.block: block.monotons.start for block in blocks}
    suspects = [
        BucketSlice(piece.block, chunk.bucket, chunk.start, _latest_end(chunk, queue))
        for piece, chunk in _chunks(store, queue, blocks, alive, checkpoint)
        if fault_of(decoder, chunk) is not None
    ]
    bad: dict[UUID, list[Range]] = {}
    for each in suspects:
        if fault := _fault_now(decoder, each):
            _log(queue, each.block, fault)
            start, offsets = first[each.block], _looked_for(each, queue)
            bad.setdefault(each.block, []).append(
                Range(start + offsets.start, start + offsets.stop)
            )
    if not bad:
        return []
    # I7: read after the chunks, as what is below is not owed to anybody.
    finalised = Ledger(store, queue.queue_id).read_head(serial=True).finalised
    owed = alive & Range(finalised, max(finalised, alive.stop))
    return [
        Finding(Problem.UNREADABLE, monotons & owed, block)
        for block, ranges in bad.items()
        for monotons in Ranges.of(*ranges)
        if monotons & owed
    ]


def fault_of(decoder: Decoder, chunk: Chunk) -> str | None:
    """Why the messages of a chunk can't be read; None if they can."""
    try:
        decoder.decode(chunk, Range(chunk.start, max(chunk.start, chunk.stop)))
    except MessageError:
        return None  # by a schema that is newer than the audit
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
    checkpoint: Checkpoint,
) -> Iterator[tuple[BucketSlice, Chunk]]:
    pieces = pieces_of(blocks, Ranges.of(alive), deliveries=None)
    slices = (each for piece in pieces for each in bucket_slices(piece, queue))
    for found in store.read_chunks(queue.queue_id, slices):
        if not checkpoint.is_open():
            return
        yield found


def _looked_for(chunk: BucketSlice, queue: QueueDefinition) -> Range:
    """The offsets of a chunk for which readers look in its bucket, and not in the next one."""
    first = chunk.bucket * queue.bucket_size
    return Range(chunk.start, chunk.stop) & Range(first, first + queue.bucket_size)


def _fault_now(decoder: Decoder, suspect: BucketSlice) -> str | None:
    just_it = replace(suspect, stop=suspect.start + 1)
    found = decoder.store.read_chunks(decoder.queue.queue_id, [just_it])
    faults = (fault_of(decoder, chunk) for _, chunk in found)
    return next(filter(None, faults), None)


def _log(queue: QueueDefinition, block: UUID, fault: str) -> None:
    logger.error(
        "queue %s, block %s: %s",
        queue.queue_id,
        block,
        fault,
        extra={"action": UNREADABLE, "queue": queue.queue_id, "block": str(block)},
    )


def _audit_block(block: LedgerBlock, runs: Sequence[Run], due: Range) -> Iterator[Finding]:
    first = block.monotons.start
    found = {
        Problem.MISSING: (
            Ranges.of(due) - Ranges.of(*(_shifted(run.covered, first) for run in runs))
        ),
        Problem.OVERLAPPING: Ranges.of(
            *(_shifted(each, first) & due for run in runs for each in run.overlaps)
        ),
        Problem.MISPLACED: Ranges.of(
            *(_shifted(each, first) & due for run in runs for each in run.misplaced)
        ),
    }
    for problem, ranges in found.items():
        for monotons in ranges:
            yield Finding(problem, monotons, block.block)


def _doubled(ranges: Iterable[Range], within: Range) -> Ranges:
    """What of ``within`` more than one of the ranges has."""
    reached, doubled = 0, []
    for each in sorted(ranges):
        doubled.append(Range(each.start, max(each.start, min(each.stop, reached))) & within)
        reached = max(reached, each.stop)
    return Ranges.of(*doubled)


def _shifted(offsets: Range, first_monoton: int) -> Range:
    return Range(first_monoton + offsets.start, first_monoton + offsets.stop)
