"""The lock on a real Cassandra: threads, and processes that are killed or paused."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from cassieq_spark.lock.bakery import Bakery, holding
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Slice, Store, partition_of_lock

TTL = timedelta(seconds=8)
#: The pause between two looks is half a second at the most; a busy machine adds more.
LATE = timedelta(seconds=10)
THREADS = 4
ROUNDS = 4
PROGRAM = Path(__file__).parent / "programs" / "hold_lock.py"


@pytest.fixture
def name() -> str:
    return f"lock-{uuid4().hex[:12]}"


def bakery(store: Store, name: str) -> Bakery:
    return Bakery(store, name, owner="test", ttl=TTL)


def test_of_several_threads_one_at_a_time_is_inside(cassandra_store: Store, name: str):
    inside = threading.Semaphore(1)

    def take_turns(_: int) -> list[int]:
        epochs = []
        for _round in range(ROUNDS):
            with holding(bakery(cassandra_store, name), timedelta(minutes=2)) as held:
                assert held is not None
                assert inside.acquire(blocking=False)
                assert held.confirm()
                epochs.append(held.epoch)
                inside.release()
        return epochs

    with ThreadPoolExecutor(THREADS) as threads:
        epochs = [epoch for each in threads.map(take_turns, range(THREADS)) for epoch in each]

    assert sorted(epochs) == list(range(1, THREADS * ROUNDS + 1))
    left = cassandra_store.read_rows(partition_of_lock(name), Slice(kinds=("ticket",))).rows
    assert not left


def test_a_holder_that_is_killed_keeps_the_next_one_waiting_for_its_ttl_at_the_most(
    cassandra_store: Store, connection: ConnectionOptions, name: str
):
    with _holder(connection, name) as process:
        process.kill()
        process.wait()
        killed = time.monotonic()

        held = bakery(cassandra_store, name).enter(timedelta(minutes=1))

        waited = timedelta(seconds=time.monotonic() - killed)
    assert held is not None
    assert held.epoch == 2
    assert waited <= TTL + LATE


def test_a_holder_that_was_paused_finds_that_it_was_overtaken(
    cassandra_store: Store, connection: ConnectionOptions, name: str
):
    with _holder(connection, name) as process:
        assert _ask(process) == "True True"
        process.send_signal(signal.SIGSTOP)

        with holding(bakery(cassandra_store, name), timedelta(minutes=1)) as held:
            process.send_signal(signal.SIGCONT)

            assert _ask(process) == "False False"
            assert held is not None
            assert held.confirm()


def test_a_lock_is_kept_for_much_longer_than_its_ttl(
    cassandra_store: Store, connection: ConnectionOptions, name: str
):
    with _holder(connection, name) as process:
        assert bakery(cassandra_store, name).enter(2 * TTL) is None

        assert _ask(process) == "True True"


@contextmanager
def _holder(connection: ConnectionOptions, name: str) -> Iterator[subprocess.Popen[str]]:
    (host, port) = connection.endpoints[0]
    where = [f"{host}:{port}", str(port), connection.keyspace]
    command = [sys.executable, str(PROGRAM), *where, name, str(int(TTL.total_seconds()))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "entered 1\n"
            yield process
        finally:
            process.kill()


def _ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()
