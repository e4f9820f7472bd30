from __future__ import annotations

import pytest

from cassieq_spark.errors import NotAppliedError, QueueStateError
from cassieq_spark.ledger.finalise import finalise, raise_fence
from cassieq_spark.ledger.gate import FOR_EVER, close_ledger, open_next, set_paused
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import open_ledger, read_groups, read_head, read_last_batch
from cassieq_spark.ledger.state import Gate, check_open
from cassieq_spark.model import QueueId, SinkBatch
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_group, make_pending, make_queue

OLD, NEW = QueueId("q@1"), QueueId("q@2")


def test_a_closed_ledger_has_a_final_end_and_stays_closed_as_it_is():
    store = CountingStore(MemoryStore())
    make_queue(store, [5])

    head = close_ledger(store, OLD, Gate.PURGED, bucket_size=8)
    store.reset()

    assert (head.gate, head.next, head.fence, head.bucket_size) == (Gate.PURGED, 5, FOR_EVER, 8)
    assert close_ledger(store, OLD, Gate.DELETED, bucket_size=16) == head
    assert (store.cas_count, store.serial_read_count) == (0, 1)
    with pytest.raises(QueueStateError, match="was purged"):
        publish(store, OLD, make_pending([1]))


def test_a_ledger_that_is_not_there_is_closed_before_anybody_opens_it():
    store = MemoryStore()

    close_ledger(store, NEW, Gate.DELETED, bucket_size=8)

    assert not open_ledger(store, NEW)
    with pytest.raises(QueueStateError, match="was deleted"):
        check_open(NEW, read_head(store, NEW))


def test_a_repair_that_has_read_the_head_before_neither_finalises_nor_moves_the_fence():
    store = MemoryStore()
    make_queue(store, [5])
    before = read_head(store, OLD)
    close_ledger(store, OLD, Gate.PURGED, bucket_size=8)

    assert not finalise(store, OLD, before, 5)
    assert not raise_fence(store, OLD, before, FOR_EVER.replace(year=2027))
    assert read_head(store, OLD).fence == FOR_EVER


def test_a_ledger_that_is_not_open_yet_takes_nothing_and_then_knows_groups_and_sinks():
    store = MemoryStore()
    make_queue(store, [5])
    make_group(store, OLD, "a")
    make_group(store, OLD, "b")
    publish(store, OLD, make_pending([1]), batch=SinkBatch("s", 3))
    close_ledger(store, OLD, Gate.PURGED, bucket_size=8)

    for _ in range(2):
        open_next(store, NEW, after=OLD, paused=True)

    head = read_head(store, NEW)
    assert (head.gate, head.next, head.groups_version, head.paused) == (Gate.OPEN, 0, 2, True)
    assert [(each.name, each.starts_at) for each in read_groups(store, NEW)] == [
        ("a", 0),
        ("b", 0),
    ]
    assert read_last_batch(store, NEW, "s") == 3


def test_what_is_closed_is_not_opened_by_a_purge_that_comes_late():
    store = MemoryStore()
    make_queue(store)
    close_ledger(store, OLD, Gate.PURGED, bucket_size=8)
    open_ledger(store, NEW, gate=Gate.PREPARED)
    close_ledger(store, NEW, Gate.DELETED, bucket_size=8)

    open_next(store, NEW, after=OLD, paused=False)

    assert read_head(store, NEW).gate is Gate.DELETED


def test_while_readers_pause_nothing_is_offered():
    store = MemoryStore()
    make_queue(store, [5])
    set_paused(store, OLD, paused=True)

    assert (read_head(store, OLD).offered_stop, read_head(store, OLD).next) == (0, 5)

    set_paused(store, OLD, paused=False)
    assert read_head(store, OLD).offered_stop == 5


@pytest.mark.parametrize("fault", Fault)
def test_closing_resolves_a_lost_answer(fault: Fault):
    store = FaultyStore(MemoryStore())
    make_queue(store, [5])
    store.fault = fault

    assert close_ledger(store, OLD, Gate.DELETED, bucket_size=8).is_closed
    store.arrive()

    assert read_head(store, OLD).gate is Gate.DELETED


def test_a_write_that_is_only_too_slow_is_told_so():
    store = MemoryStore()
    make_queue(store)
    pending = make_pending([1])
    raise_fence(store, OLD, read_head(store, OLD), FOR_EVER.replace(year=2027))

    with pytest.raises(NotAppliedError, match="fence"):
        publish(store, OLD, pending)
