from __future__ import annotations

import pytest

from cassieq_spark.errors import NotAppliedError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import FOR_EVER, close_ledger, open_next, set_paused
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import LedgerStatus, check_open
from cassieq_spark.model import QueueId, SinkBatch
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import last_batch, make_group, make_pending, make_queue

OLD, NEW = QueueId("q@1"), QueueId("q@2")


def test_a_closed_ledger_has_a_final_end_and_stays_closed_as_it_is():
    store = CountingStore(MemoryStore())
    make_queue(store, [5])

    head = close_ledger(Ledger(store, OLD), LedgerStatus.PURGED, bucket_size=8)
    store.reset()

    assert (head.status, head.next, head.fence, head.bucket_size) == (
        LedgerStatus.PURGED,
        5,
        FOR_EVER,
        8,
    )
    assert close_ledger(Ledger(store, OLD), LedgerStatus.DELETED, bucket_size=16) == head
    assert (store.cas_count, store.serial_read_count) == (0, 1)
    with pytest.raises(QueueStateError, match="was purged"):
        publish(Ledger(store, OLD), make_pending([1]))


def test_a_ledger_that_is_not_there_is_closed_before_anybody_opens_it():
    store = MemoryStore()

    close_ledger(Ledger(store, NEW), LedgerStatus.DELETED, bucket_size=8)

    assert not Ledger(store, NEW).create()
    with pytest.raises(QueueStateError, match="was deleted"):
        check_open(NEW, Ledger(store, NEW).read_head())


def test_a_repair_that_has_read_the_head_before_neither_finalises_nor_moves_the_fence():
    store = MemoryStore()
    make_queue(store, [5])
    before = Ledger(store, OLD).read_head()
    close_ledger(Ledger(store, OLD), LedgerStatus.PURGED, bucket_size=8)

    assert not Ledger(store, OLD).finalise(before, 5)
    assert not Ledger(store, OLD).raise_fence(before, FOR_EVER.replace(year=2027))
    assert Ledger(store, OLD).read_head().fence == FOR_EVER


def test_a_ledger_that_is_not_open_yet_takes_nothing_and_then_knows_groups_and_sinks():
    store = MemoryStore()
    make_queue(store, [5])
    make_group(store, OLD, "a")
    make_group(store, OLD, "b")
    publish(Ledger(store, OLD), make_pending([1]), batch=SinkBatch("s", 3))
    close_ledger(Ledger(store, OLD), LedgerStatus.PURGED, bucket_size=8)

    for _ in range(2):
        open_next(Ledger(store, NEW), after=Ledger(store, OLD), paused=True)

    head = Ledger(store, NEW).read_head()
    assert (head.status, head.next, head.groups_version, head.paused) == (
        LedgerStatus.OPEN,
        0,
        2,
        True,
    )
    assert [(each.name, each.starts_at) for each in Ledger(store, NEW).read_groups()] == [
        ("a", 0),
        ("b", 0),
    ]
    assert last_batch(store, NEW, "s") == 3


def test_what_is_closed_is_not_opened_by_a_purge_that_comes_late():
    store = MemoryStore()
    make_queue(store)
    close_ledger(Ledger(store, OLD), LedgerStatus.PURGED, bucket_size=8)
    Ledger(store, NEW).create(status=LedgerStatus.PREPARED)
    close_ledger(Ledger(store, NEW), LedgerStatus.DELETED, bucket_size=8)

    open_next(Ledger(store, NEW), after=Ledger(store, OLD), paused=False)

    assert Ledger(store, NEW).read_head().status is LedgerStatus.DELETED


def test_while_readers_pause_nothing_is_offered():
    store = MemoryStore()
    make_queue(store, [5])
    set_paused(Ledger(store, OLD), paused=True)

    head = Ledger(store, OLD).read_head()
    assert (head.offered_below(), head.next) == (0, 5)

    set_paused(Ledger(store, OLD), paused=False)
    assert Ledger(store, OLD).read_head().offered_below() == 5


@pytest.mark.parametrize("fault", Fault)
def test_closing_resolves_a_lost_answer(fault: Fault):
    store = FaultyStore(MemoryStore())
    make_queue(store, [5])
    store.fault = fault

    assert close_ledger(Ledger(store, OLD), LedgerStatus.DELETED, bucket_size=8).is_closed
    store.arrive()

    assert Ledger(store, OLD).read_head().status is LedgerStatus.DELETED


def test_a_write_that_is_only_too_slow_is_told_so():
    store = MemoryStore()
    make_queue(store)
    pending = make_pending([1])
    Ledger(store, OLD).raise_fence(Ledger(store, OLD).read_head(), FOR_EVER.replace(year=2027))

    with pytest.raises(NotAppliedError, match="fence"):
        publish(Ledger(store, OLD), pending)
