from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid1, uuid4

import pytest

from cassieq_spark.errors import ConnectError, MissingSchemaError, NotAppliedError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Insert, Store, partition_of_ledger
from cassieq_spark.store.tables import Table

QUEUE = QueueId("q@1")
LEDGER = partition_of_ledger(QUEUE)
BLOCK = uuid1()
CALLS: dict[str, Callable[[Store], object]] = {
    "cas": lambda store: store.cas(LEDGER, [Insert(("head", 0, ""), {}, if_absent=True)]),
    "read": lambda store: store.read_rows(LEDGER),
    "serial read": lambda store: store.read_rows(LEDGER, serial=True),
    "write": lambda store: store.write_chunks(QUEUE, BLOCK, [Chunk(0, 0, 1, b"")]),
    "read of chunks": lambda store: list(store.read_chunks(QUEUE, [BucketSlice(BLOCK, 0, 0, 1)])),
    "delete": lambda store: store.delete_buckets(QUEUE, [(BLOCK, 0)]),
    "scan": lambda store: list(store.scan(Table.CHUNK)),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(scope="module")
def without_tables(connection: ConnectionOptions) -> ConnectionOptions:
    options = replace(connection, keyspace=f"cassieq_test_{uuid4().hex[:12]}")
    cluster, session = connect(options)
    session.execute(
        f"CREATE KEYSPACE {options.keyspace} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    cluster.shutdown()
    return options


@pytest.fixture(scope="module")
def without_quorum(connection: ConnectionOptions) -> ConnectionOptions:
    options = replace(
        connection,
        keyspace=f"cassieq_test_{uuid4().hex[:12]}",
        patience=timedelta(milliseconds=100),
    )
    apply_schema(options, {"SimpleStrategy": 3})
    return options


def test_a_cluster_that_refuses_connections_is_reported_at_once():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        begun = time.monotonic()

        with pytest.raises(ConnectError, match=rf"127.0.0.1:{port}: .*refused"):
            open_store(ConnectionOptions(port=port))

        assert time.monotonic() - begun < 5


def test_a_cluster_that_says_nothing_is_reported_within_seconds():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()

        with pytest.raises(ConnectError, match=rf"no node answers at 127.0.0.1:{port}"):
            open_store(ConnectionOptions(port=port))

        assert time.monotonic() - begun < 15


def test_a_name_that_cannot_be_resolved_is_reported():
    with pytest.raises(ConnectError, match=r"no-such-host\.invalid"):
        open_store(ConnectionOptions(contact_points=("no-such-host.invalid",)))


def test_a_wrong_data_centre_is_named(connection: ConnectionOptions):
    with pytest.raises(ConnectError, match="data centre 'elsewhere'"):
        open_store(replace(connection, local_dc="elsewhere"))


def test_a_missing_keyspace_is_reported_when_the_store_is_opened(connection: ConnectionOptions):
    with pytest.raises(MissingSchemaError, match="cassieq schema apply --keyspace nowhere"):
        open_store(replace(connection, keyspace="nowhere"))


@EVERY_CALL
def test_a_missing_table_is_reported_by_every_call(
    without_tables: ConnectionOptions, call: Callable[[Store], object]
):
    store = open_store(without_tables)

    with pytest.raises(MissingSchemaError, match="cassieq schema apply"):
        call(store)

    store.close()


# Consensus counts the replicas that exist, so here with one node of three it goes on.
@pytest.mark.parametrize("name", ["read", "write", "read of chunks", "delete", "scan"])
def test_too_few_replicas_mean_that_nothing_was_applied(
    without_quorum: ConnectionOptions, name: str
):
    store = open_store(without_quorum)

    with pytest.raises(NotAppliedError, match="Unavailable"):
        CALLS[name](store)

    store.close()
