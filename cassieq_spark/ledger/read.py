"""Reading a ledger: its head, a sink, the groups, and where messages are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cassieq_spark.errors import InvariantError, NotFoundError, QueueStateError
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
    sink_batch_of,
    sink_key,
)
from cassieq_spark.model import LedgerBlock, QueueId, Range, SinkBatch
from cassieq_spark.settings.position import StartingPosition, check_position
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
#: How far apart the clocks of coordinators may be.
_CLOCKS_APART = timedelta(minutes=1)
#: Blocks of one read: as rows, with every column of the table, they take 2 MB.
_BLOCKS_AT_ONCE = 1_000


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
        "trimmed": 0,
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
        raise _no_queue(queue_id)
    return head_of(row)


def read_head_and_now(store: Store, queue_id: QueueId) -> tuple[LedgerHead, datetime]:
    """Read the head, and when that was by the server's clock; see `Rows.sure_now`. One read.

    Raises:
        QueueStateError: There is no such ledger.
    """
    found = store.read_rows(partition_of_ledger(queue_id), Slice(row=HEAD))
    if not found.rows or found.sure_now is None:
        raise _no_queue(queue_id)
    return head_of(found.rows[0]), found.sure_now


def read_last_batch(store: Store, queue_id: QueueId, sink: str) -> int | None:
    """Read which batch a sink published last; None if none. One read."""
    row = _read_row(store, queue_id, sink_key(sink))
    return last_batch_of(row) if row else None


def read_sink(store: Store, queue_id: QueueId, sink: str) -> SinkBatch | None:
    """Read the last batch that a sink published, and its fingerprint; None if none. One read."""
    row = _read_row(store, queue_id, sink_key(sink))
    return sink_batch_of(row) if row else None


def read_group(
    store: Store, queue_id: QueueId, group: str, *, serial: bool = False
) -> Group | None:
    """Read a group's registration; None if it is not registered. One read."""
    row = _read_row(store, queue_id, group_key(group), serial=serial)
    return group_of(row) if row else None


def read_groups(store: Store, queue_id: QueueId, *, serial: bool = False) -> list[Group]:
    """Read the registered groups, by name. One read."""
    which = Slice(kinds=("group",))
    rows = store.read_rows(partition_of_ledger(queue_id), which, serial=serial)
    return [group_of(row) for row in rows.rows]


def read_holds(store: Store, queue_id: QueueId, group: str) -> list[Hold]:
    """Read what holds ``finalised`` for a group that is being sought. One serial read."""
    rows = store.read_rows(partition_of_ledger(queue_id), Slice(kinds=("hold",)), serial=True)
    return [hold for hold in map(hold_of, rows.rows) if hold.group == group]


def find_position(
    store: Store, queue_id: QueueId, head: LedgerHead, position: StartingPosition
) -> int:
    """The monoton that a position stands for, which may be finalised. No read but for an instant.

    ``head`` must have been read serially.

    An instant stands for the first block, in the order of monotons, that was published then or
    later, by the coordinators' clocks, if they agree to within a minute. Some twenty reads of one
    block, and those of the minute before. Blocks that are trimmed already can't be found: what is
    there instead is what still exists.

    Raises:
        OptionError: It is no position.
        QueueStateError: No message has that monoton yet, or the queue was purged or deleted.
    """
    position = check_position(position)
    check_open(queue_id, head)
    match position:
        case "earliest":
            return head.finalised
        case "latest":
            return head.next
        case datetime():
            return _find_instant(store, queue_id, head, position)
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
    blocks = _read_slice(store, queue_id, which)
    return next((block for block in blocks if monoton in block.monotons), None)


def read_blocks(
    store: Store,
    queue_id: QueueId,
    *,
    start: int = 0,
    stop: int | None = None,
    serial: bool = False,
) -> list[LedgerBlock]:
    """Read the blocks that `stream_blocks` reads; a million of them take some 500 MB."""
    return list(stream_blocks(store, queue_id, start=start, stop=stop, serial=serial))


