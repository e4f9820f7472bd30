from __future__ import annotations

import pytest

from cassieq_spark.errors import InvariantError, QueueStateError
from cassieq_spark.ledger.read import (
    locate,
    open_ledger,
    read_block_of,
    read_groups,
    read_head,
    read_last_batch,
)
from cassieq_spark.model import QueueId, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Delete, partition_of_ledger
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_group, make_queue


@pytest.mark.parametrize(
    ("monotons", "blocks"),
    [
        (Range(0, 1), [Range(0, 3)]),
        (Range(2, 3), [Range(0, 3)]),
        (Range(3, 4), [Range(3, 4)]),
        (Range(1, 5), [Range(0, 3), Range(3, 4), Range(4, 9)]),
        (Range(8, 9), [Range(4, 9)]),
        (Range(4, 4), []),
    ],
)
def test_messages_are_located_in_their_blocks(monotons: Range, blocks: list[Range]):
    store = CountingStore(MemoryStore())
    queue = make_queue(store, [3, 1, 5])
    store.reset()

    assert [block.monotons for block in locate(store, queue.queue_id, monotons)] == blocks
    assert store.read_count <= 2


@pytest.mark.parametrize("monotons", [Range(2, 5), Range(3, 4), Range(3, 9), Range(8, 10)])
def test_a_hole_in_the_ledger_is_never_passed_over(monotons: Range):
    store = MemoryStore()
    queue = make_queue(store, [3, 1, 5])
    store.cas(partition_of_ledger(queue.queue_id), [Delete(("block", 3, ""))])

    with pytest.raises(InvariantError, match="I1"):
        locate(store, queue.queue_id, monotons)


@pytest.mark.parametrize(
    ("monoton", "block"),
    [(0, Range(0, 3)), (2, Range(0, 3)), (3, None), (4, Range(4, 9)), (9, None)],
)
def test_the_block_of_a_message_is_found_unless_trimmed(monoton: int, block: Range | None):
    store = MemoryStore()
    queue = make_queue(store, [3, 1, 5])
    store.cas(partition_of_ledger(queue.queue_id), [Delete(("block", 3, ""))])

    found = read_block_of(store, queue.queue_id, monoton)

    assert (found and found.monotons) == block


def test_a_new_ledger_is_empty_and_opened_once():
    store = MemoryStore()
    queue_id = QueueId("q@1")

    assert open_ledger(store, queue_id)
    assert not open_ledger(store, queue_id)
    assert (read_head(store, queue_id).next, read_head(store, queue_id).finalised) == (0, 0)
    assert read_last_batch(store, queue_id, "s") is None


def test_reading_a_ledger_that_is_not_there_says_how_to_make_it():
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        read_head(MemoryStore(), QueueId("q@1"))


def test_groups_are_read_by_name():
    store = MemoryStore()
    queue = make_queue(store)
    for name in ("b", "a"):
        make_group(store, queue.queue_id, name)

    assert [group.name for group in read_groups(store, queue.queue_id)] == ["a", "b"]
