"""What a runner publishes, and what it takes."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.client import StoredMessage
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schedules import (
    Runner,
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
)
from cassieq_spark.schedules import runner as runner_module
from cassieq_spark.schedules.due import Tick
from cassieq_spark.schedules.runner import FAILED, PUBLISHED, REFRESH, running
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.store.grants import User
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Op, Partition, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store
from tests.support.role_store import RoleStore

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
#: When the clocks of these tests begin, a tick of all schedules here.
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
AT_ONCE = timedelta(0)


class World:
    """A store with a queue, and a clock that its server and all runners have."""

    def __init__(self, **settings: object) -> None:
        self.store, self.clock = make_clocked_store()
        self.client = Client.from_store(self.store)
        self.client.create_queue("q", **settings)  # type: ignore[arg-type]

    def runner(self, politeness: timedelta = AT_ONCE) -> Runner:
        return Runner(self.store, clock=self.clock.here, politeness=politeness)

    def messages(self) -> list[StoredMessage]:
        return self.client.peek("q", max=1000)

    def ticks(self) -> list[str]:
        return [f"{tick_of(each):%H:%M:%S}" for each in self.messages()]

    def go_on(self, runner: Runner, lasts: timedelta) -> None:
        """Let a runner run alone, for as long as it says between two looks."""
        end = self.clock.now + lasts
        while self.clock.now < end:
            runner.run_once()
            self.clock.advance(min(runner.pause(), end - self.clock.now))
        runner.run_once()


def tick_of(message: StoredMessage) -> datetime:
    return datetime.fromisoformat((message.headers or {})["schedule-tick"] or "")


@pytest.fixture
def world() -> World:
    return World()


def test_a_runner_publishes_each_tick_at_its_time(world: World):
    create_schedule(world.store, "q", "s", '{"day": "{{date}}"}', every=MINUTE)

    world.go_on(world.runner(), 3 * MINUTE)

    assert world.ticks() == ["12:01:00", "12:02:00", "12:03:00"]
    first = world.messages()[0]
    assert (first.value, first.key) == (b'{"day": "2026-11-20"}', b"s")
    assert first.published_at == NOON + MINUTE
    assert first.headers == {"schedule": "s", "schedule-tick": "2026-11-20T12:01:00Z"}


def test_a_tick_takes_one_lwt_and_two_reads_and_a_look_nothing(world: World):
    create_schedule(world.store, "q", "s", "{}", every=5 * MINUTE)
    counting = CountingStore(world.store)
    runner = Runner(counting, clock=world.clock.here, politeness=AT_ONCE)
    runner.run_once()
    first = (counting.cas_count, counting.read_count, counting.scan_count)
    counting.reset()
    world.clock.advance(5 * MINUTE)
    runner.run_once()
    tick = (counting.cas_count, counting.read_count, counting.scan_count)
    counting.reset()
    for _ in range(9):
        world.clock.advance(SECOND)
        runner.run_once()

    assert (first, tick) == ((0, 0, 1), (1, 2, 1))
    assert (counting.cas_count, counting.read_count, counting.serial_read_count) == (0, 0, 0)
    assert counting.scan_count == 0


def test_a_tick_that_another_runner_has_published_takes_one_read(world: World):
    create_schedule(world.store, "q", "s", "{}", every=5 * MINUTE)
    counting = CountingStore(world.store)
    other = Runner(counting, clock=world.clock.here, politeness=SECOND)
    runner = world.runner()
    for each in (other, runner):
        each.run_once()
    world.clock.advance(5 * MINUTE)
    runner.run_once()
    other.run_once()
    counting.reset()

    world.clock.advance(SECOND)
    other.run_once()

    assert (counting.cas_count, counting.read_count, counting.scan_count) == (0, 1, 0)
    assert world.ticks() == ["12:05:00"]


def test_the_runner_of_the_last_tick_goes_first_and_another_one_a_second_later(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    one, other = world.runner(politeness=SECOND), world.runner(politeness=2 * SECOND)
    published = []
    for second in range(240):
        for runner in (other, one) if second < 150 else (other,):
            found = runner.run_once()
            published += [("one" if runner is one else "other", second) for _ in found]
        world.clock.advance(SECOND)

    assert published == [("one", 61), ("one", 120), ("other", 182)]


def test_after_an_outage_a_runner_catches_up_and_says_what_is_missing(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=2)
    world.go_on(world.runner(), MINUTE)
    world.clock.advance(30 * MINUTE + 59 * SECOND)

    world.runner().run_once()

    assert world.ticks() == ["12:01:00", "12:30:00", "12:31:00"]
    missed = [(each.headers or {}).get("schedule-missed") for each in world.messages()]
    assert missed == [None, "28", None]


def test_ticks_that_are_left_out_are_not_looked_for_again(world: World):
    create_schedule(world.store, "q", "s", "{}", cron="@hourly", catch_up=0)
    world.clock.advance(timedelta(hours=2, minutes=30))
    counting = CountingStore(world.store)
    runner = Runner(counting, clock=world.clock.here, politeness=AT_ONCE)
    runner.run_once()
    read = counting.read_count

    for _ in range(9):
        world.clock.advance(SECOND)
        runner.run_once()

    assert (read, counting.read_count) == (1, 1)
    assert runner.pause() == SECOND  # To read the queues again.
    world.go_on(runner, timedelta(minutes=30))
    assert world.ticks() == ["15:00:00"]


def test_a_tick_that_is_published_ahead_is_delivered_at_its_time(world: World):
    create_schedule(world.store, "q", "s", "{}", every=5 * MINUTE, ahead=MINUTE)
    world.go_on(world.runner(), 4 * MINUTE)

    assert world.ticks() == ["12:05:00"]
    assert world.client.receive("q", "g") == []
    world.clock.advance(MINUTE)
    assert len(world.client.receive("q", "g")) == 1


@pytest.mark.parametrize("change", ["paused", "deleted", "queue deleted"])
def test_a_runner_learns_within_ten_seconds_that_a_schedule_is_over(world: World, change: str):
    create_schedule(world.store, "q", "s", "{}", every=SECOND)
    runner = world.runner()
    world.go_on(runner, MINUTE)
    if change == "paused":
        pause_schedule(world.store, "q", "s")
    elif change == "deleted":
        delete_schedule(world.store, "q", "s")
    else:
        world.client.delete_queue("q")
        world.client.create_queue("q")
        assert world.ticks() == []

    world.go_on(runner, REFRESH)
    ticks = world.ticks()
    world.go_on(runner, MINUTE)

    assert world.ticks() == ticks
    assert len(ticks) <= 70


def test_a_resumed_schedule_goes_on_without_the_ticks_of_its_pause(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    runner = world.runner()
    world.go_on(runner, 2 * MINUTE)
    pause_schedule(world.store, "q", "s")
    world.clock.advance(10 * MINUTE)
    runner.run_once()
    resume_schedule(world.store, "q", "s")

    world.go_on(runner, 2 * MINUTE)

    assert world.ticks() == ["12:01:00", "12:02:00", "12:13:00", "12:14:00"]


def test_a_purge_brings_no_tick_back(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    runner = world.runner()
    world.go_on(runner, 3 * MINUTE)
    world.client.purge_queue("q")
    assert world.ticks() == []

    world.go_on(runner, 2 * MINUTE)
    world.go_on(world.runner(), MINUTE)

    assert world.ticks() == ["12:04:00", "12:05:00", "12:06:00"]


def test_a_queue_with_several_partitions_has_each_tick_once(world: World):
    world.client.create_queue("wide", partitions=4, order="key")
    for name in "abcdef":
        create_schedule(world.store, "wide", name, "{}", every=MINUTE)

    for runner in (world.runner(), world.runner()):
        world.go_on(runner, 2 * MINUTE)

    found = [(each.key, tick_of(each)) for each in world.client.peek("wide", max=100)]
    assert len(found) == len(set(found)) == 6 * 4


def test_a_typed_queue_gets_rows(world: World):
    world.client.create_queue("typed", schema="day date not null, at timestamp")
    create_schedule(world.store, "typed", "s", {"day": "{{date}}", "at": "{{tick}}"}, every=MINUTE)

    world.go_on(world.runner(), MINUTE)

    (message,) = world.client.peek("typed")
    assert message.value == {"day": NOON.date(), "at": NOON + MINUTE}


def test_a_schedule_that_fails_does_not_hold_up_the_others(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.client.create_queue("typed", schema="day date, n int")
    create_schedule(world.store, "typed", "a", '{"day": "{{date}}", "n": 5}', every=MINUTE)
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    world.client.alter_queue("typed", schema="day date")

    with caplog.at_level(logging.INFO, logger="cassieq_spark.schedules"):
        world.go_on(world.runner(), 10 * MINUTE)

    assert len(world.ticks()) == 10
    actions = [it.action for it in caplog.records]  # type: ignore[attr-defined]
    assert actions.count(PUBLISHED) == 10
    # It is tried less and less often.
    assert 5 < actions.count(FAILED) < 40

    world.client.alter_queue("typed", schema="day date, n int")
    world.go_on(world.runner(), MINUTE)
    found = [f"{tick_of(each):%H:%M}" for each in world.client.peek("typed")]
    assert found == ["12:09", "12:10", "12:11"]


def test_a_fault_of_the_program_with_one_schedule_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    for name in ("bad", "good"):
        create_schedule(world.store, "q", name, name, every=MINUTE)
    publish = runner_module.publish_tick

    def fails(store: Store, queue: QueueDefinition, schedule: Schedule, tick: Tick) -> bool:
        if schedule.name == "bad":
            raise ZeroDivisionError("no such luck")
        return publish(store, queue, schedule, tick)

    monkeypatch.setattr(runner_module, "publish_tick", fails)
    world.clock.advance(MINUTE)

    told = [each.schedule.name for each in world.runner().run_once()]

    assert told == ["good"]
    (record,) = [each for each in caplog.records if "could not be served" in each.message]
    assert "no such luck" in record.message
    assert record.exc_info is not None


def test_a_schema_that_changes_between_two_looks_holds_up_nothing(world: World):
    """The runner puts messages of the schema that it knows, until it reads the queues again."""
    world.client.create_queue("typed", schema="day date, n int")
    create_schedule(world.store, "typed", "s", '{"day": "{{date}}", "n": 5}', every=SECOND)
    runner = world.runner()
    world.go_on(runner, 3 * SECOND)
    world.client.alter_queue("typed", schema="day date, n bigint, x string")

    world.go_on(runner, 2 * REFRESH)

    found = world.client.peek("typed", max=100)
    assert len(found) == 23
    assert {str(each.value) for each in found} == {str({"day": NOON.date(), "n": 5, "x": None})}


@pytest.mark.parametrize(
    "settings",
    [
        {"order": "strict"},
        {"order": "key", "partitions": 4},
        {"deduplicate": 5 * MINUTE},
        {"deduplicate": 5 * MINUTE, "unique_per": "queue"},
        {"delay": MINUTE},
        {"history": timedelta(days=1)},
    ],
    ids=str,
)
def test_ticks_are_messages_like_others_whatever_the_queue_is_like(settings: dict[str, object]):
    world = World(**settings)
    create_schedule(world.store, "q", "s", "the same text", every=MINUTE)

    world.go_on(world.runner(), 3 * MINUTE)
    world.client.run_schedule_now("q", "s")
    world.client.run_schedule_now("q", "s")

    assert world.ticks()[:3] == ["12:01:00", "12:02:00", "12:03:00"]
    assert len(world.messages()) == 5
    world.clock.advance(MINUTE)
    received = world.client.receive("q", "g", max=10)
    assert [each.value for each in received] == [b"the same text"] * 5


def test_a_queue_that_is_paused_gets_its_ticks_and_hands_them_out_later(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    world.client.pause_queue("q")

    world.go_on(world.runner(), 2 * MINUTE)

    assert world.ticks() == ["12:01:00", "12:02:00"]
    assert world.client.receive("q", "g", max=5) == []
    world.client.resume_queue("q")
    assert len(world.client.receive("q", "g", max=5)) == 2


def test_a_queue_that_is_made_anew_has_only_the_ticks_of_its_own_schedules(world: World):
    create_schedule(world.store, "q", "s", "old", every=SECOND)
    runner = world.runner()
    world.go_on(runner, 3 * SECOND)
    world.client.delete_queue("q")
    world.client.create_queue("q")
    create_schedule(world.store, "q", "s", "new", every=SECOND)

    world.go_on(runner, 3 * SECOND)

    assert [each.value for each in world.messages()] == [b"new"] * 3


def test_a_runner_goes_on_while_the_queues_can_not_be_read(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    broken = BrokenScan(world.store)
    runner = Runner(broken, clock=world.clock.here, politeness=AT_ONCE)
    runner.run_once()
    broken.is_broken = True

    world.go_on(runner, 2 * MINUTE)

    assert world.ticks() == ["12:01:00", "12:02:00"]


def test_ticks_before_one_that_fails_are_told(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    world.clock.advance(3 * MINUTE)
    runner = Runner(BrokenLater(world.store), clock=world.clock.here, politeness=AT_ONCE)

    told = runner.run_once()

    assert [f"{each.tick:%H:%M}" for each in told] == ["12:01", "12:02"]
    assert world.ticks() == ["12:01:00", "12:02:00"]


class BrokenLater(CountingStore):
    """Carries out two compare-and-sets, and no more."""

    def cas(self, *given: object) -> bool:  # type: ignore[override]
        if self.cas_count == 2:
            raise NotAppliedError("too few replicas")
        return super().cas(*given)  # type: ignore[arg-type]


class BrokenScan(CountingStore):
    """Fails to read the table of queues, if told to."""

    is_broken = False

    def scan(self, *given: object) -> Iterator[object]:  # type: ignore[override]
        if self.is_broken:
            raise OutcomeUnknownError("no answer")
        return super().scan(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead", [timedelta(hours=3), -timedelta(hours=3)])
def test_the_earlier_of_two_clocks_decides(world: World, ahead: timedelta):
    """Whether the server's clock is wrong or that of the runner: here the same is right."""
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    world.clock.ahead = ahead

    world.go_on(world.runner(), 3 * MINUTE)

    assert world.ticks() == (["12:01:00", "12:02:00", "12:03:00"] if ahead > AT_ONCE else [])


