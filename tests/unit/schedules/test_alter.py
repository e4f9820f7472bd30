"""A schedule that is altered: what it becomes, and what runners put from then on."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import CassieqError, NotFoundError, OptionError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.schedules import (
    Runner,
    Schedule,
    alter_schedule,
    create_schedule,
    pause_schedule,
    plan_alter,
    read_schedule,
    read_schedules_progress,
    resume_schedule,
)
from cassieq_spark.schedules.runner import REFRESH
from cassieq_spark.schedules.schedule import MOST_ALTERED, parts_of_number
from cassieq_spark.schedules.stored import from_stored, to_stored
from cassieq_spark.settings.schedule import ALTERABLE
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_queue
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
AT_ONCE = timedelta(0)


class World:
    """A store with a queue, a schedule, and a clock that its server and all runners have."""

    def __init__(self, **settings: Any) -> None:
        self.store: MemoryStore
        self.clock: FakeClock
        self.store, self.clock = make_clocked_store()
        self.client = Client.from_store(self.store)
        self.client.create_queue("q")
        create_schedule(self.store, "q", "s", "old", **({"every": MINUTE} | settings))

    def runner(self) -> Runner:
        return Runner(self.store, clock=self.clock.here, politeness=AT_ONCE)

    def look(self, runner: Runner | None = None) -> None:
        (runner or self.runner()).run_once()

    def alter(self, **changes: Any) -> Schedule:
        return alter_schedule(self.store, "q", "s", **changes)

    def schedule(self) -> Schedule:
        return read_schedule(self.store, "q", "s")[0]

    def put(self) -> list[tuple[str, str]]:
        """The minute and the text of each message."""
        found = self.client.peek("q", max=1000)
        ticks = [(each.headers or {})["schedule-tick"] or "" for each in found]
        return [
            (it[11:19], str(each.value, "utf-8")) for it, each in zip(ticks, found, strict=True)
        ]  # type: ignore[arg-type]


def die() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def world() -> World:
    return World()


#: For each setting that can be altered, a value other than that of the schedule.
OTHERS: dict[str, Any] = {
    "cron": "0 3 * * *",
    "every": 5 * MINUTE,
    "zone": "Asia/Kolkata",
    "message": "new",
    "headers": {"lang": "en"},
    "start": FakeClock().now + HOUR,
    "end": FakeClock().now + HOUR,
    "count": 3,
    "catch_up": 7,
    "jitter": MINUTE,
    "ahead": MINUTE,
}


@pytest.mark.parametrize("it", ALTERABLE, ids=lambda it: it.name)
def test_each_setting_is_altered_alone(world: World, it: Any):
    before = world.schedule()

    after = world.alter(**{it.name: OTHERS[it.name]})

    assert after == world.schedule()
    assert after.generation == 1
    if it.kept:
        assert getattr(after, it.name) == OTHERS[it.name]
    changed = {it.name for it in ALTERABLE if it.kept} - {it.name}
    changed -= {"cron": {"every"}, "count": {"end"}}.get(it.name, set())
    assert {each: getattr(after, each) for each in changed} == {
        each: getattr(before, each) for each in changed
    }


def test_none_gives_a_setting_back_its_default():
    world = World(
        start=FakeClock().now + HOUR, end=FakeClock().now + 9 * HOUR, catch_up=7, jitter=MINUTE
    )

    after = world.alter(start=None, end=None, catch_up=None, jitter=None, headers=None)

    assert (after.start, after.end, after.catch_up) == (None, None, 1)
    assert (after.jitter, after.headers) == (AT_ONCE, {})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, "there is nothing to alter"),
        ({"key": "k"}, "the key can't be altered, because the partition of its key"),
        ({"every": None}, "give either cron"),
        ({"every": MINUTE, "cron": "* * * * *"}, "give either cron"),
        ({"message": "{{tik}}"}, "did you mean 'tick'"),
        ({"message": None}, "the message must be a text or a dict"),
        ({"headers": {"schedule": "x"}}, "is set by the schedule"),
        ({"zone": "Mars/Olympus"}, "there is no time zone"),
        ({"cron": "0 3 * *"}, "not five"),
        ({"end": FakeClock().now}, "before it ticks"),
        ({"jitter": 2 * HOUR}, "jitter must be from 0:00:00 to 1:00:00"),
    ],
)
def test_changes_that_are_not_valid_are_refused(
    world: World, changes: dict[str, Any], problem: str
):
    before = world.schedule()

    with pytest.raises(CassieqError, match=problem):
        world.alter(**changes)

    assert world.schedule() == before


def test_what_the_queue_does_not_take_is_refused(world: World):
    world.client.create_queue("ordered", order="strict")
    create_schedule(world.store, "ordered", "s", "x", every=MINUTE)

    with pytest.raises(OptionError, match="would hold up all later ones"):
        alter_schedule(world.store, "ordered", "s", ahead=MINUTE)
    with pytest.raises(NotFoundError, match="has no schedule 'none'"):
        alter_schedule(world.store, "ordered", "none", ahead=MINUTE)
    with pytest.raises(TypeError, match="no setting 'crom': did you mean 'cron'"):
        alter_schedule(world.store, "ordered", "s", crom="@daily")  # type: ignore[call-arg]


def test_the_costs_of_an_alter_are_those_that_are_written(world: World):
    counting = CountingStore(world.store)
    costs = []
    for _ in range(2):
        counting.reset()
        alter_schedule(counting, "q", "s", message="new")
        reads = (counting.read_count, counting.serial_read_count, counting.scan_count)
        costs.append((counting.cas_count, *reads))

    assert costs == [(2, 1, 3, 0), (0, 1, 2, 0)]


def test_a_tick_that_has_come_is_put_with_the_new_message(world: World):
    world.clock.advance(MINUTE)

    world.alter(message="new")
    world.look()

    assert world.put() == [("12:01:00", "new")]


def test_new_times_begin_with_the_change(world: World):
    world.clock.advance(MINUTE + 30 * SECOND)

    world.alter(every=10 * SECOND, catch_up=1000)
    world.look()
    assert world.put() == []

    world.clock.advance(20 * SECOND)
    world.look()
    assert world.put() == [("12:01:40", "old"), ("12:01:50", "old")]


def test_another_end_loses_no_tick_that_has_come_and_brings_none_back():
    world = World(end=FakeClock().now + 3 * MINUTE, catch_up=1000)
    world.clock.advance(2 * MINUTE)
    world.alter(end=FakeClock().now + 5 * MINUTE)
    world.look()
    assert [at for at, _ in world.put()] == ["12:01:00", "12:02:00"]

    world.clock.advance(10 * MINUTE)
    world.alter(end=None)
    world.look()
    world.clock.advance(MINUTE)
    world.look()

    assert [at for at, _ in world.put()] == ["12:01:00", "12:02:00", "12:13:00"]


def test_what_was_put_ahead_stays_and_none_of_its_ticks_comes_again():
    world = World(ahead=10 * MINUTE)
    world.look()
    put = world.put()
    assert put[-1] == ("12:10:00", "old")

    world.alter(message="new", every=30 * SECOND, ahead=None)
    for _ in range(11):
        world.clock.advance(MINUTE)
        world.look()

    assert world.put() == [*put, ("12:10:30", "new"), ("12:11:00", "new")]


def test_ticks_that_were_left_out_are_put_once_the_schedule_catches_up():
    world = World(every=HOUR, catch_up=0)
    world.clock.advance(2 * HOUR + 30 * MINUTE)
    runner = world.runner()
    world.look(runner)
    assert world.put() == []

    world.alter(catch_up=5)
    world.clock.advance(REFRESH)
    world.look(runner)

    assert world.put() == [("13:00:00", "old"), ("14:00:00", "old")]


def test_a_count_counts_from_the_change_on(world: World):
    world.clock.advance(5 * MINUTE)
    world.look()
    before = len(world.put())

    world.alter(count=2)
    for _ in range(5):
        world.clock.advance(MINUTE)
        world.look()

    assert [at for at, _ in world.put()][before:] == ["12:06:00", "12:07:00"]


def test_a_paused_schedule_stays_paused_and_goes_on_by_its_new_settings(world: World):
    pause_schedule(world.store, "q", "s")
    world.clock.advance(5 * MINUTE)

    assert world.alter(every=30 * SECOND, message="new").paused
    world.look()
    assert world.put() == []
    resume_schedule(world.store, "q", "s")
    world.clock.advance(30 * SECOND)
    world.look()

    assert world.put() == [("12:05:30", "new")]


def test_the_lag_is_that_of_the_new_settings(world: World):
    world.clock.advance(10 * MINUTE)

    world.alter(message="new")
    (by_old_times,) = read_schedules_progress(world.store, "q")
    world.alter(every=30 * SECOND)
    (by_new_times,) = read_schedules_progress(world.store, "q")

    assert (by_old_times.lag, by_new_times.lag) == (9 * MINUTE, None)
    assert by_new_times.next == (world.clock.now + 30 * SECOND,)


@pytest.mark.parametrize("calls", range(4))
def test_a_runner_that_has_planned_a_tick_does_not_put_it_after_the_alter(
    world: World, calls: int
):
    """The alter answers between two calls of the runner, wherever it is."""
    trouble = FaultyStore(world.store)
    slow = Runner(trouble, clock=world.clock.here, politeness=AT_ONCE)
    slow.run_once()
    world.clock.advance(MINUTE)
    before: list[tuple[str, str]] = []

    def alter() -> None:
        world.alter(message="new")
        before.extend(world.put())

    trouble.interrupt(alter, after=calls)
    slow.run_once()
    trouble.calm()
    if world.schedule().generation == 0:
        alter()
    world.clock.advance(MINUTE)
    slow.run_once()
    world.look()

    put = world.put()
    assert [at for at, _ in put] == ["12:01:00", "12:02:00"]
    assert "old" not in {text for _, text in put[len(before) :]}


def test_a_runner_that_finds_an_alter_reads_the_new_settings_with_its_next_look(world: World):
    runner = world.runner()
    runner.run_once()
    world.clock.advance(MINUTE - SECOND)
    runner.run_once()
    world.alter(message="new")
    world.clock.advance(SECOND)

    runner.run_once()
    assert world.put() == []
    world.clock.advance(SECOND)
    runner.run_once()

    assert world.put() == [("12:01:00", "new")]


def test_an_alter_that_breaks_off_is_finished_by_the_first_runner_that_knows_it(world: World):
    """Between its two steps, runners of both kinds publish; no tick comes twice."""
    old = world.runner()
    world.clock.advance(MINUTE - SECOND)
    old.run_once()
    world.clock.advance(SECOND)
    trouble = FaultyStore(world.store)
    trouble.interrupt(die, after=4)
    with pytest.raises(KeyboardInterrupt):
        alter_schedule(trouble, "q", "s", message="new", ahead=MINUTE)
    assert world.schedule().generation == 1
    old.run_once()
    world.look()
    old.run_once()

    assert world.put() == [("12:01:00", "old"), ("12:02:00", "new")]


@pytest.mark.parametrize("calls", range(7))
def test_runners_before_and_after_an_alter_that_broke_off_do_not_put_a_tick_twice(
    world: World, calls: int
):
    """The one that does not know it looks between two calls of the one that does."""
    world.clock.advance(MINUTE - SECOND)
    old = world.runner()
    old.run_once()
    world.clock.advance(SECOND)
    trouble = FaultyStore(world.store)
    trouble.interrupt(die, after=4)
    with pytest.raises(KeyboardInterrupt):
        alter_schedule(trouble, "q", "s", message="new")
    other = FaultyStore(world.store)
    new = Runner(other, clock=world.clock.here, politeness=AT_ONCE)

    other.interrupt(lambda: world.look(old), after=calls)
    new.run_once()
    other.calm()

    assert [at for at, _ in world.put()] == ["12:01:00"]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("calls", [2, 4])
def test_an_answer_that_is_lost_alters_once(world: World, fault: Fault, calls: int):
    faulty = FaultyStore(world.store)

    def lose() -> None:
        faulty.fault = fault

    faulty.interrupt(lose, after=calls)
    altered = alter_schedule(faulty, "q", "s", message="new", every=30 * SECOND)
    while faulty.late:
        faulty.arrive()

    assert altered == world.schedule()
    assert (altered.generation, altered.message) == (1, "new")
    last = Ledger(world.store, "q@1").read_sink(altered.sink)  # type: ignore[arg-type]
    assert last is not None
    assert parts_of_number(last.batch_id) == (1, None)


def test_a_purge_keeps_what_an_alter_has_ended(world: World):
    slow = world.runner()
    slow.run_once()
    world.clock.advance(MINUTE)
    world.look()
    world.alter(message="new")
    world.client.purge_queue("q")
    world.clock.advance(MINUTE)

    slow.run_once()
    world.look()

    assert world.put() == [("12:02:00", "new")]


def test_a_plan_of_an_alter_is_what_it_would_make_and_changes_nothing(world: World):
    counting = CountingStore(world.store)

    before, after, queue = plan_alter(
        counting, "q", "s", now=world.clock.now, cron="0 3 * * *", message="new"
    )

    assert (counting.cas_count, counting.serial_read_count, counting.read_count) == (0, 0, 1)
    assert (before, queue.name) == (world.schedule(), "q")
    assert world.alter(cron="0 3 * * *", message="new") == after


def test_a_schedule_that_was_altered_too_often_is_refused(world: World):
    row = json.loads(to_stored([world.schedule()]))
    row["s"]["generation"] = MOST_ALTERED
    (worn,) = from_stored("q", json.dumps(row)).values()

    assert worn.number_of(world.clock.now) < 1 << 63
    assert parts_of_number(worn.number_of(world.clock.now)) == (MOST_ALTERED, world.clock.now)
    by_hand = Update((), {"schedules": json.dumps(row)}, when=(When("version", "=", 1),))
    assert world.store.cas(partition_of_queue("q"), [by_hand])
    with pytest.raises(OptionError, match="delete it, and create another one"):
        world.alter(message="new")


def test_a_row_of_before_alters_is_read(world: World):
    """Earlier rows have no generation, and their sinks have ticks alone as numbers."""
    world.clock.advance(MINUTE)
    world.look()
    row = json.loads(to_stored([world.schedule()]))
    del row["s"]["generation"]

    (found,) = from_stored("q", json.dumps(row)).values()
    last = Ledger(world.store, "q@1").read_sink(found.sink)  # type: ignore[arg-type]

    assert found == world.schedule()
    assert last is not None
    assert last.batch_id == int(world.clock.now.timestamp() * 1000)
