from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from cassieq_spark.monitoring.metrics import LastRuns
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.runs import PastRun


def make_run(
    epoch: int,
    *steps: str,
    outcome: Outcome = Outcome.DONE,
    problems: tuple[str, ...] = (),
    left_out: int = 0,
) -> PastRun:
    begun_at = datetime(2026, 11, 20, tzinfo=UTC)
    return PastRun(
        epoch,
        "host:1",
        begun_at,
        outcome,
        steps,
        problems=problems,
        left_out=left_out,
        alarms=len(problems),
    )


def test_each_step_has_the_last_run_that_took_it():
    whole, small = make_run(1, "finalise", "audit"), make_run(2, "finalise")

    found = LastRuns().after([small, whole])

    assert found.done == {"finalise": small, "audit": whole}


def test_what_is_known_stays_known_when_only_later_runs_are_read():
    whole, small = make_run(1, "finalise", "audit"), make_run(2, "finalise")

    assert LastRuns().after([whole]).after([small]) == LastRuns().after([whole, small])


def test_runs_that_did_not_come_to_their_end_are_no_success():
    done = make_run(1, "audit")
    others = [Outcome.RUNNING, Outcome.FAILED, Outcome.STOPPED, Outcome.BROKEN_OFF]
    later = [make_run(2 + at, "audit", outcome=outcome) for at, outcome in enumerate(others)]

    assert LastRuns().after([done, *later]).done == {"audit": done}


def test_a_run_that_ended_counts_although_it_was_read_while_it_ran():
    running, done = make_run(1, "audit", outcome=Outcome.RUNNING), make_run(1, "audit")

    assert LastRuns().after([running]).after([done]).done == {"audit": done}


def test_a_run_that_was_stopped_hides_no_problem_found_before():
    found = make_run(1, "audit", problems=("q: messages [0, 3) are missing",))
    stopped = make_run(2, "audit", outcome=Outcome.STOPPED)
    failed = make_run(3, "audit", outcome=Outcome.FAILED, problems=("StoreError: no",))

    assert LastRuns().after([found, stopped]).judged == {"audit": found}
    assert LastRuns().after([found, stopped, failed]).judged == {"audit": failed}
    assert LastRuns().after([found, stopped, failed, make_run(4, "audit")]).judged == {
        "audit": make_run(4, "audit")
    }


def test_a_run_that_left_queues_out_is_no_success_and_hides_no_problem_found_before():
    whole = make_run(1, "audit")
    found = make_run(2, "audit", problems=("b: messages [0, 3) are missing",))
    only_a = make_run(3, "audit", left_out=1)
    lost_in_a = make_run(4, "audit", left_out=1, problems=("a: messages [0, 3) are missing",))

    last = LastRuns().after([whole, found, only_a])

    assert (last.done, last.judged) == ({"audit": found}, {"audit": found})
    assert last.after([lost_in_a]).judged == {"audit": lost_in_a}


def test_a_run_that_was_stopped_with_notes_only_hides_no_problem_found_before():
    found = make_run(1, "audit", problems=("q: messages [0, 3) are missing",))
    noted = replace(make_run(2, "audit", outcome=Outcome.STOPPED), problems=("q: 3 expired",))

    assert LastRuns().after([found, noted]).judged == {"audit": found}
