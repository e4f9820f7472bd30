from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from operator import attrgetter
from uuid import UUID

import pytest

from cassieq_spark.arrow.framing import MOST_MESSAGES
from cassieq_spark.model import QueueId, Range
from cassieq_spark.repair import scan
from cassieq_spark.repair.scan import Run, runs_of
from cassieq_spark.store.protocol import Row

QUEUE = QueueId("orders@1")
A, B = UUID(int=1), UUID(int=2)

#: start, stop, bucket
Stored = tuple[int, int | None, int]


def runs(*stored: Stored, bucket_size: int | None = 4) -> list[Run]:
    rows = [
        {"queue_id": QUEUE, "block": A, "bucket": bucket, "start": start, "stop": stop}
        for start, stop, bucket in stored
    ]
    return list(runs_of(rows, {QUEUE: bucket_size} if bucket_size else {}))


def test_chunks_that_touch_are_one_run_in_whatever_order_they_come():
    assert runs((4, 6, 1), (0, 2, 0), (2, 4, 0)) == [Run(QUEUE, A, Range(0, 6))]


def test_a_gap_begins_another_run():
    assert runs((0, 2, 0), (4, 6, 1)) == [Run(QUEUE, A, Range(0, 2)), Run(QUEUE, A, Range(4, 6))]


def test_what_is_stored_twice_overlaps():
    assert runs((0, 4, 0), (2, 3, 0), (3, 4, 0), (4, 6, 1)) == [
        Run(QUEUE, A, Range(0, 6), overlaps=(Range(2, 3), Range(3, 4)))
    ]


def test_a_chunk_in_another_bucket_is_misplaced():
    assert runs((0, 2, 0), (2, 4, 5)) == [
        Run(QUEUE, A, Range(0, 4), misplaced=(Range(2, 4),), misplaced_buckets=(5,))
    ]


def test_a_chunk_beyond_the_end_of_its_bucket_is_misplaced():
    assert runs((2, 5, 0)) == [
        Run(QUEUE, A, Range(2, 5), misplaced=(Range(2, 5),), misplaced_buckets=(0,))
    ]


def test_nothing_is_misplaced_in_a_queue_that_does_not_exist():
    assert runs((2, 5, 9), bucket_size=None) == [Run(QUEUE, A, Range(2, 5))]


def test_each_block_has_runs_of_its_own():
    rows = [
        {"queue_id": QUEUE, "block": block, "bucket": 0, "start": start, "stop": start + 2}
        for block, start in ((A, 0), (B, 2))
    ]

    found = sorted(runs_of(rows, {QUEUE: 4}), key=attrgetter("block"))

    assert found == [Run(QUEUE, A, Range(0, 2)), Run(QUEUE, B, Range(2, 4))]


def test_memory_grows_with_buckets_and_not_with_chunks():
    held: list[int] = []

    def rows(count: int) -> Iterator[Row]:
        for start in range(count):
            yield {"queue_id": QUEUE, "block": A, "bucket": 0, "start": start, "stop": start + 1}
        held.append(_traced_bytes(scan.__file__, __file__))

    tracemalloc.start()
    try:
        found = list(runs_of(rows(50_000), {QUEUE: 100_000}))
    finally:
        tracemalloc.stop()

    assert found == [Run(QUEUE, A, Range(0, 50_000))]
    assert held[0] < 10_000


def _traced_bytes(*files: str) -> int:
    """What lines of these files hold; other threads, of the driver say, allocate elsewhere."""
    snapshot = tracemalloc.take_snapshot()
    ours = snapshot.filter_traces(
        [tracemalloc.Filter(inclusive=True, filename_pattern=file) for file in files]
    )
    return sum(statistic.size for statistic in ours.statistics("filename"))


@pytest.mark.parametrize(
    ("row", "at"), [((2, None, 0), 2), ((3, 3, 0), 3), ((3, 1, 0), 3), ((-5, 2, 0), 0)], ids=str
)
@pytest.mark.parametrize("bucket_size", [4, None])
def test_a_row_that_is_no_chunk_holds_nothing_and_names_its_bucket(
    row: Stored, at: int, bucket_size: int | None
):
    assert runs(row, bucket_size=bucket_size) == [
        Run(QUEUE, A, Range(at, at), misplaced=(Range(at, at),), misplaced_buckets=(0,))
    ]


def test_a_row_holds_no_more_than_a_bucket_whatever_it_says():
    (run,) = runs((0, 2**62, 0))
    (unknown,) = runs((2**62, 2**63 - 1, 0), bucket_size=None)

    assert run.covered == Range(0, 4)
    assert unknown.covered == Range(2**62, 2**62 + MOST_MESSAGES)