def stream_blocks(
    store: Store,
    queue_id: QueueId,
    *,
    start: int = 0,
    stop: int | None = None,
    serial: bool = False,
) -> Iterator[LedgerBlock]:
    """Read blocks in order, also those below ``finalised`` not trimmed yet. A read per thousand.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        start: Lowest first monoton; at or above the head's ``trimmed``, or the read wades through
            what was trimmed lately.
        stop: End of the first monotons; None for all.
        serial: What is in flight is decided first.
    """
    while True:
        which = Slice(kinds=("block",), start=start, stop=stop, limit=_BLOCKS_AT_ONCE)
        blocks = _read_slice(store, queue_id, which, serial=serial)
        yield from blocks
        if len(blocks) < _BLOCKS_AT_ONCE:
            return
        start = blocks[-1].monotons.start + 1


def locate(
    store: Store, queue_id: QueueId, monotons: Range, *, limit: int | None = None
) -> list[LedgerBlock]:
    """Find the blocks that hold these messages, in order. Two reads; one more per thousand blocks.

    Plain reads may miss a block that the head has shown, as nothing has completed its publish
    yet. So what looks like a hole is read once more, serially.

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
    try:
        return _locate(store, queue_id, monotons, limit=limit)
    except InvariantError:
        return _locate(store, queue_id, monotons, limit=limit, serial=True)


def _locate(
    store: Store, queue_id: QueueId, monotons: Range, *, limit: int | None, serial: bool = False
) -> list[LedgerBlock]:
    before = Slice(kinds=("block",), stop=monotons.start + 1, limit=1, reverse=True)
    blocks = _read_slice(store, queue_id, before, serial=serial)
    start = monotons.start + 1
    if limit is None:
        blocks += stream_blocks(store, queue_id, start=start, stop=monotons.stop, serial=serial)
    else:
        after = Slice(kinds=("block",), start=start, stop=monotons.stop, limit=limit)
        blocks += _read_slice(store, queue_id, after, serial=serial)
        # Of the first message there must be a block, whatever the limit.
        stop = max([monotons.start + 1, *(block.monotons.stop for block in blocks)])
        monotons &= Range(0, stop)
    check_tiling(blocks, monotons)
    return blocks


def _find_instant(store: Store, queue_id: QueueId, head: LedgerHead, instant: datetime) -> int:
    """Where what was published from ``instant`` on begins, of what ``head`` shows.

    Blocks are published in order, but each by the clock of its coordinator. So what is more than
    `_CLOCKS_APART` too old is passed over by bisection, the rest is looked at one by one. A block
    that is not found is trimmed, as ``head`` was read serially: every publish before is complete.
    """
    start, stop = head.trimmed, head.next
    while start < stop:
        middle = (start + stop) // 2
        block = read_block_of(store, queue_id, middle)
        if block is None:  # trimmed since
            start = middle + 1
        elif block.published_at + _CLOCKS_APART < instant:
            start = block.monotons.stop
        else:
            stop = block.monotons.start
    blocks = stream_blocks(store, queue_id, start=start, stop=head.next)
    later = (each.monotons.start for each in blocks if each.published_at >= instant)
    return next(later, head.next)


def _no_queue(queue_id: QueueId) -> NotFoundError:
    return NotFoundError(f"there is no queue {queue_id}; create it: cassieq queue create")


def _read_slice(
    store: Store, queue_id: QueueId, which: Slice, *, serial: bool = False
) -> list[LedgerBlock]:
    rows = store.read_rows(partition_of_ledger(queue_id), which, serial=serial).rows
    return [block_of(row) for row in rows]


def _read_row(store: Store, queue_id: QueueId, row: RowKey, *, serial: bool = False) -> Row | None:
    rows = store.read_rows(partition_of_ledger(queue_id), Slice(row=row), serial=serial).rows
    return rows[0] if rows else None
