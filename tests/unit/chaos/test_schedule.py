"""A schedule of faults is drawn from a seed, and strikes everybody."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from benchmarks.chaos.schedule import CALM, Fault, Victim, kinds, plan

TEN_MINUTES = timedelta(minutes=10)


@pytest.mark.parametrize("seed", range(50))
def test_ten_minutes_strike_in_every_way_at_least_four_times(seed: int):
    count = Counter(fault.kind for fault in plan(seed, TEN_MINUTES))

    assert set(count) == set(kinds())
    assert min(count.values()) >= 4


def test_a_seed_draws_the_same_schedule_again_and_another_one_another():
    assert plan(7, TEN_MINUTES) == plan(7, TEN_MINUTES)
    assert plan(7, TEN_MINUTES) != plan(8, TEN_MINUTES)


def test_faults_come_in_order_after_a_calm_and_within_the_time():
    times = [fault.at for fault in plan(1, TEN_MINUTES)]

    assert times == sorted(times)
    assert times[0] == CALM
    assert times[-1] < TEN_MINUTES


def test_only_what_is_stopped_has_a_pause_and_only_killed_nodes_stay_away():
    for fault in plan(1, TEN_MINUTES):
        assert fault.kind.endswith("killed") == (fault.pause is None)
        assert bool(fault.down) == (fault.victim is Victim.NODE and fault.pause is None)


def test_a_fault_is_told_in_a_line():
    killed = Fault(timedelta(seconds=61.5), Victim.NODE, 1, None, timedelta(seconds=4))
    paused = Fault(timedelta(seconds=7), Victim.SWEEP, 1, timedelta(seconds=12.5))

    assert str(killed) == " 61.5 s node killed, away for 4.0 s"
    assert str(paused) == "  7.0 s sweep stopped for 12.5 s"
