from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from cassieq_spark import Client
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Op, Partition, Store
from cassieq_spark.testing.stores import CountingStore, WrappedStore

PATIENCE = 60


class GatedStore(WrappedStore):
    """Holds up compare-and-sets until it is opened."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        if not self.gate.is_set():
            self.arrived.release()
        assert self.gate.wait(PATIENCE)
        return super().cas(partition, ops)


@pytest.fixture
def gated() -> GatedStore:
    return GatedStore(MemoryStore())


@pytest.fixture
def store(gated: GatedStore) -> CountingStore:
    store = CountingStore(gated)
    with Client.from_store(store) as client:
        client.create_queue("q", max_deliveries=9)
        for group in "gh":
            client.create_group("q", group)
    store.reset()
    return store


@pytest.fixture
def sync(store: CountingStore) -> Client:
    """A client beside the gateway."""
    return Client.from_store(store)
