"""``cassieq schedule``, on a store in memory."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cassieq_spark import Client
from cassieq_spark.cli import schedule
from cassieq_spark.signals import Stop
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import Ended, cassieq

NIGHTLY = ["nightly", "--queue", "orders"]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    store = MemoryStore()
    monkeypatch.setattr(schedule, "open_store", lambda _: store)
    monkeypatch.setenv("COLUMNS", "200")
    client = Client.from_store(store)
    client.create_queue("orders")
    return client


def told(*words: str) -> str:
    ended = run(*words)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


def run(*words: str) -> Ended:
    return cassieq("schedule", *words)


def in_json(*words: str) -> Any:
    return json.loads(told(*words, "--json"))


def create(*words: str) -> str:
    return told("create", *NIGHTLY, "--message", '{"day": "{{date}}"}', *words)


def test_a_schedule_is_created_shown_paused_resumed_and_deleted(client: Client):
    made = create("--cron", "0 3 * * *", "--zone", "Asia/Kolkata", "--header", "lang=en")
    assert re.fullmatch(
        r"Schedule nightly of queue orders is created; it begins at 20..-..-..T21:30:00Z "
        r"\(20..-..-..T03:00:00\+05:30\)\.\n",
        made,
    )
    shown = told("show", *NIGHTLY, "--ticks", "2")
    assert re.search(r"when +0 3 \* \* \* Asia/Kolkata", shown)
    assert re.search(r"header lang +en", shown)
    assert re.search(r"catch up +last", shown)
    assert len(re.findall(r"next +20..-..-..T21:30:00Z", shown)) == 2
    assert re.search(r"orders +nightly +0 3 \* \* \* Asia/Kolkata", told("list"))

    assert told("pause", *NIGHTLY).startswith("Schedule nightly of queue orders is paused. To")
    assert in_json("pause", *NIGHTLY)["changed"] is False
    assert in_json("show", *NIGHTLY)["next"] == []
    assert told("resume", *NIGHTLY) == "Schedule nightly of queue orders is resumed.\n"
    assert told("resume", *NIGHTLY) == "Schedule nightly of queue orders was not paused.\n"

    assert told("delete", *NIGHTLY, "--yes") == "Schedule nightly of queue orders is deleted.\n"
    assert told("list").startswith("There are no schedules.")
    assert client.schedules("orders") == []


def test_json_has_all_settings(client: Client):
    create("--every", "5m", "--start", "2040-01-01T00:00:00Z", "--count", "2", "--catch-up", "7")

    (listed,) = in_json("list", "--queue", "orders")
    more = {name: listed.pop(name) for name in ("last", "next", "lag_seconds")}
    found = listed

    assert more == {"last": None, "next": ["2040-01-01T00:00:00Z"], "lag_seconds": None}
    assert len(found.pop("id")) == 32
    assert found.pop("since").endswith("Z")
    assert found == {
        "queue": "orders",
        "schedule": "nightly",
        "cron": None,
        "every_seconds": 300.0,
        "zone": "UTC",
        "message": '{"day": "{{date}}"}',
        "key": "nightly",
        "headers": {},
        "start": "2040-01-01T00:00:00Z",
        "end": "2040-01-01T00:05:00.001000Z",
        "catch_up": 7,
        "jitter_seconds": 0.0,
        "ahead_seconds": 0.0,
        "paused": False,
        "generation": 0,
    }
    more = in_json("show", *NIGHTLY)
    assert more.items() >= found.items()
    assert more["next"] == ["2040-01-01T00:00:00Z", "2040-01-01T00:05:00Z"]
    assert (more["last"], more["lag_seconds"]) == (None, None)


def test_a_list_says_how_late_each_schedule_is(client: Client, monkeypatch: pytest.MonkeyPatch):
    create("--every", "5m")
    late = client.schedules("orders")[0]
    tick = late.next[0] - timedelta(minutes=10)
    late = replace(late, last=tick, lag=timedelta(minutes=7))
    monkeypatch.setattr(Client, "schedules", lambda *_: [late])

    shown, (listed,) = told("list"), in_json("list")

    assert re.search(r"last +next +late by\n", shown)
    assert re.search(r"every 5m .* 7m\n", shown)
    assert listed["lag_seconds"] == 420
    assert datetime.fromisoformat(listed["last"]) == tick


def test_a_message_is_put_now(client: Client):
    create("--cron", "@yearly", "--key", "k")

    assert told("run-now", *NIGHTLY) == (
        "Schedule nightly has put message 0 of partition 0 into queue orders.\n"
    )
    assert in_json("run-now", *NIGHTLY) == {
        "queue": "orders",
        "schedule": "nightly",
        "monoton": 1,
        "partition": 0,
        "version": 1,
    }

    (first, _) = client.peek("orders")
    assert first.key == b"k"
    assert (first.headers or {})["schedule"] == "nightly"
    assert in_json("show", *NIGHTLY)["last"] is None


def test_a_message_that_is_put_now_is_in_the_partition_of_its_key(client: Client):
    client.create_queue("parts", partitions=4, order="key")
    of_it = ("nightly", "--queue", "parts")
    told("create", *of_it, "--cron", "@yearly", "--message", "x", "--key", "hello")

    assert told("run-now", *of_it) == (
        "Schedule nightly has put message 0 of partition 3 into queue parts.\n"
    )

    assert in_json("run-now", *of_it)["partition"] == 3
    assert [(each.monoton, each.partition) for each in client.peek("parts")] == [(0, 3), (1, 3)]


def test_a_runner_prints_what_it_puts(client: Client):
    create("--every", "1s", "--ahead", "5s")
    create_another = [
        "create",
        "other",
        "--queue",
        "orders",
        "--message",
        "x",
        "--cron",
        "@yearly",
    ]
    told(*create_another)

    lines = told("run", "--once").splitlines()

    assert 5 <= len(lines) <= 7
    assert all(re.fullmatch(r"20\S+Z nightly into queue orders", line) for line in lines)
    assert len(client.peek("orders")) == len(lines)


@pytest.mark.parametrize(("told_by", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.usefixtures("client")
def test_a_runner_runs_until_it_is_told_to_stop(
    told_by: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
):
    create("--every", "1s", "--ahead", "5s")
    waited = []

    def wait(stop: Stop, at_most: timedelta) -> bool:
        if at_most:
            waited.append(at_most)
            stop.signal = told_by
        return bool(at_most)

    monkeypatch.setattr(Stop, "wait", wait)
    monkeypatch.setattr("cassieq_spark.schedules.runner.POLITENESS", (0.0, 0.0))

    ended = run("run", "--json")

    assert ended.code == code
    assert ended.err.startswith("Running all schedules; new ones begin within 10 s.")
    assert json.loads(ended.out.splitlines()[0]).keys() == {"queue", "schedule", "tick"}
    assert len(waited) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("create nightly --queue orders --message x", "give either cron"),
        ("create nightly --queue orders --message x --cron '0 3'", "not five"),
        ("create nightly --queue orders --message x --every 5", "--every must be a duration"),
        ("create nightly --queue orders --message x --every 5m --catch-up all", "none, last or a"),
        ("create nightly --queue orders --message x --every 5m --header a", "--header must be"),
        ("create night/ly --queue orders --message x --every 5m", "schedule name 'night/ly'"),
        ("show nightly --queue a/b", "queue name 'a/b' is not valid"),
    ],
)
@pytest.mark.usefixtures("client")
def test_wrong_usage_is_told_in_one_line(words: str, problem: str):
    ended = run(*words.replace("'0 3'", "0,3").split())

    assert ended.code == 2
    assert problem in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.usefixtures("client")
def test_a_schedule_that_does_not_exist_is_told():
    ended = run("show", *NIGHTLY)

    assert ended.code == 1
    assert "queue 'orders' has no schedule 'nightly'" in ended.err


@pytest.mark.usefixtures("client")
def test_a_deletion_asks():
    create("--every", "5m")

    ended = run("delete", *NIGHTLY)

    assert ended.code == 2
    assert "there is no terminal to ask on: give --yes to delete the schedule" in ended.err
    assert len(in_json("list")) == 1
