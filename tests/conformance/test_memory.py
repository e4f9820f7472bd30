from __future__ import annotations

import pytest

from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.conformance import StoreContract
from cassieq_spark.testing.tearing import TearingStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestTearingStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return TearingStore(MemoryStore())
