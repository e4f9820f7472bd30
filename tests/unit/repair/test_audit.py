from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cassieq_spark.model import LedgerBlock, QueueId, Range
from cassieq_spark.repair.audit import compare
from cassieq_spark.repair.diagnosis import Finding, Problem
from cassieq_spark.repair.scan import Run

QUEUE = QueueId("orders@1")
A, B = UUID(int=1), UUID(int=2)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BLOCKS = [LedgerBlock(Range(100, 110), A, NOON), LedgerBlock(Range(110, 116), B, NOON)]
EVERYTHING = Range(100, 116)
WHOLE_A, WHOLE_B = Run(QUEUE, A, Range(0, 10)), Run(QUEUE, B, Range(0, 6))


def found(*runs: Run, within: Range = EVERYTHING) -> list[tuple[Problem, Range, UUID | None]]:
    findings = compare(BLOCKS, runs, within)
    return [(each.problem, each.monotons, each.block) for each in findings]


def test_blocks_that_are_covered_are_fine():
    assert found(WHOLE_A, WHOLE_B) == []


def test_a_hole_in_the_middle_is_missing():
    parts = [Run(QUEUE, A, Range(0, 4)), Run(QUEUE, A, Range(6, 10))]

    assert found(*parts, WHOLE_B) == [(Problem.MISSING, Range(104, 106), A)]


def test_a_beginning_and_an_end_are_missing():
    assert found(Run(QUEUE, A, Range(2, 8)), WHOLE_B) == [
        (Problem.MISSING, Range(100, 102), A),
        (Problem.MISSING, Range(108, 110), A),
    ]


def test_a_whole_block_is_missing():
    assert found(WHOLE_A) == [(Problem.MISSING, Range(110, 116), B)]


def test_what_is_finalised_may_be_gone():
    assert found(Run(QUEUE, A, Range(4, 10)), WHOLE_B, within=Range(104, 116)) == []
    assert found(WHOLE_B, within=Range(110, 116)) == []


def test_overlaps_are_named_by_monoton():
    run = Run(QUEUE, A, Range(0, 10), overlaps=(Range(2, 4), Range(3, 5), Range(7, 8)))

    assert found(run, WHOLE_B) == [
        (Problem.OVERLAPPING, Range(102, 105), A),
        (Problem.OVERLAPPING, Range(107, 108), A),
    ]


def test_overlaps_below_finalised_do_not_matter():
    run = Run(QUEUE, A, Range(0, 10), overlaps=(Range(2, 4),))

    assert found(run, WHOLE_B, within=Range(104, 116)) == []


def test_misplaced_chunks_are_named_by_monoton():
    run = Run(QUEUE, B, Range(0, 6), misplaced=(Range(4, 6),), misplaced_buckets=(7,))

    assert found(WHOLE_A, run) == [(Problem.MISPLACED, Range(114, 116), B)]


def test_monotons_that_no_block_has_are_missing():
    findings = compare(BLOCKS[1:], [WHOLE_B], Range(105, 118))

    assert findings == [
        Finding(Problem.MISSING, Range(105, 110), None),
        Finding(Problem.MISSING, Range(116, 118), None),
    ]
