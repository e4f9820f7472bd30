"""A schedule of faults is drawn from a seed, and strikes everybody."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from trials.chaos.faults import CALM, Fault, How, Victim, kinds, plan

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


def test_whatever_is_struck_comes_back_and_only_nodes_have_wrong_clocks():
    for fault in plan(1, TEN_MINUTES):
        at_once = fault.how is How.KILLED and fault.victim is not Victim.NODE
        assert bool(fault.lasts) != at_once
        assert fault.victim is Victim.NODE or fault.how in {How.KILLED, How.PAUSED}


def test_a_clock_is_wrong_for_longer_than_a_node_takes_to_see_it():
    clocks = [each for each in plan(1, TEN_MINUTES) if each.how in {How.AHEAD, How.BEHIND}]

    assert min(fault.lasts for fault in clocks) > timedelta(seconds=10)


@pytest.mark.parametrize(
    ("victim", "how", "seconds", "told"),
    [
        (Victim.NODE, How.KILLED, 4, " 61.5 s node killed, away for 4.0 s"),
        (Victim.DRIVER, How.KILLED, 0, " 61.5 s driver killed"),
        (Victim.REPAIR, How.PAUSED, 12.5, " 61.5 s repair stopped for 12.5 s"),
        (Victim.NODE, How.AHEAD, 20, " 61.5 s node a day ahead for 20.0 s"),
        (Victim.NODE, How.BEHIND, 20, " 61.5 s node a day behind for 20.0 s"),
    ],
)
def test_a_fault_is_told_in_a_line(victim: Victim, how: How, seconds: float, told: str):
    fault = Fault(timedelta(seconds=61.5), victim, 1, how, timedelta(seconds=seconds))

    assert str(fault) == told
