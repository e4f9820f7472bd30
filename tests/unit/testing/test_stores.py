from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_ledger
from cassieq_spark.testing.stores import CountingStore, FaultyStore

LEDGER = partition_of_ledger(QueueId("q@1"))
HEAD = Insert(("head", 0, ""), {"next": 0}, if_absent=True)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(lambda: datetime(2026, 1, 1, tzinfo=UTC))


def test_calls_are_counted_by_what_they_cost(memory: MemoryStore):
    store = CountingStore(memory)

    store.cas(LEDGER, [HEAD])
    store.cas(LEDGER, [HEAD])
    store.read_rows(LEDGER)
    store.read_rows(LEDGER, serial=True)

    assert (store.cas_count, store.read_count, store.serial_read_count) == (2, 1, 1)
    store.reset()
    assert (store.cas_count, store.read_count, store.serial_read_count) == (0, 0, 0)


def test_a_lost_request_is_not_applied(memory: MemoryStore):
    store = FaultyStore(memory)
    store.lose_request()

    with pytest.raises(OutcomeUnknownError):
        store.cas(LEDGER, [HEAD])

    assert list(store.read_rows(LEDGER).rows) == []
    assert store.cas(LEDGER, [HEAD])


def test_a_lost_answer_is_applied(memory: MemoryStore):
    store = FaultyStore(memory)
    store.lose_answer()

    with pytest.raises(OutcomeUnknownError):
        store.cas(LEDGER, [HEAD])

    assert len(store.read_rows(LEDGER).rows) == 1
    assert not store.cas(LEDGER, [HEAD])


def test_requests_are_lost_before_answers(memory: MemoryStore):
    store = FaultyStore(memory)
    store.lose_answer()
    store.lose_request(2)

    for rows in (0, 0, 1):
        with pytest.raises(OutcomeUnknownError):
            store.cas(LEDGER, [HEAD])
        assert len(store.read_rows(LEDGER).rows) == rows


def test_a_disarmed_store_loses_nothing(memory: MemoryStore):
    store = FaultyStore(memory)
    store.lose_request()

    store.disarm()

    assert store.cas(LEDGER, [HEAD])
