from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark.lock.bakery import Bakery, HeldLock
from cassieq_spark.model import QueueId, Range
from cassieq_spark.repair.diagnosis import Finding, Problem
from cassieq_spark.repair.report import Counts, Outcome, QueueReport, Report
from cassieq_spark.repair.runs import NOT_READ, REPAIR, PastRun, Recorder, read_history
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_history
from tests.support.faults import FakeClock

KEPT = timedelta(days=30)
STEPS = ("finalise", "audit")


class Runs:
    """A store in which repair runs are begun and ended."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)

    def take(self) -> HeldLock:
        bakery = Bakery(self.store, REPAIR, owner="host:1", clock=lambda: self.clock().timestamp())
        held = bakery.enter(timedelta(0))
        assert held is not None
        return held

    def begin(self, held: HeldLock) -> Recorder:
        recorder = Recorder(self.store, held, runner="host:1", steps=STEPS, kept=KEPT)
        recorder.begin()
        return recorder

    def read(self) -> list[PastRun]:
        return read_history(self.store, 10)


@pytest.fixture
def runs() -> Runs:
    return Runs()


def make_report(*findings: Finding) -> Report:
    orders = QueueReport(QueueId("orders@1"), Counts(finalised=1200), findings=list(findings))
    return Report(STEPS, dry_run=False, queues={"orders": orders}, seconds=1.25)


def test_a_run_is_remembered_from_its_beginning(runs: Runs):
    held = runs.take()

    runs.begin(held)

    (run,) = runs.read()
    assert run == PastRun(1, "host:1", held.entered_at, Outcome.RUNNING, STEPS, counts={})


def test_a_run_that_has_ended_tells_what_it_did(runs: Runs):
    held = runs.take()
    report = make_report(Finding(Problem.MISSING, Range(3, 5), None))
    runs.begin(held).end(report)
    held.leave()

    (run,) = runs.read()

    assert (run.outcome, run.duration) == (Outcome.DONE, timedelta(seconds=1.25))
    assert (run.queues, run.counts) == (1, {"finalised": 1200})
    assert run.problems == ("orders: messages [3, 5) are missing (no block in the ledger)",)
    assert (run.alarms, run.left_out) == (1, 0)


def test_a_run_that_failed_tells_why(runs: Runs):
    runs.begin(runs.take()).fail(ValueError("no"), timedelta(seconds=2))

    (run,) = runs.read()

    assert (run.outcome, run.duration) == (Outcome.FAILED, timedelta(seconds=2))
    assert run.problems == ("ValueError: no",)
    assert run.alarms == 1


def test_a_run_whose_process_died_is_told_as_such_once_its_lock_is_free(runs: Runs):
    runs.begin(runs.take())
    assert runs.read()[0].outcome is Outcome.RUNNING

    runs.clock.advance(timedelta(minutes=1))

    assert runs.read()[0].outcome is Outcome.BROKEN_OFF


def test_of_two_runs_without_an_end_only_the_later_one_runs(runs: Runs):
    runs.begin(runs.take())
    runs.clock.advance(timedelta(minutes=1))
    runs.begin(runs.take())

    assert [(run.epoch, run.outcome) for run in runs.read()] == [
        (2, Outcome.RUNNING),
        (1, Outcome.BROKEN_OFF),
    ]


def test_a_run_that_was_overtaken_writes_its_own_row_only(runs: Runs):
    first = runs.begin(runs.take())
    runs.clock.advance(timedelta(minutes=1))
    second = runs.begin(runs.take())
    report = make_report()
    report.outcome = Outcome.LOCK_LOST

    second.end(make_report())
    first.end(report)

    assert [(run.epoch, run.outcome) for run in runs.read()] == [
        (2, Outcome.DONE),
        (1, Outcome.LOCK_LOST),
    ]


def test_runs_are_forgotten_when_their_time_is_over(runs: Runs):
    held = runs.take()
    runs.begin(held).end(make_report())

    runs.clock.advance(KEPT)

    assert runs.read() == []


def test_the_last_runs_are_read_first(runs: Runs):
    for _ in range(5):
        held = runs.take()
        runs.begin(held).end(make_report())
        held.leave()

    assert [run.epoch for run in read_history(runs.store, 3)] == [5, 4, 3]


def test_a_run_that_found_very_much_remembers_a_hundred_problems(runs: Runs):
    findings = [Finding(Problem.MISSING, Range(at, at + 1), None) for at in range(0, 400, 2)]

    runs.begin(runs.take()).end(make_report(*findings))

    (run,) = runs.read()
    assert len(run.problems) == 101
    assert run.problems[-1] == "and 100 more"
    assert run.alarms == 200


def test_notes_are_no_alarms_and_come_after_them(runs: Runs):
    report = make_report(Finding(Problem.MISSING, Range(3, 5), None))
    report.queues["orders"].notes.append("a group is not read")
    report.queues["bills"] = QueueReport(QueueId("bills@1"), error="TimeoutError: no")
    report.left_out = 3

    runs.begin(runs.take()).end(report)

    (run,) = runs.read()
    assert [problem.split(":")[0] for problem in run.problems] == ["orders", "bills", "orders"]
    assert (run.alarms, run.left_out) == (2, 3)


def test_of_a_run_of_an_earlier_release_every_problem_may_be_a_loss(runs: Runs):
    runs.begin(runs.take()).end(make_report(Finding(Problem.MISSING, Range(3, 5), None)))
    for row in runs.store._rows[partition_of_history(REPAIR)].values():
        del row["alarms"], row["left_out"]

    (run,) = runs.read()

    assert (run.alarms, run.left_out) == (1, 0)


@pytest.mark.parametrize(
    "foreign",
    [
        {"alarms": -5},
        {"left_out": -3},
        {"queues": -1},
        {"duration_ms": -2},
        {"counts": '{"expired": -4}'},
    ],
    ids=str,
)
def test_a_row_of_another_program_with_negative_counts_is_left_out(
    runs: Runs, foreign: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    runs.begin(runs.take()).end(make_report(Finding(Problem.MISSING, Range(3, 5), None)))
    for row in runs.store._rows[partition_of_history(REPAIR)].values():
        row.update(foreign)

    assert runs.read() == []
    (told,) = [each for each in caplog.records if getattr(each, "action", None) == NOT_READ]
    assert "epoch 1 can't be read" in told.getMessage()
