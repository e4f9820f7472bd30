"""Cuts messages into Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cassieq_spark.fetch.find import Piece
from cassieq_spark.model import QueueDefinition, Range


@dataclass(frozen=True)
class TaskPart:
    """A task's messages of one queue partition.

    Attributes:
        queue: The queue, or the partition of it.
        pieces: The messages.
        receipt_prefix: The beginning of the receipts; empty if there are none.
    """

    queue: QueueDefinition
    pieces: tuple[Piece, ...]
    receipt_prefix: str = ""

    @property
    def count(self) -> int:
        """How many messages the part has."""
        return sum(len(piece.offsets) for piece in self.pieces)


def pack(
    parts: Iterable[TaskPart], messages_per_task: int, *, may_combine: bool
) -> list[tuple[TaskPart, ...]]:
    """Combine parts of several partitions into tasks of at most ``messages_per_task``.

    A part is never cut, and the order stays.

    Args:
        parts: The parts.
        messages_per_task: Most messages of a task of several parts.
        may_combine: False if each part is a task, as all are of one partition.
    """
    packed: list[tuple[TaskPart, ...]] = []
    filled = 0
    for part in parts:
        if may_combine and packed and filled + part.count <= messages_per_task:
            packed[-1] += (part,)
            filled += part.count
        else:
            packed.append((part,))
            filled = part.count
    return packed


def cut_tasks(
    pieces: Sequence[Piece], queue: QueueDefinition, messages_per_task: int
) -> list[tuple[Piece, ...]]:
    """Cut pieces into tasks of about ``messages_per_task``, in order, of about equal size.

    Tasks begin at bucket borders. If a bucket is larger than a task may be, they begin at chunk
    borders; if a chunk is larger, too, anywhere.
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
        for offsets in piece.offsets.split_at_multiples(grain):
            if filled >= size:
                tasks.append([])
                filled = 0
            filled += len(offsets)
            _append(tasks[-1], piece.part(offsets))
    return [tuple(task) for task in tasks]


def _append(task: list[Piece], part: Piece) -> None:
    """Add a piece to a task; join it to the last piece if that ends where the new one begins."""
    if task:
        last = task[-1]
        end = (last.block, last.offsets.stop, last.deliveries)
        if end == (part.block, part.offsets.start, part.deliveries):
            task[-1] = last.part(Range(last.offsets.start, part.offsets.stop))
            return
    task.append(part)
