"""Rows that an earlier release wrote: columns of which it knew nothing are null."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import LedgerStatus
from cassieq_spark.model import PendingBlock, Ranges
from cassieq_spark.queues import (
    alter_queue,
    create_queue,
    delete_queue,
    is_paused,
    list_records,
    pause_queue,
    purge_queue,
    read_queue,
    read_record,
    resume_queue,
)
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_request,
    monotons_of,
)
from tests.support.earlier_release import make_earlier


class Earlier:
    """A queue with twelve messages, the first four under a lease that an earlier release took."""

    def __init__(self) -> None:
        self.store, self.clock = make_clocked_store()
        queue = create_queue(self.store, "q", bucket_size=8, chunk_size=4, lease=LEASE)
        self.queue_id = queue.queue_id
        self.publish(12)
        self.group: ConsumerGroup = make_group(self.store, self.queue_id)
        self.held: Lease = self.group.lease(make_request(max_messages=4, stop=12))
        make_earlier(self.store)

    def publish(self, count: int) -> None:
        self.clock.advance(timedelta(milliseconds=1))
        publish(Ledger(self.store, self.queue_id), make_pending([count], self.clock()))


@pytest.fixture
def earlier() -> Earlier:
    return Earlier()


def test_a_queue_is_what_it_was_and_nothing_more(earlier: Earlier):
    queue, record = read_queue(earlier.store, "q"), read_record(earlier.store, "q")

    assert (queue.order, queue.expire_after, queue.bucket_size) == ("none", None, 8)
    assert record is not None
    assert (record.retired, record.change, record.to_retire) == (0, None, ())


def test_a_ledger_is_open_and_nothing_in_it_is_delayed(earlier: Earlier):
    head, (block,) = (
        Ledger(earlier.store, earlier.queue_id).read_head(),
        Ledger(earlier.store, earlier.queue_id).read_blocks(),
    )

    assert (head.status, head.paused, head.delayed_stop) == (LedgerStatus.OPEN, False, 0)
    assert (block.visible_at, block.size) == (None, 0)


def test_its_lease_is_acked_and_the_rest_is_leased(earlier: Earlier):
    lease = earlier.group.lease(make_request(held=earlier.held.token, stop=12))

    assert (lease.acked, monotons_of(lease.leased)) == (4, [Ranges.parse("4-12")])


def test_its_lease_runs_out_and_is_handed_out_again(earlier: Earlier):
    earlier.clock.advance(LEASE * 2)

    lease = earlier.group.lease(make_request(stop=12))

    assert monotons_of(lease.leased) == [Ranges.parse("0-4")]
    assert [each.deliveries for each in lease.leased] == [2]


def test_messages_are_published_behind_its_own_delayed_ones_too(earlier: Earlier):
    delayed = [
        PendingBlock(each.block, 2, visible=LEASE) for each in make_pending([2], earlier.clock())
    ]
    publish(Ledger(earlier.store, earlier.queue_id), delayed)

    assert Ledger(earlier.store, earlier.queue_id).read_head().delayed_stop == 14


def test_its_figures_are_exact(earlier: Earlier):
    (group,) = queue_stats(Ledger(earlier.store, earlier.queue_id)).groups

    assert (group.depth, group.leased, group.dead) == (12, 4, 0)


def test_it_is_paused_and_resumed(earlier: Earlier):
    assert pause_queue(earlier.store, "q")
    assert is_paused(earlier.store, "q")
    assert resume_queue(earlier.store, "q")
    assert not is_paused(earlier.store, "q")


def test_it_is_altered(earlier: Earlier):
    altered = alter_queue(earlier.store, "q", expire_after=timedelta(days=1))

    assert read_queue(earlier.store, "q") == altered
    assert altered.expire_after == timedelta(days=1)


def test_it_is_purged(earlier: Earlier):
    purged = purge_queue(earlier.store, "q", force=True)

    assert Ledger(earlier.store, earlier.queue_id).read_head().status is LedgerStatus.PURGED
    assert purged.version == 2
    with pytest.raises(QueueStateError, match="was purged"):
        earlier.publish(1)


def test_it_is_deleted_and_created_anew(earlier: Earlier):
    delete_queue(earlier.store, "q", force=True)

    assert Ledger(earlier.store, earlier.queue_id).read_head().status is LedgerStatus.DELETED
    assert create_queue(earlier.store, "q").version == 2
    assert [each.version for each in list_records(earlier.store)] == [2]


def test_it_is_repaired(earlier: Earlier):
    earlier.group.lease(make_request(held=earlier.held.token, max_messages=0, stop=12))

    report = run_once(earlier.store, scan=DriverScan(earlier.store))

    assert report.totals.finalised == 4
