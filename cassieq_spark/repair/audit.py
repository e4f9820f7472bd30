"""The audit: is each message from ``finalised`` on in exactly one chunk, and can it be read (I3)?

`compare` is pure. A scan is no snapshot, so the audit reads again what the scan makes suspicious
before it becomes a finding. The data itself is read only on demand, and so is what explains a
finding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from cassieq_spark.arguments import abridged
from cassieq_spark.errors import MessageError, UnreadableError
from cassieq_spark.fetch.find import bucket_slices, pieces_of
from cassieq_spark.fetch.read import Decoder
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import (
    NO_END,
    BucketSlice,
    Chunk,
    LedgerBlock,
    QueueDefinition,
    Range,
    Ranges,
)
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

#: A block that looks unpublished may be one whose row the ledger has lost; it is left alone.
LACKS_ROWS = "repair.lacks_rows"
#: A chunk cannot be decoded.
UNREADABLE = "audit.unreadable"


def audit_step(context: Context, queue: QueueDefinition, scanned: Scanned | None) -> tuple[()]:
    """Audit a queue into its report; there are no actions to apply.

    No read if the scan finds nothing suspicious, and no more is asked for. To verify the data
    costs one read per bucket, and all data pass through this process; to explain findings costs
    reads of the ledger and its groups.
    """
    if scanned is None:
        return ()
    report = context.report.queues[queue.label]
    audit = _Audit(context.store, queue, scanned, context.checkpoint)
    report.findings = audit.confirm(compare(scanned.blocks, scanned.runs, audit.alive))
    if context.verify_data:
        report.findings += audit.verify()
    report.counts += Counts(audited_messages=len(audit.alive))
    if context.explain:
        report.diagnoses = audit.explain(report.findings)
        cleaned = "clean" in context.report.steps and not context.report.dry_run
        report.orphans = [
            orphan
            for orphan in audit.find_orphans()
            if not (cleaned and orphan.belonging is Belonging.NEVER_PUBLISHED)
        ]
    return ()


def compare(blocks: Sequence[LedgerBlock], runs: Iterable[Run], within: Range) -> list[Finding]:
    """Compare the ledger with what is stored.

    Args:
        blocks: The blocks of the ledger.
        runs: What is stored of this queue; blocks that are not in the ledger are ignored.
        within: The monotons to check; the ledger should have a block for each.
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
    """True if the ledger, read after ``head``, lacks rows (I1): their blocks look unpublished."""
    found = missing_rows(blocks, Range(head.finalised, head.next))
    if found:
        logger.error(
            "queue %s: the ledger has no row for monotons %s; no unpublished block is deleted",
            queue.queue_id,
            abridged(found.parts),
            extra={"action": LACKS_ROWS, "queue": queue.queue_id},
        )
    return bool(found)


def fault_of(decoder: Decoder, chunk: Chunk) -> str | None:
    """The reason why the messages of a chunk cannot be read; None if they can."""
    try:
        decoder.decode(chunk, Range(chunk.start, max(chunk.start, chunk.stop)))
    except MessageError:
        return None  # Its schema is newer than the audit.
    except UnreadableError as error:
        return f"the chunk at offset {chunk.start} of bucket {chunk.bucket} can't be read: {error}"
    return None


