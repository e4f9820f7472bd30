"""Damage that is planted, and what the audit says of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from rich.console import Console

from cassieq_spark.cli.repair import USAGE, main
from cassieq_spark.fetch.read import Decoder
from cassieq_spark.model import Chunk, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.queues import delete_queue
from cassieq_spark.repair.audit import fault_of
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.diagnosis import Belonging, Finding, Owed, Problem
from cassieq_spark.repair.report import QueueReport
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.command_line import repair_job
from tests.support.faults import make_block_id
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue, chunks_of, data_of

THOROUGH = {"verify_data": True, "explain": True}


@pytest.fixture
def queue() -> RepairedQueue:
    return RepairedQueue()


def audited(queue: RepairedQueue, **thorough: bool) -> QueueReport:
    return queue.repair(Step.AUDIT, **(thorough or THOROUGH)).queues["orders"]


def test_a_queue_that_is_whole_is_read_to_its_end_and_nothing_is_said(queue: RepairedQueue):
    queue.publish(6, 10)
    queue.settle("billing", 3)

    report = audited(queue)

    assert (report.findings, report.diagnoses, report.orphans) == ([], [], [])
    assert report.counts.audited_messages == 16


@pytest.mark.parametrize("kept", [0, 1, 100, len(data_of(2)) // 2, len(data_of(2)) - 200])
def test_a_truncated_chunk_is_unreadable_and_only_its_messages_are(
    queue: RepairedQueue, kept: int
):
    queue.publish(5)
    (block,) = queue.publish(10)
    queue.overwrite(block, 4, data_of(2)[:kept])

    report = audited(queue)

    assert report.findings == [Finding(Problem.UNREADABLE, Range(9, 11), block)]
    assert report.diagnoses[0].happened == (
        "their chunks in bucket 1 of the block are truncated or overwritten"
    )


def test_a_chunk_of_too_few_messages_is_unreadable(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.overwrite(block, 8, data_of(1))

    assert audited(queue).findings == [Finding(Problem.UNREADABLE, Range(8, 10), block)]


def test_neighbouring_chunks_that_are_unreadable_are_one_finding(queue: RepairedQueue):
    (block,) = queue.publish(10)
    for start in (2, 4, 8):
        queue.overwrite(block, start, b"")

    assert [each.monotons for each in audited(queue).findings] == [Range(2, 6), Range(8, 10)]


def test_without_looking_at_the_data_a_truncated_chunk_goes_unnoticed(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.overwrite(block, 4, b"")

    assert audited(queue, verify_data=False).findings == []


def test_what_is_unreadable_and_settled_for_everybody_is_no_finding(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.settle("billing", 7)
    queue.repair(Step.FINALISE)
    queue.overwrite(block, 6, b"")

    assert audited(queue).findings == [Finding(Problem.UNREADABLE, Range(7, 8), block)]


class OtherReplica(WrappedStore):
    """Answers the first read of each chunk with another replica's data."""

    def __init__(self, store: MemoryStore, data: bytes) -> None:
        super().__init__(store)
        self._data = data
        self._seen: set[tuple[UUID, int]] = set()

    def read_chunks(self, queue_id, slices):  # type: ignore[no-untyped-def]
        for piece, chunk in super().read_chunks(queue_id, slices):
            place = piece.block, chunk.start
            new = place not in self._seen
            self._seen.add(place)
            data = self._data if new else chunk.data
            yield piece, Chunk(chunk.bucket, chunk.start, chunk.stop, data)


def test_what_can_be_read_the_second_time_is_not_lost(queue: RepairedQueue):
    queue.publish(10)
    store = OtherReplica(queue.store, b"")

    report = queue.repair(Step.AUDIT, store=store, **THOROUGH)

    assert len(store._seen) == 5
    assert report.is_whole


def test_reading_data_ends_when_the_repair_is_to_end(queue: RepairedQueue):
    (block,) = queue.publish(100)
    queue.overwrite(block, 98, b"")
    asked: list[bool] = []

    def may_continue() -> bool:
        asked.append(True)
        return len(asked) < 20

    report = queue.repair(Step.AUDIT, **THOROUGH, checkpoint=Checkpoint(may_continue=may_continue))

    assert (report.outcome, report.is_whole) == ("stopped", True)
    assert len(asked) < 30


def test_a_chunk_is_whole_if_all_of_it_can_be_read():
    decoder = Decoder(MemoryStore(), QueueDefinition("q", 1))

    assert fault_of(decoder, Chunk(0, 0, 2, data_of(2))) is None
    assert "fewer than a header" in str(fault_of(decoder, Chunk(0, 0, 2, b"")))
    assert "has 1 messages" in str(fault_of(decoder, Chunk(0, 0, 2, data_of(1))))
    assert "its row says -3" in str(fault_of(decoder, Chunk(0, 3, 0, data_of(1))))


