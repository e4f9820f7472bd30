from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cassieq_spark.model import QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_ledger
from cassieq_spark.testing.stores import CountingStore

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
