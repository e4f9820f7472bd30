"""Rows of the table of chunks that no writer of ours has written, in a real Cassandra."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from cassandra.cluster import Session

from cassieq_spark import Client
from cassieq_spark.model import BucketSlice, Chunk, QueueId, Range
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.repair.scan import runs_of
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table

LATER = "INSERT INTO chunk (queue_id, block, bucket, start, data) VALUES (%s, %s, 0, 5, 0x00)"


@pytest.fixture
def session(connection: ConnectionOptions) -> Iterator[Session]:
    cluster, session = connect(connection)
    session.set_keyspace(connection.keyspace)
    yield session
    cluster.shutdown()


def test_a_row_that_outlived_its_bucket_holds_nothing_and_is_deleted(
    cassandra_store: Store, session: Session
):
    queue_id, block = QueueId(f"crafted-{uuid4().hex[:12]}@1"), new_block_id()
    cassandra_store.write_chunks(queue_id, block, [Chunk(0, 5, 9, b"data")])
    session.execute(LATER, (queue_id, block))
    session.execute(
        "DELETE stop FROM chunk WHERE queue_id = %s AND block = %s AND bucket = 0 AND start = 5",
        (queue_id, block),
    )
    everything = [BucketSlice(block, 0, 0, 100)]

    read = [chunk for _, chunk in cassandra_store.read_chunks(queue_id, everything)]
    rows = [row for row in cassandra_store.scan(Table.CHUNK) if row["queue_id"] == queue_id]
    (run,) = runs_of(rows, {queue_id: 8})

    assert read == [Chunk(0, 5, 5, b"\0")]
    assert (run.covered, run.misplaced_buckets) == (Range(5, 5), (0,))
    cassandra_store.delete_buckets(queue_id, [(block, 0)])
    assert list(cassandra_store.read_chunks(queue_id, everything)) == []


def test_a_chunk_that_was_overwritten_stops_nobody(cassandra_store: Store, session: Session):
    name = f"crafted-{uuid4().hex[:12]}"
    with Client.from_store(cassandra_store) as client:
        client.create_queue(f"{name}.dead")
        client.create_queue(name, max_deliveries=3, dead_letter_queue=f"{name}.dead")
        client.put_many(name, ["bad"] * 3)
        client.put_many(name, ["good"] * 3)
        (block, *_) = (
            row["block"]
            for row in cassandra_store.scan(Table.LEDGER, ("block",))
            if row["queue_id"] == f"{name}@1" and row["position"] == 0
        )
        session.execute(
            "UPDATE chunk SET stop = null, data = 0xdeadbeef "
            "WHERE queue_id = %s AND block = %s AND bucket = 0 AND start = 0",
            (f"{name}@1", block),
        )

        messages = client.receive(name, "g", max=10)

        assert [each.value for each in messages] == [b"good"] * 3
        (letter,) = client.peek(f"{name}.dead")
        assert letter.value == b"\xde\xad\xbe\xef"
        assert letter.headers["cassieq.unreadable"] == "0-3"
