from __future__ import annotations

import pytest

from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.conformance import StoreContract

pytestmark = pytest.mark.cassandra


class TestCassandraStore(StoreContract):
    @pytest.fixture
    def store(self, cassandra_store: Store) -> Store:
        return cassandra_store
