"""Cutting messages into Spark tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from cassieq_spark.fetch.find import Piece
from cassieq_spark.model import QueueDefinition, Range

Task = tuple[Piece, ...]


@dataclass(frozen=True)
class TaskPart:
    """What a task reads of one partition.

    Attributes:
        queue: The queue, or the partition of it.
        pieces: The messages.
        receipt_prefix: What their receipts begin with; empty, if they have none.
    """

    queue: QueueDefinition
    pieces: Task
    receipt_prefix: str = ""

    @property
    def count(self) -> int:
        """How many messages."""
        return sum(len(piece.offsets) for piece in self.pieces)


def pack(parts: Iterable[TaskPart], messages_per_task: int) -> list[tuple[TaskPart, ...]]:
    """Put parts of several partitions together into tasks of at most ``messages_per_task``.

    A part is never cut, and the order stays.
    """
    packed: list[tuple[TaskPart, ...]] = []
    filled = 0
    for part in parts:
        if packed and filled + part.count <= messages_per_task:
            packed[-1] += (part,)
            filled += part.count
        else:
            packed.append((part,))
            filled = part.count
    return packed


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


def _split(piece: Piece, grain: int) -> Iterator[Piece]:
    for offsets in piece.offsets.split_at_multiples(grain):
        yield piece.part(offsets)


def _joined(parts: Sequence[Piece]) -> Task:
    """Put neighbours together again."""
    joined: list[Piece] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and _ends_where(last) == (part.block, part.offsets.start, part.deliveries):
            joined[-1] = last.part(Range(last.offsets.start, part.offsets.stop))
        else:
            joined.append(part)
    return tuple(joined)


def _ends_where(piece: Piece) -> tuple[UUID, int, int | None]:
    return piece.block, piece.offsets.stop, piece.deliveries
