"""Every command against a real Cassandra: what is not there is told in one line."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from tests.support.command_line import Ended, cassieq, commands, likely_words, options_of

COMMANDS = commands()
#: They need no queue that exists, or none at all; those that go on for ever are not asked.
NEED_NO_QUEUE = {
    "gateway account",
    "queue create",
    "queue list",
    "repair history",
    "repair run",
    "schedule list",
    "schema apply",
    "schema check",
}
FOR_EVER = {"console", "exporter", "gateway serve", "schedule run", "top"}
CONNECTING = [
    name
    for name, each in COMMANDS.items()
    if "--contact-points" in options_of(each) and name not in FOR_EVER
]


@pytest.fixture
def reach(connection: ConnectionOptions) -> list[str]:
    host, port = connection.endpoints[0]
    return ["--contact-points", f"{host}:{port}", "--port", str(port)]


@pytest.mark.parametrize("name", [each for each in CONNECTING if each not in NEED_NO_QUEUE])
def test_a_queue_that_there_is_not_is_named(
    name: str, reach: list[str], connection: ConnectionOptions
):
    words = likely_words(name, COMMANDS[name])

    ended = cassieq(*words, *reach, "--keyspace", connection.keyspace)

    assert (ended.code, ended.out) == (1, "")
    assert "there is no queue 'orders'" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("name", [each for each in CONNECTING if "schema" not in each])
def test_a_keyspace_that_there_is_not_is_named_with_what_makes_it(name: str, reach: list[str]):
    words = likely_words(name, COMMANDS[name])

    ended = cassieq(*words, *reach, "--keyspace", "nowhere")

    # The repair has exit codes of its own: it was asked for what there is not.
    assert (ended.code, ended.out) == (2 if name == "repair run" else 1, "")
    assert "cassieq schema apply --keyspace nowhere" in ended.err
    assert ended.err.count("\n") == 1


def test_what_is_done_is_told_as_one_object(reach: list[str], connection: ConnectionOptions):
    name = f"cli-{uuid4().hex[:10]}"

    def told(*words: str) -> dict[str, object]:
        ended: Ended = cassieq(*words, *reach, "--keyspace", connection.keyspace, "--json")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.count("\n") == 1
        values: dict[str, object] = json.loads(ended.out)
        return values

    created = told("queue", "create", name, "--expire-after", "1h")
    assert (created["queue_id"], created["expire_after_seconds"]) == (f"{name}@1", 3600)
    assert created["dead_letter_queue"] == f"{name}.dead"
    assert told("put", name, "a", "b") == {"queue": name, "start": 0, "stop": 2}
    group = told("group", "create", name, "billing")
    assert (group["queue"], group["group"], group["depth"]) == (name, "billing", 2)
    assert told("queue", "alter", name, "--lease", "7s")["lease_seconds"] == 7
    assert told("queue", "pause", name) == {"queue": name, "paused": True, "changed": True}
    assert told("queue", "pause", name)["changed"] is False
    assert told("queue", "resume", name)["paused"] is False
    moved = told("group", "seek", name, "billing", "--to", "1")
    assert moved == {"queue": name, "group": "billing", "position": 1}
    deleted = told("group", "delete", name, "billing", "--yes")
    assert deleted == {"queue": name, "group": "billing", "deleted": True}
    assert told("queue", "purge", name, "--yes")["queue_id"] == f"{name}@2"
    assert told("queue", "delete", name, "--yes") == {"queue": name, "deleted": True}
    assert told("schema", "check")["missing"] == []


def test_a_missing_keyspace_is_a_difference(reach: list[str]):
    ended = cassieq("schema", "check", *reach, "--keyspace", "nowhere")

    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines()[0] == "Missing: keyspace"
    assert "cassieq schema apply --keyspace nowhere" in ended.out


def test_without_a_terminal_nothing_is_deleted_unasked(
    reach: list[str], connection: ConnectionOptions
):
    name = f"cli-{uuid4().hex[:10]}"
    keyspace = ["--keyspace", connection.keyspace]
    cassieq("queue", "create", name, *reach, *keyspace)
    cassieq("group", "create", name, "billing", *reach, *keyspace)

    for words in (("queue", "purge", name), ("queue", "delete", name)):
        ended = cassieq(*words, *reach, *keyspace)
        assert (ended.code, ended.out) == (2, "")
        assert "give --yes" in ended.err
    ended = cassieq("group", "delete", name, "billing", *reach, *keyspace)
    assert "give --yes" in ended.err
    assert cassieq("queue", "show", name, *reach, *keyspace).code == 0
