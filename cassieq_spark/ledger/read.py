"""Reading a ledger: its head, a sink, the groups, and where messages are."""

from __future__ import annotations

from datetime import UTC, datetime

from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.state import (
    HEAD,
    Gate,
    Group,
    Hold,
    LedgerHead,
    block_key,
    block_of,
    check_open,
    check_tiling,
    group_key,
    group_of,
    head_of,
    hold_of,
    last_batch_of,
    sink_key,
)
from cassieq_spark.model import LedgerBlock, QueueId, Range
from cassieq_spark.options.position import StartingPosition
from cassieq_spark.store.protocol import (
    Insert,
    Row,
    RowKey,
    Slice,
    Store,
    Values,
    partition_of_ledger,
)

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def open_ledger(
    store: Store, queue_id: QueueId, *, gate: Gate = Gate.OPEN, paused: bool = False
) -> bool:
    """Make the ledger of a new queue. One LWT; False if there was one."""
    head: Values = {
        "next": 0,
        "finalised": 0,
        "fence": _NEVER,
        "groups_version": 0,
        "delayed_stop": 0,
        "gate": gate,
        "paused": paused,
    }
    return store.cas(partition_of_ledger(queue_id), [Insert(HEAD, head, if_absent=True)])


def read_head(store: Store, queue_id: QueueId, *, serial: bool = False) -> LedgerHead:
    """Read the head. One read.

    Raises:
        QueueStateError: There is no such ledger.
    """
    row = _read_row(store, queue_id, HEAD, serial=serial)
    if row is None:
        raise QueueStateError(f"there is no queue {queue_id}; create it: cassieq queue create")
    return head_of(row)


def read_last_batch(store: Store, queue_id: QueueId, sink: str) -> int | None:
    """Read which batch a sink published last; None if none. One read."""
    row = _read_row(store, queue_id, sink_key(sink))
    return last_batch_of(row) if row else None


def read_group(
    store: Store, queue_id: QueueId, group: str, *, serial: bool = False
) -> Group | None:
    """Read a group's registration; None if it is not registered. One read."""
    row = _read_row(store, queue_id, group_key(group), serial=serial)
    return group_of(row) if row else None


def read_groups(store: Store, queue_id: QueueId) -> list[Group]:
    """Read the registered groups, by name. One read."""
    rows = store.read_rows(partition_of_ledger(queue_id), Slice(kinds=("group",)))
    return [group_of(row) for row in rows.rows]


def read_holds(store: Store, queue_id: QueueId, group: str) -> list[Hold]:
    """Read what holds ``finalised`` for a group that is being sought. One serial read."""
    rows = store.read_rows(partition_of_ledger(queue_id), Slice(kinds=("hold",)), serial=True)
    return [hold for hold in map(hold_of, rows.rows) if hold.group == group]


def find_position(
    store: Store, queue_id: QueueId, head: LedgerHead, position: StartingPosition
) -> int:
    """The monoton that a position stands for, which may be finalised. No read but for an instant.

    An instant stands for the first block, in the order of monotons, that was published then or
    later, by the coordinators' clocks; reads all the blocks. Blocks that are trimmed already
    can't be found: what is there instead is what still exists.

    Raises:
        QueueStateError: No message has that monoton yet, or the queue was purged or deleted.
    """
    check_open(queue_id, head)
    match position:
        case "earliest":
            return head.finalised
        case "latest":
            return head.next
        case datetime():
            found = (
                each for each in read_blocks(store, queue_id) if each.published_at >= position
            )
            return next((min(each.monotons.start, head.next) for each in found), head.next)
    if position > head.next:
        raise QueueStateError(
            f"queue {queue_id} has no monoton {position} yet: it holds "
            f"{Range(head.finalised, head.next)}; begin at {head.next}, or at latest, for what "
            "comes next"
        )
    return position


def read_block_at(
    store: Store, queue_id: QueueId, first_monoton: int, *, serial: bool = False
) -> LedgerBlock | None:
    """Read the block that begins at this very monoton. One read."""
    row = _read_row(store, queue_id, block_key(first_monoton), serial=serial)
    return block_of(row) if row else None


def read_block_of(store: Store, queue_id: QueueId, monoton: int) -> LedgerBlock | None:
    """Read the block that holds this message; None if the ledger has none. One read."""
    which = Slice(kinds=("block",), stop=monoton + 1, limit=1, reverse=True)
    blocks = map(block_of, store.read_rows(partition_of_ledger(queue_id), which).rows)
    return next((block for block in blocks if monoton in block.monotons), None)


def read_blocks(store: Store, queue_id: QueueId, *, serial: bool = False) -> list[LedgerBlock]:
    """Read every block of the ledger, in order, also those below ``finalised`` not trimmed yet."""
    which = Slice(kinds=("block",))
    rows = store.read_rows(partition_of_ledger(queue_id), which, serial=serial)
    return [block_of(row) for row in rows.rows]


def locate(
    store: Store, queue_id: QueueId, monotons: Range, *, limit: int | None = None
) -> list[LedgerBlock]:
    """Find the blocks that hold these messages, in order. Two reads.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        monotons: Which messages.
        limit: Return the block of the first message and so many more at the most; None for all.

    Raises:
        InvariantError: The ledger has a hole there (I1).
    """
    if not monotons:
        return []
    partition = partition_of_ledger(queue_id)
    before = Slice(kinds=("block",), stop=monotons.start + 1, limit=1, reverse=True)
    after = Slice(kinds=("block",), start=monotons.start + 1, stop=monotons.stop, limit=limit)
    rows = [*store.read_rows(partition, before).rows, *store.read_rows(partition, after).rows]
    blocks = [block_of(row) for row in rows]
    if limit is not None and blocks:
        monotons &= Range(0, max(monotons.start, blocks[-1].monotons.stop))
    check_tiling(blocks, monotons)
    return blocks


def _read_row(store: Store, queue_id: QueueId, row: RowKey, *, serial: bool = False) -> Row | None:
    rows = store.read_rows(partition_of_ledger(queue_id), Slice(row=row), serial=serial).rows
    return rows[0] if rows else None
