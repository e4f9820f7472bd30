from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Chunk, PendingBlock, QueueId, Range
from cassieq_spark.queues import create_queue
from cassieq_spark.repair import finalise as finalise_module
from cassieq_spark.repair.diagnosis import Finding, Problem
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.scan import DriverScan, Run
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import Partition, partition_of_ledger, partition_of_queue
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import WrappedStore
from tests.support.faults import make_block_id
from tests.unit.repair.repaired_queue import (
    WRITE_TIMEOUT,
    RepairedQueue,
    buckets_of,
    chunks_of,
)


@pytest.fixture
def queue() -> RepairedQueue:
    return RepairedQueue()


def test_settled_buckets_and_blocks_go_and_nothing_else(queue: RepairedQueue):
    first, second = queue.publish(6, 10)
    queue.settle("billing", 12)

    report = queue.repair(Step.FINALISE)

    assert queue.finalised == 12
    assert queue.buckets() == buckets_of([second], 1, 2)
    assert queue.ledger_blocks() == [second]
    assert first not in queue.ledger_blocks()
    totals = report.totals
    assert (totals.finalised, totals.settled_buckets, totals.trimmed_blocks) == (12, 3, 1)


def test_the_slowest_group_decides(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.settle("shipping", 5)

    queue.repair(Step.FINALISE)

    assert queue.finalised == 5


def test_leased_messages_stay(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 5)
    queue.consume("billing", 5, ack=False)

    queue.repair(Step.FINALISE)

    assert queue.finalised == 0


def test_waiting_messages_stay(queue: RepairedQueue):
    queue.publish(20)
    queue.consume("billing", 10)
    queue.clock.advance(timedelta(minutes=2))
    # Takes over [0, 4), and lets [4, 10) wait.
    queue.consume("billing", 4, ack=False)
    queue.consume("billing", 0)

    queue.repair(Step.FINALISE)

    assert queue.finalised == 4


def test_a_group_that_is_registered_but_has_not_begun_is_owed_all_that_it_starts_at(
    queue: RepairedQueue,
):
    queue.publish(20)
    queue.settle("billing", 20)
    queue.register("late")
    del queue.store._rows[Partition("group_state", (queue.queue_id, "late"))]  # type: ignore[arg-type]

    queue.repair(Step.FINALISE)

    assert queue.finalised == 0


def test_without_groups_everything_stays(queue: RepairedQueue):
    queue.publish(20)

    queue.repair()

    assert queue.finalised == 0
    assert len(queue.buckets()) == 5


def test_a_second_repair_finds_nothing_to_do(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 10)
    queue.repair(Step.FINALISE)

    assert queue.repair(Step.FINALISE).totals == type(queue.repair().totals)()


def test_a_group_that_is_registered_while_floors_are_read_stops_finalise(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 20)
    troubled = FaultyStore(queue.store)
    troubled.interrupt(lambda: queue.register("late"), after=5)

    report = queue.repair(Step.FINALISE, store=troubled)

    assert (troubled.troubles, report.totals.postponed) == (1, 1)
    assert queue.finalised == 0


@pytest.mark.parametrize("after", range(16))
def test_a_waiting_range_that_moves_while_floors_are_read_is_not_lost(
    queue: RepairedQueue, after: int
):
    queue.publish(20)
    queue.consume("billing", 10)
    queue.clock.advance(timedelta(minutes=2))
    queue.consume("billing", 4, ack=False)
    queue.consume("billing", 0)
    troubled = FaultyStore(queue.store)
    # From waiting into a slot.
    troubled.interrupt(lambda: queue.consume("billing", 20), after=after)

    queue.repair(Step.FINALISE, store=troubled)

    assert queue.finalised <= 4


def test_a_queue_without_its_ledger_is_told(queue: RepairedQueue):
    del queue.store._rows[partition_of_ledger(queue.queue_id)]

    report = queue.repair(Step.FINALISE)

    assert report.queues["orders"].error == (
        "finalise: QueueStateError: queue orders@1 has no ledger"
    )
    assert report.outcome is Outcome.SOME_FAILED


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_postpones_the_rest_to_the_next_run(queue: RepairedQueue, fault: Fault):
    queue.publish(6, 10)
    queue.settle("billing", 6)
    troubled = FaultyStore(queue.store)
    troubled.fault = fault

    assert queue.repair(Step.FINALISE, store=troubled).totals.postponed == 1
    troubled.arrive()
    queue.repair(Step.FINALISE)

    assert queue.finalised == 6
    assert len(queue.buckets()) == 3
    assert len(queue.ledger_blocks()) == 1


def test_what_a_crash_after_the_move_of_finalised_left_is_finished_later(queue: RepairedQueue):
    queue.publish(6, 10)
    queue.settle("billing", 6)
    assert Ledger(queue.store, queue.queue_id).finalise(
        Ledger(queue.store, queue.queue_id).read_head(), 6
    )
    assert len(queue.buckets()) == 5

    report = queue.repair(Step.FINALISE)

    assert len(queue.buckets()) == 3
    assert (report.totals.finalised, report.totals.trimmed_blocks) == (0, 1)


def test_the_fence_forbids_older_blocks(queue: RepairedQueue):
    queue.clock.advance(timedelta(days=1))

    report = queue.repair(Step.FENCE)

    assert report.totals.fences_raised == 1
    assert Ledger(queue.store, queue.queue_id).read_head().fence == queue.clock() - WRITE_TIMEOUT


def test_unpublished_blocks_go_once_the_fence_has_passed_them(queue: RepairedQueue):
    (published,) = queue.publish(5)
    unpublished = queue.write(6)
    queue.clock.advance(WRITE_TIMEOUT)
    fresh = queue.write(3)

    report = queue.repair(Step.FENCE, Step.CLEAN)

    assert queue.buckets() == buckets_of([published], 0, 1) | buckets_of([fresh], 0)
    assert unpublished not in {block for block, _ in queue.buckets()}
    assert (report.totals.unpublished_blocks, report.totals.unpublished_buckets) == (1, 2)


def test_without_the_fence_step_clean_goes_by_the_fence_as_it_stands(queue: RepairedQueue):
    queue.write(6)
    queue.clock.advance(timedelta(days=1))

    assert queue.repair(Step.CLEAN).totals.unpublished_blocks == 0


def test_a_block_that_is_published_after_the_scan_stays(queue: RepairedQueue):
    block = queue.write(6)
    queue.clock.advance(WRITE_TIMEOUT - timedelta(seconds=1))

    def scan(bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        runs = list(DriverScan(queue.store)(bucket_sizes))
        publish(Ledger(queue.store, queue.queue_id), [PendingBlock(block, 6)])
        queue.clock.advance(timedelta(seconds=1))
        return runs

    queue.repair(scan=scan)
    queue.repair()

    assert queue.buckets() == buckets_of([block], 0, 1)


def test_blocks_of_queues_that_do_not_exist_are_reported_and_left_alone(queue: RepairedQueue):
    stranger = make_block_id(queue.clock() - timedelta(days=9))
    queue.store.write_chunks(QueueId("gone@3"), stranger, chunks_of(6))

    report = queue.repair()

    assert report.foreign == {"gone@3": 1}
    assert queue.buckets() == buckets_of([stranger], 0, 1)


def test_blocks_of_a_partition_that_a_queue_does_not_have_are_reported(queue: RepairedQueue):
    stranger = make_block_id(queue.clock() - timedelta(days=9))
    queue.store.write_chunks(QueueId("orders@1.7"), stranger, chunks_of(6))

    report = queue.repair()

    assert (report.foreign, report.obsolete) == ({"orders@1.7": 1}, {})


def test_blocks_of_queues_that_are_made_or_purged_during_the_scan_are_not_strange(
    queue: RepairedQueue,
):
    client = Client.from_store(queue.store)

    def scan(bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        client.create_queue("new", partitions=2)
        client.put_many("new", ["a", "b", "c"])
        client.purge_queue("orders", force=True)
        client.put("orders", "d")
        return list(DriverScan(queue.store)(bucket_sizes))

    assert queue.repair(scan=scan).foreign == {}
    assert queue.repair().foreign == {}


def test_blocks_of_a_queue_whose_row_cannot_be_read_are_not_strange(queue: RepairedQueue):
    queue.publish(5)
    row = queue.store._rows[partition_of_queue("orders")][()]
    row["on_dead"] = "as a later release says"

    assert queue.repair().foreign == {}


def test_a_chunk_that_is_gone_is_found(queue: RepairedQueue):
    queue.publish(5)
    (block,) = queue.publish(10)
    queue.damage(block, lambda chunk: chunk.start != 4)

    report = queue.repair()

    assert not report.is_whole
    assert report.queues["orders"].findings == [Finding(Problem.MISSING, Range(9, 11), block)]


def test_a_bucket_that_is_gone_is_found(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.damage(block, lambda chunk: chunk.bucket != 1)

    findings = queue.repair(Step.AUDIT).queues["orders"].findings

    assert findings == [Finding(Problem.MISSING, Range(4, 8), block)]


def test_a_ledger_row_that_is_gone_is_found(queue: RepairedQueue):
    queue.publish(5, 10)
    del queue.store._rows[partition_of_ledger(queue.queue_id)]["block", 5, ""]

    findings = queue.repair(Step.AUDIT).queues["orders"].findings

    assert findings == [Finding(Problem.MISSING, Range(5, 15), None)]


def test_suspicions_far_apart_are_each_looked_at_again(queue: RepairedQueue):
    (block,) = queue.publish(20)
    for chunk in (Chunk(0, 1, 2, b""), Chunk(3, 13, 14, b"")):
        queue.store.write_chunks(queue.queue_id, block, [chunk])

    assert queue.repair(Step.AUDIT).queues["orders"].findings == [
        Finding(Problem.OVERLAPPING, Range(at, at + 1), block) for at in (1, 13)
    ]


@pytest.mark.parametrize(
    ("chunk", "findings"),
    [
        (Chunk(1, 5, 6, b""), [(Problem.OVERLAPPING, Range(5, 6))]),
        (
            Chunk(9, 4, 6, b""),
            [(Problem.OVERLAPPING, Range(4, 6)), (Problem.MISPLACED, Range(4, 6))],
        ),
    ],
)
def test_a_chunk_too_many_is_found(
    queue: RepairedQueue, chunk: Chunk, findings: list[tuple[Problem, Range]]
):
    (block,) = queue.publish(10)
    queue.store.write_chunks(queue.queue_id, block, [chunk])

    assert queue.repair(Step.AUDIT).queues["orders"].findings == [
        Finding(problem, monotons, block) for problem, monotons in findings
    ]


class _DuringScan:
    """A scan that something happens in: it sees what was there before, or after."""

    def __init__(self, queue: RepairedQueue, action: Callable[[], object], *, first: bool) -> None:
        self.queue, self.action, self.first = queue, action, first

    def __call__(self, bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        if self.first:
            self.action()
        runs = list(DriverScan(self.queue.store)(bucket_sizes))
        if not self.first:
            self.action()
        return runs


def _settle_and_repair(queue: RepairedQueue) -> None:
    queue.settle("billing", 10)
    queue.repair(Step.FINALISE)


def _publish_more(queue: RepairedQueue) -> None:
    queue.publish(7)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("action", [_settle_and_repair, _publish_more])
def test_what_others_do_during_the_scan_is_no_loss(
    queue: RepairedQueue, action: Callable[[RepairedQueue], None], *, first: bool
):
    queue.publish(6, 10)

    report = queue.repair(scan=_DuringScan(queue, lambda: action(queue), first=first))

    assert report.is_whole


@pytest.mark.parametrize("after", range(5))
def test_what_goes_while_a_suspicion_is_looked_at_is_no_loss(queue: RepairedQueue, after: int):
    queue.publish(6, 10)
    troubled = FaultyStore(queue.store)

    def scan(_: Mapping[QueueId, int]) -> Iterable[Run]:
        # Sees nothing, so that all is suspicious.
        troubled.interrupt(lambda: _settle_and_repair(queue), after=after)
        return []

    report = queue.repair(Step.AUDIT, store=troubled, scan=scan)

    assert report.is_whole


def test_a_dry_run_changes_nothing_and_tells_what_it_would_do(queue: RepairedQueue):
    queue.publish(6, 10)
    queue.settle("billing", 6)
    unpublished = queue.write(3)
    queue.clock.advance(WRITE_TIMEOUT)
    queue.repair(Step.FENCE)
    queue.clock.advance(WRITE_TIMEOUT)
    before = (dict(queue.store._rows), queue.buckets())

    report = queue.repair(dry_run=True, store=_ReadOnlyStore(queue.store))

    assert (dict(queue.store._rows), queue.buckets()) == before
    finalise_, delete, trim, fence, clean = report.queues["orders"].planned
    assert finalise_ == "finalise monotons [0, 6)"
    assert delete == "delete 2 settled bucket(s) of 1 block(s)"
    assert trim == "trim 1 block(s) below monoton 6 from the ledger"
    assert fence == f"raise the fence to {(queue.clock() - WRITE_TIMEOUT).isoformat()}"
    assert clean.startswith(
        f"delete 1 bucket(s) of unpublished block {unpublished}, begun 2026-11-20"
    )


class _ReadOnlyStore(WrappedStore):
    def cas(self, *_: object) -> bool:
        raise AssertionError("a write")

    def delete_buckets(self, *_: object) -> None:
        raise AssertionError("a write")


def test_only_the_named_queues_are_repaired(queue: RepairedQueue):
    create_queue(queue.store, "others")
    queue.publish(5)

    assert list(queue.repair(queues=["others"]).queues) == ["others"]


def test_a_queue_that_does_not_exist_is_refused(queue: RepairedQueue):
    with pytest.raises(QueueStateError, match="there is no queue 'order'; there are: orders"):
        queue.repair(queues=["order"])


def test_the_scan_is_left_out_where_no_step_needs_it(queue: RepairedQueue):
    def scan(_: Mapping[QueueId, int]) -> Iterable[Run]:
        raise AssertionError("scanned")

    queue.repair(Step.FINALISE, Step.FENCE, scan=scan)


def test_progress_is_told_part_by_part(queue: RepairedQueue):
    told: list[tuple[str, int, int]] = []

    queue.repair(watch=lambda *part: told.append(part))

    assert told == [
        ("redeliver orders", 0, 8),
        ("expire orders", 1, 8),
        ("finalise orders", 2, 8),
        ("scan", 3, 8),
        ("fence orders", 4, 8),
        ("clean orders", 5, 8),
        ("audit orders", 6, 8),
        ("retire orders", 7, 8),
    ]


def test_the_report_as_json_names_the_lost_monotons(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.damage(block, lambda chunk: chunk.start != 4)

    report = json.loads(queue.repair(Step.AUDIT).to_json())

    assert report["whole"] is False
    assert report["totals"]["audited_messages"] == 10
    assert report["queues"]["orders"]["findings"] == [
        {"problem": "missing", "start": 4, "stop": 6, "block": str(block)}
    ]


def test_a_group_that_is_faster_than_the_repair_is_left_to_the_next_run(
    queue: RepairedQueue, monkeypatch: pytest.MonkeyPatch
):
    create_queue(queue.store, "others")
    queue.publish(6)
    queue.settle("billing", 6)

    def too_fast(*_: object) -> None:
        raise ContentionError("faster again and again")

    with monkeypatch.context() as patch:
        patch.setattr(finalise_module, "read_group_states", too_fast)
        report = queue.repair(Step.FINALISE)

    # The floors of a queue without groups are not read.
    assert {name: each.counts.postponed for name, each in report.queues.items()} == {
        "orders": 1,
        "others": 0,
    }
    assert queue.repair(Step.FINALISE).totals.finalised == 6
