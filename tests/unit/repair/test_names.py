"""Names that are published under once: however many, a repair run has nothing to do with them."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest

from cassieq_spark.errors import StoreError
from cassieq_spark.ledger.once import Mark, Once, mark
from cassieq_spark.repair.report import Outcome
from cassieq_spark.store.protocol import Slice, partition_of_ledger
from cassieq_spark.testing.stores import CountingStore
from cassieq_spark.testing.tombstones import TombstoneStore
from tests.unit.repair.repaired_queue import RepairedQueue

LIFETIME = timedelta(hours=24)
#: For each name, less than a row as it is read; the store in memory itself sorts its keys.
MOST_BYTES = 100


def make_names(queue: RepairedQueue, count: int) -> None:
    """Mark names, as if something had been published under each."""
    marks = [mark(Once(f"key:{number}", LIFETIME), Mark.PUBLISHED) for number in range(count)]
    assert queue.store.cas(partition_of_ledger(queue.queue_id), marks)


def peak_of_repair(queue: RepairedQueue) -> int:
    tracemalloc.start()
    try:
        assert queue.repair().outcome is Outcome.DONE
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("are_forgotten", [False, True])
def test_many_names_cost_a_repair_no_read_and_no_tombstone(*, are_forgotten: bool):
    queue, other = RepairedQueue("a"), CountingStore(RepairedQueue("a").store)
    queue.store = TombstoneStore(queue.store, limit=0)  # type: ignore[assignment]
    make_names(queue, 3000)
    if are_forgotten:
        queue.clock.advance(LIFETIME)
    counting = CountingStore(queue.store)

    report = queue.repair(store=counting)
    queue.repair(store=other)

    with pytest.raises(StoreError, match="3000 deleted rows"):
        queue.store.read_rows(partition_of_ledger(queue.queue_id), Slice(kinds=("once",)))
    assert report.outcome is Outcome.DONE
    assert not report.queues["a"].needed_something
    assert (counting.read_count, counting.serial_read_count, counting.cas_count) == (
        other.read_count,
        other.serial_read_count,
        other.cas_count,
    )


def test_memory_does_not_grow_with_names():
    few, many = RepairedQueue(), RepairedQueue()
    make_names(few, 1_000)
    make_names(many, 41_000)
    peak_of_repair(RepairedQueue())

    grown = peak_of_repair(many) - peak_of_repair(few)

    assert grown < 40_000 * MOST_BYTES
