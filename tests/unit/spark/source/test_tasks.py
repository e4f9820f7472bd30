from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cassieq_spark.fetch.find import Piece, bucket_slices, pieces_of
from cassieq_spark.model import BucketSlice, LedgerBlock, QueueDefinition, Range, Ranges
from cassieq_spark.spark.source.tasks import cut_tasks

NOW = datetime(2026, 11, 20, tzinfo=UTC)
QUEUE = QueueDefinition("q", 1, bucket_size=8, chunk_size=4)
ONE, TWO = UUID(int=1), UUID(int=2)


def make_piece(
    start: int, stop: int, *, block: UUID = ONE, first: int = 0, deliveries: int = 1
) -> Piece:
    return Piece(block, Range(start, stop), first, NOW, deliveries)


def test_no_messages_make_no_task():
    assert cut_tasks([], QUEUE, 10) == []
    assert cut_tasks([make_piece(3, 3)], QUEUE, 10) == []


def test_tasks_begin_at_bucket_borders():
    tasks = cut_tasks([make_piece(3, 30, first=103)], QUEUE, 10)

    assert [[str(piece.offsets) for piece in task] for task in tasks] == [
        ["[3, 16)"],
        ["[16, 30)"],
    ]
    assert [task[0].first_monoton for task in tasks] == [103, 116]


def test_where_a_bucket_is_too_much_tasks_begin_at_chunk_borders():
    tasks = cut_tasks([make_piece(3, 14)], QUEUE, 5)

    assert [[str(piece.offsets) for piece in task] for task in tasks] == [
        ["[3, 8)"],
        ["[8, 12)"],
        ["[12, 14)"],
    ]


def test_where_a_chunk_is_too_much_tasks_begin_anywhere():
    tasks = cut_tasks([make_piece(0, 6)], QUEUE, 3)

    assert [str(task[0].offsets) for task in tasks] == ["[0, 3)", "[3, 6)"]


def test_small_blocks_share_a_task():
    pieces = [make_piece(0, 2), make_piece(0, 3, block=TWO, first=2)]

    assert cut_tasks(pieces, QUEUE, 8) == [tuple(pieces)]


def test_neighbours_delivered_another_number_of_times_stay_apart():
    pieces = [make_piece(0, 2), make_piece(2, 3, first=2, deliveries=2)]

    assert cut_tasks(pieces, QUEUE, 8) == [tuple(pieces)]


def test_pieces_are_what_the_blocks_have_of_the_messages():
    blocks = [
        LedgerBlock(Range(10, 15), ONE, NOW),
        LedgerBlock(Range(15, 20), TWO, NOW),
        LedgerBlock(Range(20, 25), UUID(int=3), NOW),
    ]

    assert pieces_of(blocks, Ranges.parse("12-20"), deliveries=4) == [
        make_piece(2, 5, first=12, deliveries=4),
        make_piece(0, 5, block=TWO, first=15, deliveries=4),
    ]


def test_pieces_leave_out_what_is_between_the_ranges():
    blocks = [
        LedgerBlock(Range(10, 15), ONE, NOW),
        LedgerBlock(Range(15, 20), TWO, NOW),
        LedgerBlock(Range(20, 25), UUID(int=3), NOW),
        LedgerBlock(Range(25, 30), UUID(int=4), NOW),
    ]

    assert pieces_of(blocks, Ranges.parse("10-11,13-17,18-20,27-28"), deliveries=4) == [
        make_piece(0, 1, first=10, deliveries=4),
        make_piece(3, 5, first=13, deliveries=4),
        make_piece(0, 2, block=TWO, first=15, deliveries=4),
        make_piece(3, 5, block=TWO, first=18, deliveries=4),
        make_piece(2, 3, block=UUID(int=4), first=27, deliveries=4),
    ]


def test_the_pieces_of_one_block_stay_apart_in_a_task():
    block = LedgerBlock(Range(10, 15), ONE, NOW)

    (task,) = cut_tasks(pieces_of([block], Ranges.parse("10-11,12-13"), deliveries=1), QUEUE, 8)

    assert [(str(each.offsets), each.first_monoton) for each in task] == [
        ("[0, 1)", 10),
        ("[2, 3)", 12),
    ]


def test_the_first_slice_begins_where_the_chunk_of_the_first_message_may():
    assert list(bucket_slices(make_piece(6, 19), QUEUE)) == [
        BucketSlice(ONE, 0, 4, 8),
        BucketSlice(ONE, 1, 8, 16),
        BucketSlice(ONE, 2, 16, 19),
    ]
