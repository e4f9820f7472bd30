"""Finalising in parts comes to the same as all at once, and can be broken off between them."""

from __future__ import annotations

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger import ledger as ledger_read
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.repair import finalise as finalise_module
from cassieq_spark.repair.audit import LACKS_ROWS
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Counts, Outcome
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import Partition, Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue

COUNTS = (3, 9, 1, 4, 6, 2, 5)


def make_queue(settled: int) -> RepairedQueue:
    queue = RepairedQueue()
    queue.publish(*COUNTS)
    queue.settle("billing", settled)
    return queue


class LosingStore(FaultyStore):
    """Something becomes of the compare-and-set that comes after so many others."""

    def __init__(self, store: Store, fault: Fault, after: int) -> None:
        super().__init__(store, self._count)
        self._faults = [fault, *[None] * after]
        self._count(None)

    def _count(self, _: Partition | None) -> None:
        self.fault = self._faults.pop() if self._faults else None


@pytest.fixture
def _two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalise_module, "BLOCKS_AT_ONCE", 2)


@pytest.mark.parametrize("settled", range(sum(COUNTS) + 1))
@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_parts_come_to_the_same_as_all_at_once(
    monkeypatch: pytest.MonkeyPatch, settled: int, at_once: int
):
    whole, parts = make_queue(settled), make_queue(settled)
    expected = whole.repair(Step.FINALISE).totals

    monkeypatch.setattr(finalise_module, "BLOCKS_AT_ONCE", at_once)

    assert parts.repair(Step.FINALISE).totals == expected
    assert expected.finalised == settled
    assert parts.finalised == settled
    assert len(parts.buckets()) == len(whole.buckets())
    assert len(parts.ledger_blocks()) == len(whole.ledger_blocks())
    assert (
        Ledger(parts.store, parts.queue_id).read_head()
        == Ledger(whole.store, whole.queue_id).read_head()
    )


@pytest.mark.usefixtures("_two_at_once")
def test_a_dry_run_tells_of_every_part_and_changes_nothing():
    queue = make_queue(18)
    before = queue.buckets()

    planned = queue.repair(Step.FINALISE, dry_run=True).queues["orders"].planned

    assert [line for line in planned if line.startswith("finalise")] == [
        "finalise monotons [0, 12)",
        "finalise monotons [12, 17)",
        "finalise monotons [17, 18)",
    ]
    assert [line for line in planned if line.startswith("trim")] == [
        "trim 2 block(s) below monoton 12 from the ledger",
        "trim 2 block(s) below monoton 17 from the ledger",
    ]
    assert (queue.finalised, queue.buckets()) == (0, before)


@pytest.mark.usefixtures("_two_at_once")
def test_a_group_that_comes_between_two_parts_is_owed_what_is_left():
    queue = make_queue(30)

    def register(_: Partition) -> None:
        if queue.finalised == 12 and len(queue.ledger_blocks()) == 5:
            ensure_group(
                ConsumerGroup(Ledger(queue.store, queue.queue_id), "late"), starting="earliest"
            )

    totals = queue.repair(Step.FINALISE, store=FaultyStore(queue.store, register)).totals

    assert queue.finalised == 12
    assert totals.postponed == 1
    assert len(queue.ledger_blocks()) == 5
    assert queue.repair(Step.FINALISE).totals == Counts()


@pytest.mark.usefixtures("_two_at_once")
@pytest.mark.parametrize("looks", range(1, 14))
def test_a_repair_that_is_told_to_stop_does_so_between_two_parts(looks: int):
    queue = make_queue(30)
    left = iter(range(looks))

    report = queue.repair(
        Step.FINALISE, checkpoint=Checkpoint(may_continue=lambda: next(left, None) is not None)
    )

    assert report.outcome is Outcome.STOPPED
    assert queue.finalised in {0, 12, 17, 25, 30}
    queue.repair()
    assert (queue.finalised, queue.buckets(), queue.ledger_blocks()) == (30, set(), [])


@pytest.mark.usefixtures("_two_at_once")
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("after", range(8))
def test_whatever_answer_is_lost_the_next_run_goes_on(fault: Fault, after: int):
    queue = make_queue(30)
    store = LosingStore(queue.store, fault, after)

    assert queue.repair(Step.FINALISE, store=store).totals.postponed == 1
    queue.repair(Step.FINALISE)

    assert (queue.finalised, queue.buckets(), queue.ledger_blocks()) == (30, set(), [])


@pytest.mark.usefixtures("_two_at_once")
@pytest.mark.parametrize("steps", [(), (Step.CLEAN, Step.AUDIT)], ids=["all", "with a scan"])
@pytest.mark.parametrize("after", range(50))
def test_a_repair_that_another_one_overtakes_takes_nothing_for_lost(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: int,
    steps: tuple[Step, ...],
):
    monkeypatch.setattr(ledger_read, "_BLOCKS_AT_ONCE", 2)
    queue = make_queue(18)
    queue.write(3)
    queue.clock.advance(2 * WRITE_TIMEOUT)
    store = FaultyStore(queue.store)
    store.interrupt(queue.repair, after=after)

    report = queue.repair(*steps, store=store, explain=True)

    assert report.is_whole
    assert LACKS_ROWS not in {vars(record).get("action") for record in caplog.records}
    queue.repair()
    assert queue.finalised == 18
    assert len(queue.ledger_blocks()) == 3
