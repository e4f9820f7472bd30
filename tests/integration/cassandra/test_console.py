"""The web console of a real Cassandra: what it shows, what it costs, and its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest

from cassieq_spark.client import Client
from cassieq_spark.console import Console
from cassieq_spark.producer.new_message import NewMessage
from cassieq_spark.queues import is_paused, read_queue
from cassieq_spark.queues.stats import read_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from tests.unit.console.visitor import Visitor, words_of

PATIENCE = 60


@pytest.fixture
def queue(cassandra_store: Store) -> str:
    """A queue with partitions of which messages are settled, leased, waiting and dead."""
    name = f"console-{uuid4().hex[:10]}"
    client = Client.from_store(cassandra_store)
    client.create_queue(name, partitions=2, order="key")
    client.create_group(name, "workers")
    client.put_many(name, [NewMessage(f'{{"n": {n}}}', f"key-{n}") for n in range(40)])
    client.ack(*client.receive(name, "workers", max=8))
    client.reject(*client.receive(name, "workers", max=2), reason="no such address")
    client.release(*client.receive(name, "workers", max=2), delay=timedelta(minutes=5))
    client.receive(name, "workers", max=3)
    return name


@pytest.fixture
def counting(cassandra_store: Store) -> CountingStore:
    return CountingStore(cassandra_store)


def test_pages_show_what_there_is_by_plain_reads_alone(
    cassandra_store: Store, counting: CountingStore, queue: str
):
    visitor = Visitor(Console(counting, reads_per_second=1e9))
    visitor.look()
    known = visitor.console.watcher.fleet().known[queue].snapshot.stats
    looked = visitor.console.watcher.read(queue).snapshot.stats

    for path in (
        "/",
        f"/queues/{queue}",
        f"/queues/{queue}/groups/workers",
        f"/queues/{queue}/messages?from=earliest",
        f"/queues/{queue}/messages?key=key-7",
        f"/queues/{queue}/messages?from=2026-01-01T00:00:00Z",
        f"/queues/{queue}/messages/0/0",
        f"/queues/{queue}/dead",
        f"/queues/{queue}/settings",
        "/repair",
    ):
        visitor.page(path)
    visitor.close()

    exact = read_stats(cassandra_store, read_queue(cassandra_store, queue))
    for each in (known, looked):
        assert (each.next, each.finalised) == (exact.next, exact.finalised)
        assert [group.depth for group in each.groups] == [group.depth for group in exact.groups]
    assert (counting.cas_count, counting.serial_read_count) == (0, 0)


def test_a_survey_finds_what_has_happened_since_the_last_one(counting: CountingStore, queue: str):
    visitor = Visitor(Console(counting, reads_per_second=1e9))
    visitor.look()
    before = visitor.console.watcher.fleet().known[queue].snapshot.stats.next
    Client.from_store(counting).put(queue, b"one more", key="key-1")
    visitor.look()

    assert visitor.console.watcher.fleet().known[queue].snapshot.stats.next == before + 1
    visitor.close()


def test_a_change_goes_through(cassandra_store: Store, queue: str):
    visitor = Visitor(Console(cassandra_store, allow_changes=True))
    visitor.look()

    asked = visitor.submit(visitor.page(f"/queues/{queue}"), "/change/pause")
    done = visitor.confirm(asked)

    assert f"Queue {queue} is paused." in words_of(done.text)
    assert is_paused(cassandra_store, queue)
    visitor.close()


def ask_until_read(url: str) -> str:
    """What a page says once the console has read the queues; it waits for a moment by itself."""
    until = time.monotonic() + PATIENCE
    while True:
        answer = httpx.get(url, timeout=PATIENCE)
        assert answer.status_code == 200
        words = words_of(answer.text)
        if "The queues are being read" not in words:
            return words
        assert time.monotonic() < until, words


def test_the_command_serves_the_queues_of_its_keyspace(connection: ConnectionOptions, queue: str):
    host, port = connection.endpoints[0]
    where = ["--contact-points", f"{host}:{port}", "--keyspace", connection.keyspace]
    process = subprocess.Popen(
        [sys.executable, "-m", "cassieq_spark.cli", "console", "--listen", "127.0.0.1:0", *where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert "(it only looks)" in said
        url = next(word for word in said.split() if word.startswith("http"))
        words = ask_until_read(url + f"?q={queue}")
        assert f"{queue} 2p by key" in words
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
