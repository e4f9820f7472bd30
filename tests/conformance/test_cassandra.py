from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cassieq_spark.node import Cluster, Release
from cassieq_spark.settings.connection import PROTOCOL_VERSIONS, ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra import store as store_module
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.conformance import StoreContract

pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="session", params=PROTOCOL_VERSIONS, ids="protocol {}".format)
def store_of_protocol(
    request: pytest.FixtureRequest, connection: ConnectionOptions
) -> Iterator[Store]:
    store = open_store(replace(connection, protocol_version=request.param))
    yield store
    store.close()


@pytest.fixture(scope="session")
def store_on_4_1() -> Iterator[Store]:
    with Cluster(release=Release.V4_1) as cluster:
        options = ConnectionOptions(
            contact_points=tuple(cluster.contact_points), port=cluster.port
        )
        apply_schema(options, "1")
        store = CassandraStore(options)
        (host,) = store._session.driver.cluster.metadata.all_hosts()
        assert host.release_version == Release.V4_1.version
        yield store
        store.close()


class CassandraContract(StoreContract):
    @pytest.fixture
    def few_rows_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "_PAGE_ROWS", 2)


class TestCassandraStore(CassandraContract):
    @pytest.fixture
    def store(self, store_of_protocol: Store) -> Store:
        return store_of_protocol


class TestCassandraStoreOn41(CassandraContract):
    @pytest.fixture
    def store(self, store_on_4_1: Store) -> Store:
        return store_on_4_1
