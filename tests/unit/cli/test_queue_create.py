"""`cassieq queue create --if-missing` may be repeated by a script."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.cli import queue as queue_commands
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import Ended, cassieq


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr(queue_commands, "open_store", lambda _: store)
    return store


def create(*words: str) -> Ended:
    return cassieq("queue", "create", "orders", *words, "--if-missing")


def test_a_queue_that_is_missing_is_created_and_one_that_exists_is_left(store: MemoryStore):
    first = create("--lease", "2m")
    again = create("--lease", "2m")

    assert (first.code, again.code) == (0, 0)
    assert first.out.startswith("Queue orders is created (orders@1).\n")
    assert again.out == "Queue orders exists already (orders@1).\n"
    assert Client.from_store(store).queue("orders").lease == timedelta(minutes=2)


def test_as_json_both_show_the_queue():
    first, again = (json.loads(create("--json").out) for _ in range(2))

    assert first == again
    assert first["queue_id"] == "orders@1"


def test_settings_that_are_not_given_may_be_any(store: MemoryStore):
    Client.from_store(store).create_queue(
        "orders", partitions=4, lease=timedelta(hours=1), drop_dead=True, max_deliveries=7
    )

    assert create().code == 0
    assert create("--partitions", "4").code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--lease 1m", "lease: 2m"),
        ("--partitions 1", "partitions: 4"),
        ("--order none --lease 2m", "order: key"),
        ("--max-deliveries 3", "max deliveries: 5"),
        ("--dead-letter-queue other", "dead-letter queue: orders.dead"),
        ("--drop-dead", "dead-letter queue: orders.dead"),
        ("--expire-after 1d", "expire after: never"),
        ("--schema bigint", "schema: id bigint not null"),
    ],
)
def test_a_setting_that_is_given_and_differs_is_an_error(
    store: MemoryStore, words: str, complaint: str
):
    settings = {"partitions": 4, "order": "key", "schema": "id bigint not null"}
    Client.from_store(store).create_queue("orders", lease=timedelta(minutes=2), **settings)  # type: ignore[arg-type]
    given = words.split()
    if given[0] == "--schema":
        given[1] = "id bigint"

    ended = create(*given)

    assert (ended.code, ended.out) == (1, "")
    assert f"exists with other settings ({complaint}): leave" in ended.err


def test_a_schema_is_compared_by_what_it_says(store: MemoryStore):
    Client.from_store(store).create_queue("orders", schema="id bigint not null, total double")

    assert create("--schema", "id BIGINT NOT NULL,total DOUBLE").code == 0


def test_without_the_option_a_queue_that_exists_is_an_error():
    create()

    ended = cassieq("queue", "create", "orders")

    assert ended.code == 1
    assert "exists already: cassieq queue show orders" in ended.err
