"""What the table of chunks holds, as runs of messages stored without a gap.

`DriverScan` reads the table through the store and merges here; `spark_scan` merges in Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
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
        queue_id: Whose block it is; not necessarily a queue that there is.
        block: Which block.
        covered: Their offsets in the block.
        overlaps: Offsets that are stored more than once.
        misplaced: Offsets of chunks in another bucket than theirs, or beyond the end of theirs;
            empty, for a row that is no chunk.
        misplaced_buckets: The buckets that hold those, in order.
    """

    queue_id: QueueId
    block: UUID
    covered: Range
    overlaps: tuple[Range, ...] = ()
    misplaced: tuple[Range, ...] = ()
    misplaced_buckets: tuple[int, ...] = ()


class Scan(Protocol):
    """Reads the whole table of chunks, without its payload."""

    def __call__(self, bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        """The runs of all blocks, in any order.

        Args:
            bucket_sizes: Messages per bucket of each queue that there is. Chunks of other queues
                are never called misplaced.
        """


@dataclass(frozen=True, slots=True)
class DriverScan:
    """Scans through the store: no Spark, but every row passes through this process."""

    store: Store

    def __call__(self, bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        """See `Scan`."""
        return runs_of(self.store.scan(Table.CHUNK), bucket_sizes)


def buckets_of(offsets: Range, bucket_size: int) -> range:
    """The buckets that hold these offsets.

    >>> buckets_of(Range(4, 9), 4), buckets_of(Range(4, 4), 4)
    (range(1, 3), range(0, 0))

    Raises:
        InvariantError: There are more than any writer of ours makes of a block.
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
        for run in _merge(sorted(chunks), bucket_sizes.get(queue_id)):
            yield run.finished(queue_id, block)


#: ``start, stop, bucket`` of a chunk, or of several that follow one another.
_Stored = tuple[int, int, int]


def within_reason(start: int, stop: int | None, bucket_size: int | None) -> tuple[int, int]:
    """What a row says that it holds, as far as a chunk can; nothing, if it says what none can be.

    Not all rows are of our writers: what is written into a bucket at a later time than its block's
    outlives its deletion, without what was deleted.
    """
    if stop is None or start < 0:
        return max(0, start), max(0, start)
    most = min(MOST_MESSAGES, bucket_size or MOST_MESSAGES)
    return start, max(start, min(stop, start + most))


def _add(chunks: list[_Stored], chunk: _Stored, bucket_size: int | None) -> None:
    """Add a chunk, as one with that before it if both are as they should be.

    Those of a bucket come in order, and most of them follow one another.
    """
    start, stop, bucket = chunk
    follows = bool(chunks) and chunks[-1][1:] == (start, bucket)
    overlaps = len(chunks) > 1 and chunks[-2][1] > chunks[-1][0] and chunks[-2][2] == bucket
    if follows and not overlaps and _is_in_place((chunks[-1][0], stop, bucket), bucket_size):
        start = chunks.pop()[0]
    chunks.append((start, stop, bucket))


def _is_in_place(chunk: _Stored, bucket_size: int | None) -> bool:
    """Whether it is a chunk within its bucket; so are all of a queue that does not exist."""
    start, stop, bucket = chunk
    if start == stop:
        return False
    if bucket_size is None:
        return True
    first = bucket * bucket_size
    return start >= first and stop <= first + bucket_size


@dataclass(slots=True)
class _Growing:
    start: int
    stop: int
    overlaps: list[Range] = field(default_factory=list)
    misplaced: list[Range] = field(default_factory=list)
    misplaced_buckets: set[int] = field(default_factory=set)

    def add(self, chunk: _Stored, bucket_size: int | None) -> None:
        start, stop, bucket = chunk
        if overlap := Range(start, max(start, min(stop, self.stop))):
            self.overlaps.append(overlap)
        self.stop = max(self.stop, stop)
        if not _is_in_place(chunk, bucket_size):
            self.misplaced.append(Range(start, stop))
            self.misplaced_buckets.add(bucket)

    def finished(self, queue_id: QueueId, block: UUID) -> Run:
        return Run(
            queue_id,
            block,
            Range(self.start, self.stop),
            tuple(self.overlaps),
            tuple(self.misplaced),
            tuple(sorted(self.misplaced_buckets)),
        )


def _merge(chunks: Iterable[_Stored], bucket_size: int | None) -> Iterator[_Growing]:
    run: _Growing | None = None
    for chunk in chunks:
        start = chunk[0]
        if run is None or start > run.stop:
            if run is not None:
                yield run
            run = _Growing(start, start)
        run.add(chunk, bucket_size)
    if run is not None:
        yield run
