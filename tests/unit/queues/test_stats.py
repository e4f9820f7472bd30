from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.queues import stats
from cassieq_spark.queues.stats import GroupStats, backlog_of, queue_stats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
    register_half,
)

SECOND = timedelta(seconds=1)


def test_a_queue_without_groups_has_only_its_ends():
    store = MemoryStore()
    queue_id = make_queue(store, [5, 4]).queue_id
    Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 2)

    stats = queue_stats(Ledger(store, queue_id))

    assert (stats.queue_id, stats.finalised, stats.next, stats.groups) == (queue_id, 2, 9, ())


def test_every_message_owed_is_counted_once_where_it_is():
    store, clock = make_clocked_store()
    queue_id = make_queue(store, [10]).queue_id
    clock.advance(SECOND)
    publish(Ledger(store, queue_id), make_pending([90]))
    group = make_group(store, queue_id)
    done = group.lease(make_request(stop=100, max_messages=3)).token
    group.lease(make_request(held=done, stop=100, max_messages=12))  # [3, 15)
    clock.advance(LEASE + SECOND)
    group.lease(make_request(stop=100, max_messages=5))  # [3, 8), rest waits
    group.lease(make_request(stop=100, max_messages=4, prefer_fresh=True))  # [15, 19)

    (stats,) = queue_stats(Ledger(store, queue_id)).groups

    assert stats == GroupStats(
        group="g",
        depth=97,
        leased=9,
        due=7,
        waiting=0,
        dead=0,
        oldest_age=LEASE + 2 * SECOND,
        pointer=19,
        floor=3,
    )


@pytest.mark.parametrize("ahead", [SECOND, -SECOND])
def test_where_messages_stand_is_what_is_counted(ahead: timedelta):
    store, clock = make_clocked_store()
    ledger = Ledger(store, make_queue(store, [60]).queue_id)
    at = clock() + timedelta(minutes=5)
    publish(ledger, [replace(each, visible=at) for each in make_pending([20])])
    publish(ledger, make_pending([20]))
    group = make_group(store, ledger.queue_id)
    lease = group.lease(make_request(stop=100, max_messages=30))
    group.settle(
        lease.token,
        Settlement(
            acked=Ranges.parse("0-3"),
            released={LEASE / 2: Ranges.parse("5-7"), 9 * LEASE: Ranges.parse("9-12")},
            rejected={"bad": Ranges.parse("20-22")},
        ),
    )
    clock.advance(LEASE - ahead)
    group.lease(make_request(stop=100, max_messages=15, prefer_fresh=True))

    (counted,) = queue_stats(ledger).groups
    found = backlog_of(ledger, read_group_states(ledger)["g"], ledger.read_head())

    kinds = (found.leased, found.due, found.waiting, found.dead, found.fresh)
    assert (counted.leased, counted.due, counted.waiting, counted.dead) == tuple(
        each.count for each in kinds[:4]
    )
    assert min(each.count for each in (found.leased, found.waiting, found.dead, found.fresh)) > 0
    assert Ranges.union(kinds).count == sum(each.count for each in kinds) == counted.depth
    assert found.stop == 100


def test_a_lease_that_ran_out_is_due():
    store, clock = make_clocked_store()
    queue_id = make_queue(store, [10]).queue_id
    make_group(store, queue_id).lease(make_request(stop=10))

    clock.advance(LEASE)
    assert queue_stats(Ledger(store, queue_id)).groups[0].leased == 10
    clock.advance(timedelta(milliseconds=1))
    assert queue_stats(Ledger(store, queue_id)).groups[0].due == 10


def test_a_group_that_has_everything_done_owes_nothing():
    store = MemoryStore()
    queue_id = make_queue(store, [10]).queue_id
    group = make_group(store, queue_id)
    done = group.lease(make_request(stop=10)).token
    group.lease(make_request(held=done, stop=10))

    (stats,) = queue_stats(Ledger(store, queue_id)).groups

    assert (stats.depth, stats.oldest_age, stats.floor) == (0, None, 10)


def test_a_group_registered_only_half_is_owed_everything_from_its_start():
    store, clock = make_clocked_store()
    queue_id = make_queue(store, [10]).queue_id
    register_half(Ledger(store, queue_id), "half")
    clock.advance(SECOND)

    (group,) = queue_stats(Ledger(store, queue_id)).groups

    assert (group.group, group.depth, group.pointer, group.oldest_age) == ("half", 10, 0, SECOND)


def test_of_very_many_delayed_blocks_the_first_ones_are_looked_at_and_the_rest_is_told(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(stats, "BLOCKS_EXAMINED", 3)
    memory, clock = make_clocked_store()
    queue_id = make_queue(memory, [2]).queue_id
    make_group(memory, queue_id)
    later = [replace(each, visible=LEASE) for each in make_pending([1] * 9, clock.now)]
    publish(Ledger(memory, queue_id), later)
    publish(Ledger(memory, queue_id), make_pending([5]))
    store = CountingStore(memory)

    (group,) = queue_stats(Ledger(store, queue_id)).groups

    # The block that the pointer is in, and three more.
    assert (group.depth, group.waiting, group.unexamined) == (2 + 9 + 5, 3, 6)
    assert group.oldest_age == timedelta(0)
    assert store.read_count + store.serial_read_count <= 9


def test_a_repair_that_deletes_meanwhile_what_was_owed_does_no_harm():
    memory, _ = make_clocked_store()
    store = FaultyStore(memory)
    queue_id = make_queue(store, [10]).queue_id
    make_group(store, queue_id)

    def settle_and_repair() -> None:
        Ledger(memory, queue_id).finalise(Ledger(memory, queue_id).read_head(), 10)
        Ledger(memory, queue_id).trim(finalised=10, below=10)

    store.interrupt(settle_and_repair, after=5)

    (group,) = queue_stats(Ledger(store, queue_id)).groups

    assert (group.depth, group.oldest_age) == (10, None)


@pytest.mark.parametrize("after", range(12))
def test_what_is_settled_and_trimmed_while_it_is_counted_is_no_hole(after: int):
    memory, clock = make_clocked_store()
    store = FaultyStore(memory)
    queue_id = make_queue(memory, [4, 4]).queue_id
    publish(Ledger(memory, queue_id), [replace(make_pending([2])[0], visible=LEASE)])
    group = make_group(memory, queue_id)
    clock.advance(2 * LEASE)

    def settle_and_repair() -> None:
        done = group.lease(make_request(stop=10, delayed_stop=10)).token
        group.lease(make_request(held=done, stop=10, delayed_stop=10))
        Ledger(memory, queue_id).finalise(Ledger(memory, queue_id).read_head(), 8)
        Ledger(memory, queue_id).trim(finalised=8, below=8)

    store.interrupt(settle_and_repair, after=after)

    stats = queue_stats(Ledger(store, queue_id))

    assert (stats.next, stats.groups[0].pointer) in {(10, 0), (10, 10)}


def test_a_queue_that_is_not_there_is_said_so():
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        queue_stats(Ledger(MemoryStore(), QueueId("q@1")))