def test_a_bucket_that_was_deleted_too_early_is_told_from_chunks_that_are_gone(
    queue: RepairedQueue,
):
    (block,) = queue.publish(14)
    queue.store.delete_buckets(queue.queue_id, [(block, 1)])
    queue.damage(block, lambda chunk: chunk.start != 10)

    report = audited(queue)

    assert report.findings == [
        Finding(Problem.MISSING, Range(4, 8), block),
        Finding(Problem.MISSING, Range(10, 12), block),
    ]
    assert [each.happened for each in report.diagnoses] == [
        "bucket 1 of the block is gone: deleted too early, or by hand",
        "chunks are gone from bucket 2 of the block, while others of it are there",
    ]


def test_of_each_group_it_is_said_what_it_is_owed_and_what_going_on_costs(queue: RepairedQueue):
    (block,) = queue.publish(20)
    queue.settle("done", 20)
    queue.consume("behind", 2)
    queue.consume("ahead", 10, ack=False)
    queue.damage(block, lambda chunk: chunk.bucket != 1)

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.finding == Finding(Problem.MISSING, Range(4, 8), block)
    assert diagnosis.owed == (
        Owed("ahead", Ranges.parse("4-8"), given_up=4, repeated=2),
        Owed("behind", Ranges.parse("4-8"), given_up=4, repeated=0),
    )
    repair, restore, ahead, behind = diagnosis.remedies
    assert "nodetool repair --full" in repair
    assert f"queue_id = 'orders@1' AND block = {block} AND bucket IN (1)" in restore
    assert ahead == (
        "let group ahead continue without them: cassieq group seek orders ahead --to 8; it also "
        "gives up 4 other message(s) and delivers 2 message(s) again"
    )
    assert behind.endswith("--to 8; it also gives up 4 other message(s)")


def test_a_group_that_stands_at_the_messages_gives_nothing_else_up(queue: RepairedQueue):
    (block,) = queue.publish(20)
    queue.settle("billing", 4)
    queue.damage(block, lambda chunk: chunk.bucket != 1)

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.owed == (Owed("billing", Ranges.parse("4-8"), given_up=0, repeated=0),)
    assert diagnosis.remedies[-1].endswith("cassieq group seek orders billing --to 8")


def test_messages_that_are_owed_to_nobody_are_said_to_be(queue: RepairedQueue):
    (block,) = queue.publish(20)
    queue.settle("billing", 20)
    queue.damage(block, lambda chunk: chunk.bucket != 1)

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.owed == ()
    assert "every group has settled them" in diagnosis.remedies[-1]


def test_without_groups_the_first_one_is_to_begin_behind_what_is_lost(queue: RepairedQueue):
    (block,) = queue.publish(20)
    queue.damage(block, lambda chunk: chunk.bucket != 1)

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.remedies[-1].endswith("cassieq group create orders GROUP --from 8")


