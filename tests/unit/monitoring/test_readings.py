from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.errors import ConnectError, StoreError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.monitoring.readings import Readings, aged
from cassieq_spark.monitoring.snapshot import QueueSnapshot, Snapshot
from cassieq_spark.queues import alter_queue, create_queue, delete_queue, pause_queue
from cassieq_spark.schedules import create_schedule
from cassieq_spark.store.protocol import Row, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import FakeClock, make_clocked_store, make_pending
from tests.support.snapshots import read_snapshot
from tests.unit.monitoring.watched import AilingStore, make_busy_queue

A_MINUTE = timedelta(minutes=1)
#: More than are read one by one.
QUEUES = [f"q{number:02d}" for number in range(24)]


def figures(snapshot: Snapshot) -> list[object]:
    """All that it tells, but for the moment."""

    def timeless(each: QueueSnapshot) -> QueueSnapshot:
        return replace(each, read_at=0.0, partitions=tuple(map(timeless, each.partitions)))

    return list(map(timeless, snapshot.queues))


def make_queues(store: Store) -> None:
    for number, name in enumerate(QUEUES):
        create_queue(store, name, partitions=3 if number == 1 else 1)


def test_a_queue_that_no_group_reads_costs_no_read_of_its_own():
    store = CountingStore(make_clocked_store()[0])
    make_queues(store)
    publish(Ledger(store, create_queue(store, "full").queue_id), make_pending([4]))
    store.reset()

    found = Readings(store).read()

    assert figures(found) == figures(read_snapshot(store))
    assert found.queues[0].stats.next == 4
    store.reset()
    Readings(store).read()
    assert (store.read_count, store.scan_count, store.cas_count) == (1, 3, 0)


def test_a_queue_in_which_nothing_happens_is_not_read_again_and_gets_older():
    inner, clock = make_clocked_store()
    store = CountingStore(inner)
    make_queues(store)
    with Client.from_store(store) as client:
        client.put_many(QUEUES[0], ["a", "b"])
        client.ack(*client.receive(QUEUES[0], "g", max=1))
    readings = Readings(store)
    readings.read()
    store.reset()
    clock.advance(timedelta(minutes=5))

    found = readings.read()

    assert store.read_count == 1
    assert figures(found) == figures(read_snapshot(store))
    (group,) = found.queues[0].stats.groups
    assert group.oldest_age is not None
    assert group.oldest_age >= timedelta(minutes=5)


def test_a_lease_that_runs_out_is_seen_although_nothing_was_written():
    store, clock = make_clocked_store()
    make_queues(store)
    make_busy_queue(store)
    readings = Readings(store)
    before = readings.read()
    clock.advance(timedelta(minutes=5))

    after = readings.read()

    assert before.queues[0].leases == {"g": 1}
    assert after.queues[0].leases == {"g": 0}
    assert figures(after) == figures(read_snapshot(store))


ACTIONS: list[Callable[[Client, str, FakeClock], object]] = [
    lambda client, queue, _: client.put_many(queue, ["a", "b", "c"]),
    lambda client, queue, _: client.put(queue, "later", delay=timedelta(seconds=30)),
    lambda client, queue, _: client.receive(queue, "g", max=2),
    lambda client, queue, _: client.ack(*client.receive(queue, "g", max=2)),
    lambda client, queue, _: client.release(*client.receive(queue, "h", max=1)),
    lambda client, queue, _: pause_queue(client._store, queue),
    lambda _client, _queue, clock: clock.advance(timedelta(seconds=45)),
    # The figures change without a change of ledger or group.
    lambda client, queue, _: alter_queue(client._store, queue, max_deliveries=1),
    lambda client, queue, _: alter_queue(
        client._store, queue, max_deliveries=1, dead_letter_queue=QUEUES[4]
    ),
]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(QUEUES[:3])), max_size=12))
def test_readings_say_what_reading_everything_says(steps):
    store, clock = make_clocked_store()
    make_queues(store)
    readings = Readings(store)
    with Client.from_store(store) as client:
        for act, queue in steps:
            act(client, queue, clock)
            assert figures(readings.read()) == figures(read_snapshot(store))


