"""What a queue keeps is read again, and what nobody consumes goes: by the commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from tests.support.command_line import cassieq

Told = Callable[..., str]


@pytest.fixture
def told(connection: ConnectionOptions) -> Told:
    """Run a command, and return what it prints."""
    host, port = connection.endpoints[0]
    reach = ["--contact-points", f"{host}:{port}", "--port", str(port)]

    def run(*words: str) -> str:
        ended = cassieq(*words, *reach, "--keyspace", connection.keyspace)
        assert ended.code == 0, ended.err
        return ended.out

    return run


def received(told: Told, queue: str, group: str) -> list[str]:
    lines = told("receive", queue, "--group", group, "--max", "10", "--wait", "2s").splitlines()
    return [line.split()[-1] for line in lines]


def test_the_last_hour_is_read_again(told: Told):
    queue = f"hour-{uuid4().hex[:10]}"
    told("queue", "create", queue, "--keep-settled", "7d")
    told("put", queue, "before")
    time.sleep(0.01)
    an_hour_ago = datetime.now(UTC).isoformat()
    told("put", queue, "first", "second")
    assert received(told, queue, "billing") == ["before", "first", "second"]

    told("repair", "run", "--queue", queue)
    stats = " ".join(told("queue", "stats", queue).split())
    assert "3 of them still stored, 3 of these settled by every group" in stats
    told("group", "seek", queue, "billing", "--to", an_hour_ago)

    assert received(told, queue, "billing") == ["first", "second"]
    assert received(told, queue, "late") == ["before", "first", "second"]
    told("queue", "alter", queue, "--keep-settled", "0s")
    told("repair", "run", "--queue", queue)
    assert "0 of them still stored" in told("queue", "stats", queue)


def test_what_nobody_ever_consumes_goes_after_its_time(told: Told):
    queue = f"nobody-{uuid4().hex[:10]}"
    told("queue", "create", queue, "--expire-after", "6s")
    told("put", queue, "a", "b")
    # The last message must be young when the repair looks, however busy the machine is.
    time.sleep(6.1)
    told("put", queue, "c")

    assert "2 message(s) have expired" in told("repair", "run", "--queue", queue)

    assert "1 of them still stored" in told("queue", "stats", queue)
