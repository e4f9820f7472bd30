"""What the repair reads of a queue, in an order that makes its decisions safe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import HEAD, LedgerHead, head_of
from cassieq_spark.model import BucketSlice, LedgerBlock, QueueDefinition, QueueId, Range
from cassieq_spark.repair.audit import Finding, audit, holes, merged
from cassieq_spark.repair.plan import buckets_of
from cassieq_spark.repair.scan import Run, runs_of
from cassieq_spark.repair.work import Work
from cassieq_spark.store.protocol import (
    Row,
    Slice,
    Store,
    partition_of_ledger,
)

_NO_END = 2**63 - 1


def read_head_and_time(work: Work, queue_id: QueueId) -> tuple[LedgerHead, datetime]:
    """Read the ledger's head serially, and the time; see `Rows.sure_now`. One read.

    Serially, so that a publish or a registration whose answer was lost is there for all reads that
    follow, or never.

    Raises:
        QueueStateError: There is no such ledger.
    """
    found = work.store.read_rows(partition_of_ledger(queue_id), Slice(row=HEAD), serial=True)
    if not found.rows or found.now is None or found.sure_now is None:
        raise QueueStateError(f"queue {queue_id} has no ledger")
    work.compare_clocks(found.now, found.ahead)
    return head_of(found.rows[0]), found.sure_now


def read_ledger(store: Store, queue_id: QueueId) -> tuple[LedgerHead, list[LedgerBlock]]:
    """Read a ledger serially, the head first. A read, and one more for a thousand blocks.

    Every block from below the head's ``next`` and fence is there, from ``finalised`` on: should
    another repair run have trimmed some in between, it is told as it stands then, by one more
    read.

    Raises:
        QueueStateError: There is no such ledger.
    """
    head = read_head(store, queue_id, serial=True)
    blocks = read_blocks(store, queue_id, start=head.trimmed, serial=True)
    alive = Range(head.finalised, head.next)
    if any(holes([block.monotons for block in blocks], alive)):
        finalised = read_head(store, queue_id, serial=True).finalised
        head = replace(head, finalised=min(finalised, head.next))
    return head, blocks


def read_floor(store: Store, queue_id: QueueId) -> int | None:
    """Lowest monoton that any group is owed; None without groups. Three reads for each group.

    Raises:
        ContentionError: A group's readers were faster than the repair again and again.
    """
    states = read_group_states(store, queue_id)
    return min((state.floor for state in states.values()), default=None)


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
    head = read_head(store, queue.queue_id, serial=True)
    blocks = read_blocks(store, queue.queue_id, start=head.trimmed, serial=True)
    ranges = merged(suspect.monotons for suspect in suspects)
    stray = [(run.block, bucket) for run in runs for bucket in run.stray_buckets]
    rows = list(_stored_rows(store, queue, _buckets_to_see(queue, blocks, ranges, stray)))
    # I7: `finalised` goes up before anything is deleted, so it is read after the buckets.
    finalised = read_head(store, queue.queue_id, serial=True).finalised
    alive = Range(finalised, max(finalised, head.next))
    seen = list(runs_of(rows, {queue.queue_id: queue.bucket_size}))
    return [finding for each in ranges for finding in audit(blocks, seen, each & alive)]


def _buckets_to_see(
    queue: QueueDefinition,
    blocks: Sequence[LedgerBlock],
    ranges: Sequence[Range],
    stray: Sequence[tuple[UUID, int]],
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
    return seen | {(block, bucket) for block, bucket in stray if block in concerned}


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
