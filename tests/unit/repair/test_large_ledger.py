"""A ledger that grows too large is told of; nothing else is."""

from __future__ import annotations

import json

import pytest

from cassieq_spark.repair import report as report_module
from cassieq_spark.repair.sweep import Step
from tests.unit.repair.swept_queue import SweptQueue


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> SweptQueue:
    monkeypatch.setattr(report_module, "MOST_BLOCKS", 3)
    return SweptQueue("orders")


def test_a_sweep_with_a_scan_tells_of_a_ledger_with_too_many_blocks(queue: SweptQueue):
    queue.publish(2, 2, 2, 2)

    report = queue.sweep()

    (problem,) = report.problems()
    assert problem.startswith("orders: its ledger has 4 blocks, and should have 3 at the most")
    assert "cassieq queue stats orders" in problem
    assert report.is_whole
    assert json.loads(report.to_json())["queues"]["orders"]["block_count"] == 4


def test_a_ledger_is_not_too_large_until_it_is(queue: SweptQueue):
    queue.publish(2, 2, 2)

    report = queue.sweep()

    assert not list(report.problems())
    assert report.queues["orders"].block_count == 3


def test_blocks_that_are_trimmed_do_not_count(queue: SweptQueue):
    queue.publish(2, 2, 2, 2)
    queue.settle("billing", 3)

    assert not list(queue.sweep().problems())


def test_a_sweep_without_a_scan_counts_nothing(queue: SweptQueue):
    queue.publish(2, 2, 2, 2)

    assert not list(queue.sweep(Step.FINALISE).problems())
