from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid1, uuid4

import pytest

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Insert, Store, Update, When, partition_of_ledger
from tests.support.proxy import Proxy

HEAD = ("head", 0, "")
OUTAGE_SECONDS = 1.0
CHUNKS = [Chunk(at // 10, at, at + 1, bytes([at]) * 50_000) for at in range(200)]
BUCKETS = range(20)


@pytest.fixture
def store(through_proxy: ConnectionOptions) -> Iterator[Store]:
    store = open_store(through_proxy)
    yield store
    store.close()


@pytest.fixture
def queue_id() -> QueueId:
    return QueueId(f"{uuid4()}@1")


@contextmanager
def outage(proxy: Proxy) -> Iterator[None]:
    proxy.lose_answers()
    timer = threading.Timer(OUTAGE_SECONDS, proxy.restore)
    timer.start()
    yield
    timer.join()


def test_a_compare_and_set_whose_answer_is_lost_is_of_unknown_outcome_and_a_serial_read_tells(
    store: Store, proxy: Proxy, queue_id: QueueId
):
    ledger = partition_of_ledger(queue_id)
    assert store.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])
    update = Update(HEAD, {"next": 1}, (When("next", "=", 0),))
    assert not store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", "=", 9),))])

    with outage(proxy), pytest.raises(OutcomeUnknownError, match=f"ledger {queue_id}"):
        store.cas(ledger, [update])

    assert store.read_rows(ledger, serial=True).rows[0]["next"] == 1


def test_a_read_outlasts_an_outage(store: Store, proxy: Proxy, queue_id: QueueId):
    ledger = partition_of_ledger(queue_id)
    assert store.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])

    assert store.read_rows(ledger).rows

    with outage(proxy):
        assert store.read_rows(ledger).rows[0]["next"] == 0


def test_a_write_of_chunks_outlasts_an_outage(
    store: Store, proxy: Proxy, queue_id: QueueId, cassandra_store: Store
):
    block = uuid1()
    store.write_chunks(queue_id, block, CHUNKS[:1])

    with outage(proxy):
        store.write_chunks(queue_id, block, CHUNKS)

    assert read_all(cassandra_store, queue_id, block) == CHUNKS


def test_a_read_of_chunks_outlasts_a_lost_connection(
    store: Store, proxy: Proxy, queue_id: QueueId
):
    block = uuid1()
    store.write_chunks(queue_id, block, CHUNKS)
    reading = store.read_chunks(queue_id, [BucketSlice(block, at, 0, 200) for at in BUCKETS])

    found = [next(reading)[1] for _ in range(5)]
    proxy.cut()
    found += [chunk for _, chunk in reading]

    assert found == CHUNKS


def test_the_store_connects_again_after_all_connections_are_lost(
    store: Store, proxy: Proxy, queue_id: QueueId
):
    ledger = partition_of_ledger(queue_id)
    assert store.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])

    proxy.cut()

    assert store.read_rows(ledger).rows[0]["next"] == 0
    assert store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", "=", 0),))])


def read_all(store: Store, queue_id: QueueId, block: object) -> list[Chunk]:
    slices = [BucketSlice(block, at, 0, 200) for at in BUCKETS]
    return [chunk for _, chunk in store.read_chunks(queue_id, slices)]
