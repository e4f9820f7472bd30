"""The ledger of one queue: how it is read, and how the repair changes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from cassieq_spark.errors import (
    InvariantError,
    NotFoundError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.ledger.state import (
    HEAD,
    Group,
    LedgerHead,
    LedgerStatus,
    SeekPin,
    Stored,
    advance_finalised,
    advance_trimmed,
    block_key,
    block_of,
    check_open,
    check_tiling,
    create_head,
    group_key,
    group_of,
    head_of,
    move_fence,
    seek_pin_of,
    sink_batch_of,
    sink_key,
    size_before_of,
)
from cassieq_spark.model import NO_END, LedgerBlock, QueueId, Range, SinkBatch
from cassieq_spark.settings.position import StartingPosition, check_position
from cassieq_spark.store.protocol import (
    DeleteBelow,
    Op,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
    partition_of_ledger,
)

#: How far apart the clocks of coordinators may be.
_CLOCKS_APART = timedelta(minutes=1)
#: How many blocks one read returns: with every column of the table, their rows take 2 MB.
_BLOCKS_AT_ONCE = 1_000
#: How many blocks one read returns in the search for an instant: as many as a stream publishes in
#: two minutes.
_BLOCKS_OF_AN_INSTANT = 120


class HeadRead(NamedTuple):
    """The head of a ledger and other rows, read at one moment.

    Attributes:
        head: The head.
        rows: Those of the other rows that exist, in the order of their keys.
        now: The time by the server's clock.
        sure_now: The server's time, or the earlier one if clocks disagree; see `Rows.sure_now`.
    """

    head: LedgerHead
    rows: Sequence[Row]
    now: datetime
    sure_now: datetime


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one version of a queue, or of one of its partitions."""

    store: Store
    queue_id: QueueId

    def cas(self, ops: Sequence[Op]) -> bool:
        """Change the ledger. One LWT; see `Store.cas`."""
        return self.store.cas(partition_of_ledger(self.queue_id), ops)

    def try_cas(self, ops: Sequence[Op]) -> bool | None:
        """Call `cas`; None if the outcome is unknown, and the caller must read the ledger."""
        try:
            return self.cas(ops)
        except OutcomeUnknownError:
            return None

    def read(self, which: Slice, *, serial: bool = False) -> Rows:
        """Read rows of the ledger. One read; see `Store.read_rows`."""
        return self.store.read_rows(partition_of_ledger(self.queue_id), which, serial=serial)

    def create(self, *, status: LedgerStatus = LedgerStatus.OPEN, paused: bool = False) -> bool:
        """Create the ledger of a new queue. One LWT; False if the ledger existed already."""
        return self.cas([create_head(status, paused=paused)])

    def read_head(self, *, serial: bool = False) -> LedgerHead:
        """Read the head. One read.

        Raises:
            QueueStateError: There is no such ledger.
        """
        found = self.read(Slice(row=HEAD), serial=serial).rows
        if not found:
            raise self.no_queue()
        return head_of(found[0])

    def read_head_with(self, *keys: RowKey) -> HeadRead:
        """Read the head and other rows at one moment, and the time. One read.

        Raises:
            QueueStateError: There is no such ledger.
        """
        found = self.read(Slice(rows=(HEAD, *keys)) if keys else Slice(row=HEAD))
        head = next((row for row in found.rows if row["kind"] == "head"), None)
        if head is None or found.now is None or found.sure_now is None:
            raise self.no_queue()
        others = [row for row in found.rows if row is not head]
        return HeadRead(head_of(head), others, found.now, found.sure_now)

    def read_sink(self, sink: str, *, serial: bool = False) -> SinkBatch | None:
        """Read the last batch that a sink has published; None if there is none. One read."""
        row = self._read_row(sink_key(sink), serial=serial)
        return sink_batch_of(row) if row else None

    def read_sinks(self) -> list[SinkBatch]:
        """Read the last batch that each sink has published. One serial read."""
        return [sink_batch_of(row) for row in self.read(Slice(kinds=("sink",)), serial=True).rows]

    def read_group(self, group: str, *, serial: bool = False) -> Group | None:
        """Read a group's registration; None if it is not registered. One read."""
        row = self._read_row(group_key(group), serial=serial)
        return group_of(row) if row else None

    def read_groups(self, *, serial: bool = False) -> list[Group]:
        """Read the registered groups, by name. One read."""
        which = Slice(kinds=("group",))
        return [group_of(row) for row in self.read(which, serial=serial).rows]

    def read_seek_pins(self, group: str) -> list[SeekPin]:
        """Read the seek pins of a group. One serial read."""
        rows = self.read(Slice(kinds=("seek_pin",)), serial=True).rows
        return [pin for pin in map(seek_pin_of, rows) if pin.group == group]

    def find_position(self, head: LedgerHead, position: StartingPosition) -> int:
        """Find the monoton of a position; the monoton may be finalised already.

        An instant stands for the first block, in the order of monotons, that was published at or
        after it, by the coordinators' clocks, if these agree to within a minute. The search begins
        with the first block that is not trimmed.

        No read, except for an instant: a few reads of one block, or about forty if publishes came
        very unevenly, and one read of the blocks of the two minutes before.

        Args:
            head: The head, read serially.
            position: A monoton, an instant, ``earliest`` or ``latest``.

        Raises:
            OptionError: ``position`` is not a position.
            QueueStateError: No message has that monoton yet, or the queue was purged or deleted.
        """
        position = check_position(position)
        check_open(self.queue_id, head)
        match position:
            case "earliest":
                return head.finalised
            case "latest":
                return head.next
            case datetime():
                return self._find_instant(head, position)
        if position > head.next:
            raise QueueStateError(
                f"queue {self.queue_id} has no monoton {position} yet: it holds "
                f"{Range(head.finalised, head.next)}; begin at {head.next}, or at "
                "latest for messages published from now on"
            )
        return position

    def read_block_at(self, first_monoton: int, *, serial: bool = False) -> LedgerBlock | None:
        """Read the block that begins at exactly this monoton. One read."""
        row = self._read_row(block_key(first_monoton), serial=serial)
        return block_of(row) if row else None

    def read_block_of(self, monoton: int) -> LedgerBlock | None:
        """Read the block that holds this message; None if no block does. One read."""
        which = Slice(kinds=("block",), stop=monoton + 1, limit=1, reverse=True)
        blocks = self._read_slice(which)
        return next((block for block in blocks if monoton in block.monotons), None)

    def read_stored(self) -> Stored:
        """Count what is stored, settled or not. One read, and a second one if anything is stored.

        A block counts whole until all of it is settled. Blocks of earlier releases count 0 bytes.
        """
        head = self.read_head()
        if head.next == head.finalised:
            return Stored(0, 0)
        which = Slice(kinds=("block",), stop=head.finalised + 1, limit=1, reverse=True)
        before = sum(map(size_before_of, self.read(which).rows))
        return Stored(head.next - head.finalised, max(0, head.size - before))

    def read_blocks(self, *, start: int = 0, serial: bool = False) -> list[LedgerBlock]:
        """Read blocks as `stream_blocks` does; a million of them take about 500 MB of memory."""
        return list(self.stream_blocks(start=start, serial=serial))

    def stream_blocks(
        self,
        *,
        start: int = 0,
        stop: int | None = None,
        serial: bool = False,
        at_once: int = _BLOCKS_AT_ONCE,
    ) -> Iterator[LedgerBlock]:
        """Read blocks in order, including finalised blocks that are not trimmed yet.

        One read per ``at_once`` blocks.

        Args:
            start: Lowest first monoton; not below the head's ``trimmed``, as a read there crosses
                tombstones.
            stop: End of the first monotons; None for all.
        """
        while True:
            which = Slice(kinds=("block",), start=start, stop=stop, limit=at_once)
            blocks = self._read_slice(which, serial=serial)
            yield from blocks
            if len(blocks) < at_once:
                return
            start = blocks[-1].monotons.start + 1

    def read_newest_blocks(self, head: LedgerHead, limit: int) -> list[LedgerBlock]:
        """Read the last blocks, in order, including settled blocks that are not trimmed. One read.

        Args:
            head: The head, which says where the blocks begin.
            limit: Maximum number of blocks.
        """
        which = Slice(kinds=("block",), start=head.trimmed, limit=limit, reverse=True)
        return self._read_slice(which)[::-1]

    def locate(self, monotons: Range, *, limit: int | None = None) -> list[LedgerBlock]:
        """Find the blocks that hold these messages, in order.

        Two reads, and one more per thousand blocks. A plain read may miss a block that the head
        has shown, as long as its publish is in flight. So if a block seems to be missing, all
        blocks are read once more, serially.

        Args:
            limit: Maximum number of blocks after that of the first message; None for no limit.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        if not monotons:
            return []
        try:
            return self._locate(monotons, limit=limit)
        except InvariantError:
            return self._locate(monotons, limit=limit, serial=True)

    def finalise(self, head: LedgerHead, floor: int) -> bool:
        """Move ``finalised`` up to ``floor``, unless a group was registered meanwhile. One LWT.

        Args:
            head: The head, read before the floors of the groups (I7).
            floor: The lowest monoton that any group is still owed.

        Returns:
            False if another repair run or a new group was faster; the next run tries again.
        """
        if floor < head.finalised:
            raise InvariantError(
                f"queue {self.queue_id}: {floor} is below finalised {head.finalised} (I7)"
            )
        return self.cas([advance_finalised(head, floor)])

    def trim(self, *, finalised: int, below: int) -> bool:
        """Delete the rows of the blocks that begin below ``below``. One LWT.

        The buckets of these blocks must be deleted before. The same LWT writes ``trimmed`` to the
        head, so that no read of blocks begins among deleted rows.

        Args:
            finalised: The present value of ``finalised``. As it only rises, only another repair
                run can make this LWT fail.
            below: The first monoton of a block that stays; not above ``finalised``.
        """
        trimmed = advance_trimmed(below, finalised=finalised)
        return self.cas([trimmed, DeleteBelow("block", below)])

    def raise_fence(self, head: LedgerHead, fence: datetime) -> bool:
        """Prevent the publish of blocks begun at or before ``fence`` (I10). One LWT."""
        if fence < head.fence:
            raise InvariantError(
                f"queue {self.queue_id}: {fence} is before the fence {head.fence} (I10)"
            )
        return self.cas([move_fence(head, fence)])

    def empty(self, *, end: int) -> bool:
        """Delete all rows of a closed ledger except its head. One LWT.

        The buckets of the ledger's blocks must be deleted before.

        Args:
            end: The ledger's ``next``, which ``finalised`` has reached.
        """
        trimmed = advance_trimmed(end, finalised=end)
        kinds = ("block", "sink", "once", "group", "seek_pin", "unique")
        return self.cas([trimmed, *(DeleteBelow(kind, NO_END) for kind in kinds)])

    def _locate(
        self, monotons: Range, *, limit: int | None, serial: bool = False
    ) -> list[LedgerBlock]:
        before = Slice(kinds=("block",), stop=monotons.start + 1, limit=1, reverse=True)
        blocks = self._read_slice(before, serial=serial)
        start = monotons.start + 1
        if limit is None:
            blocks += self.stream_blocks(start=start, stop=monotons.stop, serial=serial)
        else:
            after = Slice(kinds=("block",), start=start, stop=monotons.stop, limit=limit)
            blocks += self._read_slice(after, serial=serial)
            # The first message must have a block, whatever the limit.
            stop = max([monotons.start + 1, *(block.monotons.stop for block in blocks)])
            monotons &= Range(0, stop)
        check_tiling(blocks, monotons)
        return blocks

    def _find_instant(self, head: LedgerHead, instant: datetime) -> int:
        """Find the first monoton that was published at ``instant`` or later.

        Blocks are in the order of their publication, but their times come from different
        coordinators. So the search skips blocks that are more than `_CLOCKS_APART` too old, and
        reads the others one after the other. Every other probe is at the place that the block of
        that time would have if publishes came evenly; the other probes halve the rest, however
        publishes came. A block that is not found is trimmed: ``head`` was read serially, so every
        publish before is complete.
        """
        start, stop = head.trimmed, head.next
        older = newer = None
        halves = True
        while start < stop:
            share = 0.5
            if not halves and older and newer and older < newer:
                # Between one and two `_CLOCKS_APART` too old: the search ends there.
                share = (instant - older - 1.5 * _CLOCKS_APART) / (newer - older)
            halves = not halves
            middle = start + int((stop - start - 1) * min(max(share, 0.0), 1.0))
            block = self.read_block_of(middle)
            if block is None:  # trimmed since
                start = middle + 1
            elif block.published_at + _CLOCKS_APART < instant:
                start, older = block.monotons.stop, block.published_at
                if instant - older <= 2 * _CLOCKS_APART:
                    break
            else:
                stop, newer = block.monotons.start, block.published_at
        blocks = self.stream_blocks(start=start, stop=head.next, at_once=_BLOCKS_OF_AN_INSTANT)
        later = (each.monotons.start for each in blocks if each.published_at >= instant)
        return next(later, head.next)

    def no_queue(self) -> NotFoundError:
        """The error to raise if the queue does not exist."""
        return NotFoundError(f"there is no queue {self.queue_id}; create it: cassieq queue create")

    def _read_slice(self, which: Slice, *, serial: bool = False) -> list[LedgerBlock]:
        return [block_of(row) for row in self.read(which, serial=serial).rows]

    def _read_row(self, row: RowKey, *, serial: bool = False) -> Row | None:
        rows = self.read(Slice(row=row), serial=serial).rows
        return rows[0] if rows else None
