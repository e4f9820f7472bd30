from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.cli import output
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import create_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Slice, Store, partition_of_group, partition_of_ledger
from tests.support.command_line import Command, make_command


@pytest.fixture
def group_command(connection: ConnectionOptions) -> Command:
    return make_command(connection, "group")


@pytest.fixture
def queue(cassandra_store: Store) -> QueueDefinition:
    """A thousand messages."""
    queue = create_queue(cassandra_store, f"cli-{uuid4().hex[:10]}")
    publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 1_000)])
    return queue


def lease(store: Store, queue: QueueDefinition, name: str, limit: int) -> ConsumerGroup:
    group = ConsumerGroup(Ledger(store, queue.queue_id), name)
    group.lease(
        LeaseRequest(
            held=None, token=uuid4(), lease=timedelta(minutes=5), max_messages=limit, stop=1_000
        )
    )
    return group


def pointers(group_command: Command, queue: QueueDefinition) -> dict[str, int]:
    listed = json.loads(group_command("list", queue.name, "--json").stdout)
    return {each["group"]: each["pointer"] for each in listed}


def test_a_group_that_has_stopped_is_shown_and_resumed(
    group_command: Command, cassandra_store: Store
):
    name = f"cli-{uuid4().hex[:10]}"
    with Client.from_store(cassandra_store) as client:
        client.create_queue(name, order="strict", on_dead="stop")
        client.put_many(name, ["bad", "behind"])
        client.reject(*client.receive(name, "billing"), reason="no such account")

        shown = group_command("resume", name, "billing").stdout
        listed = group_command("list", name).stdout
        told = json.loads(group_command("resume", name, "billing", "--json").stdout)
        resumed = group_command("resume", name, "billing", "--dead-letter").stdout
        again = group_command("resume", name, "billing", "--dead-letter").stdout

        assert "no such account" in shown
        assert f"cassieq group resume {name} billing" in listed
        assert [(each["partition"], each["monotons"]) for each in told] == [(None, "0-1")]
        assert f"1 message(s) are in queue {name}.dead now" in resumed
        assert "has not stopped" in again
        assert [bytes(each.value) for each in client.receive(name, "billing")] == [b"behind"]


def test_groups_are_created_where_they_are_to_begin_and_listed(
    group_command: Command, queue: QueueDefinition
):
    assert "has no groups" in group_command("list", queue.name).stdout
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    positions = {"a": "earliest", "b": "latest", "c": "250", "d": "2020-01-01T00:00:00Z"}
    for group, start in (positions | {"e": soon}).items():
        created = group_command("create", queue.name, group, "--from", start)
        assert f"({start.replace('+00:00', 'Z')})" in created.stdout

    expected = {"a": 0, "b": 1_000, "c": 250, "d": 0, "e": 1_000}
    assert pointers(group_command, queue) == expected
    table = group_command("list", queue.name).stdout
    assert "250" in table
    assert "1000" in table
    with pytest.raises(QueueStateError, match="exists already"):
        group_command("create", queue.name, "a")


@pytest.mark.parametrize("start", ["yesterday", "-1", "2026-11-20", "2026-11-20T12:00:00", "1001"])
def test_positions_that_are_none_are_refused(
    group_command: Command, queue: QueueDefinition, start: str
):
    with pytest.raises((OptionError, QueueStateError), match=r"--from|no monoton 1001 yet"):
        group_command("create", queue.name, "g", f"--from={start}")
    assert pointers(group_command, queue) == {}


def test_a_group_is_moved_to_where_it_can_go(
    group_command: Command, queue: QueueDefinition, cassandra_store: Store
):
    group_command("create", queue.name, "g", "--from", "300")
    Ledger(cassandra_store, queue.queue_id).finalise(
        Ledger(cassandra_store, queue.queue_id).read_head(), 200
    )
    lease(cassandra_store, queue, "g", 100)

    with pytest.raises(QueueStateError, match="hold messages 300 to 399"):
        group_command("seek", queue.name, "g", "--to", "250")
    assert "250" in group_command("seek", queue.name, "g", "--to", "250", "--force").stdout
    assert pointers(group_command, queue) == {"g": 250}
    for to, monoton in (("latest", 1_000), ("earliest", 200), ("700", 700)):
        group_command("seek", queue.name, "g", "--to", to)
        assert pointers(group_command, queue) == {"g": monoton}
    with pytest.raises(QueueStateError, match="deleted"):
        group_command("seek", queue.name, "g", "--to", "199")
    ledger = partition_of_ledger(queue.queue_id)
    assert not cassandra_store.read_rows(ledger, Slice(kinds=("seek_pin",))).rows
    again = lease(cassandra_store, queue, "g", 100).read()
    assert [str(slot.monotons) for slot in again.slots if slot.monotons] == ["700-800"]


def test_a_group_is_deleted_after_a_question_or_with_yes(
    group_command: Command,
    queue: QueueDefinition,
    cassandra_store: Store,
    monkeypatch: pytest.MonkeyPatch,
):
    for group in ("asked", "held", "kept"):
        group_command("create", queue.name, group)
    lease(cassandra_store, queue, "held", 100)

    with pytest.raises(OptionError, match=r"no terminal.* --yes"):
        group_command("delete", queue.name, "asked")
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    assert group_command("delete", queue.name, "kept", said="n\n").exit_code == 1
    asked = group_command("delete", queue.name, "asked", said="y\n")
    assert "which has not settled 1,000 message(s)?" in asked.stderr
    with pytest.raises(QueueStateError, match="hold messages 0 to 99"):
        group_command("delete", queue.name, "held", "--yes")
    group_command("delete", queue.name, "held", "--yes", "--force")

    assert pointers(group_command, queue) == {"kept": 0}
    assert not cassandra_store.read_rows(partition_of_group(queue.queue_id, "held")).rows
    with pytest.raises(QueueStateError, match="has no group 'held'"):
        group_command("delete", queue.name, "held", "--yes")
    group_command("create", queue.name, "held", "--from", "10")
    assert pointers(group_command, queue) == {"held": 10, "kept": 0}
