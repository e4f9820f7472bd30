"""What a queue costs in which nothing happens, and that nothing is overlooked for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import delete_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import create_queue
from cassieq_spark.repair.steps import Step
from cassieq_spark.testing.stores import CountingStore
from tests.unit.repair.repaired_queue import LEASE, WRITE_TIMEOUT, RepairedQueue

CHEAP = (Step.REDELIVER, Step.EXPIRE, Step.FINALISE, Step.RETIRE)
#: The clock of the server, once for all queues.
CLOCK = 1


@pytest.fixture
def queue() -> RepairedQueue:
    return RepairedQueue()


def is_idle(queue: RepairedQueue) -> bool:
    return queue.seen().has_nothing_to_finalise(queue.definition)


def cost_of_repair(queue: RepairedQueue, *steps: Step, **options: object) -> tuple[int, int, int]:
    """Plain reads, serial reads, compare-and-sets."""
    store = CountingStore(queue.store)
    queue.repair(*steps, store=store, **options)
    assert store.scan_count <= 3, "queues, ledgers, deliveries"
    return store.read_count, store.serial_read_count, store.cas_count


def test_queues_that_were_never_used_cost_nothing(queue: RepairedQueue):
    for number in range(100):
        create_queue(queue.store, f"queue-{number}", expire_after=timedelta(days=1))

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_that_is_read_to_its_end_costs_nothing(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.repair()

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_that_grows_without_being_read_costs_nothing(queue: RepairedQueue):
    queue.register("billing")
    queue.publish(20)

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_without_groups_costs_nothing(queue: RepairedQueue):
    queue.publish(20)

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_with_a_reader_at_work_costs_nothing(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 5, ack=False)
    queue.consume("billing", 5, ack=False)

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_whose_readers_stand_still_within_a_block_costs_one_read(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 7)
    queue.consume("billing", 3)
    queue.repair()

    assert cost_of_repair(queue, *CHEAP) == (CLOCK + 1, 0, 0)


def test_a_queue_of_two_groups_of_which_one_is_slow_costs_nothing(queue: RepairedQueue):
    queue.publish(20)
    queue.register("slow")
    queue.settle("billing", 20)
    queue.repair()

    assert cost_of_repair(queue, *CHEAP) == (CLOCK, 0, 0)


def test_a_queue_that_is_asked_for_by_name_costs_a_read_and_one_for_each_group(
    queue: RepairedQueue,
):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.register("shipping")
    queue.repair()

    assert cost_of_repair(queue, *CHEAP, queues=["orders"]) == (1 + 2, 0, 0)


def test_a_scan_of_the_chunks_reads_no_ledger_that_has_no_blocks(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.repair()
    store = CountingStore(queue.store)

    report = queue.repair(store=store)

    assert (store.read_count, store.serial_read_count, store.cas_count) == (CLOCK, 0, 0)
    assert report.is_whole


def test_a_whole_repair_of_an_idle_queue_costs_no_compare_and_set(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 7)
    queue.repair()
    queue.clock.advance(2 * WRITE_TIMEOUT)
    store = CountingStore(queue.store)

    queue.repair(store=store)

    assert store.cas_count == 0


def test_what_was_settled_is_noticed(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 7)

    assert not is_idle(queue)


def test_the_slowest_group_is_found_wherever_it_comes(queue: RepairedQueue):
    queue.publish(20)
    queue.register("zebra")
    queue.settle("billing", 20)

    assert is_idle(queue)


def test_a_lease_at_the_low_end_keeps_the_queue_idle(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 5, ack=False)
    queue.consume("billing", 5, ack=False)

    assert is_idle(queue)


def test_what_waits_at_the_low_end_is_looked_at_more_closely(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 10)
    queue.clock.advance(timedelta(minutes=2))
    # Takes over [0, 4), and lets [4, 10) wait.
    queue.consume("billing", 4, ack=False)
    queue.consume("billing", 0)
    queue.repair()

    assert queue.finalised == 4
    assert not is_idle(queue)


def test_a_lease_that_ran_out_long_ago_is_told_of(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 5, ack=False)
    assert not queue.repair(*CHEAP).queues["orders"].notes
    queue.clock.advance(timedelta(hours=1) + 12 * LEASE)

    (note,) = queue.repair(*CHEAP).queues["orders"].notes

    assert note.startswith("5 message(s) of group 'billing' have been due for up to")


@pytest.mark.parametrize("names", [(), ("orders",)])
def test_what_a_crash_has_left_is_deleted(queue: RepairedQueue, names: tuple[str, ...]):
    _, second = queue.publish(6, 10)
    queue.settle("billing", 7)
    assert Ledger(queue.store, queue.queue_id).finalise(
        Ledger(queue.store, queue.queue_id).read_head(), 7
    )
    assert is_idle(queue)

    queue.repair(Step.FINALISE, queues=names)

    assert queue.ledger_blocks() == [second]


def test_what_a_group_has_left_that_was_removed_keeps_nothing(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.register("slow")
    assert is_idle(queue)

    delete_group(ConsumerGroup(Ledger(queue.store, queue.queue_id), "slow"), force=True)

    assert not is_idle(queue)
    queue.repair(Step.FINALISE)
    assert queue.finalised == 20


def test_what_a_repair_lets_expire_it_finalises_itself():
    queue = RepairedQueue(expire_after=timedelta(hours=1))
    queue.publish(6)
    queue.register("billing")
    queue.clock.advance(timedelta(hours=2))

    queue.repair(*CHEAP)

    assert (queue.finalised, queue.ledger_blocks()) == (6, [])
