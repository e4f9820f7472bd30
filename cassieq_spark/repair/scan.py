"""The scan of the table of chunks: merges its rows into runs of messages without a gap.

`DriverScan` reads the table through the store and merges here; `spark_scan` merges in Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cassieq_spark.arrow.framing import MOST_MESSAGES
from cassieq_spark.errors import InvariantError
from cassieq_spark.model import MOST_BUCKETS, QueueId, Range
from cassieq_spark.store.protocol import Row, Store
from cassieq_spark.store.tables import Table


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of a block that are stored without a gap.

    Attributes:
        queue_id: The queue of the block; the queue may not exist.
        block: The id of the block.
        covered: The offsets of the messages in the block.
        overlaps: Offsets that are stored more than once.
        misplaced: Offsets of chunks that are in a wrong bucket or cross the end of their bucket;
            an empty range for a row that is no chunk.
        misplaced_buckets: The buckets that hold these chunks, in order.
    """

    queue_id: QueueId
    block: UUID
    covered: Range
    overlaps: tuple[Range, ...] = ()
    misplaced: tuple[Range, ...] = ()
    misplaced_buckets: tuple[int, ...] = ()


#: Reads the whole table of chunks, without its payload, and returns the runs of all blocks, in any
#: order. Its argument is the messages per bucket of each queue that exists; chunks of other queues
#: are never misplaced.
Scan = Callable[[Mapping[QueueId, int]], Iterable[Run]]


@dataclass(frozen=True, slots=True)
class DriverScan:
    """Scans through the store, without Spark; every row passes through this process."""

    store: Store

    def __call__(self, bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        """Read the table through the store, and merge its rows; see `Scan`."""
        return runs_of(self.store.scan(Table.CHUNK), bucket_sizes)


def buckets_of(offsets: Range, bucket_size: int) -> range:
    """The buckets that hold these offsets.

    >>> buckets_of(Range(4, 9), 4), buckets_of(Range(4, 4), 4)
    (range(1, 3), range(0, 0))

    Raises:
        InvariantError: There are more buckets than any writer makes.
    """
    if not offsets:
        return range(0)
    buckets = range(offsets.start // bucket_size, (offsets.stop - 1) // bucket_size + 1)
    if offsets.stop > MOST_BUCKETS * bucket_size:
        raise InvariantError(
            f"a block would have {buckets.stop} buckets, and no writer makes more than "
            f"{MOST_BUCKETS}: another program has changed its row, or the bucket size of its "
            "queue; nothing of it was deleted"
        )
    return buckets


def runs_of(rows: Iterable[Row], bucket_sizes: Mapping[QueueId, int]) -> Iterator[Run]:
    """Merge rows of the table of chunks into runs, in any order. Memory grows with buckets."""
    stored: defaultdict[tuple[QueueId, UUID], list[_Stored]] = defaultdict(list)
    for row in rows:
        values: Any = row
        size = bucket_sizes.get(values["queue_id"])
        start, stop = within_reason(values["start"], values["stop"], size)
        _add(stored[values["queue_id"], values["block"]], (start, stop, values["bucket"]), size)
    while stored:
        (queue_id, block), chunks = stored.popitem()
        yield from _merge(queue_id, block, sorted(chunks), bucket_sizes.get(queue_id))


#: ``start, stop, bucket`` of a chunk, or of several that follow one another.
_Stored = tuple[int, int, int]


def within_reason(start: int, stop: int | None, bucket_size: int | None) -> tuple[int, int]:
    """The start and stop of a row, cut to what a chunk can have; empty if no chunk can be like it.

    Another program may have written the row, or a part of it at a later time than its block's:
    that part outlives the deletion of the bucket.
    """
    if stop is None or start < 0:
        return max(0, start), max(0, start)
    most = min(MOST_MESSAGES, bucket_size or MOST_MESSAGES)
    return start, max(start, min(stop, start + most))


def _add(chunks: list[_Stored], chunk: _Stored, bucket_size: int | None) -> None:
    """Add a chunk, or join it to the one before if both are in place and follow each other.

    The chunks of a bucket come in order, and most of them follow one another.
    """
    start, stop, bucket = chunk
    follows = bool(chunks) and chunks[-1][1:] == (start, bucket)
    overlaps = len(chunks) > 1 and chunks[-2][1] > chunks[-1][0] and chunks[-2][2] == bucket
    if follows and not overlaps and _is_in_place((chunks[-1][0], stop, bucket), bucket_size):
        start = chunks.pop()[0]
    chunks.append((start, stop, bucket))


def _is_in_place(chunk: _Stored, bucket_size: int | None) -> bool:
    """True if a chunk lies within its bucket; true for a queue that does not exist."""
    start, stop, bucket = chunk
    if start == stop:
        return False
    if bucket_size is None:
        return True
    first = bucket * bucket_size
    return start >= first and stop <= first + bucket_size


def _merge(
    queue_id: QueueId, block: UUID, chunks: Iterable[_Stored], bucket_size: int | None
) -> Iterator[Run]:
    """Merge the chunks of a block, in order of their offsets, into runs."""
    run: list[_Stored] = []
    reached = 0
    for chunk in chunks:
        if run and chunk[0] > reached:
            yield _run_of(queue_id, block, run, bucket_size)
            run = []
        reached = max(reached, chunk[1]) if run else chunk[1]
        run.append(chunk)
    if run:
        yield _run_of(queue_id, block, run, bucket_size)


def _run_of(
    queue_id: QueueId, block: UUID, chunks: Sequence[_Stored], bucket_size: int | None
) -> Run:
    overlaps: list[Range] = []
    first = reached = chunks[0][0]
    for start, stop, _ in chunks:
        if overlap := Range(start, max(start, min(stop, reached))):
            overlaps.append(overlap)
        reached = max(reached, stop)
    strange = [chunk for chunk in chunks if not _is_in_place(chunk, bucket_size)]
    return Run(
        queue_id,
        block,
        Range(first, reached),
        tuple(overlaps),
        tuple(Range(start, stop) for start, stop, _ in strange),
        tuple(sorted({bucket for _, _, bucket in strange})),
    )