@dataclass(frozen=True, slots=True)
class _Audit:
    """The audit of one queue after the scan."""

    store: Store
    queue: QueueDefinition
    scanned: Scanned
    checkpoint: Checkpoint

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store, self.queue.queue_id)

    @property
    def alive(self) -> Range:
        return Range(self.scanned.head.finalised, self.scanned.head.next)

    def confirm(self, suspects: Sequence[Finding]) -> list[Finding]:
        """Read again, directly, the messages that the scan has made suspicious."""
        if not suspects:
            return []
        head = self.ledger.read_head(serial=True)
        blocks = self.ledger.read_blocks(start=head.trimmed, serial=True)
        ranges = Ranges.of(*(suspect.monotons for suspect in suspects))
        rows = list(self._stored_rows(self._buckets_to_see(blocks, ranges)))
        # I7: `finalised` is raised before anything is deleted, so it is read after the buckets.
        finalised = self.ledger.read_head(serial=True).finalised
        alive = Range(finalised, max(finalised, head.next))
        seen = list(runs_of(rows, {self.queue.queue_id: self.queue.bucket_size}))
        return [finding for each in ranges for finding in compare(blocks, seen, each & alive)]

    def _buckets_to_see(
        self, blocks: Sequence[LedgerBlock], ranges: Ranges
    ) -> set[tuple[UUID, int]]:
        seen = {
            (block.block, bucket)
            for block in blocks
            for monotons in ranges
            if block.monotons & monotons
            for bucket in buckets_of(block.offsets(monotons), self.queue.bucket_size)
        }
        concerned = {block for block, _ in seen}
        return seen | {
            (run.block, bucket)
            for run in self.scanned.runs
            for bucket in run.misplaced_buckets
            if run.block in concerned
        }

    def _stored_rows(self, buckets: set[tuple[UUID, int]]) -> Iterator[Row]:
        slices = [BucketSlice(block, bucket, 0, NO_END) for block, bucket in sorted(buckets)]
        for piece, chunk in self.store.read_chunks(self.queue.queue_id, slices):
            yield {
                "queue_id": self.queue.queue_id,
                "block": piece.block,
                "bucket": piece.bucket,
                "start": chunk.start,
                "stop": chunk.stop,
            }

    def verify(self) -> list[Finding]:
        """Read and decode every message, until the checkpoint ends it.

        A chunk that cannot be decoded is read once more before it is reported as unreadable:
        another replica may answer. Missing chunks are not searched for: the scan has found them.
        """
        decoder = Decoder(self.store, self.queue)
        suspects = [
            BucketSlice(piece.block, chunk.bucket, chunk.start, self._latest_end(chunk))
            for piece, chunk in self._chunks()
            if fault_of(decoder, chunk) is not None
        ]
        blocks = {block.block: block for block in self.scanned.blocks}
        bad: dict[UUID, list[Range]] = {}
        for each in suspects:
            if fault := _fault_now(decoder, each):
                logger.error(
                    "queue %s, block %s: %s",
                    self.queue.queue_id,
                    each.block,
                    fault,
                    extra={
                        "action": UNREADABLE,
                        "queue": self.queue.queue_id,
                        "block": str(each.block),
                    },
                )
                bucket = each.bucket * self.queue.bucket_size
                # Readers look for the rest of the chunk in the next bucket.
                offsets = Range(each.start, each.stop) & Range(
                    bucket, bucket + self.queue.bucket_size
                )
                # A chunk that says that it is longer than its block has none of the next block.
                block = blocks[each.block]
                bad.setdefault(each.block, []).append(block.monotons_at(offsets) & block.monotons)
        if not bad:
            return []
        # I7: read after the chunks, as no group is owed what is below.
        finalised = self.ledger.read_head(serial=True).finalised
        owed = self.alive & Range(finalised, max(finalised, self.alive.stop))
        return [
            Finding(Problem.UNREADABLE, monotons & owed, block_id)
            for block_id, ranges in bad.items()
            for monotons in Ranges.of(*ranges)
            if monotons & owed
        ]

    def _chunks(self) -> Iterator[tuple[BucketSlice, Chunk]]:
        pieces = pieces_of(self.scanned.blocks, Ranges.of(self.alive), deliveries=None)
        slices = (each for piece in pieces for each in bucket_slices(piece, self.queue))
        for found in self.store.read_chunks(self.queue.queue_id, slices):
            if not self.checkpoint.is_open():
                return
            yield found

    def _latest_end(self, chunk: Chunk) -> int:
        """The end of a chunk; the next multiple of the chunk size if that end is impossible."""
        most = chunk.start - chunk.start % self.queue.chunk_size + self.queue.chunk_size
        return chunk.stop if chunk.start < chunk.stop <= most else most

    def explain(self, findings: Sequence[Finding]) -> list[Diagnosis]:
        if not findings:
            return []
        states = read_group_states(self.ledger)
        head = self.ledger.read_head(serial=True)
        blocks = self.ledger.read_blocks(start=head.trimmed)
        return diagnose(self.queue, findings, blocks, Range(head.finalised, head.next), states)

    def find_orphans(self) -> list[OrphanBlock]:
        """The stored blocks that are not published by now. Reads the ledger if there may be any.

        The fence is read first: an older block that is not in the ledger then will never be
        published.
        """
        if not self.scanned.has_unpublished:
            return []
        head, blocks = read_ledger(self.ledger)
        lacking = lacks_rows(self.queue, head, blocks)
        published = {block.block for block in blocks}
        return orphans_of(self.scanned.runs, published, head.fence, lacks_rows=lacking)


def _fault_now(decoder: Decoder, suspect: BucketSlice) -> str | None:
    just_it = replace(suspect, stop=suspect.start + 1)
    found = decoder.store.read_chunks(decoder.queue.queue_id, [just_it])
    faults = (fault_of(decoder, chunk) for _, chunk in found)
    return next(filter(None, faults), None)


def _audit_block(block: LedgerBlock, runs: Sequence[Run], due: Range) -> Iterator[Finding]:
    def within(offsets: Iterable[Range]) -> Ranges:
        return Ranges.of(*(block.monotons_at(each) & due for each in offsets))

    found = {
        Problem.MISSING: Ranges.of(due) - within(run.covered for run in runs),
        Problem.OVERLAPPING: within(each for run in runs for each in run.overlaps),
        Problem.MISPLACED: within(each for run in runs for each in run.misplaced),
    }
    for problem, ranges in found.items():
        for monotons in ranges:
            yield Finding(problem, monotons, block.block)


def _doubled(ranges: Iterable[Range], within: Range) -> Ranges:
    """The monotons of ``within`` that are in more than one of the ranges."""
    reached, doubled = 0, []
    for each in sorted(ranges):
        doubled.append(Range(each.start, max(each.start, min(each.stop, reached))) & within)
        reached = max(reached, each.stop)
    return Ranges.of(*doubled)
