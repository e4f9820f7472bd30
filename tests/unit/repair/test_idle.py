"""What a queue costs in which nothing happens, and that nothing is overlooked for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.delivery.groups import delete_group
from cassieq_spark.ledger.read import read_head
from cassieq_spark.ledger.sweep import finalise
from cassieq_spark.repair.idle import has_nothing_to_finalise
from cassieq_spark.repair.sweep import Step
from cassieq_spark.testing.stores import CountingStore
from tests.unit.repair.swept_queue import WRITE_TIMEOUT, SweptQueue


@pytest.fixture
def queue() -> SweptQueue:
    return SweptQueue()


def is_idle(queue: SweptQueue) -> bool:
    return has_nothing_to_finalise(queue.store, queue.queue_id)


def cost_of_sweep(queue: SweptQueue, *steps: Step) -> tuple[int, int, int]:
    """Plain reads, serial reads, compare-and-sets."""
    store = CountingStore(queue.store)
    queue.sweep(*steps, store=store)
    return store.read_count, store.serial_read_count, store.cas_count


def test_a_queue_that_is_read_to_its_end_costs_three_plain_reads(queue: SweptQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.sweep()

    assert cost_of_sweep(queue, Step.FINALISE) == (3, 0, 0)


def test_a_queue_whose_readers_stand_still_costs_the_same(queue: SweptQueue):
    queue.publish(20)
    queue.settle("billing", 7)
    queue.consume("billing", 3)
    queue.sweep()

    assert cost_of_sweep(queue, Step.FINALISE) == (3, 0, 0)


def test_a_queue_that_grows_without_being_read_costs_the_same(queue: SweptQueue):
    queue.register("billing")
    queue.publish(20)

    assert cost_of_sweep(queue, Step.FINALISE) == (3, 0, 0)


def test_a_queue_without_groups_costs_two_plain_reads(queue: SweptQueue):
    queue.publish(20)

    assert cost_of_sweep(queue, Step.FINALISE) == (2, 0, 0)


def test_a_whole_sweep_of_an_idle_queue_costs_no_compare_and_set(queue: SweptQueue):
    queue.publish(20)
    queue.settle("billing", 7)
    queue.sweep()
    queue.clock.advance(2 * WRITE_TIMEOUT)

    _, _, compare_and_sets = cost_of_sweep(queue)

    assert compare_and_sets == 0


def test_what_was_settled_is_noticed(queue: SweptQueue):
    queue.publish(20)
    queue.settle("billing", 7)

    assert not is_idle(queue)


def test_the_slowest_group_is_found_wherever_it_comes(queue: SweptQueue):
    queue.publish(20)
    queue.register("zebra")
    queue.settle("billing", 20)

    assert is_idle(queue)


def test_a_lease_at_the_low_end_keeps_the_queue_idle(queue: SweptQueue):
    queue.publish(20)
    queue.consume("billing", 5, ack=False)
    queue.consume("billing", 5, ack=False)

    assert is_idle(queue)


def test_what_waits_at_the_low_end_is_looked_at_more_closely(queue: SweptQueue):
    queue.publish(20)
    queue.consume("billing", 10)
    queue.clock.advance(timedelta(minutes=2))
    # Takes over [0, 4), and lets [4, 10) wait.
    queue.consume("billing", 4, ack=False)
    queue.consume("billing", 0)
    queue.sweep()

    assert queue.finalised == 4
    assert not is_idle(queue)


def test_what_a_crash_has_left_is_noticed(queue: SweptQueue):
    queue.publish(6, 10)
    queue.settle("billing", 6)
    assert finalise(queue.store, queue.queue_id, read_head(queue.store, queue.queue_id), 6)

    assert not is_idle(queue)


def test_what_a_group_has_left_that_was_removed_keeps_nothing(queue: SweptQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.register("slow")
    assert is_idle(queue)

    delete_group(queue.store, queue.queue_id, "slow", force=True)

    assert not is_idle(queue)
    queue.sweep(Step.FINALISE)
    assert queue.finalised == 20