def test_a_clock_that_was_ahead_does_not_stop_a_runner(world: World):
    """Both clocks are three hours ahead for a while: no tick comes twice, and all others come."""
    create_schedule(world.store, "q", "s", "{}", every=30 * MINUTE, catch_up=0)
    runner = world.runner()
    world.go_on(runner, MINUTE)
    world.clock.advance(timedelta(hours=3, minutes=5))
    runner.run_once()
    world.clock.advance(-timedelta(hours=3, minutes=5))

    world.go_on(runner, timedelta(hours=2))

    assert world.ticks() == ["12:30:00", "13:00:00", "13:30:00", "14:00:00"]


def test_a_runner_stops_when_it_is_told(world: World):
    waited = []

    class Stop:
        def wait(self, at_most: timedelta) -> bool:
            if not at_most:
                return False
            waited.append(at_most)
            world.clock.advance(at_most)
            return len(waited) == 3

    create_schedule(world.store, "q", "s", "{}", every=15 * SECOND)

    world.runner().run(Stop())

    assert waited == [10 * SECOND, 5 * SECOND, 5 * SECOND]
    assert world.ticks() == ["12:00:15"]


def test_a_runner_that_is_told_to_stop_leaves_what_is_missing_to_the_next_one(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    world.clock.advance(100 * MINUTE)
    asked = []

    class Stop:
        def wait(self, at_most: timedelta) -> bool:
            asked.append(at_most)
            return len(asked) > 3

    world.runner().run(Stop())

    assert world.ticks() == ["12:01:00", "12:02:00", "12:03:00"]
    assert len(asked) == 5
    world.runner().run_once()
    assert len(world.ticks()) == 100


@pytest.mark.parametrize("after", range(4))
def test_a_runner_that_dies_at_any_call_loses_and_repeats_no_tick(world: World, after: int):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    trouble = FaultyStore(world.store)
    dying = Runner(trouble, clock=world.clock.here, politeness=AT_ONCE)
    dying.run_once()
    world.clock.advance(2 * MINUTE)

    def die() -> None:
        raise KeyboardInterrupt

    trouble.interrupt(die, after=after, bit_by_bit=True)
    with pytest.raises(KeyboardInterrupt):
        world.go_on(dying, 2 * MINUTE)

    world.clock.now = NOON + 4 * MINUTE
    world.go_on(world.runner(), MINUTE)

    assert world.ticks() == [f"12:0{minute}:00" for minute in range(1, 6)]


def test_a_runner_that_was_paused_in_the_middle_publishes_nothing_late(world: World):
    """It goes on with a tick after another runner has published it and the next ones."""
    create_schedule(world.store, "q", "s", "{}", every=MINUTE, catch_up=1000)
    trouble = FaultyStore(world.store)
    slow = Runner(trouble, clock=world.clock.here, politeness=AT_ONCE)
    slow.run_once()
    world.clock.advance(MINUTE)

    def others_go_on() -> None:
        world.go_on(world.runner(), 3 * MINUTE)

    trouble.interrupt(others_go_on, after=2)
    assert slow.run_once() == []

    assert world.ticks() == [f"12:0{minute}:00" for minute in range(1, 5)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_tick_is_the_same_whatever_its_message_says(
    partitions: int, caplog: pytest.LogCaptureFixture
):
    """Two runners at once, of which the first knows of a tick more that is missing."""
    world = World(partitions=partitions)
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    trouble = FaultyStore(world.store)
    slow = Runner(trouble, clock=world.clock.here, politeness=AT_ONCE)
    world.clock.advance(10 * MINUTE + 2 * SECOND)

    def another_looks() -> None:
        world.clock.advance(-2 * SECOND)
        world.runner().run_once()
        world.clock.advance(2 * SECOND)

    trouble.interrupt(another_looks, after=1)
    with caplog.at_level(logging.WARNING):
        slow.run_once()

    assert world.ticks() == ["12:09:00", "12:10:00"]
    assert [it.action for it in caplog.records] in ([], ["publish.already"])  # type: ignore[attr-defined]


def test_the_sink_of_a_deleted_schedule_stays_so_that_no_tick_comes_again(world: World):
    made = create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    trouble = FaultyStore(world.store)
    slow = Runner(trouble, clock=world.clock.here, politeness=AT_ONCE)
    slow.run_once()
    world.clock.advance(MINUTE)

    def end() -> None:
        world.runner().run_once()
        delete_schedule(world.store, "q", "s")

    trouble.interrupt(end, after=1)
    slow.run_once()

    assert world.ticks() == ["12:01:00"]
    assert Ledger(world.store, "q@1").read_sink(made.sink) is not None


def test_ticks_of_the_schedule_that_took_the_name_are_its_own(world: World):
    create_schedule(world.store, "q", "s", "old", every=MINUTE, ahead=2 * MINUTE)
    world.go_on(world.runner(), 30 * SECOND)
    delete_schedule(world.store, "q", "s")
    create_schedule(world.store, "q", "s", "new", every=MINUTE)

    world.go_on(world.runner(), 2 * MINUTE)

    found = [(each.value, f"{tick_of(each):%H:%M}") for each in world.messages()]
    assert found[:2] == [(b"old", "12:01"), (b"old", "12:02")]
    assert found[2:] == [(b"new", "12:01"), (b"new", "12:02")]


def test_a_runner_serves_only_the_queues_that_it_is_told(world: World):
    world.client.create_queue("a:x")
    for queue in ("q", "a:x"):
        create_schedule(world.store, queue, "s", "{}", every=MINUTE)
    runner = Runner(world.store, prefix="a:", clock=world.clock.here, politeness=AT_ONCE)

    world.go_on(runner, MINUTE)

    assert (len(world.ticks()), len(world.client.peek("a:x"))) == (0, 1)


def test_a_pause_of_a_runner_is_a_chance_of_its_own(world: World):
    found = {Runner(world.store)._politeness for _ in range(20)}

    assert len(found) == 20
    assert all(SECOND / 2 <= each <= SECOND * 1.5 for each in found)


def test_a_runner_in_a_thread_ends_with_its_block():
    client = Client.from_store(store := MemoryStore())
    client.create_queue("q")
    client.create_schedule("q", "s", "{}", every=SECOND, ahead=5 * SECOND)

    with running(Runner(store, politeness=AT_ONCE)):
        assert "cassieq-schedules" in {each.name for each in threading.enumerate()}
        while len(client.peek("q")) < 5:  # Its thread puts them.
            pass

    assert "cassieq-schedules" not in {each.name for each in threading.enumerate()}


def test_a_runner_needs_the_rights_of_a_producer_and_no_more(world: World):
    create_schedule(world.store, "q", "s", "{}", every=MINUTE)
    role = RoleStore(world.store, User.PRODUCER)

    world.go_on(Runner(role, clock=world.clock.here, politeness=AT_ONCE), MINUTE)

    assert world.ticks() == ["12:01:00"]
    assert role.tables == {Table.QUEUE, Table.LEDGER}


def test_an_account_with_more_ticks_than_a_runner_can_publish_delays_only_its_own():
    world = World()
    for number in range(2):
        world.client.create_queue(f"loud:{number}", drop_dead=True)
        for each in range(60):
            create_schedule(world.store, f"loud:{number}", f"s{each}", "{}", every=10 * SECOND)
    world.client.create_queue("zoe:mail", drop_dead=True)
    create_schedule(world.store, "zoe:mail", "s", "{}", every=10 * SECOND)
    end = NOON + 2 * MINUTE

    class Slow(CountingStore):
        """Four ticks a second are possible, and twelve come."""

        def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
            world.clock.advance(SECOND / 4)
            return super().cas(partition, ops)

    runner = Runner(Slow(world.store), clock=world.clock.here, politeness=AT_ONCE)
    late: defaultdict[str, list[timedelta]] = defaultdict(list)
    served: set[str] = set()

    class Until:
        def wait(self, at_most: timedelta) -> bool:
            world.clock.advance(at_most)
            return world.clock.now >= end

    def tell(each: runner_module.Published) -> None:
        late[each.schedule.queue].append(world.clock.now - each.tick)
        served.add(f"{each.schedule.queue}/{each.schedule.name}")

    runner.run(Until(), tell)

    assert len(late["zoe:mail"]) == 11
    assert max(late["zoe:mail"]) < 3 * SECOND
    assert max(late["loud:0"]) > 20 * SECOND
    assert len(served) == 121, "nor does one of its schedules wait for ever"
