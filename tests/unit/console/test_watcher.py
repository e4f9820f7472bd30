from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from cassieq_spark.client import Client
from cassieq_spark.console.looking import LookingStore, Pace
from cassieq_spark.console.watcher import Watcher
from cassieq_spark.dead_letters.claims import claim, once_of, token_for
from cassieq_spark.errors import ConnectError, NotAppliedError, OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Ranges
from cassieq_spark.monitoring.board import settled
from cassieq_spark.queues import Status, create_queue, delete_queue, purge_queue
from cassieq_spark.queues.stats import read_stats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Row, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.builders import LEASE, make_clocked_store, make_pending
from tests.support.faults import FakeClock
from tests.support.many_queues import many_queues
from tests.support.snapshots import read_snapshot
from tests.unit.monitoring.watched import AilingStore, make_busy_queue
from tests.unit.queues.scene import Scene

FAST = 1e9
PATIENCE = timedelta(seconds=20)


def watcher_of(store: Store, clock: FakeClock | None = None) -> Watcher:
    return Watcher(store, reads_per_second=FAST, **({"clock": clock} if clock else {}))


def look(watcher: Watcher) -> None:
    watcher.forget("")
    watcher.round(seconds=60)


@pytest.fixture
def clocked() -> tuple[MemoryStore, FakeClock, Watcher]:
    store, clock = make_clocked_store()
    return store, clock, watcher_of(store, clock)


