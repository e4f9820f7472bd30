"""Cuts messages into Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cassieq_spark.fetch.find import Piece
from cassieq_spark.model import Order, QueueDefinition, Range
from cassieq_spark.settings.reading import MOST_PER_TASK, usual_task

#: How many times a bucket must fit into a task for tasks to begin at bucket borders: otherwise
#: tasks would differ too much.
BUCKETS_PER_TASK = 4


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


def plan_tasks(
    parts: Sequence[TaskPart],
    *,
    messages_per_task: int | None,
    min_partitions: int | None,
    may_combine: bool,
    keeps_order: bool = True,
) -> list[tuple[TaskPart, ...]]:
    """Cut and combine the parts of a batch into tasks.

    Args:
        parts: The messages of the batch, at most one part per queue partition.
        messages_per_task: Most messages of a task, approximately; None: see `usual_task`.
        min_partitions: Fewest tasks, approximately, if there are enough messages; None: no such
            wish.
        may_combine: See `pack`.
        keeps_order: True if parts of a queue ordered by key are never cut, and those of a strictly
            ordered one only where an option asks for it, or where they have more than
            `MOST_PER_TASK` messages. Tasks run at the same time.
    """
    total = sum(part.count for part in parts)
    wished = total if min_partitions is None else -(-total // min_partitions)

    def most(usual: int) -> int:
        return max(1, min(messages_per_task or usual, wished))

    cut: list[TaskPart] = []
    for part in parts:
        order = part.queue.order if keeps_order else Order.NONE
        if order is Order.KEY:
            cut.append(part)
            continue
        size = most(usual_task(total) if order is Order.NONE else MOST_PER_TASK)
        cut += [
            replace(part, pieces=pieces) for pieces in cut_tasks(part.pieces, part.queue, size)
        ]
    return pack(cut, most(usual_task(total)), may_combine=may_combine)


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

    Tasks begin at chunk borders, and at bucket borders if tasks are much larger than a bucket. If
    a chunk is larger than a task may be, tasks begin anywhere.
    """
    total = sum(len(piece.offsets) for piece in pieces)
    if not total:
        return []
    size = -(-total // -(-total // messages_per_task))
    grain = 1
    if queue.bucket_size * BUCKETS_PER_TASK <= messages_per_task:
        grain = queue.bucket_size
    elif queue.chunk_size <= messages_per_task:
        grain = queue.chunk_size
    tasks: list[list[Piece]] = []
    filled = full_at = 0
    for piece in pieces:
        start, end = piece.offsets.start, piece.offsets.stop
        while start < end:
            if filled >= full_at:
                tasks.append([])
                # A border may lie beyond the end of the next task, too.
                full_at = size * (filled // size + 1)
            wanted = start + full_at - filled
            stop = min(end, -(-wanted // grain) * grain)
            _append(tasks[-1], piece.part(Range(start, stop)))
            filled += stop - start
            start = stop
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
