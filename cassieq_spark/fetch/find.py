"""Finding messages: in which blocks, and where in them, they are. Without Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import check_tiling
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


#: Ranges further apart than this are looked for one by one: what lies between them need not be
#: read.
_FAR = 10_000
#: Blocks that are remembered.
_REMEMBERED = 1_000


class Finder:
    """Finds messages, and remembers the last blocks that it found: they never change (I2).

    For one thread at a time.

    Args:
        ledger: Of which queue.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._blocks: list[LedgerBlock] = []

    def pieces(self, monotons: Ranges, *, deliveries: int | None) -> list[Piece]:
        """Find messages, in order. For each run of ranges near each other, reads as `covering`.

        Args:
            monotons: Which messages; published, and not finalised.
            deliveries: What their pieces are to say.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        return [
            piece
            for near in _neighbourhoods(monotons)
            for piece in pieces_of(self.covering(near.hull), near, deliveries=deliveries)
        ]

    def covering(self, monotons: Range) -> list[LedgerBlock]:
        """The blocks that hold these messages, in order.

        No read if they are among the last found, one for those that follow them, else two; one
        more for each thousand blocks.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        blocks = self._going_on_to(monotons)
        if blocks is None:
            blocks = self._ledger.locate(monotons)
        blocks = [block for block in blocks if monotons.start < block.monotons.stop]
        self._blocks = blocks[-_REMEMBERED:]
        return [block for block in blocks if block.monotons.start < monotons.stop]

    def forget(self) -> None:
        """Read anew from here on."""
        self._blocks = []

    def _going_on_to(self, monotons: Range) -> list[LedgerBlock] | None:
        """What is remembered and what follows it; None if these are not among them."""
        known = self._blocks
        if not known:
            return None
        if not known[0].monotons.start <= monotons.start <= known[-1].monotons.stop:
            return None
        blocks = known + self._following(known[-1].monotons.stop, monotons.stop)
        try:
            check_tiling(blocks, monotons)
        except InvariantError:
            return None  # a plain read may miss what is there; see `locate`
        return blocks

    def _following(self, start: int, stop: int) -> list[LedgerBlock]:
        if stop <= start:
            return []
        return list(self._ledger.stream_blocks(start=start, stop=stop))


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
