"""A repair run that is told to stop, or that was overtaken, does nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from cassieq_spark.lock.bakery import Bakery, HeldLock
from cassieq_spark.model import QueueId
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.repair.scan import DriverScan, Run
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import Op, Partition
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue

TTL = timedelta(seconds=8)


def make_queue() -> RepairedQueue:
    """With something to do for every step."""
    queue = RepairedQueue()
    queue.publish(6, 10)
    queue.settle("billing", 6)
    queue.write(3)
    queue.clock.advance(WRITE_TIMEOUT)
    return queue


@pytest.fixture
def queue() -> RepairedQueue:
    return make_queue()


def take(queue: RepairedQueue) -> HeldLock:
    held = Bakery(
        queue.store, "repair", owner="test", ttl=TTL, clock=lambda: queue.clock().timestamp()
    ).enter(timedelta(0))
    assert held is not None
    return held


def state(queue: RepairedQueue) -> tuple[object, ...]:
    ledger = [rows for each, rows in queue.store._rows.items() if each.table == "ledger"]
    return (ledger, queue.buckets())


def test_a_repair_under_a_lock_reads_it_once_for_each_action(queue: RepairedQueue):
    free, held = make_queue(), take(queue)
    without, under = CountingStore(free.store), CountingStore(queue.store)
    held._bakery._store = under

    free.repair(store=without)
    report = queue.repair(store=under, checkpoint=Checkpoint(held))

    # Finalise, delete, trim; fence; clean.
    assert under.read_count - without.read_count == 5
    assert report.outcome is Outcome.DONE
    assert state(queue)[1] == {(block, 0) for block in queue.ledger_blocks()} | {
        (block, bucket) for block in queue.ledger_blocks() for bucket in (1, 2)
    }


def test_a_repair_that_was_overtaken_at_its_beginning_changes_nothing(queue: RepairedQueue):
    held = take(queue)
    before = state(queue)
    queue.clock.advance(TTL)
    take(queue)

    report = queue.repair(checkpoint=Checkpoint(held))

    assert state(queue) == before
    assert report.outcome is Outcome.LOCK_LOST


class StoppedClock:
    """Of a process that was paused, and whose clock has not noticed."""

    def __init__(self, queue: RepairedQueue) -> None:
        self.seconds = queue.clock().timestamp()

    def __call__(self) -> float:
        return self.seconds


def test_a_repair_that_is_overtaken_anywhere_carries_out_no_more_than_the_action_under_way():
    after = 0
    while _overtake(after):
        after += 1

    assert after > 15


def _overtake(after: int) -> bool:
    """Overtake a repair run at one of its calls; False: it has no so many."""
    queue = make_queue()
    bakery = Bakery(queue.store, "repair", owner="test", ttl=TTL, clock=StoppedClock(queue))
    held = bakery.enter(timedelta(0))
    assert held is not None
    troubled = FaultyStore(queue.store)
    writes = Writes(troubled)

    def overtake() -> None:
        queue.clock.advance(TTL)
        take(queue)
        writes.count = 0

    troubled.interrupt(overtake, after=after)

    queue.repair(store=writes, checkpoint=Checkpoint(held))

    assert not troubled.troubles or writes.count <= 1
    return bool(troubled.troubles)


class Writes(WrappedStore):
    """Counts what changes something, and was carried out."""

    count = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        applied = super().cas(partition, ops)
        self.count += 1
        return applied

    def delete_buckets(self, queue_id: QueueId, buckets: Iterable[tuple[UUID, int]]) -> None:
        super().delete_buckets(queue_id, buckets)
        self.count += 1


def test_a_repair_that_is_told_to_stop_ends_between_two_actions(queue: RepairedQueue):
    answers = iter([True] * 3)

    checkpoint = Checkpoint(may_continue=lambda: next(answers, False))
    report = queue.repair(Step.FINALISE, checkpoint=checkpoint)

    # Asked before the queue and before each action: finalised and deleted, not trimmed.
    assert report.outcome is Outcome.STOPPED
    assert queue.finalised == 6
    assert len(queue.ledger_blocks()) == 2
    totals = report.totals
    assert (totals.settled_buckets, totals.trimmed_blocks, totals.postponed) == (2, 0, 0)
    assert queue.repair().outcome is Outcome.DONE
    assert len(queue.ledger_blocks()) == 1


def test_a_scan_that_is_broken_off_is_no_loss(queue: RepairedQueue):
    goes_on = True

    def scan(bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        nonlocal goes_on
        goes_on = False
        return list(DriverScan(queue.store)(bucket_sizes))

    report: Report = queue.repair(scan=scan, checkpoint=Checkpoint(may_continue=lambda: goes_on))

    assert report.is_whole
    assert report.outcome is Outcome.STOPPED
    assert report.totals.audited_messages == 0
