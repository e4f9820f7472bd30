"""The repair's job again and again on a real Cassandra, and its history; without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid1, uuid4

import pytest
from typer.testing import CliRunner

from cassieq_spark.cli.repair import app
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import create_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Chunk, PendingBlock, QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store

JOB = Path(__file__).parents[3] / "jobs" / "repair.py"


@pytest.fixture
def queue(cassandra_store: Store) -> QueueDefinition:
    """A queue with twenty messages, and a group that begins behind them."""
    queue = create_queue(
        cassandra_store, f"repaired-{uuid4().hex[:12]}", bucket_size=40, chunk_size=10
    )
    block = uuid1()
    chunks = [Chunk(0, start, start + 10, b"data") for start in (0, 10)]
    cassandra_store.write_chunks(queue.queue_id, block, chunks)
    publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(block, 20)])
    create_group(ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "late"), "latest")
    return queue


def test_it_repairs_again_and_again_until_sigterm_and_is_remembered(
    cassandra_store: Store, connection: ConnectionOptions, queue: QueueDefinition
):
    with _job(connection, queue, "--every", "200ms") as process:
        first, second = (_report(process) for _ in range(2))
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)

    assert process.returncode == 0, complaints
    assert first["queues"][queue.name]["finalised"] == 20
    assert Ledger(cassandra_store, queue.queue_id).read_head().finalised == 20
    assert second["totals"]["finalised"] == 0
    assert second["epoch"] == first["epoch"] + 1
    runs = {run["epoch"]: run for run in _history(connection, "--json")}
    assert runs[first["epoch"]]["outcome"] == "done"
    assert runs[first["epoch"]]["counts"]["finalised"] == 20
    assert runs[first["epoch"]]["steps"] == ["finalise"]
    assert runs[second["epoch"]]["runner"].endswith(f":{process.pid}")


def test_two_runners_take_turns(connection: ConnectionOptions, queue: QueueDefinition):
    options = ("--every", "50ms")
    with _job(connection, queue, *options) as one, _job(connection, queue, *options) as other:
        epochs = [_report(process)["epoch"] for _ in range(4) for process in (one, other)]

    assert len(set(epochs)) == len(epochs)


def test_the_command_repairs_without_spark(
    cassandra_store: Store, connection: ConnectionOptions, queue: QueueDefinition
):
    program = [sys.executable, "-X", "importtime", "-m", "cassieq_spark.cli", "repair", "run"]
    options = [*_where(connection), "--queue", queue.name, "--json", "-"]

    ended = subprocess.run(
        [*program, *options], capture_output=True, text=True, check=False, timeout=120
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["queues"][queue.name]["finalised"] == 20
    assert Ledger(cassandra_store, queue.queue_id).read_head().finalised == 20
    assert "pyspark" not in ended.stderr, "among what was imported"


def test_people_see_the_history_as_a_table(connection: ConnectionOptions, queue: QueueDefinition):
    with _job(connection, queue) as process:
        epoch = _report(process)["epoch"]

    shown = CliRunner().invoke(
        app, ["history", *_where(connection), "--limit", "1"], env={"COLUMNS": "200"}
    )

    assert shown.exit_code == 0, shown.output
    (row,) = (line for line in shown.output.splitlines() if "finalised 20" in line)
    assert row.split()[0] == str(epoch)


@contextmanager
def _job(
    connection: ConnectionOptions, queue: QueueDefinition, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(JOB), *_where(connection), "--queue", queue.name]
    command += ["--steps", "finalise", "--json", "-", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "100"},
    ) as process:
        try:
            yield process
        finally:
            # Not killed: that would keep the next one waiting for the lock.
            process.terminate()


def _report(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    report: dict[str, Any] = json.loads(process.stdout.readline())
    return report


def _history(connection: ConnectionOptions, *arguments: str) -> list[dict[str, Any]]:
    told = CliRunner().invoke(app, ["history", *_where(connection), *arguments])
    assert told.exit_code == 0, told.output
    runs: list[dict[str, Any]] = json.loads(told.output)
    return runs


def _where(connection: ConnectionOptions) -> list[str]:
    host, port = connection.endpoints[0]
    where = ["--contact-points", f"{host}:{port}", "--port", str(port)]
    return [*where, "--keyspace", connection.keyspace]