def test_a_chunk_too_many_loses_nothing(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.store.write_chunks(queue.queue_id, block, [Chunk(1, 5, 6, data_of(1))])

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.finding == Finding(Problem.OVERLAPPING, Range(5, 6), block)
    assert "nothing is lost" in diagnosis.happened
    assert len(diagnosis.remedies) == 1


def test_a_chunk_in_another_bucket_is_said_to_be_there(queue: RepairedQueue):
    (block,) = queue.publish(10)
    queue.damage(block, lambda chunk: chunk.start != 4)
    queue.store.write_chunks(queue.queue_id, block, [Chunk(9, 4, 6, data_of(2))])

    (diagnosis,) = audited(queue).diagnoses

    assert diagnosis.finding == Finding(Problem.MISPLACED, Range(4, 6), block)
    assert diagnosis.happened == "their chunks are in other buckets than bucket 1 of the block"


def test_what_a_lost_row_of_the_ledger_named_is_not_deleted(
    queue: RepairedQueue, caplog: pytest.LogCaptureFixture
):
    _, lost = queue.publish(5, 10)
    queue.publish(3)
    del queue.store._rows[partition_of_ledger(queue.queue_id)]["block", 5, ""]
    queue.clock.advance(2 * WRITE_TIMEOUT)
    before = queue.buckets()

    repaired = queue.repair(Step.FENCE, Step.CLEAN)
    report = audited(queue)

    assert queue.buckets() == before
    assert repaired.totals.unpublished_blocks == 0
    assert {record.action for record in caplog.records} == {"repair.lacks_rows"}  # type: ignore[attr-defined]
    assert report.findings == [Finding(Problem.MISSING, Range(5, 15), None)]
    assert "the ledger has no row" in report.diagnoses[0].happened
    (orphan,) = report.orphans
    assert (orphan.block, orphan.messages, orphan.belonging) == (lost, 10, Belonging.LOST)


def test_two_rows_of_the_ledger_that_claim_the_same_messages_are_found(queue: RepairedQueue):
    queue.publish(5, 10)
    rows = queue.store._rows[partition_of_ledger(queue.queue_id)]
    rows["block", 0, ""]["stop"] = 7

    findings = audited(queue).findings

    assert Finding(Problem.OVERLAPPING, Range(5, 7), None) in findings


def test_blocks_that_no_ledger_names_are_told_apart(queue: RepairedQueue):
    queue.publish(5)
    old = queue.write(6)
    queue.clock.advance(2 * WRITE_TIMEOUT)
    queue.repair(Step.FENCE)
    new = queue.write(7)
    stranger = make_block_id(queue.clock())
    queue.store.write_chunks(QueueId("gone@3"), stranger, chunks_of(8))

    report = queue.repair(Step.AUDIT, **THOROUGH)

    assert report.is_whole
    orders = report.queues["orders"].orphans
    assert [(each.block, each.messages, each.belonging) for each in orders] == [
        (old, 6, Belonging.NEVER_PUBLISHED),
        (new, 7, Belonging.NOT_YET),
    ]
    (foreign,) = report.orphans
    assert (foreign.queue_id, foreign.block, foreign.messages) == ("gone@3", stranger, 8)
    assert foreign.belonging is Belonging.NO_QUEUE


def test_what_the_same_run_has_cleaned_is_not_said_to_be_there(queue: RepairedQueue):
    unpublished = queue.write(6)
    queue.clock.advance(2 * WRITE_TIMEOUT)
    young = queue.write(3)

    dry = queue.repair(**THOROUGH, dry_run=True)
    report = queue.repair(**THOROUGH)

    assert [orphan.block for orphan in dry.queues["orders"].orphans] == [unpublished, young]
    assert [orphan.block for orphan in report.queues["orders"].orphans] == [young]


def test_explanations_cost_nothing_where_there_is_nothing_to_explain(queue: RepairedQueue):
    queue.publish(20)
    queue.settle("billing", 3)
    brief, explained = CountingStore(queue.store), CountingStore(queue.store)

    queue.repair(Step.AUDIT, store=brief)
    queue.repair(Step.AUDIT, store=explained, explain=True)

    assert explained.read_count == brief.read_count


def test_people_and_programs_are_told_the_same(queue: RepairedQueue, tmp_path: Path):
    (block,) = queue.publish(20)
    queue.settle("billing", 4)
    queue.damage(block, lambda chunk: chunk.bucket != 1)
    orphan = queue.write(3)
    told = tmp_path / "told"

    report = queue.repair(Step.AUDIT, **THOROUGH)
    with told.open("w") as file:
        report.show(Console(file=file, width=80))

    lines = told.read_text().splitlines()
    assert f"orders: 4 message(s) [4, 8) missing, block {block}" in lines
    assert "  not settled by group billing: 4 of them: [4, 8)" in lines
    assert "  what happened: bucket 1 of the block is gone: deleted too early, or by hand" in lines
    assert [line for line in lines if line.startswith(f"orders@1: block {orphan} of 3 message(s)")]
    values = json.loads(report.to_json())["queues"]["orders"]
    (diagnosis,) = values["diagnoses"]
    assert (diagnosis["start"], diagnosis["stop"], diagnosis["problem"]) == (4, 8, "missing")
    assert diagnosis["owed"] == [
        {"group": "billing", "ranges": [[4, 8]], "seek_gives_up": 0, "seek_repeats": 0}
    ]
    assert len(diagnosis["remedies"]) == 3
    assert [each["block"] for each in values["orphans"]] == [str(orphan)]


def test_a_queue_that_is_deleted_meanwhile_has_lost_nothing(queue: RepairedQueue):
    queue.publish(20)

    def scan(_):  # type: ignore[no-untyped-def]
        delete_queue(queue.store, "orders")
        queue.clock.advance(timedelta(hours=3))
        queue.repair(Step.RETIRE)
        return []

    report = queue.repair(Step.AUDIT, scan=scan, **THOROUGH)

    assert queue.buckets() == set()
    assert report.is_whole


@pytest.mark.parametrize("option", [["--verify", "data"], ["--repair-report"]])
def test_what_is_asked_of_the_audit_needs_the_audit(
    option: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["--steps", "finalise,clean", *option]) == USAGE

    assert "is for the step audit, which --steps leaves out" in capsys.readouterr().err
    assert repair_job(option).explain is (option == ["--repair-report"])
