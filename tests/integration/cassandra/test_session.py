from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid1, uuid4

import pytest

from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra import requests
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import Insert, Partition, Update, When, partition_of_ledger

HEAD = ("head", 0, "")
WRITERS = 8


@pytest.fixture
def own(connection: ConnectionOptions) -> ConnectionOptions:
    """Options that nobody else in this process has a session for."""
    return replace(connection, patience=connection.patience + connection.patience.resolution)


@pytest.fixture
def ledger() -> Partition:
    return partition_of_ledger(QueueId(f"{uuid4()}@1"))


def test_stores_with_equal_options_share_a_session_until_the_last_is_closed(
    own: ConnectionOptions,
):
    first, second = CassandraStore(own), CassandraStore(replace(own))
    session = first._session.driver

    assert second._session.driver is session
    first.close()
    assert not session.is_shutdown
    second.close()
    assert session.is_shutdown


def test_a_new_store_gets_a_new_session_after_the_last_was_closed(
    own: ConnectionOptions, ledger: Partition
):
    for _ in range(2):
        store = CassandraStore(own)
        assert store.read_rows(ledger).now is None
        store.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_gets_a_session_of_its_own_and_the_parent_keeps_its(
    own: ConnectionOptions, ledger: Partition
):
    store = CassandraStore(own)
    assert store.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])
    session = store._session.driver
    update = Update(HEAD, {"next": 1}, (When("next", "=", 0),))

    child = os.fork()
    if child == 0:
        try:
            fresh = store.cas(ledger, [update]) and store._session.driver is not session
            store.close()
            os._exit(0 if fresh and not session.is_shutdown else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert store._session.driver is session
    assert store.read_rows(ledger).rows[0]["next"] == 1
    store.close()


def test_requests_are_routed_by_token(own: ConnectionOptions, ledger: Partition):
    store = CassandraStore(own)
    store.read_rows(ledger)
    session = store._session

    (host,) = session.driver.cluster.metadata.get_replicas(own.keyspace, b"any key")

    assert host in session.driver.cluster.metadata.all_hosts()
    (statement,) = (one for one in session._prepared.values() if one.routing_key_indexes)
    assert statement.bind([*ledger.key]).routing_key == ledger.key[0].encode()
    store.close()


def test_many_threads_may_write_at_once_through_one_connection(own: ConnectionOptions):
    store = CassandraStore(own)
    queue_id, blocks = QueueId(f"{uuid4()}@1"), [uuid1() for _ in range(WRITERS)]
    chunks = [Chunk(0, at, at + 1, bytes([at]) * (1 << 20)) for at in range(8)]

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda block: store.write_chunks(queue_id, block, chunks), blocks))

    for block in blocks:
        found = store.read_chunks(queue_id, [BucketSlice(block, 0, 0, 8)])
        assert [chunk for _, chunk in found] == chunks
    store.close()


def test_more_bytes_than_a_socket_takes_wait_for_it(
    own: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
):
    refused: list[BaseException] = []
    monkeypatch.setattr(requests, "BYTES_IN_FLIGHT", 1 << 30)
    monkeypatch.setattr(requests, "is_repeatable", lambda error, _: bool(refused.append(error)))
    queue_id, data = QueueId(f"{uuid4()}@1"), os.urandom(1 << 20)
    store = CassandraStore(own)

    store.write_chunks(queue_id, uuid1(), (Chunk(0, n, n + 1, data) for n in range(48)))

    assert refused == []
    store.close()
