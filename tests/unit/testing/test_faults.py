from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Insert,
    Partition,
    Store,
    partition_of_ledger,
    partition_of_lock,
)
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.faults import FakeClock

LEDGER = partition_of_ledger(QueueId("q@1"))
LOCK = partition_of_lock("repair")
HEAD = Insert(("head", 0, ""), {"next": 0}, if_absent=True)
TICKET = ("ticket", "1")
TTL = timedelta(seconds=9)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(FakeClock())


@pytest.fixture
def store(memory: MemoryStore) -> FaultyStore:
    return FaultyStore(memory)


def is_there(store: Store) -> bool:
    return bool(store.read_rows(LEDGER).rows)


def test_a_lost_request_is_not_applied(store: FaultyStore, memory: MemoryStore):
    store.fault = Fault.REQUEST_LOST

    with pytest.raises(OutcomeUnknownError, match="request lost"):
        store.cas(LEDGER, [HEAD])

    assert not is_there(memory)
    assert store.cas(LEDGER, [HEAD])


def test_a_lost_answer_is_applied(store: FaultyStore, memory: MemoryStore):
    store.fault = Fault.ANSWER_LOST

    with pytest.raises(OutcomeUnknownError, match="answer lost"):
        store.cas(LEDGER, [HEAD])

    assert is_there(memory)
    assert not store.cas(LEDGER, [HEAD])


def test_what_has_reached_one_replica_is_decided_and_may_be_missed(
    store: FaultyStore, memory: MemoryStore
):
    store.fault = Fault.REACHED_ONE
    with pytest.raises(OutcomeUnknownError, match="reached one"):
        store.cas(LEDGER, [HEAD])
    store.replicas.draw("s")

    assert is_there(memory)
    assert not is_there(store)
    assert (store.troubles, store.torn, store.unrest) == (1, 1, 2)
    assert not store.cas(LEDGER, [HEAD])
    assert is_there(store)


def test_others_may_act_before_the_answer_comes(store: FaultyStore):
    seen: list[bool] = []
    store.replicas.draw("s")
    store.interrupt(lambda: seen.append(is_there(store)), after=1, bit_by_bit=True)

    assert store.cas(LEDGER, [HEAD])

    assert seen == [False]
    assert is_there(store)


def test_a_late_request_is_applied_when_it_arrives(store: FaultyStore, memory: MemoryStore):
    store.fault = Fault.REQUEST_LATE
    with pytest.raises(OutcomeUnknownError, match="request late"):
        store.cas(LEDGER, [HEAD])
    assert not is_there(memory)

    store.arrive()

    assert is_there(memory)
    assert (store.late, store.delayed, store.troubles) == ([], 1, 1)


def test_writes_and_deletions_of_rows_are_struck_too(store: FaultyStore, memory: MemoryStore):
    store.fault = Fault.REQUEST_LATE
    with pytest.raises(OutcomeUnknownError):
        store.write_row(LOCK, TICKET, {"owner": "me"}, timestamp=1, ttl=TTL)
    store.fault = Fault.REQUEST_LOST
    with pytest.raises(OutcomeUnknownError):
        store.delete_row(LOCK, TICKET, timestamp=2)

    store.arrive()

    assert len(memory.read_rows(LOCK).rows) == 1


def test_a_lasting_fault_strikes_until_calm(store: FaultyStore):
    store.fault, store.lasting = Fault.REQUEST_LOST, True

    for _ in range(3):
        with pytest.raises(OutcomeUnknownError):
            store.cas(LEDGER, [HEAD])
    store.calm()

    assert store.cas(LEDGER, [HEAD])


def test_an_interruption_comes_once_just_before_a_call(store: FaultyStore, memory: MemoryStore):
    seen: list[bool] = []
    store.interrupt(lambda: seen.append(is_there(memory)), after=1)

    store.read_rows(LEDGER)
    assert seen == []
    store.cas(LEDGER, [HEAD])
    store.read_rows(LEDGER)

    assert seen == [False]
    assert store.troubles == 1


def test_those_who_watch_are_told_of_what_was_applied(memory: MemoryStore):
    seen: list[Partition] = []
    store = FaultyStore(memory, seen.append)

    store.cas(LEDGER, [HEAD])
    store.cas(LEDGER, [HEAD])

    assert seen == [LEDGER]
