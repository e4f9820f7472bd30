from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark.fetch.find import Piece, bucket_slices, pieces_of
from cassieq_spark.model import BucketSlice, LedgerBlock, Order, QueueDefinition, Range, Ranges
from cassieq_spark.spark.source.tasks import TaskPart, cut_tasks, plan_tasks

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
    tasks = cut_tasks([make_piece(3, 90, first=103)], QUEUE, 32)

    assert shown(tasks) == [["[3, 32)"], ["[32, 64)"], ["[64, 90)"]]
    assert [task[0].first_monoton for task in tasks] == [103, 132, 164]


def test_where_a_task_has_few_buckets_tasks_begin_at_chunk_borders():
    assert shown(cut_tasks([make_piece(3, 14)], QUEUE, 5)) == [
        ["[3, 8)"],
        ["[8, 12)"],
        ["[12, 14)"],
    ]
    assert shown(cut_tasks([make_piece(0, 40)], QUEUE, 12)) == [
        ["[0, 12)"],
        ["[12, 20)"],
        ["[20, 32)"],
        ["[32, 40)"],
    ]


def test_where_a_chunk_is_too_much_tasks_begin_anywhere():
    tasks = cut_tasks([make_piece(0, 6)], QUEUE, 3)

    assert shown(tasks) == [["[0, 3)"], ["[3, 6)"]]
    assert shown(cut_tasks([make_piece(1, 6)], QUEUE, 3)) == [["[1, 4)"], ["[4, 6)"]]


def test_no_task_is_empty_where_a_border_lies_beyond_the_next_task():
    queue = replace(QUEUE, bucket_size=100, chunk_size=10)

    assert shown(cut_tasks([make_piece(4, 25)], queue, 10)) == [["[4, 20)"], ["[20, 25)"]]


def test_tasks_that_are_larger_by_a_border_make_later_ones_smaller():
    tasks = cut_tasks([make_piece(2, 1002)], QUEUE, 63)

    sizes = [sum(len(piece.offsets) for piece in task) for task in tasks]
    assert len(sizes) == 16
    assert all(abs(size - 63) <= 2 * QUEUE.bucket_size for size in sizes)


def shown(tasks: list[tuple[Piece, ...]]) -> list[list[str]]:
    return [[str(piece.offsets) for piece in task] for task in tasks]


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


def sizes_of(*counts: int, order: Order = Order.NONE, **options: Any) -> list[list[int]]:
    """The sizes of the parts of each task, for a batch with so many messages per partition."""
    queue = replace(QUEUE, bucket_size=8192, chunk_size=512, order=order)
    parts = [TaskPart(queue, (make_piece(0, count),)) for count in counts]
    wanted = {"messages_per_task": None, "min_partitions": None} | options
    tasks = plan_tasks(parts, may_combine=len(counts) > 1, **wanted)
    return [[part.count for part in task] for task in tasks]


def test_by_default_a_batch_is_up_to_sixteen_tasks_and_small_ones_are_one():
    assert sizes_of(25_000) == [[25_000]]
    assert sizes_of(100_000) == [[25_088], [25_088], [25_088], [24_736]]
    assert len(sizes_of(1_000_000)) == 16
    assert len(sizes_of(10_000_000)) == 100


def test_min_partitions_makes_more_tasks_but_never_fewer_nor_any_without_messages():
    assert len(sizes_of(100_000, min_partitions=8)) == 8
    assert len(sizes_of(100_000, min_partitions=2)) == 4
    assert sizes_of(3, min_partitions=8) == [[1], [1], [1]]
    assert sizes_of(min_partitions=8) == []


def test_messages_per_task_is_kept_whatever_the_default_says():
    assert sizes_of(100_000, messages_per_task=100_000) == [[100_000]]
    assert len(sizes_of(100_000, messages_per_task=100_000, min_partitions=2)) == 2
    assert len(sizes_of(100_000, messages_per_task=10_000, min_partitions=2)) == 10


def test_in_order_by_key_a_partition_is_never_cut():
    assert sizes_of(60_000, order=Order.KEY, min_partitions=8) == [[60_000]]
    assert sizes_of(*[10_000] * 4, order=Order.KEY) == [[10_000] * 2] * 2
    assert sizes_of(*[10_000] * 4, order=Order.KEY, min_partitions=4) == [[10_000]] * 4


def test_in_strict_order_a_batch_is_cut_only_if_it_is_large_or_an_option_asks_for_it():
    assert sizes_of(100_000, order=Order.STRICT) == [[100_000]]
    assert len(sizes_of(200_000, order=Order.STRICT)) == 2
    assert len(sizes_of(1000, order=Order.STRICT, min_partitions=2)) == 2


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_a_read_that_leases_nothing_is_cut_whatever_the_order(order: Order):
    assert len(sizes_of(100_000, order=order, keeps_order=False)) == 4


def test_the_tasks_of_a_batch_have_all_of_its_messages_in_order():
    queue = replace(QUEUE, bucket_size=64, chunk_size=8)
    pieces = (make_piece(5, 300, first=1000), make_piece(0, 77, block=TWO, first=1295))

    tasks = plan_tasks(
        [TaskPart(queue, pieces, "r")],
        messages_per_task=50,
        min_partitions=None,
        may_combine=False,
    )

    parts = [part for task in tasks for part in task]
    monotons = [piece.monotons_at(piece.offsets) for part in parts for piece in part.pieces]
    assert [each for found in monotons for each in range(found.start, found.stop)] == [
        *range(1000, 1372)
    ]
    assert {part.receipt_prefix for part in parts} == {"r"}
