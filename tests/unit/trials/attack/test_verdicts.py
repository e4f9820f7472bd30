from __future__ import annotations

import pytest

from trials.attack.verdicts import (
    Innocent,
    Seen,
    Verdict,
    Watched,
    contained_if,
    is_fine,
    judge,
    p95,
    refused_if,
    report,
)

CALM = Watched(growth_mb=10, stall=0.1, alive=True)
REFUSED = Seen(Verdict.REFUSED, "400")
OPEN = Seen(Verdict.OPEN, "201")


def test_an_attack_is_refused_contained_or_open_by_what_was_seen():
    assert refused_if(True, 400) == REFUSED
    assert refused_if([], 201) == OPEN
    assert contained_if(True, "").verdict is Verdict.CONTAINED
    assert contained_if(False, "").verdict is Verdict.OPEN


@pytest.mark.parametrize(
    ("watched", "verdict"),
    [
        (CALM, Verdict.REFUSED),
        (Watched(growth_mb=1000, stall=0.1, alive=True), Verdict.OPEN),
        (Watched(growth_mb=10, stall=5, alive=True), Verdict.OPEN),
        (Watched(growth_mb=10, stall=0.1, alive=False), Verdict.OPEN),
    ],
)
def test_what_was_refused_at_the_cost_of_others_is_open(watched: Watched, verdict: Verdict):
    assert judge(REFUSED, watched).verdict is verdict


def test_the_report_counts_and_says_what_the_innocent_met():
    quiet = Innocent([0.01] * 100, 0.01, 0)
    attacked = Innocent([0.015] * 100, 2.5, 0)

    told = report([REFUSED, REFUSED, OPEN], 300.4, 120.2, quiet, attacked)

    assert told == {
        "attacks": 3,
        "refused": 2,
        "contained": 0,
        "open": 1,
        "peak_rss_mb": 300,
        "growth_mb": 120,
        "innocent_slowest_seconds": 2.5,
        "innocent_refused": 0,
        "innocent_p95_ratio": 1.5,
    }
    assert not is_fine(told)
    assert is_fine(told | {"open": 0})
    assert not is_fine(told | {"open": 0, "innocent_slowest_seconds": 3.1})
    assert not is_fine(told | {"open": 0, "innocent_refused": 1})


def test_one_of_twenty_takes_longer():
    assert p95([]) == p95([1.0]) == 0
    assert 94 < p95([float(each) for each in range(1, 101)]) < 97
