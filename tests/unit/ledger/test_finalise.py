from __future__ import annotations

from datetime import timedelta

from cassieq_spark.ledger.finalise import finalise, raise_fence, trim
from cassieq_spark.ledger.read import read_blocks, read_head
from cassieq_spark.model import Range
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import BEGUN_AT, make_group, make_queue


def test_finalised_goes_up_unless_a_group_came_meanwhile():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    head = read_head(store, queue_id)

    make_group(store, queue_id)

    assert not finalise(store, queue_id, head, 3)
    assert finalise(store, queue_id, read_head(store, queue_id), 3)
    assert read_head(store, queue_id).finalised == 3


def test_finalised_goes_up_for_one_of_two_repairs_only():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    head = read_head(store, queue_id)

    assert finalise(store, queue_id, head, 3)
    assert not finalise(store, queue_id, head, 2)


def test_trimming_deletes_the_rows_of_the_blocks_below():
    store = MemoryStore()
    queue_id = make_queue(store, [2, 3, 4]).queue_id
    finalise(store, queue_id, read_head(store, queue_id), 6)

    assert not trim(store, queue_id, finalised=5, below=5)
    assert trim(store, queue_id, finalised=6, below=5)
    assert [block.monotons for block in read_blocks(store, queue_id)] == [Range(5, 9)]
    assert read_head(store, queue_id).trimmed == 5


def test_the_fence_is_raised_by_one_of_two():
    store = MemoryStore()
    queue_id = make_queue(store).queue_id
    head = read_head(store, queue_id)

    assert raise_fence(store, queue_id, head, BEGUN_AT)
    assert not raise_fence(store, queue_id, head, BEGUN_AT + timedelta(hours=1))
    assert read_head(store, queue_id).fence == BEGUN_AT
