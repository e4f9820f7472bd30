from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from cassieq_spark import backoff as module
from cassieq_spark.backoff import ATTEMPTS, FEWEST_ATTEMPTS, Backoff, attempts


class Clock:
    """Time that passes in sleep only, and for what an attempt takes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Each pause is as long as the mean."""
    clock = Clock()
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.5)
    monkeypatch.setattr(module, "time", clock)
    mean = SimpleNamespace(uniform=lambda least, most: (least + most) / 2)
    monkeypatch.setattr(module, "random", mean)
    return clock


def lose(backoff: Backoff, clock: Clock, races: int, *, took: float = 0.01) -> None:
    """A call that loses so many races, and then wins."""
    for attempt in backoff.attempts():
        clock.now += took
        if attempt == races:
            return


def test_whoever_wins_never_waits(clock: Clock):
    backoff = Backoff()
    for _ in range(3):
        with backoff.paced():
            lose(backoff, clock, 0)

    assert clock.slept == []
    assert backoff.is_calm


def test_each_lost_race_makes_the_pause_longer_up_to_a_limit(clock: Clock):
    attempts = len(list(Backoff().attempts()))

    assert clock.slept == sorted(clock.slept)
    assert len(clock.slept) == attempts - 1
    assert clock.slept[:2] == pytest.approx([0.003, 0.0045])
    assert clock.slept[-1] == 0.5


def test_without_memory_pauses_are_short(clock: Clock):
    assert len(list(attempts())) == ATTEMPTS

    assert clock.slept[:2] == pytest.approx([0.002, 0.004])
    assert clock.slept[-1] == 0.25


@pytest.mark.parametrize("made", [attempts, Backoff().attempts], ids=["forgets", "remembers"])
def test_only_minutes_of_lost_races_are_too_many(clock: Clock, made: Callable[[], Iterator[int]]):
    for _ in made():
        clock.now += 0.01

    assert 120 < clock.now - 100 < 300


def test_if_attempts_take_long_forty_are_enough(clock: Clock):
    for _ in attempts():
        clock.now += 10

    assert len(clock.slept) == FEWEST_ATTEMPTS - 1


def test_a_caller_says_how_much_shorter_each_call_makes_the_pause(clock: Clock):
    backoff = Backoff(0.5)
    lose(backoff, clock, 1, took=1)
    clock.now += 9
    with backoff.paced():
        pass
    with backoff.paced():
        pass

    assert clock.slept[1:] == [pytest.approx(0.5 / 2)]


def test_the_pause_is_longer_if_attempts_take_longer(clock: Clock):
    lose(Backoff(), clock, 1, took=0.2)

    assert clock.slept == pytest.approx([0.15])


def test_a_call_that_follows_at_once_waits_if_the_last_one_lost_and_one_that_is_rare_does_not(
    clock: Clock,
):
    backoff = Backoff()
    with backoff.paced():
        lose(backoff, clock, 2)
    clock.slept.clear()

    with backoff.paced():
        assert clock.slept == pytest.approx([0.01 / 2 * 1.5**2])
    clock.slept.clear()
    clock.now += 1

    with backoff.paced():
        assert clock.slept == []


def test_calls_that_lose_no_race_forget_the_pause(clock: Clock):
    backoff = Backoff()
    lose(backoff, clock, 9)
    calls = 0
    while not backoff.is_calm:
        with backoff.paced():
            calls += 1

    assert calls < 80
    assert clock.slept[-1] < 0.002


@pytest.mark.parametrize(("competitors", "most"), [(2, 0.2), (4, 0.2), (8, 0.3)])
def test_calls_settle_where_few_lose_a_race_however_many_programs_compete(
    clock: Clock, competitors: int, most: float
):
    """An attempt is lost if another program begins one during it; all pause equally long.

    For eight programs, the longest pause is a little too short.
    """
    chance, backoff, took = random.Random(1), Backoff(), 0.01
    lost = []
    for _ in range(2000):
        with backoff.paced():
            at_once = took / (took + backoff._mean)
            races = 0
            while chance.random() < 1 - (1 - at_once) ** (competitors - 1) and races < 5:
                races += 1
            lose(backoff, clock, races, took=took)
        lost.append(races)

    settled = lost[1000:]
    assert 0.1 < sum(settled) / len(settled) < most
