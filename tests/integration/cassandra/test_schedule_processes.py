"""Processes that run schedules: a gateway, and ``cassieq schedule run``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.gateway import PATIENCE, running

SECOND = timedelta(seconds=1)


@pytest.fixture
def reach(connection: ConnectionOptions) -> list[str]:
    host, port = connection.endpoints[0]
    at = ["--contact-points", f"{host}:{port}", "--port", str(port)]
    return [*at, "--keyspace", connection.keyspace]


@contextmanager
def schedule_run(*reach: str) -> Iterator[subprocess.Popen[str]]:
    """``cassieq schedule run``, which prints the ticks that it publishes as JSON."""
    command = [sys.executable, "-m", "cassieq_spark.cli", "schedule", "run", "--json"]
    with subprocess.Popen(
        [*command, *reach], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert "Running all schedules" in process.stderr.readline()
            yield process
        finally:
            process.kill()


class Consumer:
    """Receives the ticks of a queue, in the order in which they come."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client, self._queue = client, queue
        self.ticks: list[datetime] = []

    def receive(self, at_least: int) -> None:
        """Receive at least this number of further messages."""
        wanted = len(self.ticks) + at_least
        while len(self.ticks) < wanted:
            self._take(timedelta(seconds=PATIENCE))

    def receive_the_rest(self) -> None:
        """Receive all that is there."""
        while self._take(timedelta(0)):
            pass

    def _take(self, wait: timedelta) -> bool:
        found = self._client.receive(self._queue, "g", max=100, wait=wait)
        assert found or not wait, "no tick came"
        self.ticks += [datetime.fromisoformat(str(it.value, "utf-8")) for it in found]  # type: ignore[arg-type]
        self._client.ack(*found)
        return bool(found)


def test_processes_share_schedules_and_one_that_is_killed_is_missed_by_nobody(
    cassandra_store: Store, reach: list[str], tmp_path: Path
):
    client, queue = Client.from_store(cassandra_store), f"ticks-{uuid4().hex[:10]}"
    client.create_queue(queue, order="strict")
    made = client.create_schedule(queue, "beat", "{{tick}}", every=SECOND, catch_up=1000)
    consumer = Consumer(client, queue)

    with running(tmp_path / "one", *reach, "--schedules") as gateway, schedule_run(*reach) as run:
        consumer.receive(3)
        gateway.kill()
        consumer.receive(4)
        run.send_signal(signal.SIGTERM)
        said, errors = run.communicate(timeout=PATIENCE)
    with running(tmp_path / "two", *reach, "--schedules") as gateway:
        consumer.receive(3)
        assert gateway.stop() == 0
    consumer.receive_the_rest()

    assert (run.returncode, errors) == (0, "")
    assert consumer.ticks[0] == next(made.ticks_after(made.since))
    assert all(later - earlier == SECOND for earlier, later in pairwise(consumer.ticks))
    by_command = [it for it in map(json.loads, said.splitlines()) if it["queue"] == queue]
    assert 3 <= len(by_command) < len(consumer.ticks)
    assert client.schedules(queue)[0].last == consumer.ticks[-1]
    log = (tmp_path / "two").read_text()
    assert ("schedule.published" in log, "schedule.failed" in log) == (True, False)
    client.delete_queue(queue)


def test_ctrl_c_ends_a_runner_as_it_ends_other_commands(reach: list[str]):
    with schedule_run(*reach) as run:
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE)

    assert (run.returncode, errors) == (130, "")
