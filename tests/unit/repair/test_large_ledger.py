"""A ledger that grows too large is told of; nothing else is."""

from __future__ import annotations

import json

import pytest

from cassieq_spark.client import Client
from cassieq_spark.repair import report as report_module
from cassieq_spark.repair.steps import Step
from tests.unit.repair.repaired_queue import RepairedQueue


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> RepairedQueue:
    monkeypatch.setattr(report_module, "MOST_BLOCKS", 3)
    return RepairedQueue("orders")


def test_a_repair_with_a_scan_tells_of_a_ledger_with_too_many_blocks(queue: RepairedQueue):
    queue.publish(2, 2, 2, 2)

    report = queue.repair()

    (problem,) = report.problems()
    assert problem.startswith("orders: its ledger has 4 blocks, and should have 3 at the most")
    assert "cassieq queue stats orders" in problem
    assert report.is_whole
    assert json.loads(report.to_json())["queues"]["orders"]["block_count"] == 4


def test_of_a_partition_the_command_names_its_queue(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report_module, "MOST_BLOCKS", 1)
    queue = RepairedQueue("orders", partitions=2)
    client = Client.from_store(queue.store)
    for _ in range(4):
        client.put("orders", "a", key="a")

    (problem,) = queue.repair().problems()

    assert problem.startswith("orders/")
    assert "(cassieq queue stats orders)" in problem


def test_a_ledger_is_not_too_large_until_it_is(queue: RepairedQueue):
    queue.publish(2, 2, 2)

    report = queue.repair()

    assert not list(report.problems())
    assert report.queues["orders"].block_count == 3


def test_blocks_that_are_trimmed_do_not_count(queue: RepairedQueue):
    queue.publish(2, 2, 2, 2)
    queue.settle("billing", 3)

    assert not list(queue.repair().problems())


def test_a_repair_without_a_scan_counts_nothing(queue: RepairedQueue):
    queue.publish(2, 2, 2, 2)

    assert not list(queue.repair(Step.FINALISE).problems())
