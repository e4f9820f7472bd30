"""Retirement: versions of queues that are over go."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from uuid import UUID

from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.gate import FOR_EVER
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition, QueueId, Range
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.repair.actions import (
    Action,
    CloseVersions,
    DeleteSettled,
    EmptyLedger,
    Finalise,
    MarkRetired,
)
from cassieq_spark.repair.plan import buckets_of, plan_clean
from cassieq_spark.repair.work import Scanned, Work

#: Buckets that one action deletes.
_BUCKETS_AT_ONCE = 1000


def plan_retire(work: Work, queue: QueueDefinition, _: Scanned | None) -> Iterator[Action]:
    """Finish what a purge or a deletion has left, in the order of `mark_retired`.

    No read of a queue where nothing is left. Each action is planned when those before it
    are carried out, and each run begins with what is there: a crash leaves work, never a hole.
    """
    record = work.records[queue.name]
    if record.status is Status.PURGING:
        work.report.queues[queue.name].notes.append(
            "it is being purged; if that broke off, nobody can use it until it is repeated: "
            f"cassieq queue purge {queue.name}"
        )
    if record.is_gone and record.to_retire:
        yield CloseVersions(record)
    versions = range(record.retired + 1, record.obsolete + 1)
    for version in versions:
        yield from _retire(work, record, version)
    for version in work.leftover.get(queue.name, {}):
        if version not in versions:
            # Retired before; a writer that knew it wrote on.
            yield from _clean(work, record, version, frozenset())


def _retire(work: Work, record: QueueRecord, version: int) -> Iterator[Action]:
    queue_id = replace(record.definition, version=version).queue_id
    head = _read_head(work, queue_id)
    if head is None:
        return
    blocks = read_blocks(work.store, queue_id, start=head.trimmed, serial=True)
    if head.finalised < head.next:
        yield Finalise(queue_id, head, head.next)
    buckets = (
        (block.block, bucket)
        for block in blocks
        for bucket in buckets_of(Range(0, len(block.monotons)), _bucket_size(record, head))
    )
    while some := tuple(islice(buckets, _BUCKETS_AT_ONCE)):
        yield DeleteSettled(queue_id, some)
    yield from _clean(work, record, version, {block.block for block in blocks})
    yield EmptyLedger(queue_id, head.next)
    yield MarkRetired(record.name, version)


def _clean(
    work: Work, record: QueueRecord, version: int, known: AbstractSet[UUID]
) -> Iterator[Action]:
    """Delete what a scan has found of a version: nothing can be published there (I10)."""
    runs = work.leftover.get(record.name, {}).get(version, [])
    queue = replace(record.definition, version=version)
    head = _read_head(work, queue.queue_id) if runs else None
    if head is not None:
        queue = replace(queue, bucket_size=_bucket_size(record, head))
        yield from plan_clean(queue, runs, fence=FOR_EVER, published=known)


def _read_head(work: Work, queue_id: QueueId) -> LedgerHead | None:
    """None in a dry run only: of a version that was never opened, and is not closed yet."""
    try:
        return read_head(work.store, queue_id, serial=True)
    except QueueStateError:
        return None


def _bucket_size(record: QueueRecord, head: LedgerHead) -> int:
    return head.bucket_size or record.definition.bucket_size
