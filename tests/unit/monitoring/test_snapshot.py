from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.errors import ConnectError, NotAppliedError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId
from cassieq_spark.queues import create_queue, delete_queue, pause_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_pending,
    make_request,
)
from tests.support.builders import make_group as ensure_reader
from tests.support.snapshots import read_snapshot
from tests.unit.monitoring.watched import AilingStore, make_busy_queue


def test_the_figures_are_those_that_the_command_shows():
    store, _ = make_clocked_store()
    queue = make_busy_queue(store)

    (found,) = read_snapshot(store).queues

    assert (found.name, found.paused, found.dead_letters) == ("orders", False, None)
    assert found.stats == queue_stats(Ledger(store, queue.queue_id))


def test_a_lease_counts_as_a_reader_while_it_runs():
    store, clock = make_clocked_store()
    queue = make_busy_queue(store)
    ensure_reader(store, queue.queue_id).lease(make_request(stop=10, max_messages=4))

    assert read_snapshot(store).queues[0].leases == {"g": 2}
    clock.advance(LEASE + timedelta(seconds=1))
    assert read_snapshot(store).queues[0].leases == {"g": 0}


def test_all_active_queues_are_read_by_name():
    store = MemoryStore()
    for number in range(20):
        create_queue(store, f"q{number:02d}")
    delete_queue(store, "q07")

    names = [queue.name for queue in read_snapshot(store).queues]

    assert names == [f"q{number:02d}" for number in range(20) if number != 7]


def test_only_the_queues_that_are_named_are_read():
    store = MemoryStore()
    for name in ("a", "b", "c"):
        create_queue(store, name)

    assert [queue.name for queue in read_snapshot(store, ["c", "a", "c"]).queues] == ["a", "c"]


def test_a_queue_whose_readers_pause_is_marked():
    store = MemoryStore()
    create_queue(store, "q")
    pause_queue(store, "q")

    assert read_snapshot(store).queues[0].paused


def test_dead_letters_are_counted_where_they_are():
    store = MemoryStore()
    create_queue(store, "q", max_deliveries=3, dead_letter_queue="q.dead")
    publish(Ledger(store, read_queue(store, "q.dead").queue_id), make_pending([4]))

    found = {queue.name: queue.dead_letters for queue in read_snapshot(store).queues}

    assert found == {"q": None, "q.dead": 4}


def test_one_queue_that_cannot_be_read_does_not_hide_the_others():
    store = AilingStore(MemoryStore())
    for name in ("a", "b", "c"):
        create_queue(store, name)
    store.broken["b@1"] = NotAppliedError("too few replicas")

    snapshot = read_snapshot(store)

    assert [queue.name for queue in snapshot.queues] == ["a", "c"]
    assert {name: str(error) for name, error in snapshot.errors.items()} == {
        "b": "too few replicas"
    }


def test_rows_of_a_queue_that_nobody_can_make_sense_of_hide_no_other():
    store = MemoryStore()
    for name in ("a", "b"):
        make_busy_queue(store, name)
    store._rows[partition_of_ledger(QueueId("a@1"))]["head", 0, ""]["status"] = "ajar"

    snapshot = read_snapshot(store)

    assert [queue.name for queue in snapshot.queues] == ["b"]
    assert "queue_id 'a@1', kind 'head'" in str(snapshot.errors["a"])
    assert "'ajar' is not a valid LedgerStatus" in str(snapshot.errors["a"])


def test_a_queue_that_does_not_exist_is_said_so_and_the_others_are_read():
    store = MemoryStore()
    create_queue(store, "a")

    snapshot = read_snapshot(store, ["a", "nobody"])

    assert [queue.name for queue in snapshot.queues] == ["a"]
    assert isinstance(snapshot.errors["nobody"], QueueStateError)


def test_if_no_node_answers_there_is_no_snapshot():
    store = AilingStore(MemoryStore())
    for name in ("a", "b"):
        create_queue(store, name)
    store.broken["b@1"] = ConnectError("nobody answers")

    with pytest.raises(ConnectError, match="nobody answers"):
        read_snapshot(store)


def test_what_is_not_wanted_any_more_is_not_read():
    store = CountingStore(MemoryStore())
    create_queue(store, "a")
    store.reset()

    snapshot = read_snapshot(store, may_continue=lambda: False)

    assert (snapshot.queues, snapshot.errors) == ((), {})
    assert store.read_count + store.serial_read_count == 0


def test_a_reading_costs_two_reads_for_a_queue_and_five_for_a_group():
    store = CountingStore(MemoryStore())
    queue = make_busy_queue(store)
    store.reset()
    read_snapshot(store)
    with_one = store.read_count + store.serial_read_count
    ensure_reader(store, queue.queue_id, "h")
    store.reset()

    read_snapshot(store)

    assert with_one == 2 + 5
    assert store.read_count + store.serial_read_count == 2 + 2 * 5
    assert store.cas_count == 0
