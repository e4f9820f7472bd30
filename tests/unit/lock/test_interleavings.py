"""One run at a time holds the lock, although runs are paused or killed, and answers are lost."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.testing.faults import Fault
from tests.unit.lock.turns import TTL, Process, World

#: Stops of a process that nobody disturbs, from its start to its end.
UNDISTURBED = 27
#: A seed is all that an order is made of: drawn step by step, it would be too much to draw.
SEEDS = st.integers(0, 2**32)
_BURST = 14
_TURNS = 60
_PASSES = [timedelta(milliseconds=300), timedelta(seconds=1), TTL / 4, TTL * 3 / 4, TTL]


def check(processes: list[Process]) -> None:
    """At most one holds the lock, by what it knows itself; who was overtaken is told so."""
    holders = [each for each in processes if each.held is not None and each.held.is_held()]
    assert len(holders) <= 1
    epochs = [epoch for each in processes for epoch in each.epochs]
    assert len(set(epochs)) == len(epochs)
    for each in processes:
        assert (True, True) not in each.confirmed


@given(seed=SEEDS)
def test_in_any_order_one_at_a_time_has_the_lock(seed: int):
    random = Random(seed)
    world = World()
    processes = [Process(world, rounds=2) for _ in range(3)]

    for _ in range(_TURNS):
        _disturb(random, world, processes)
        process = random.choice(processes)
        for _ in range(random.randrange(_BURST)):
            process.step()
            check(processes)

    _end(processes)
    world.arrive()
    assert world.patient_newcomer() is not None


@given(seed=SEEDS)
def test_without_trouble_everybody_has_it_once(seed: int):
    random = Random(seed)
    world = World()
    processes = [Process(world) for _ in range(4)]

    while not all(each.ended for each in processes):
        world.clock.advance(timedelta(milliseconds=5))
        process = random.choice(processes)
        for _ in range(random.randrange(_BURST)):
            process.step()
            check(processes)

    assert sorted(each.epochs for each in processes) == [[1], [2], [3], [4]]
    assert all(each.confirmed == [(False, True)] * 3 for each in processes)


def test_a_process_that_nobody_disturbs_stops_so_often():
    process = Process(World())

    while not process.ended:
        process.step()

    assert process.steps == UNDISTURBED
    assert process.confirmed == [(False, True)] * 3


@pytest.mark.parametrize("step", range(UNDISTURBED))
def test_killed_anywhere_it_keeps_others_waiting_for_its_ttl_at_the_most(step: int):
    world = World()
    process = Process(world)
    for _ in range(step):
        process.step()
    process.crash()

    world.clock.advance(TTL)

    held = world.newcomer()
    assert held is not None
    assert held.epoch == world.epoch


@pytest.mark.parametrize("step", range(UNDISTURBED))
def test_killed_while_its_node_is_a_day_ahead_it_keeps_others_waiting_for_its_ttl(step: int):
    world = World()
    world.node.is_ahead = True
    process = Process(world)
    for _ in range(step):
        process.step()
    process.crash()

    held = world.patient_newcomer()

    assert held is not None
    assert held.epoch == world.epoch


@pytest.mark.parametrize("step", range(UNDISTURBED))
def test_paused_anywhere_it_does_nothing_once_another_has_entered(step: int):
    world = World()
    process = Process(world)
    for _ in range(step):
        process.step()
    before = list(process.confirmed)
    world.clock.advance(TTL)
    other = world.newcomer()
    assert other is not None

    for _ in range(UNDISTURBED):
        process.step()
        assert other.is_held()
        assert process.held is None or not process.held.is_held()

    assert not any(said for _, said in process.confirmed[len(before) :])
    assert other.confirm()
    _end([process])


@pytest.mark.parametrize("pauses", [(3.0, 5.2), (5.2, 3.0), (2.0, 6.5), (5.9, 5.9)])
@pytest.mark.parametrize("first", range(UNDISTURBED))
def test_paused_twice_anywhere_it_is_never_inside_with_another(
    first: int, pauses: tuple[float, float]
):
    for second in range(first, UNDISTURBED):
        world = World()
        process = Process(world)
        for step in range(second + 1):
            process.step()
            if step == first:
                world.clock.advance(timedelta(seconds=pauses[0]))
        world.clock.advance(timedelta(seconds=pauses[1]))
        other = world.newcomer()

        for _ in range(UNDISTURBED):
            process.step()
            inside = process.held is not None and process.held.is_held()
            assert not (inside and other is not None and other.is_held())
        _end([process])


@pytest.mark.parametrize("step", range(UNDISTURBED))
def test_paused_with_a_clock_that_stands_still_the_epoch_tells_who_has_it(step: int):
    world = World()
    process = Process(world)
    for _ in range(step):
        process.step()
    world.clock.advance(TTL)
    process.lag = TTL
    other = world.newcomer()
    assert other is not None

    for _ in range(4 * UNDISTURBED):
        process.step()
        assert (True, True) not in process.confirmed
        assert other.confirm() == (world.epoch == other.epoch)
    _end([process])


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", range(UNDISTURBED))
def test_a_write_in_doubt_anywhere_lets_nobody_in_twice(step: int, fault: Fault):
    world = World()
    first, second = processes = [Process(world, rounds=2), Process(world)]
    for _ in range(step):
        first.step()
    first.lose(fault)

    for turn in range(20 * UNDISTURBED):
        processes[turn % 2].step()
        world.clock.advance(timedelta(milliseconds=20))
        check(processes)
        if turn == UNDISTURBED:
            world.arrive()

    assert (first.ended, second.ended) == (True, True)
    assert len(first.epochs) == 2
    assert len(second.epochs) == 1


def _disturb(random: Random, world: World, processes: list[Process]) -> None:
    match random.randrange(9):
        case 0:
            world.clock.advance(random.choice(_PASSES))
        case 1:
            random.choice(processes).lose(random.choice(list(Fault)))
        case 2:
            world.arrive()
        case 4:
            world.node.is_ahead = random.random() < 0.5
        case 3 if random.randrange(4) == 0:
            processes.remove(killed := random.choice(processes))
            killed.crash()
            processes.append(Process(world, rounds=2))
        case _:
            world.clock.advance(timedelta(milliseconds=random.randrange(50)))
    check(processes)


def _end(processes: list[Process]) -> None:
    """No thread is left behind."""
    for each in processes:
        each.crash()
