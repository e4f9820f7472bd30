from __future__ import annotations

from datetime import timedelta

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import BEGUN_AT, make_group, make_queue


def test_finalised_goes_up_unless_a_group_came_meanwhile():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    head = Ledger(store, queue_id).read_head()

    make_group(store, queue_id)

    assert not Ledger(store, queue_id).finalise(head, 3)
    assert Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 3)
    assert Ledger(store, queue_id).read_head().finalised == 3


def test_finalised_goes_up_for_one_of_two_repairs_only():
    store = MemoryStore()
    queue_id = make_queue(store, [5]).queue_id
    head = Ledger(store, queue_id).read_head()

    assert Ledger(store, queue_id).finalise(head, 3)
    assert not Ledger(store, queue_id).finalise(head, 2)


def test_trimming_deletes_the_rows_of_the_blocks_below():
    store = MemoryStore()
    queue_id = make_queue(store, [2, 3, 4]).queue_id
    Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 6)

    assert not Ledger(store, queue_id).trim(finalised=5, below=5)
    assert Ledger(store, queue_id).trim(finalised=6, below=5)
    assert [block.monotons for block in Ledger(store, queue_id).read_blocks()] == [Range(5, 9)]
    assert Ledger(store, queue_id).read_head().trimmed == 5


def test_the_fence_is_raised_by_one_of_two():
    store = MemoryStore()
    queue_id = make_queue(store).queue_id
    head = Ledger(store, queue_id).read_head()

    assert Ledger(store, queue_id).raise_fence(head, BEGUN_AT)
    assert not Ledger(store, queue_id).raise_fence(head, BEGUN_AT + timedelta(hours=1))
    assert Ledger(store, queue_id).read_head().fence == BEGUN_AT
