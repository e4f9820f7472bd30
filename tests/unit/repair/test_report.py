from __future__ import annotations

import io
import json
from uuid import UUID

from rich.console import Console

from cassieq_spark.model import QueueId, Range
from cassieq_spark.repair.diagnosis import Finding, Problem
from cassieq_spark.repair.report import Counts, Outcome, QueueReport, Report

BLOCK = UUID("1e30f3c4-e4e9-11f1-acde-02fc00000001")


def make_report(*findings: Finding) -> Report:
    orders = QueueReport(QueueId("orders@1"), Counts(finalised=1200, unpublished_blocks=2))
    orders.findings = list(findings)
    queues = {"orders": orders, "bills": QueueReport(QueueId("bills@1"), Counts(finalised=34))}
    return Report(("finalise", "clean"), dry_run=False, queues=queues, foreign={"old@1": 3})


def shown(report: Report) -> str:
    console = Console(file=io.StringIO(), width=80)
    report.show(console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_totals_are_those_of_all_queues():
    assert make_report().totals == Counts(finalised=1234, unpublished_blocks=2)


def test_a_report_with_a_finding_is_not_whole():
    assert make_report().is_whole
    assert not make_report(Finding(Problem.OVERLAPPING, Range(3, 5), BLOCK)).is_whole


def test_json_is_one_line_with_everything():
    text = make_report(Finding(Problem.MISSING, Range(3, 5), None)).to_json()

    assert "\n" not in text
    report = json.loads(text)
    assert report["whole"] is False
    assert report["steps"] == ["finalise", "clean"]
    assert report["totals"]["finalised"] == 1234
    assert report["queues"]["bills"]["finalised"] == 34
    assert report["queues"]["orders"]["findings"] == [
        {"problem": "missing", "start": 3, "stop": 5, "block": None}
    ]
    assert report["foreign_blocks"] == {"old@1": 3}


def test_people_see_figures_and_findings_unwrapped():
    text = shown(make_report(Finding(Problem.MISPLACED, Range(3, 5), BLOCK)))

    assert "1,200" in text
    assert "unpublished blocks" in text
    assert f"orders: messages [3, 5) are misplaced (block {BLOCK})" in text.splitlines()
    assert "old@1: no such queue; 3 block(s) left alone" in text.splitlines()


def test_people_see_what_a_dry_run_would_do_and_by_which_fence():
    report = make_report()
    report.dry_run = True
    report.queues["orders"].planned = ["finalise monotons [0, 6)"]

    lines = shown(report).splitlines()

    assert "orders: would finalise monotons [0, 6)" in lines
    assert "clean used the fences as they are" in lines


def test_people_see_what_was_postponed():
    report = make_report()
    report.queues["bills"].counts += Counts(postponed=1)

    assert (
        "bills: something is left, because another run or a new group interfered, or because very "
        "much was to expire; the next run continues"
    ) in shown(report).splitlines()


def test_a_run_that_found_no_work_says_so_of_all_queues():
    report = make_report()
    report.queues = {"idle": QueueReport(QueueId("idle@1"))}

    assert "1 queue(s): nothing to do" in shown(report).splitlines()


def test_queues_that_needed_nothing_are_counted_only():
    report = make_report()
    report.queues |= {f"idle-{number}": QueueReport(QueueId("idle@1")) for number in range(1200)}

    lines = shown(report).splitlines()

    assert "1,200 other queue(s): nothing to do" in lines
    assert not [line for line in lines if "idle-" in line]
    told = json.loads(report.to_json())
    assert (told["queue_count"], set(told["queues"])) == (1202, {"orders", "bills"})


def test_a_queue_counts_once_however_many_partitions_it_has():
    report = make_report()
    labels = [f"{name}/{number}" for name in ("busy", "idle") for number in range(16)]
    report.queues |= {label: QueueReport(QueueId("some@1")) for label in labels}
    for number in (1, 3):
        report.queues[f"busy/{number}"].error = "TimeoutError: no"
    report.outcome = Outcome.SOME_FAILED

    lines = shown(report).splitlines()

    assert json.loads(report.to_json())["queue_count"] == report.queue_count == 4
    assert "1 other queue(s): nothing to do" in lines
    assert "1 queue(s) failed; the others are done" in lines


def test_a_repair_that_broke_off_says_so():
    report = make_report()
    report.outcome = Outcome.LOCK_LOST

    assert "lock lost: the next run continues" in shown(report).splitlines()
    assert json.loads(report.to_json())["outcome"] == "lock lost"