def test_what_is_known_is_what_the_commands_show(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, _, watcher = clocked
    queue = make_busy_queue(store)
    Client.from_store(store).create_queue("mail", partitions=3)
    Client.from_store(store).put_many("mail", [b"x"] * 10)

    look(watcher)

    fleet = watcher.fleet()
    assert fleet.known["orders"].snapshot.stats == read_stats(store, queue)
    shown = {each.name: each for each in read_snapshot(store).queues}
    assert {name: each.snapshot.stats for name, each in fleet.known.items()} == {
        name: each.stats for name, each in shown.items()
    }
    assert fleet.known["orders"].snapshot.leases == {"g": 1}
    assert fleet.known["mail.dead"].snapshot.dead_letters == 0


def test_a_full_reading_agrees_with_a_survey(clocked: tuple[MemoryStore, FakeClock, Watcher]):
    store, _, watcher = clocked
    make_busy_queue(store)
    look(watcher)
    surveyed = watcher.fleet().known["orders"].snapshot.stats

    looked = watcher.read("orders")

    assert looked.snapshot.stats == surveyed
    assert looked.looks[0].head.next == 10


def test_messages_that_wait_are_counted_though_a_survey_does_not_see_them(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, _, watcher = clocked
    client = Client.from_store(store)
    client.create_queue("mail")
    client.put_many("mail", [b"x"] * 5)
    client.release(*client.receive("mail", "g", max=2), delay=timedelta(hours=1))

    look(watcher)

    (group,) = watcher.fleet().known["mail"].snapshot.stats.groups
    assert (group.depth, group.waiting) == (5, 2)


def test_a_queue_that_is_as_it_was_is_not_read_again():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    client = Client.from_store(memory)
    client.create_queue("mail", max_deliveries=0)
    client.put_many("mail", [b"x"] * 5)
    client.ack(*client.receive("mail", "g", max=5))
    watcher = watcher_of(store, clock)
    look(watcher)
    store.reset()
    clock.advance(timedelta(seconds=5))

    look(watcher)

    assert (store.read_count, store.serial_read_count, store.scan_count) == (1, 0, 3)
    known = watcher.fleet().known["mail"]
    assert known.confirmed_at - known.at == timedelta(seconds=5)


def test_a_lease_that_runs_out_is_noticed_though_nothing_is_written(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, watcher = clocked
    make_busy_queue(store)
    look(watcher)
    clock.advance(LEASE + timedelta(seconds=1))

    look(watcher)

    (group,) = watcher.fleet().known["orders"].snapshot.stats.groups
    assert (group.leased, group.due) == (0, 2)


def test_a_dead_letter_that_is_published_after_its_claim_has_run_out_is_not_counted(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, watcher = clocked
    dead = Ledger(store, create_queue(store, "dead").queue_id)
    queue = create_queue(store, "orders", max_deliveries=1, dead_letter_queue="dead")
    orders = Ledger(store, queue.queue_id)
    publish(dead, make_pending([3]))
    group, token = ConsumerGroup(dead, ADMIN_GROUP), token_for(orders.queue_id)
    ensure_group(group, starting="earliest")
    claim(group, Ranges.parse("0-1"), token=lambda: token, length=LEASE)
    clock.advance(LEASE + timedelta(seconds=1))
    look(watcher)
    before = watcher.fleet().known["dead"].snapshot.dead_letters

    publish(orders, make_pending([1]), batch=once_of(dead.queue_id, token))
    look(watcher)

    assert (before, watcher.fleet().known["dead"].snapshot.dead_letters) == (3, 2)


def test_it_sends_no_serial_read_and_no_change():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    make_busy_queue(memory)
    client = Client.from_store(memory)
    client.create_queue("mail", partitions=2)
    client.put_many("mail", [b"x"] * 6, delay=timedelta(hours=1))
    client.create_queue("letters")
    client.put_many("letters", [b"x"] * 6)
    client.release(*client.receive("letters", "h", max=1), delay=timedelta(hours=1))
    watcher = watcher_of(store, clock)

    look(watcher)
    watcher.history_with_blocks(watcher.read("orders"))
    watcher.read("mail")

    assert (store.serial_read_count, store.cas_count) == (0, 0)
    assert store.read_count > 0


def test_a_thousand_idle_queues_cost_three_scans_and_a_read():
    memory, clock = make_clocked_store()
    many_queues(memory, 1_000)
    store = CountingStore(memory)
    watcher = watcher_of(store, clock)
    look(watcher)
    assert len(watcher.fleet().known) == 1_000
    store.reset()
    create_queue(memory, "new")

    look(watcher)

    # The clock of the survey, and the new queue's head.
    assert (store.read_count, store.scan_count) == (2, 3)
    assert len(watcher.fleet().known) == 1_001


def test_a_queue_in_which_something_happened_costs_two_reads():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    make_busy_queue(memory)
    watcher = watcher_of(store, clock)

    look(watcher)

    # The clock of the survey, the ledger's head, and the age of the oldest message.
    assert (store.read_count, store.scan_count) == (3, 3)


def test_what_is_published_and_leased_during_a_survey_is_not_taken_for_settled_or_owed_twice():
    memory, clock = make_clocked_store()
    client = Client.from_store(memory)
    client.create_queue("mail", max_deliveries=0)
    client.put_many("mail", [b"x"] * 5)
    client.ack(*client.receive("mail", "g", max=5))

    class Meanwhile(WrappedStore):
        def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
            yield from super().scan(table, kinds)
            if table is Table.LEDGER:
                client.put_many("mail", [b"y"] * 7)
                client.receive("mail", "g", max=7)

    watcher = watcher_of(Meanwhile(memory), clock)

    look(watcher)

    snapshot = watcher.fleet().known["mail"].snapshot
    assert settled(snapshot, snapshot.stats.groups[0]) == 5


def test_queues_on_a_page_are_read_in_full_even_if_nothing_has_changed(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, watcher = clocked
    make_busy_queue(store)
    create_queue(store, "idle")
    look(watcher)
    watcher.show(["idle"])
    clock.advance(timedelta(seconds=5))

    watcher.round()

    assert watcher.fleet().known["idle"].at == clock()


def test_no_more_than_five_hundred_queues_count_as_looked_at():
    watcher = watcher_of(MemoryStore())

    watcher.show(f"q{number}" for number in range(2000))
    watcher.show(f"r{number}" for number in range(100))

    assert len(watcher._on_pages) == 500
    assert "r99" in watcher._on_pages


def test_what_one_queue_fails_with_hides_no_other(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, _ = clocked
    make_busy_queue(store)
    queue = make_busy_queue(store, "mail")
    ailing = AilingStore(store)
    ailing.broken[queue.queue_id] = NotAppliedError("two of three replicas are down")
    watcher = watcher_of(ailing, clock)

    look(watcher)

    fleet = watcher.fleet()
    assert str(fleet.errors["mail"]) == "two of three replicas are down"
    assert fleet.known.keys() == {"orders"}
    ailing.broken.clear()
    look(watcher)
    assert watcher.fleet().errors == {}


def test_what_could_not_be_read_is_read_at_the_next_survey(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, _ = clocked
    ailing, client = AilingStore(store), Client.from_store(store)
    queue = client.create_queue("quiet")
    watcher = watcher_of(ailing, clock)
    look(watcher)
    client.put("quiet", "a message")
    ailing.broken[queue.queue_id] = NotAppliedError("slow for a moment")
    look(watcher)
    assert "slow for a moment" in str(watcher.fleet().errors["quiet"])
    ailing.broken.clear()

    look(watcher)

    assert watcher.fleet().errors == {}
    assert watcher.fleet().known["quiet"].snapshot.stats.next == 1


def test_while_cassandra_is_away_the_last_figures_stay(
    clocked: tuple[MemoryStore, FakeClock, Watcher],
):
    store, clock, _ = clocked
    make_busy_queue(store)
    ailing = AilingStore(store)
    watcher = watcher_of(ailing, clock)
    look(watcher)
    ailing.away = ConnectError("no node answers")

    look(watcher)

    fleet = watcher.fleet()
    assert str(fleet.away) == "no node answers"
    assert fleet.known.keys() == {"orders"}
    ailing.away = None
    look(watcher)
    assert watcher.fleet().away is None


def test_a_queue_that_is_gone_is_forgotten(clocked: tuple[MemoryStore, FakeClock, Watcher]):
    store, _, watcher = clocked
    make_busy_queue(store)
    look(watcher)
    delete_queue(store, "orders", force=True)

    look(watcher)

    assert watcher.fleet().known == {}
    assert watcher.history("orders") is None
    with pytest.raises(QueueStateError, match="there is no queue 'orders'"):
        watcher.read("orders")


def test_a_purge_begins_another_history(clocked: tuple[MemoryStore, FakeClock, Watcher]):
    store, clock, watcher = clocked
    make_busy_queue(store)
    look(watcher)
    purge_queue(store, "orders", force=True)
    clock.advance(timedelta(seconds=5))

    look(watcher)

    history = watcher.history("orders")
    assert history is not None
    assert history.queue_id == "orders@2"
    assert history.published.last == 0


def test_a_full_reading_serves_everybody_for_a_second():
    memory, clock = make_clocked_store()
    store = CountingStore(memory)
    make_busy_queue(memory)
    watcher = watcher_of(store, clock)
    watcher.read("orders")
    store.reset()

    watcher.read("orders")
    assert store.read_count == 0
    clock.advance(timedelta(seconds=1))
    watcher.read("orders")
    assert store.read_count == 1 + 2 + 5


def test_one_that_may_rest_rests_when_nobody_has_asked_for_long():
    store, clock = make_clocked_store()
    watcher = Watcher(store, rest_after=timedelta(hours=1), clock=clock)
    assert watcher._is_wanted()

    clock.advance(timedelta(hours=1))
    assert not watcher._is_wanted()
    watcher.fleet()

    assert watcher._is_wanted()


def test_its_thread_reads_until_it_is_closed():
    store = MemoryStore()
    make_busy_queue(store)
    watcher = Watcher(store)
    watcher.start()

    watcher.show(["orders"], wait=PATIENCE)

    assert watcher.fleet().known.keys() == {"orders"}
    watcher.close()
    assert watcher._thread is not None
    assert not watcher._thread.is_alive()


def test_who_waits_for_a_first_page_waits_for_the_first_survey_too():
    store = MemoryStore()
    make_busy_queue(store)
    watcher = watcher_of(store)
    waiting = threading.Thread(target=watcher.show, args=([],), kwargs={"wait": PATIENCE})
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()

    look(watcher)

    waiting.join(PATIENCE.total_seconds() / 2)
    assert not waiting.is_alive()


def test_nobody_waits_for_figures_of_a_queue_that_is_being_purged():
    scene = Scene()
    with scene.broken_off(before_call=8):
        purge_queue(scene.store, "q", force=True)
    assert scene.record.status is Status.PURGING
    watcher = watcher_of(scene.store)
    look(watcher)
    begun = time.monotonic()

    watcher.show(["q"], wait=PATIENCE)

    assert time.monotonic() - begun < PATIENCE.total_seconds()
    assert watcher.fleet().known == {}


def test_reads_are_held_up_that_come_too_fast():
    now = [0.0]
    pace = Pace(10, at_once=2, clock=lambda: now[0])
    pace.take()
    pace.take()

    assert pace._try() == pytest.approx(0.1)
    now[0] += 0.1
    assert pace._try() == 0.0
    assert pace._try() == pytest.approx(0.1)
    pace.end()
    pace.take()


def test_no_half_minute_has_more_reads_than_the_most_even_after_a_quiet_time():
    now = [0.0]
    pace = Pace(10, at_once=40, clock=lambda: now[0])
    loads = []
    while now[0] < 100:
        if pace._try() > 0:
            now[0] += 0.05
        loads.append(pace.load)

    assert max(loads) == pytest.approx(10)
    assert loads[-1] == pytest.approx(10)


def test_reads_of_pages_are_told_apart_from_those_of_the_background():
    now = [100.0]
    watcher = Watcher(MemoryStore())
    watcher.looking.pace = Pace(clock=lambda: now[0])
    for _ in range(60):
        watcher.looking.pace.take()

    now[0] = 101.0
    fleet = watcher.fleet()

    assert (fleet.load, fleet.page_load) == (0.0, 2.0)


def test_the_load_is_that_of_the_last_half_minute():
    now = [100.0]
    pace = Pace(clock=lambda: now[0])
    for _ in range(60):
        pace.take()

    now[0] = 101.0
    assert pace.load == 2.0
    now[0] = 140.0
    assert pace.load == 0.0


def test_a_store_for_looking_refuses_every_change():
    store = LookingStore(MemoryStore(), Pace())
    queue = make_busy_queue(MemoryStore())
    group = ConsumerGroup(Ledger(store, queue.queue_id), "g")
    for change in (
        lambda: create_queue(store, "q"),
        lambda: group.ledger.cas([]),
        lambda: group.cas([]),
        lambda: store.write_row(None, (), {}, timestamp=1, ttl=LEASE),
        lambda: store.delete_row(None, (), timestamp=1),
        lambda: store.write_chunks(queue.queue_id, None, []),
        lambda: store.delete_buckets(queue.queue_id, []),
    ):
        with pytest.raises(OptionError, match="--allow-changes"):
            change()
