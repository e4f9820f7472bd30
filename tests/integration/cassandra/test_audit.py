"""Damage planted in a real Cassandra, and what the job's audit says of it; without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from cassandra.cluster import Session

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import create_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Chunk, QueueDefinition, QueueId
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store

JOB = Path(__file__).parents[3] / "jobs" / "repair.py"
BUCKET_SIZE, CHUNK_SIZE = 40, 10


@pytest.fixture
def session(connection: ConnectionOptions) -> Iterator[Session]:
    cluster, session = connect(connection)
    session.set_keyspace(connection.keyspace)
    yield session
    cluster.shutdown()


@pytest.fixture
def queue(cassandra_store: Store) -> QueueDefinition:
    """A queue with two groups: one is owed all messages, the other those from 100 on."""
    queue = create_queue(
        cassandra_store,
        f"audited-{uuid4().hex[:12]}",
        bucket_size=BUCKET_SIZE,
        chunk_size=CHUNK_SIZE,
    )
    create_group(ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "billing"), "earliest")
    return queue


def put(store: Store, queue: QueueDefinition, count: int) -> UUID:
    values = [f"message {number} of {count}" for number in range(count)]
    batch = pa.record_batch({"value": pa.array(values)})
    written = write_block(store, queue, [batch], SinkOptions(queue=queue.name))
    publish(Ledger(store, queue.queue_id), [written])
    return written.block


def audit(
    connection: ConnectionOptions, queue: QueueDefinition, *arguments: str
) -> tuple[int, dict[str, Any], str]:
    """Run the job; its exit status, what it says of the queue, and what it tells people."""
    host, port = connection.endpoints[0]
    command = [sys.executable, str(JOB), "--contact-points", f"{host}:{port}"]
    command += ["--keyspace", connection.keyspace, "--queue", queue.name, "--json", "-"]
    command += ["--steps", "audit", "--scan", "driver", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100"},
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    of_queue = report["queues"].get(queue.name, {})
    return done.returncode, report | of_queue | {"foreign": report["orphans"]}, done.stderr


def findings(report: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    return [
        (each["problem"], each["start"], each["stop"], each["block"])
        for each in report["findings"]
    ]


def test_every_kind_of_damage_is_found_to_the_message(
    cassandra_store: Store, connection: ConnectionOptions, session: Session, queue: QueueDefinition
):
    first, second, third = (put(cassandra_store, queue, count) for count in (100, 90, 50))
    create_group(ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "shipping"), 120)
    where = "queue_id = %s AND block = %s AND bucket = %s"
    chunk = (queue.queue_id, first, 0)
    # A chunk is deleted, a bucket too early, a chunk truncated, one stored twice, one astray.
    session.execute(f"DELETE FROM chunk WHERE {where} AND start = 20", chunk)
    cassandra_store.delete_buckets(queue.queue_id, [(second, 1)])
    data = session.execute(f"SELECT data FROM chunk WHERE {where} AND start = 80", (*chunk[:2], 2))
    short = data.one()[0][:-60]
    session.execute(
        f"UPDATE chunk SET data = %s WHERE {where} AND start = 80", (short, *chunk[:2], 2)
    )
    whole = Chunk(
        0, 5, 10, session.execute(f"SELECT data FROM chunk WHERE {where}", chunk).one()[0]
    )
    cassandra_store.write_chunks(queue.queue_id, third, [whole])
    session.execute(f"DELETE FROM chunk WHERE {where} AND start = 40", (queue.queue_id, third, 1))
    cassandra_store.write_chunks(queue.queue_id, third, [Chunk(9, 40, 50, whole.data)])
    stranger = QueueId(f"{queue.name}@7")
    cassandra_store.write_chunks(stranger, second, [Chunk(0, 0, 10, whole.data)])

    status, report, said = audit(connection, queue, "--verify", "data", "--repair-report")
    by_keys, keys_only, _ = audit(connection, queue)

    assert (status, by_keys) == (1, 1), said
    wrong = [
        ("missing", 20, 30, str(first)),
        ("missing", 140, 180, str(second)),
        ("overlapping", 195, 200, str(third)),
        ("misplaced", 230, 240, str(third)),
        ("unreadable", 80, 90, str(first)),
        ("unreadable", 195, 200, str(third)),
    ]
    assert findings(report) == wrong
    assert findings(keys_only) == wrong[:4]
    owed = {each["start"]: each["owed"] for each in report["diagnoses"]}
    assert [(each["group"], each["ranges"]) for each in owed[20]] == [("billing", [[20, 30]])]
    assert [(each["group"], each["ranges"]) for each in owed[140]] == [
        ("billing", [[140, 180]]),
        ("shipping", [[140, 180]]),
    ]
    assert "bucket 1 of the block is gone: deleted too early, or by hand" in said
    assert f"cassieq group seek {queue.name} shipping --to 180; it also gives up 20 other" in said
    orphans = [each for each in report["foreign"] if each["queue_id"] == stranger]
    assert [(each["block"], each["messages"]) for each in orphans] == [(str(second), 10)]


def test_a_group_goes_on_as_the_report_says(
    cassandra_store: Store, connection: ConnectionOptions, queue: QueueDefinition
):
    block = put(cassandra_store, queue, 90)
    cassandra_store.delete_buckets(queue.queue_id, [(block, 0)])

    status, report, _ = audit(connection, queue, "--repair-report")
    (diagnosis,) = report["diagnoses"]
    seek_group(
        ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "billing"), diagnosis["stop"]
    )
    _, after, _ = audit(connection, queue, "--repair-report")

    assert status == 1
    assert diagnosis["owed"][0]["seek_gives_up"] == 0
    (group,) = queue_stats(Ledger(cassandra_store, queue.queue_id)).groups
    assert (group.floor, group.depth) == (40, 50)
    assert after["diagnoses"][0]["owed"] == []


def test_a_queue_that_is_whole_is_read_to_its_end(
    cassandra_store: Store, connection: ConnectionOptions, queue: QueueDefinition
):
    put(cassandra_store, queue, 300)

    status, report, said = audit(connection, queue, "--verify", "data")

    assert (status, report["whole"]) == (0, True), said
    assert report["totals"]["audited_messages"] == 300