def test_dead_letters_are_counted_once_a_queue_names_where_they_are():
    store, _ = make_clocked_store()
    make_queues(store)
    publish(Ledger(store, create_queue(store, "dead").queue_id), make_pending([2]))
    readings = Readings(store)
    readings.read()

    create_queue(store, "orders", max_deliveries=1, dead_letter_queue="dead")

    assert figures(readings.read()) == figures(read_snapshot(store))


def test_of_several_partitions_the_fence_that_is_furthest_ahead_counts():
    store, _ = make_clocked_store()
    queue = create_queue(store, "orders", partitions=4)
    ledger = Ledger(store, queue.by_partition[2].queue_id)
    ahead = datetime(2100, 1, 1, tzinfo=UTC)
    ledger.raise_fence(ledger.read_head(), ahead)

    assert read_snapshot(store).queues[0].fence == ahead


def test_queues_come_and_go():
    store, _ = make_clocked_store()
    make_queues(store)
    readings = Readings(store)
    readings.read()
    delete_queue(store, QUEUES[5])
    create_queue(store, "new")

    names = [each.name for each in readings.read().queues]

    assert names == sorted({*QUEUES, "new"} - {QUEUES[5]})


def test_few_queues_are_read_one_by_one_without_a_scan():
    store = CountingStore(make_clocked_store()[0])
    make_queues(store)
    store.reset()

    found = Readings(store, [QUEUES[3], QUEUES[1]]).read()

    assert [each.name for each in found.queues] == [QUEUES[1], QUEUES[3]]
    # The table of queues.
    assert store.scan_count == 1


def test_schedules_cost_a_read_for_each_partition_that_has_some():
    store = CountingStore(make_clocked_store()[0])
    create_queue(store, "wide", partitions=4)
    reads = []
    for key in (
        "hello",
        "hello",
        "hello, world",
        "order-1",
    ):  # The first three are in partition 3.
        store.reset()
        found = Readings(store).read()
        reads.append(store.read_count)
        create_schedule(store, "wide", f"s{len(reads)}", "{}", key=key, every=A_MINUTE)

    assert len(found.schedules) == 3
    assert [each - reads[0] for each in reads] == [0, 1, 1, 1]
    store.reset()
    assert len(Readings(store).read().schedules) == 4
    assert store.read_count == reads[0] + 2


def test_where_the_survey_fails_each_queue_is_read_by_itself(caplog: pytest.LogCaptureFixture):
    class Unscannable(CountingStore):
        def scan(self, table: Table, kinds=()) -> list[Row]:
            if table is Table.LEDGER:
                raise StoreError("a row cannot be decoded")
            return list(super().scan(table, kinds))

    store = Unscannable(make_clocked_store()[0])
    make_queues(store)

    assert figures(Readings(store).read()) == figures(read_snapshot(store))
    assert [each.action for each in caplog.records] == ["metrics.survey_failed"]


def test_an_outage_is_no_error_of_a_queue():
    store = AilingStore(make_clocked_store()[0])
    make_queues(store)
    readings = Readings(store)
    readings.read()
    store.away = ConnectError("no node answers")

    with pytest.raises(ConnectError):
        readings.read()


def test_a_queue_that_fails_does_not_hide_the_others():
    inner = make_clocked_store()[0]
    store = AilingStore(inner)
    make_queues(store)
    queue = make_busy_queue(store)
    store.broken[queue.queue_id] = StoreError("a row cannot be decoded")

    found = Readings(store).read()

    assert set(found.errors) == {"orders"}
    assert len(found.queues) == len(QUEUES)


def test_figures_that_are_older_differ_in_ages_only():
    store, _ = make_clocked_store()
    make_busy_queue(store)
    (before,) = read_snapshot(store).queues

    after = aged(before, timedelta(seconds=7))

    (old,), (new,) = before.stats.groups, after.stats.groups
    assert old.oldest_age is not None
    assert new == replace(old, oldest_age=old.oldest_age + timedelta(seconds=7))
