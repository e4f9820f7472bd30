"""Where messages are: runs of consecutive messages within one block. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from uuid import UUID

from cassieq_spark.model import BucketSlice, LedgerBlock, QueueDefinition, Range, Ranges


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive messages of one block.

    Attributes:
        block: Which block.
        offsets: Where in the block.
        first_monoton: Monoton of the first of them.
        published_at: When the block became visible.
        deliveries: How often they were handed out, this time included; None when browsing.
    """

    block: UUID
    offsets: Range
    first_monoton: int
    published_at: datetime
    deliveries: int | None

    def part(self, offsets: Range) -> Piece:
        """The messages of this piece at those offsets of the block."""
        first = self.first_monoton + offsets.start - self.offsets.start
        return Piece(self.block, offsets, first, self.published_at, self.deliveries)


def pieces_of(
    blocks: Sequence[LedgerBlock], monotons: Ranges, *, deliveries: int | None
) -> list[Piece]:
    """The pieces of these blocks, which are in order, that hold ``monotons``."""
    pieces: list[Piece] = []
    parts, begin = monotons.parts, 0
    for block in blocks:
        while begin < len(parts) and parts[begin].stop <= block.monotons.start:
            begin += 1
        for part in islice(parts, begin, None):
            offsets = block.offsets(part)
            if not offsets:
                break
            first = block.monotons.start + offsets.start
            pieces.append(Piece(block.block, offsets, first, block.published_at, deliveries))
    return pieces


def bucket_slices(piece: Piece, queue: QueueDefinition) -> Iterator[BucketSlice]:
    """Where a piece's chunks are; the first may begin before the piece does."""
    for part in piece.offsets.split_at_multiples(queue.bucket_size):
        start = part.start - part.start % queue.chunk_size
        yield BucketSlice(piece.block, part.start // queue.bucket_size, start, part.stop)
