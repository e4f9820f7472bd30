"""Cutting messages into Spark tasks. Pure."""

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


Task = tuple[Piece, ...]


def cut_tasks(
    pieces: Sequence[Piece], queue: QueueDefinition, messages_per_task: int
) -> list[Task]:
    """Cut pieces into tasks of about ``messages_per_task``, in order, of about one size.

    Tasks begin at bucket borders; where a bucket is more than a task may have, at chunk borders;
    where even a chunk is, anywhere.
    """
    total = sum(len(piece.offsets) for piece in pieces)
    if not total:
        return []
    count = -(-total // messages_per_task)
    size = -(-total // count)
    grain = next(
        (each for each in (queue.bucket_size, queue.chunk_size) if each <= messages_per_task),
        messages_per_task,
    )
    tasks: list[list[Piece]] = [[]]
    filled = 0
    for piece in pieces:
        for part in _split(piece, grain):
            if filled >= size:
                tasks.append([])
                filled = 0
            filled += len(part.offsets)
            tasks[-1].append(part)
    return [_joined(task) for task in tasks]


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


def _split(piece: Piece, grain: int) -> Iterator[Piece]:
    for offsets in piece.offsets.split_at_multiples(grain):
        yield _part(piece, offsets)


def _joined(parts: Sequence[Piece]) -> Task:
    """Put neighbours together again."""
    joined: list[Piece] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and _ends_where(last) == (part.block, part.offsets.start, part.deliveries):
            joined[-1] = _part(last, Range(last.offsets.start, part.offsets.stop))
        else:
            joined.append(part)
    return tuple(joined)


def _ends_where(piece: Piece) -> tuple[UUID, int, int | None]:
    return piece.block, piece.offsets.stop, piece.deliveries


def _part(piece: Piece, offsets: Range) -> Piece:
    first = piece.first_monoton + offsets.start - piece.offsets.start
    return Piece(piece.block, offsets, first, piece.published_at, piece.deliveries)
