"""What is settled for every group goes, and so do versions of queues that are over.

Both are generators: an action is planned when those before it have gone in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import islice
from uuid import UUID

from cassieq_spark.errors import ContentionError, InvariantError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import FOR_EVER
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.repair.actions import (
    Action,
    CloseVersions,
    DeleteSettled,
    EmptyLedger,
    Finalise,
    MarkRetired,
)
from cassieq_spark.repair.context import Context, Scanned
from cassieq_spark.repair.plan import (
    aged,
    is_of_the_future,
    plan_clean,
    plan_finalise,
    stays_from,
)
from cassieq_spark.repair.read import Seen, read_floor
from cassieq_spark.repair.scan import buckets_of

#: Buckets that one action of a retirement deletes.
_BUCKETS_AT_ONCE = 1000
#: Blocks that are finalised at once: so many are in memory, and so much is done between two
#: questions of the checkpoint, when a group has caught up after weeks.
BLOCKS_AT_ONCE = 10_000


def finalise_step(context: Context, queue: QueueDefinition, _: Scanned | None) -> Iterator[Action]:
    """Finalise what is settled, or too old without a group that it could be kept for; delete it.

    No read if there is nothing to finalise; one, if it ends within a block, or if the queue keeps
    what is settled and all of that is young, or if it has no groups and all of it is young. Each
    part is conditioned on the head that the part before it leaves. So it is refused if that part
    did not go in, or if another repair run or a new group came between (I7).
    """
    seen = context.seen(queue)
    if seen is not None and _is_idle(context, queue, seen):
        return
    # I7: the head first; a group registered from here on makes its compare-and-set fail.
    ledger = context.ledger(queue)
    head, now = context.read_head_and_time(ledger)
    floor = read_floor(ledger)
    unconsumed = floor is None and queue.expire_after is not None
    if unconsumed:
        floor = head.next
    until = min(head.next, head.finalised if floor is None else max(floor, head.finalised))
    young = stays_from(queue, now, has_groups=not unconsumed)
    while True:
        blocks = ledger.stream_blocks(start=head.trimmed, stop=until)
        part, end, is_last = _first_part(aged(blocks, now), head.finalised, until, young)
        reached = floor if end >= until else end
        yield from _plan_or_postpone(context, queue, head, part, reached, unconsumed=unconsumed)
        if is_last:
            return
        head = replace(head, finalised=end, trimmed=end)


def retire_step(context: Context, queue: QueueDefinition, _: Scanned | None) -> Iterator[Action]:
    """Finish what a purge or a deletion has left, in the order of `mark_retired`.

    No read of a queue where nothing is left. Each action is planned when those before it
    are carried out, and each run begins with what is there: a crash leaves work, never a hole.
    """
    record = context.records[queue.name]
    if record.status is Status.PURGING:
        context.report.queues[queue.name].notes.append(
            "it is being purged; if that broke off, nobody can use it until it is repeated: "
            f"cassieq queue purge {queue.name}"
        )
    if record.is_gone and record.to_retire:
        yield CloseVersions(record)
    versions = range(record.retired + 1, record.obsolete + 1)
    for version in versions:
        yield from _retire(context, record, version)
    for version in context.leftover.get(queue.name, {}):
        if version not in versions:
            # Retired before; a writer that knew it wrote on.
            for partition in record.of_version(version):
                yield from _clean_partition(context, record, partition, frozenset())


def _is_idle(context: Context, queue: QueueDefinition, seen: Seen) -> bool:
    head = seen.ledger.head
    has_nothing = seen.has_nothing_to_finalise(queue) or _is_young(context, queue, seen)
    return has_nothing and (seen.is_trimmed or not _has_settled_block(context, queue, head))


def _is_young(context: Context, queue: QueueDefinition, seen: Seen) -> bool:
    """Whether what comes next stays. One read, if the queue lets anything stay."""
    young = stays_from(queue, seen.now, has_groups=bool(seen.ledger.groups))
    if young is None:
        return False
    first = context.ledger(queue).read_block_of(seen.ledger.head.finalised)
    if first is None or is_of_the_future(first, seen.now):
        return False
    return first.young_since >= young


def _plan_or_postpone(  # noqa: PLR0913 (what is there, and what is to go)
    context: Context,
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
        if context.ledger(queue).read_head(serial=True).finalised <= head.finalised:
            raise
        # Finalised and trimmed by another repair run since.
        raise ContentionError(
            f"queue {queue.queue_id}: another repair run goes on while it is looked at"
        ) from error


def _has_settled_block(context: Context, queue: QueueDefinition, head: LedgerHead) -> bool:
    """Whether a crash has left the row of a block that is settled, and perhaps its buckets."""
    first = context.ledger(queue).read_block_at(head.trimmed)
    # None: an earlier release has trimmed without saying so, or another repair run has since.
    return first is None or first.monotons.stop <= head.finalised


def _first_part(
    blocks: Iterable[LedgerBlock], finalised: int, until: int, young: datetime | None
) -> tuple[list[LedgerBlock], int, bool]:
    """What a crash has left below ``finalised``, and as much more as is done at once.

    Returns:
        The blocks; where what can be finalised ends among them; whether nothing more comes.
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


def _retire(context: Context, record: QueueRecord, version: int) -> Iterator[Action]:
    is_there = False
    for queue in record.of_version(version):
        for action in _retire_partition(context, record, queue):
            is_there = True
            yield action
    if is_there:
        yield MarkRetired(record.name, version)


def _retire_partition(
    context: Context, record: QueueRecord, queue: QueueDefinition
) -> Iterator[Action]:
    ledger = context.ledger(queue)
    queue_id, head = ledger.queue_id, _read_head(ledger)
    if head is None:
        return
    blocks = ledger.read_blocks(start=head.trimmed, serial=True)
    if head.finalised < head.next:
        yield Finalise(queue_id, head, head.next)
    buckets = (
        (block.block, bucket)
        for block in blocks
        for bucket in buckets_of(Range(0, len(block.monotons)), _bucket_size(record, head))
    )
    while some := tuple(islice(buckets, _BUCKETS_AT_ONCE)):
        yield DeleteSettled(queue_id, some)
    yield from _clean_partition(context, record, queue, {block.block for block in blocks})
    yield EmptyLedger(queue_id, head.next)


def _clean_partition(
    context: Context, record: QueueRecord, queue: QueueDefinition, known: AbstractSet[UUID]
) -> Iterator[Action]:
    """Delete what a scan has found of a version: nothing can be published there (I10)."""
    found = context.leftover.get(record.name, {}).get(queue.version, [])
    runs = [run for run in found if run.queue_id == queue.queue_id]
    head = _read_head(context.ledger(queue)) if runs else None
    if head is not None:
        queue = replace(queue, bucket_size=_bucket_size(record, head))
        yield from plan_clean(queue, runs, fence=FOR_EVER, published=known)


def _read_head(ledger: Ledger) -> LedgerHead | None:
    """None in a dry run only: of a version that was never opened, and is not closed yet."""
    try:
        return ledger.read_head(serial=True)
    except QueueStateError:
        return None


def _bucket_size(record: QueueRecord, head: LedgerHead) -> int:
    return head.bucket_size or record.definition.bucket_size
