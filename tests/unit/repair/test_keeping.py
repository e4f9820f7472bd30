"""What is too old without a group goes; what is settled stays for as long as the queue says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, Range
from cassieq_spark.queues import alter_queue, purge_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair import finalise as finalise_module
from cassieq_spark.repair.actions import EXPIRED
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import Partition
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.unit.repair.repaired_queue import RepairedQueue

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=1)
#: The steps that need no scan.
CHEAP = (Step.REDELIVER, Step.EXPIRE, Step.FINALISE, Step.RETIRE)


def publish_hourly(queue: RepairedQueue, *counts: int) -> None:
    """Publish blocks an hour apart; the last one now."""
    for number, count in enumerate(counts):
        queue.clock.advance(HOUR if number else timedelta(0))
        queue.publish(count)


@pytest.mark.parametrize("has_group", [True, False])
def test_a_block_from_the_future_holds_up_nothing_that_is_old_enough(*, has_group: bool):
    queue = RepairedQueue(**{"keep_settled": HOUR} if has_group else {"expire_after": HOUR})
    queue.clock.ahead = 30 * DAY
    queue.publish(3)
    queue.clock.ahead = timedelta(0)
    queue.publish(4)
    if has_group:
        queue.settle("billing", 7)
    queue.clock.advance(HOUR)
    queue.repair(*CHEAP)
    assert queue.finalised == 0

    queue.clock.advance(MOMENT)
    queue.repair(*CHEAP)

    assert queue.finalised == 7


# -- without a group --------------------------------------------------------------------------


def test_what_is_too_old_goes_although_there_is_no_group(caplog: pytest.LogCaptureFixture):
    queue = RepairedQueue(expire_after=150 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)

    report = queue.repair()

    assert queue.finalised == 3
    assert len(queue.ledger_blocks()) == 3
    assert report.totals.expired == 3
    (problem,) = report.problems()
    assert problem.startswith("orders: 3 message(s) have expired: they were not consumed")
    (told,) = (each for each in map(vars, caplog.records) if each.get("action") == EXPIRED)
    assert (told["queue"], told["count"]) == (queue.queue_id, 3)


def test_what_is_as_old_as_that_stays_and_goes_a_moment_later():
    queue = RepairedQueue(expire_after=2 * HOUR)
    queue.publish(3)
    queue.clock.advance(2 * HOUR)

    queue.repair()
    assert queue.finalised == 0

    queue.clock.advance(MOMENT)
    queue.repair()
    assert (queue.finalised, queue.buckets(), queue.ledger_blocks()) == (3, set(), [])


def test_without_a_group_nothing_goes_of_a_queue_in_which_nothing_expires():
    queue = RepairedQueue(keep_settled=HOUR)
    queue.publish(3)
    queue.clock.advance(1000 * DAY)

    queue.repair()

    assert queue.finalised == 0


def test_what_is_delayed_is_old_only_so_long_after_it_became_visible():
    queue = RepairedQueue(expire_after=2 * HOUR)
    queue.publish(2)
    publish(
        Ledger(queue.store, queue.queue_id), [PendingBlock(queue.write(3), 3, visible=4 * HOUR)]
    )
    queue.publish(1)

    queue.clock.advance(6 * HOUR - MOMENT)
    queue.repair()
    assert queue.finalised == 2

    queue.clock.advance(MOMENT)
    queue.repair()
    assert queue.finalised == 6


def test_a_group_that_registers_meanwhile_is_owed_all_of_it():
    queue = RepairedQueue(expire_after=2 * HOUR)
    queue.publish(3)
    queue.clock.advance(3 * HOUR)
    planned = queue.repair(Step.FINALISE, dry_run=True).queues["orders"].planned
    assert planned[0] == ("finalise monotons [0, 3), which are too old and have no group")

    for after in range(1, 12):
        queue = RepairedQueue(expire_after=2 * HOUR)
        queue.publish(3)
        queue.clock.advance(3 * HOUR)
        store = FaultyStore(queue.store)
        store.interrupt(
            lambda queue=queue: ensure_group(
                ConsumerGroup(Ledger(queue.store, queue.queue_id), "late"), starting="earliest"
            ),
            after=after,
        )

        queue.repair(Step.FINALISE, store=store)

        groups = queue_stats(Ledger(queue.store, queue.queue_id)).groups
        assert [group.depth for group in groups] in ([], [3 - queue.finalised]), after
        assert groups or queue.finalised == 3


def test_a_queue_without_groups_that_is_young_costs_a_read_a_run_and_an_empty_one_none():
    queue = RepairedQueue(expire_after=2 * HOUR)
    store = CountingStore(queue.store)
    queue.repair(*CHEAP, store=store)
    empty = store.read_count
    queue.publish(3)
    store.reset()

    queue.repair(*CHEAP, store=store)

    assert (store.read_count, store.serial_read_count) == (empty + 1, 0)
    assert store.cas_count == 0


# -- keep what is settled ---------------------------------------------------------------------


def test_what_is_settled_stays_for_so_long_and_can_be_read_again():
    queue = RepairedQueue(keep_settled=150 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)
    begun = queue.clock.now
    queue.settle("billing", 16)

    report = queue.repair()

    assert report.is_whole
    assert queue.finalised == 3
    stats = queue_stats(Ledger(queue.store, queue.queue_id))
    assert (stats.groups[0].depth, stats.settled) == (0, 13)
    went_to = seek_group(
        ConsumerGroup(Ledger(queue.store, queue.queue_id), "billing"), begun - 61 * MINUTE
    )
    assert went_to == 8
    (leased,) = queue.consume("billing", ack=False).leased
    assert str(leased.monotons) == "8-16"


def test_a_new_group_at_earliest_begins_with_what_is_kept():
    queue = RepairedQueue(keep_settled=150 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)
    queue.settle("billing", 16)
    queue.repair()

    (leased,) = queue.consume("late").leased

    assert str(leased.monotons) == "3-16"


@pytest.mark.parametrize("at_once", [1, 2, 3, 10_000])
@pytest.mark.parametrize("settled", range(17))
def test_only_what_is_both_settled_and_old_goes(
    monkeypatch: pytest.MonkeyPatch, at_once: int, settled: int
):
    monkeypatch.setattr(finalise_module, "BLOCKS_AT_ONCE", at_once)
    queue = RepairedQueue(keep_settled=90 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)
    if settled:
        queue.settle("billing", settled)
    queue.register("billing")

    report = queue.repair()

    assert queue.finalised == min(settled, 8)
    assert report.is_whole
    assert queue.repair().totals.finalised == 0


@pytest.mark.parametrize("settled", range(4, 15))
def test_a_queue_that_is_told_to_keep_keeps_what_is_there_still(settled: int):
    queue = RepairedQueue()
    publish_hourly(queue, 3, 5, 6)
    queue.settle("billing", settled)
    queue.repair()
    alter_queue(queue.store, "orders", keep_settled=DAY)
    queue.settle("billing", 14 - settled)

    report = queue.repair()

    assert report.is_whole
    assert queue.finalised == settled
    queue.clock.advance(2 * DAY)
    queue.repair()
    assert (queue.finalised, queue.buckets(), queue.ledger_blocks()) == (14, set(), [])


def test_what_is_delayed_is_kept_from_when_it_became_visible():
    queue = RepairedQueue(keep_settled=2 * HOUR)
    publish(
        Ledger(queue.store, queue.queue_id), [PendingBlock(queue.write(3), 3, visible=4 * HOUR)]
    )
    queue.clock.advance(4 * HOUR)
    queue.settle("billing", 3)

    queue.clock.advance(2 * HOUR)
    queue.repair()
    assert queue.finalised == 0

    queue.clock.advance(MOMENT)
    queue.repair()
    assert queue.finalised == 3


def test_what_expires_without_a_group_is_kept_as_long_as_what_is_settled():
    queue = RepairedQueue(expire_after=HOUR, keep_settled=210 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)
    queue.clock.advance(HOUR)

    queue.repair()

    assert queue.finalised == 3


def test_a_purge_throws_away_what_is_kept():
    queue = RepairedQueue(keep_settled=DAY)
    queue.publish(9)
    queue.settle("billing", 9)

    purge_queue(queue.store, "orders")
    queue.repair()

    assert queue.buckets() == set()


def test_a_queue_that_keeps_costs_a_read_a_run_while_all_of_it_is_young():
    queue = RepairedQueue(keep_settled=DAY)
    store = CountingStore(queue.store)
    queue.repair(*CHEAP, store=store)
    empty = store.read_count
    publish_hourly(queue, *[2] * 20)
    queue.settle("billing", 40)
    store.reset()

    assert queue.repair(*CHEAP, store=store).totals == Counts()

    assert (store.read_count, store.serial_read_count) == (empty + 1, 0)
    assert store.cas_count == 0


def test_a_repair_between_two_parts_of_which_a_group_is_sought_back_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(finalise_module, "BLOCKS_AT_ONCE", 1)
    queue = RepairedQueue(keep_settled=90 * MINUTE)
    publish_hourly(queue, 3, 5, 6, 2)
    queue.settle("billing", 16)

    def go_back(_: Partition) -> None:
        if queue.finalised == 3 and len(queue.ledger_blocks()) == 3 and not gone_back:
            gone_back.append(
                seek_group(
                    ConsumerGroup(Ledger(queue.store, queue.queue_id), "billing"), "earliest"
                )
            )

    gone_back: list[int] = []
    queue.repair(Step.FINALISE, store=FaultyStore(queue.store, go_back))

    assert (gone_back, queue.finalised) == ([3], 3)
    assert queue.consume("billing", ack=False).leased[0].monotons.hull == Range(3, 16)
