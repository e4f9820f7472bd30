"""Nobody who reads blocks comes across rows that the repair has trimmed."""

from __future__ import annotations

import pytest

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.views import read_view
from cassieq_spark.store.protocol import partition_of_ledger
from tests.support.dry_store import DryStore
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue


class TrimmedQueue(RepairedQueue):
    """Five blocks, of which a repair run has trimmed three; the fourth is settled in part."""

    def __init__(self) -> None:
        super().__init__("orders")
        self.store = DryStore(self.store)
        self.blocks = self.publish(4, 4, 4, 4, 4)
        self.settle("billing", 14)
        self.repair()


@pytest.fixture
def queue() -> TrimmedQueue:
    queue = TrimmedQueue()
    assert queue.store.deleted(partition_of_ledger(queue.queue_id)) == [0, 4, 8]
    return queue


def test_a_read_that_would_is_refused(queue: TrimmedQueue):
    with pytest.raises(AssertionError, match=r"wades through \[0, 4, 8\]"):
        Ledger(queue.store, queue.queue_id).read_blocks()
    with pytest.raises(AssertionError, match=r"wades through \[0, 4\]"):
        Ledger(queue.store, queue.queue_id).read_block_of(5)


def test_repairs_do_not(queue: TrimmedQueue):
    queue.repair()
    queue.write(3)
    queue.store.delete_buckets(queue.queue_id, [(queue.blocks[4], 0)])
    queue.clock.advance(2 * WRITE_TIMEOUT)
    report = queue.repair()

    assert report.totals.unpublished_blocks == 1
    assert not report.is_whole

    queue.settle("billing", 6)
    assert queue.repair().totals.trimmed_blocks == 2
    assert queue.repair().totals.trimmed_blocks == 0


def test_figures_and_views_do_not(queue: TrimmedQueue):
    (billing,) = queue_stats(Ledger(queue.store, queue.queue_id)).groups
    blocks = read_view(queue.store, SourceOptions(queue="orders", view="blocks"))

    assert billing.depth == 6
    assert [(start, stop) for _, _, start, stop, *_ in blocks] == [(12, 16), (16, 20)]


def test_leases_and_positions_do_not(queue: TrimmedQueue):
    head = Ledger(queue.store, queue.queue_id).read_head()

    assert (
        Ledger(queue.store, queue.queue_id).find_position(head, queue.definition.created_at) == 12
    )
    assert sum(each.monotons.count for each in queue.consume("billing").leased) == 6
