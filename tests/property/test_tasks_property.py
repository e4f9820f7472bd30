from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.fetch.find import Piece, bucket_slices, pieces_of
from cassieq_spark.model import LedgerBlock, QueueDefinition, Range, Ranges
from cassieq_spark.spark.source.tasks import BUCKETS_PER_TASK, cut_tasks

NOW = datetime(2026, 11, 20, tzinfo=UTC)

QUEUES = st.builds(
    lambda chunk, times: QueueDefinition("q", 1, bucket_size=chunk * times, chunk_size=chunk),
    st.integers(1, 8),
    st.integers(1, 5),
)


@st.composite
def located(draw: st.DrawFn) -> tuple[list[LedgerBlock], Ranges]:
    """Blocks that tile a stretch of monotons, and messages in it."""
    counts = draw(st.lists(st.integers(1, 60), min_size=1, max_size=6))
    at = first = draw(st.integers(0, 1000))
    blocks = []
    for number, count in enumerate(counts):
        blocks.append(LedgerBlock(Range(at, at + count), UUID(int=number), NOW))
        at += count
    ends = st.tuples(st.integers(first, at), st.integers(first, at)).map(sorted)
    parts = draw(st.lists(ends, max_size=5))
    return blocks, Ranges.of(*(Range(start, stop) for start, stop in parts))


def monotons_in(piece: Piece) -> list[int]:
    return list(range(piece.first_monoton, piece.first_monoton + len(piece.offsets)))


@given(located(), QUEUES, st.integers(1, 100))
def test_tasks_have_every_message_once_in_order(
    blocks_and_monotons: tuple[list[LedgerBlock], Ranges], queue: QueueDefinition, most: int
):
    blocks, monotons = blocks_and_monotons

    tasks = cut_tasks(pieces_of(blocks, monotons, deliveries=1), queue, most)

    pieces = [piece for task in tasks for piece in task]
    assert all(tasks)
    assert all(piece.offsets for piece in pieces)
    assert [at for piece in pieces for at in monotons_in(piece)] == [
        at for part in monotons for at in range(part.start, part.stop)
    ]
    for piece in pieces:
        (block,) = (each for each in blocks if each.block == piece.block)
        assert piece.first_monoton - piece.offsets.start == block.monotons.start
        assert piece.offsets.stop <= len(block.monotons)


@given(located(), QUEUES, st.integers(1, 100))
def test_tasks_are_about_as_large_as_asked_and_not_more_than_needed(
    blocks_and_monotons: tuple[list[LedgerBlock], Ranges], queue: QueueDefinition, most: int
):
    blocks, monotons = blocks_and_monotons

    tasks = cut_tasks(pieces_of(blocks, monotons, deliveries=1), queue, most)

    sizes = [sum(len(piece.offsets) for piece in task) for task in tasks]
    assert len(tasks) <= -(-monotons.count // most)
    assert all(size < 2 * most for size in sizes)


@given(located(), QUEUES, st.integers(1, 100))
def test_tasks_begin_at_the_widest_borders_that_fit(
    blocks_and_monotons: tuple[list[LedgerBlock], Ranges], queue: QueueDefinition, most: int
):
    blocks, monotons = blocks_and_monotons
    grains = ((queue.bucket_size, BUCKETS_PER_TASK), (queue.chunk_size, 1), (1, 1))
    grain = next(each for each, times in grains if each * times <= most)

    pieces = pieces_of(blocks, monotons, deliveries=1)
    begin = {(piece.block, piece.offsets.start) for piece in pieces}
    tasks = cut_tasks(pieces, queue, most)

    for task in tasks:
        at = (task[0].block, task[0].offsets.start)
        assert at in begin or at[1] % grain == 0


@given(located(), QUEUES)
def test_slices_reach_every_chunk_of_a_piece_and_stay_in_their_bucket(
    blocks_and_monotons: tuple[list[LedgerBlock], Ranges], queue: QueueDefinition
):
    blocks, monotons = blocks_and_monotons

    for piece in pieces_of(blocks, monotons, deliveries=1):
        slices = list(bucket_slices(piece, queue))

        for each in slices:
            assert each.bucket == each.start // queue.bucket_size
            assert each.bucket == (each.stop - 1) // queue.bucket_size
            assert each.start % queue.chunk_size == 0
        assert slices[0].start <= piece.offsets.start < slices[0].start + queue.chunk_size
        assert [each.start for each in slices[1:]] == [each.stop for each in slices[:-1]]
        assert slices[-1].stop == piece.offsets.stop
