"""Schedules on a real Cassandra: three runners at once, and what a tick takes there."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.schedules import Runner
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.command_line import Command, make_command

SECOND = timedelta(seconds=1)


@pytest.fixture
def queue(cassandra_store: Store) -> str:
    name = f"ticks-{uuid4().hex[:10]}"
    Client.from_store(cassandra_store).create_queue(name, partitions=3)
    return name


def ticks_of(client: Client, queue: str) -> list[datetime]:
    found = client.peek(queue, max=1000)
    return [datetime.fromisoformat(str(it.value, "utf-8")) for it in found]  # type: ignore[arg-type]


def test_three_runners_that_race_publish_each_tick_once_and_in_order(
    cassandra_store: Store, queue: str
):
    client = Client.from_store(cassandra_store)
    made = client.create_schedule(
        queue, "beat", "{{tick}}", every=SECOND, catch_up=1000, ahead=30 * SECOND
    )
    runners = [Runner(cassandra_store, prefix=queue, politeness=0 * SECOND) for _ in range(3)]
    for each in runners:
        each.run_once()

    def look(runner: Runner) -> None:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            runner.run_once()

    threads = [threading.Thread(target=look, args=(each,)) for each in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    ticks = ticks_of(client, queue)
    assert len(ticks) >= 30
    assert next(made.ticks_after(made.since)) == ticks[0]
    assert all(later - earlier == SECOND for earlier, later in pairwise(ticks))


def test_the_commands_make_run_and_delete_a_schedule(
    cassandra_store: Store, connection: ConnectionOptions, queue: str
):
    command: Command = make_command(connection, "schedule")
    of_it = ("beat", "--queue", queue)
    command("create", *of_it, "--every", "1s", "--ahead", "10s", "--message", "{{tick}}")

    lines = command("run", "--once").stdout.splitlines()

    ticks = ticks_of(Client.from_store(cassandra_store), queue)
    put = [line.split()[0] for line in lines if line.endswith(f" beat into queue {queue}")]
    assert [datetime.fromisoformat(each) for each in put] == ticks
    shown = json.loads(command("show", *of_it, "--json").stdout)
    assert datetime.fromisoformat(shown["last"]) == ticks[-1]
    command("run-now", *of_it)
    assert len(ticks_of(Client.from_store(cassandra_store), queue)) == len(ticks) + 1
    command("delete", *of_it, "--yes")
    assert json.loads(command("list", "--queue", queue, "--json").stdout) == []


def test_runners_that_race_put_nothing_by_the_old_settings_after_an_alter_has_answered(
    cassandra_store: Store, queue: str
):
    client = Client.from_store(cassandra_store)
    client.create_schedule(
        queue, "beat", "{{tick}} 0", every=SECOND, catch_up=1000, ahead=30 * SECOND
    )
    runners = [Runner(cassandra_store, prefix=queue, politeness=0 * SECOND) for _ in range(3)]
    for each in runners:
        each.run_once()
    over = threading.Event()

    def look(runner: Runner) -> None:
        while not over.is_set():
            runner.run_once()

    threads = [threading.Thread(target=look, args=(each,)) for each in runners]
    for thread in threads:
        thread.start()
    answered = []
    try:
        for number in range(1, 6):
            altered = client.alter_schedule(queue, "beat", message=f"{{{{tick}}}} {number}")
            assert altered.generation == number
            answered.append(len(client.peek(queue, max=1000)))
            count = answered[-1]
            while len(client.peek(queue, max=1000)) == count:
                pass  # Each generation puts a message.
    finally:
        over.set()
        for thread in threads:
            thread.join()

    found = [str(each.value, "utf-8").split() for each in client.peek(queue, max=1000)]  # type: ignore[arg-type]
    ticks = [datetime.fromisoformat(tick) for tick, _ in found]
    assert all(later - earlier == SECOND for earlier, later in pairwise(ticks))
    for number, count in enumerate(answered, start=1):
        assert {int(it) for _, it in found[count:]} <= set(range(number, 6))


def test_the_command_alters_a_schedule(
    cassandra_store: Store, connection: ConnectionOptions, queue: str
):
    command: Command = make_command(connection, "schedule")
    of_it = ("beat", "--queue", queue)
    command("create", *of_it, "--every", "1h", "--message", "x", "--header", "lang=en")

    command("alter", *of_it, "--cron", "0 3 * * *", "--header", "none", "--catch-up", "5")

    shown = json.loads(command("show", *of_it, "--json").stdout)
    assert (shown["cron"], shown["every_seconds"], shown["headers"]) == ("0 3 * * *", None, {})
    assert (shown["catch_up"], shown["generation"]) == (5, 1)
