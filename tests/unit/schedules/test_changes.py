"""Schedules in the rows of their queues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import ExistsError, InvariantError, NotFoundError, OptionError
from cassieq_spark.ledger.state import HEAD
from cassieq_spark.model import QueueId
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.schedules import (
    Runner,
    create_schedule,
    delete_schedule,
    list_progress,
    list_schedules,
    pause_schedule,
    plan_schedule,
    read_schedule,
    read_schedules,
    read_schedules_progress,
    resume_schedule,
)
from cassieq_spark.schedules.changes import UNREADABLE
from cassieq_spark.schedules.stored import MOST_SCHEDULES
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Delete,
    Update,
    When,
    partition_of_ledger,
    partition_of_queue,
)
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock

MINUTE = timedelta(minutes=1)
VERSION_1 = When("version", "=", 1)


@pytest.fixture
def store_and_clock() -> tuple[MemoryStore, FakeClock]:
    store, clock = make_clocked_store()
    client = Client.from_store(store)
    client.create_queue("q")
    return store, clock


@pytest.fixture
def store(store_and_clock: tuple[MemoryStore, FakeClock]) -> MemoryStore:
    return store_and_clock[0]


def names(store: MemoryStore, queue: str = "q") -> list[str]:
    return [each.name for each in read_schedules(store, queue)[0]]


def test_a_schedule_is_there_until_it_is_deleted(store: MemoryStore):
    made = create_schedule(store, "q", "hourly", "{}", cron="@hourly")
    create_schedule(store, "q", "daily", "{}", cron="@daily")

    assert names(store) == ["daily", "hourly"]
    assert read_schedule(store, "q", "hourly")[0] == made
    delete_schedule(store, "q", "hourly")

    assert names(store) == ["daily"]
    with pytest.raises(NotFoundError, match="queue 'q' has no schedule 'hourly'"):
        read_schedule(store, "q", "hourly")


def test_a_name_that_is_taken_is_refused(store: MemoryStore):
    create_schedule(store, "q", "s", "first", every=MINUTE)

    with pytest.raises(ExistsError, match="queue 'q' has a schedule 's' already"):
        create_schedule(store, "q", "s", "second", every=MINUTE)

    assert read_schedule(store, "q", "s")[0].message == "first"


def test_a_schedule_that_is_made_again_is_another_one(store: MemoryStore):
    first = create_schedule(store, "q", "s", "{}", every=MINUTE)
    delete_schedule(store, "q", "s")

    assert create_schedule(store, "q", "s", "{}", every=MINUTE).sink != first.sink


AT_NOTHING: dict[str, Callable[[MemoryStore], object]] = {
    "create, no queue": lambda store: create_schedule(store, "none", "s", "{}", every=MINUTE),
    "read, no queue": lambda store: read_schedules(store, "none"),
    "delete, no queue": lambda store: delete_schedule(store, "none", "s"),
    "resume, no queue": lambda store: resume_schedule(store, "none", "s"),
    "delete": lambda store: delete_schedule(store, "q", "s"),
    "pause": lambda store: pause_schedule(store, "q", "s"),
    "resume": lambda store: resume_schedule(store, "q", "s"),
}


@pytest.mark.parametrize("what", AT_NOTHING)
def test_what_does_not_exist_is_an_error(store: MemoryStore, what: str):
    with pytest.raises(NotFoundError):
        AT_NOTHING[what](store)


def test_the_costs_are_those_that_are_written(store: MemoryStore):
    counting = CountingStore(store)
    costs = []
    for do in (
        lambda: create_schedule(counting, "q", "s", "{}", every=MINUTE),
        lambda: pause_schedule(counting, "q", "s"),
        lambda: pause_schedule(counting, "q", "s"),
        lambda: resume_schedule(counting, "q", "s"),
        lambda: read_schedule(counting, "q", "s"),
        lambda: list_schedules(counting),
        lambda: delete_schedule(counting, "q", "s"),
    ):
        counting.reset()
        do()
        reads = (counting.read_count, counting.serial_read_count, counting.scan_count)
        costs.append((counting.cas_count, *reads))

    assert costs == [
        (1, 0, 3, 0),
        (1, 0, 2, 0),
        (0, 0, 1, 0),
        (1, 0, 3, 0),
        (0, 1, 0, 0),
        (0, 0, 0, 1),
        (1, 0, 2, 0),
    ]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("others", [True, False])
def test_an_answer_that_is_lost_changes_nothing_twice(
    store: MemoryStore, fault: Fault, others: bool
):
    faulty = FaultyStore(store)

    def lose() -> None:
        faulty.fault = fault

    def meddle() -> None:
        if others:
            Client.from_store(store).set_attributes("q", {"at": str(faulty.troubles)})

    lose()
    faulty.interrupt(meddle, after=2)
    create_schedule(faulty, "q", "s", "{}", every=MINUTE)
    assert names(store) == ["s"]
    lose()
    pause_schedule(faulty, "q", "s")
    assert read_schedule(store, "q", "s")[0].paused
    lose()
    faulty.interrupt(meddle, after=2)
    delete_schedule(faulty, "q", "s")
    while faulty.late:
        faulty.arrive()
    assert names(store) == []


def test_a_plan_is_what_would_be_created_and_changes_nothing(
    store_and_clock: tuple[MemoryStore, FakeClock],
):
    store, clock = store_and_clock
    counting = CountingStore(store)

    planned, queue = plan_schedule(
        counting, "q", "s", "{{date}}", now=clock.now, cron="0 3 * * *", count=3
    )

    assert (counting.cas_count, counting.serial_read_count, counting.read_count) == (0, 0, 1)
    assert queue.name == "q"
    assert names(store) == []
    made = create_schedule(store, "q", "s", "{{date}}", cron="0 3 * * *", count=3)
    assert replace(made, identity=planned.identity) == planned
    with pytest.raises(ExistsError):
        plan_schedule(store, "q", "s", "x", now=clock.now, every=MINUTE)
    for number in range(MOST_SCHEDULES - 1):
        create_schedule(store, "q", f"s{number}", "x", every=MINUTE)
    with pytest.raises(OptionError, match="delete some"):
        plan_schedule(store, "q", "t", "x", now=clock.now, every=MINUTE)


def test_lists_say_how_far_schedules_are_by_a_read_for_each_partition(
    store_and_clock: tuple[MemoryStore, FakeClock],
):
    store, clock = store_and_clock
    client = Client.from_store(store)
    client.create_queue("wide", partitions=4)
    for name in "abcdefgh":
        create_schedule(store, "wide", name, "{}", every=MINUTE)
    create_schedule(store, "q", "s", "{}", every=MINUTE)
    clock.advance(MINUTE)
    Runner(store, prefix="wide", clock=clock.here, politeness=timedelta(0)).run_once()
    clock.advance(3 * MINUTE)
    counting = CountingStore(store)

    of_queue = read_schedules_progress(counting, "wide", ticks=2)
    reads = counting.read_count
    of_all = list_progress(counting)

    came = clock.now - 3 * MINUTE
    assert [each.schedule.name for each in of_queue] == list("abcdefgh")
    assert {each.last for each in of_queue} == {came}
    assert {each.lag for each in of_queue} == {2 * MINUTE}
    assert {each.next for each in of_queue} == {(clock.now + MINUTE, clock.now + 2 * MINUTE)}
    assert [(it.schedule.queue, it.last, it.lag) for it in of_all] == [
        ("q", None, 3 * MINUTE),
        *[("wide", came, 2 * MINUTE)] * 8,
    ]
    partitions = len({partition_of_key(name, 4) for name in "abcdefgh"})
    assert 1 < partitions < 8
    assert (reads, counting.scan_count) == (1 + partitions, 1)
    assert counting.read_count - reads == 1 + partitions
    assert client.schedules("wide")[0] == replace(of_queue[0], next=of_queue[0].next[:1])


def test_a_queue_that_is_removed_while_all_are_listed_has_no_schedules(store: MemoryStore):
    Client.from_store(store).create_queue("r")
    for queue in ("q", "r"):
        create_schedule(store, queue, "s", "{}", every=MINUTE)
    store.cas(partition_of_ledger(QueueId("q@1")), [Delete(HEAD)])

    assert [each.schedule.queue for each in list_progress(store)] == ["r"]


def test_a_purge_and_an_alter_keep_schedules_and_a_deletion_does_not(store: MemoryStore):
    client = Client.from_store(store)
    create_schedule(store, "q", "s", "{}", every=MINUTE)

    client.alter_queue("q", lease=timedelta(minutes=5))
    client.set_attributes("q", {"team": "payments"})
    client.purge_queue("q")
    assert names(store) == ["s"]

    client.delete_queue("q")
    assert list_schedules(store) == []
    client.create_queue("q")
    assert names(store) == []


def test_a_resumed_schedule_has_no_tick_of_its_pause(
    store_and_clock: tuple[MemoryStore, FakeClock],
):
    store, clock = store_and_clock
    create_schedule(store, "q", "s", "{}", every=MINUTE)
    assert pause_schedule(store, "q", "s")
    assert not pause_schedule(store, "q", "s")
    clock.advance(timedelta(minutes=10, seconds=30))

    assert resume_schedule(store, "q", "s")
    assert not resume_schedule(store, "q", "s")

    found = read_schedule(store, "q", "s")[0]
    assert next(found.ticks_after(found.since)) == clock.now + timedelta(seconds=30)


@pytest.mark.parametrize("ahead", [timedelta(days=1), -timedelta(days=1)])
def test_a_schedule_begins_by_the_earlier_of_two_clocks(
    store_and_clock: tuple[MemoryStore, FakeClock], ahead: timedelta
):
    store, clock = store_and_clock
    clock.ahead = ahead

    made = create_schedule(store, "q", "s", "{}", every=MINUTE)

    assert made.since == min(clock.now, clock.now + ahead)


def test_a_message_that_the_queue_does_not_take_is_refused(store: MemoryStore):
    client = Client.from_store(store)
    client.create_queue("typed", schema="day date not null, n int")
    client.create_queue("ordered", order="strict")

    create_schedule(store, "typed", "s", '{"day": "{{date}}", "n": 5}', every=MINUTE)
    for queue, message, ahead, problem in (
        ("typed", '{"day": "{{tick}}"}', timedelta(0), "day"),
        ("typed", "{{date}}", timedelta(0), "JSON"),
        ("ordered", "{}", MINUTE, "would hold up all later ones"),
    ):
        with pytest.raises((OptionError, ValueError), match=problem):
            create_schedule(store, queue, "bad", message, every=MINUTE, ahead=ahead)

    assert names(store, "typed") == ["s"]


def test_rows_of_queues_without_schedules_are_not_decoded(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    Client.from_store(store).create_queue("r")
    create_schedule(store, "r", "s", "{}", every=MINUTE)
    store.cas(partition_of_queue("q"), [Update((), {"bucket_size": -1}, when=(VERSION_1,))])

    with caplog.at_level(logging.WARNING):
        assert [each.name for each, _ in list_schedules(store)] == ["s"]

    assert caplog.records == []


def test_schedules_that_can_not_be_read_do_not_hide_those_of_other_queues(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    Client.from_store(store).create_queue("r")
    create_schedule(store, "r", "s", "{}", every=MINUTE)
    by_hand = Update((), {"schedules": "[1]"}, when=(VERSION_1,))
    store.cas(partition_of_queue("q"), [by_hand])

    with caplog.at_level(logging.WARNING):
        found = list_schedules(store)

    assert [(each.queue, each.name) for each, _ in found] == [("r", "s")]
    assert [it.action for it in caplog.records] == [UNREADABLE]  # type: ignore[attr-defined]
    with pytest.raises(InvariantError, match="to go on without them"):
        read_schedules(store, "q")
