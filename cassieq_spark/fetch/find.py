"""Finds messages: the blocks that hold them, and their offsets. Does not import Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import check_tiling
from cassieq_spark.model import BucketSlice, Kept, LedgerBlock, QueueDefinition, Range, Ranges


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive messages of one block.

    Attributes:
        block: The id of the block.
        offsets: The offsets of the messages in the block.
        first_monoton: The monoton of the first message.
        published_at: When the block was published.
        deliveries: How often the messages were handed out, this time included; None when browsing.
        kept: The messages of the block that were published; None for all.
    """

    block: UUID
    offsets: Range
    first_monoton: int
    published_at: datetime
    deliveries: int | None
    kept: Kept | None = None

    def part(self, offsets: Range) -> Piece:
        """The messages of this piece at those offsets of the block."""
        return replace(self, offsets=offsets, first_monoton=self.monotons_at(offsets).start)

    def monotons_at(self, offsets: Range) -> Range:
        """The monotons of the messages at those offsets of the block."""
        before, begin, end = self.offsets.start, offsets.start, offsets.stop
        if self.kept is not None:
            before, begin, end = (self.kept.before(each) for each in (before, begin, end))
        first = self.first_monoton - before
        return Range(first + begin, first + end)


def pieces_of(
    blocks: Sequence[LedgerBlock], monotons: Ranges, *, deliveries: int | None
) -> list[Piece]:
    """The pieces that hold ``monotons``, given their blocks in order."""
    pieces: list[Piece] = []
    parts, begin = monotons.parts, 0
    for block in blocks:
        while begin < len(parts) and parts[begin].stop <= block.monotons.start:
            begin += 1
        for part in islice(parts, begin, None):
            offsets = block.offsets(part)
            if not offsets:
                break
            first = block.monotons_at(offsets).start
            piece = Piece(block.block, offsets, first, block.published_at, deliveries, block.kept)
            pieces.append(piece)
    return pieces


def bucket_slices(piece: Piece, queue: QueueDefinition) -> Iterator[BucketSlice]:
    """The slices of buckets that hold a piece; its first chunk may begin before it."""
    for part in piece.offsets.split_at_multiples(queue.bucket_size):
        start = part.start - part.start % queue.chunk_size
        yield BucketSlice(piece.block, part.start // queue.bucket_size, start, part.stop)


#: Ranges further apart than this are found by separate reads, which skip the blocks between.
_FAR = 10_000
#: How many blocks a finder remembers.
_REMEMBERED = 1_000


class Finder:
    """Finds messages, and remembers the last blocks that it found: they never change (I2).

    Not thread-safe.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._blocks: list[LedgerBlock] = []

    def pieces(self, monotons: Ranges, *, deliveries: int | None) -> list[Piece]:
        """Find messages, in order. Costs the reads of `covering` per run of ranges that are close.

        Args:
            monotons: Published messages that are not finalised.
            deliveries: How often the messages were handed out; see `Piece`.

        Raises:
            InvariantError: The ledger has a hole among these messages (I1).
        """
        return [
            piece
            for near in _neighbourhoods(monotons)
            for piece in pieces_of(self.covering(near.hull), near, deliveries=deliveries)
        ]

    def covering(self, monotons: Range) -> list[LedgerBlock]:
        """The blocks that hold these messages, in order.

        No read if all blocks are remembered, one if they follow the remembered blocks, else two;
        one more per thousand blocks.

        Raises:
            InvariantError: The ledger has a hole among these messages (I1).
        """
        blocks = self._known(monotons) or self._ledger.locate(monotons)
        blocks = [block for block in blocks if monotons.start < block.monotons.stop]
        self._blocks = blocks[-_REMEMBERED:]
        return [block for block in blocks if block.monotons.start < monotons.stop]

    def fitting(self, fresh: Range, max_bytes: int) -> int:
        """How many of the first messages have about this many bytes, as stored; at least one.

        Two reads; no read if their blocks are known.
        """
        count, left = 0, float(max_bytes)
        for block in self.covering(fresh):
            part = block.monotons & fresh
            each = max(1, block.size) / len(block.monotons)
            taken = min(len(part), int(left / each))
            count, left = count + taken, left - taken * each
            if taken < len(part):
                break
        return max(1, count)

    def forget(self) -> None:
        """Forget all blocks."""
        self._blocks = []

    def _known(self, monotons: Range) -> list[LedgerBlock]:
        """The remembered blocks and those that follow; empty if these do not hold the messages."""
        known = self._blocks
        if not known or not known[0].monotons.start <= monotons.start <= known[-1].monotons.stop:
            return []
        start, stop = known[-1].monotons.stop, monotons.stop
        more = self._ledger.stream_blocks(start=start, stop=stop) if start < stop else ()
        blocks = [*known, *more]
        try:
            check_tiling(blocks, monotons)
        except InvariantError:
            return []  # a plain read may miss a block; see `locate`
        return blocks


def find_pieces(ledger: Ledger, monotons: Ranges, *, deliveries: int | None) -> list[Piece]:
    """Find messages once; see `Finder.pieces`."""
    return Finder(ledger).pieces(monotons, deliveries=deliveries)


def _neighbourhoods(monotons: Ranges) -> Iterator[Ranges]:
    near: list[Range] = []
    for part in monotons:
        if near and part.start - near[-1].stop > _FAR:
            yield Ranges(tuple(near))
            near = []
        near.append(part)
    if near:
        yield Ranges(tuple(near))
