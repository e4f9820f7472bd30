"""The steps finalise and retire: delete settled messages, and versions that nobody needs.

Both are generators: an action is planned once those before it are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import islice
from uuid import UUID

from cassieq_spark.errors import ContentionError, InvariantError, QueueStateError
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import FOR_EVER
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range, id_of
from cassieq_spark.queues import QueueRecord, Status
from cassieq_spark.repair.actions import (
    CloseVersions,
    DeleteSettled,
    EmptyLedger,
    Finalise,
    MarkRetired,
    RepairAction,
)
from cassieq_spark.repair.context import Context, Scanned
from cassieq_spark.repair.plan import (
    aged,
    plan_clean,
    plan_finalise,
    stays_from,
)
from cassieq_spark.repair.read import Seen
from cassieq_spark.repair.scan import buckets_of

#: How many buckets one action of a retirement deletes.
_BUCKETS_AT_ONCE = 1000
#: How many blocks are finalised at once: a limit of memory, and of the work between two calls of
#: the checkpoint, when a group has caught up after weeks.
BLOCKS_AT_ONCE = 10_000


def finalise_step(
    context: Context, queue: QueueDefinition, _: Scanned | None
) -> Iterator[RepairAction]:
    """Finalise and delete messages that are settled, or too old and without any group.

    No read if there is nothing to finalise. One read if ``finalised`` stands within a block, or if
    the queue keeps messages or lets them expire, and all of them are young. Each part is
    conditioned on the head that the part before it has left. So a part is refused if the part
    before was not applied, or if another repair run or a new group has interfered (I7).
    """
    seen = context.seen(queue)
    if seen is not None and _is_idle(context, queue, seen):
        return
    # I7: the head is read first; a group registered later makes the compare-and-set fail.
    ledger = context.ledger(queue)
    head, now = context.read_head_and_time(ledger)
    states = read_group_states(ledger)
    floor = min((state.floor for state in states.values()), default=None)
    unconsumed = floor is None and queue.expire_after is not None
    if unconsumed:
        floor = head.next
    until = min(head.next, head.finalised if floor is None else max(floor, head.finalised))
    young = stays_from(queue, now, has_groups=not unconsumed)
    while True:
        blocks = ledger.stream_blocks(start=head.trimmed, stop=until)
        part, end, is_last = _first_part(aged(blocks, now), head.finalised, until, young)
        reached = floor if end >= until else end
        try:
            actions = plan_finalise(queue, head, part, reached, unconsumed=unconsumed)
        except InvariantError as error:
            if ledger.read_head(serial=True).finalised <= head.finalised:
                raise
            # Another repair run has finalised and trimmed these blocks since.
            raise ContentionError(
                f"queue {queue.queue_id}: another repair run finalises it at the same time"
            ) from error
        yield from actions
        if is_last:
            return
        head = replace(head, finalised=end, trimmed=end)


def retire_step(
    context: Context, queue: QueueDefinition, _: Scanned | None
) -> Iterator[RepairAction]:
    """Delete the versions that a purge or a deletion has left, in the order of `mark_retired`.

    No read of a queue without such versions. After a crash, the next run continues with what is
    left.
    """
    record = context.records[queue.name]
    if record.status is Status.PURGING:
        context.report.queues[queue.name].notes.append(
            "it is being purged; if that broke off, nobody can use the queue until you repeat it: "
            f"cassieq queue purge {queue.name}"
        )
    if record.is_gone and record.to_retire:
        yield CloseVersions(queue.queue_id, record)
    versions = range(record.retired + 1, record.obsolete + 1)
    for version in versions:
        yield from _retire(context, record, version)
    for version in context.leftover.get(queue.name, {}):
        if version not in versions:
            # Retired before; a writer that knew the version has written since.
            for partition in record.of_version(version):
                yield from _clean_partition(context, record, partition, frozenset())


def _is_idle(context: Context, queue: QueueDefinition, seen: Seen) -> bool:
    head = seen.ledger.head
    has_nothing = seen.has_nothing_to_finalise(queue) or _is_young(context, queue, seen)
    return has_nothing and (seen.is_trimmed or not _has_settled_block(context, queue, head))


def _is_young(context: Context, queue: QueueDefinition, seen: Seen) -> bool:
    """True if the next message must stay. One read, if the queue keeps messages."""
    young = stays_from(queue, seen.now, has_groups=bool(seen.ledger.groups))
    first = None if young is None else context.oldest(queue, seen)
    return first is not None and young is not None and first.young_since >= young


def _has_settled_block(context: Context, queue: QueueDefinition, head: LedgerHead) -> bool:
    """True if a crash has left the row of a settled block, with or without its buckets."""
    first = context.ledger(queue).read_block_at(head.trimmed)
    # None: another repair run has trimmed it, or an earlier release, without changing the head.
    return first is None or first.monotons.stop <= head.finalised


def _first_part(
    blocks: Iterable[LedgerBlock], finalised: int, until: int, young: datetime | None
) -> tuple[list[LedgerBlock], int, bool]:
    """The blocks that a crash has left below ``finalised``, and the blocks to finalise at once.

    Returns:
        The blocks; the end of the messages to finalise; True if this is the last part.
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


def _retire(context: Context, record: QueueRecord, version: int) -> Iterator[RepairAction]:
    exists = False
    for queue in record.of_version(version):
        for action in _retire_partition(context, record, queue):
            exists = True
            yield action
    if exists:
        yield MarkRetired(id_of(record.name, version), record.name, version)


def _retire_partition(
    context: Context, record: QueueRecord, queue: QueueDefinition
) -> Iterator[RepairAction]:
    ledger = context.ledger(queue)
    queue_id, head = ledger.queue_id, _read_head(ledger)
    if head is None:
        return
    blocks = ledger.read_blocks(start=head.trimmed, serial=True)
    if head.finalised < head.next:
        yield Finalise(queue_id, head, head.next)
    size = head.bucket_size or record.definition.bucket_size
    buckets = (
        (block.block, bucket)
        for block in blocks
        for bucket in buckets_of(Range(0, block.count), size)
    )
    while some := tuple(islice(buckets, _BUCKETS_AT_ONCE)):
        yield DeleteSettled(queue_id, some)
    yield from _clean_partition(context, record, queue, {block.block for block in blocks})
    yield EmptyLedger(queue_id, head.next)


def _clean_partition(
    context: Context, record: QueueRecord, queue: QueueDefinition, known: AbstractSet[UUID]
) -> Iterator[RepairAction]:
    """Delete the blocks of a closed version that a scan has found, except ``known`` (I10)."""
    found = context.leftover.get(record.name, {}).get(queue.version, [])
    runs = [run for run in found if run.queue_id == queue.queue_id]
    head = _read_head(context.ledger(queue)) if runs else None
    if head is not None:
        size = head.bucket_size or record.definition.bucket_size
        queue = replace(queue, bucket_size=size)
        yield from plan_clean(queue, runs, fence=FOR_EVER, published=known)


def _read_head(ledger: Ledger) -> LedgerHead | None:
    """Read a head; None only in a dry run, for a version neither opened nor closed yet."""
    try:
        return ledger.read_head(serial=True)
    except QueueStateError:
        return None
