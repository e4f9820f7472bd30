from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from cassieq_spark.cli import output
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, Ranges, SinkBatch
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import create_queue, read_queue, read_record
from cassieq_spark.schedules import create_schedule
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import CLOCKS_APART, Store
from tests.support.command_line import Command, make_command


@pytest.fixture
def queue_command(connection: ConnectionOptions) -> Command:
    return make_command(connection, "queue")


@pytest.fixture
def queue(cassandra_store: Store) -> QueueDefinition:
    """A thousand messages, all of them owed to group ``g``."""
    queue = create_queue(cassandra_store, f"life-{uuid4().hex[:10]}")
    publish(
        Ledger(cassandra_store, queue.queue_id),
        [PendingBlock(new_block_id(), 1_000)],
        batch=SinkBatch("app:loader", 7),
    )
    ensure_group(ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "g"), starting="earliest")
    return queue


def shown(queue_command: Command, name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(queue_command("show", name, "--json").stdout)
    return values


def status(queue_command: Command, name: str, *arguments: str) -> str | None:
    listed: Sequence[dict[str, Any]] = json.loads(
        queue_command("list", "--json", *arguments).stdout
    )
    return next((each["status"] for each in listed if each["queue"] == name), None)


def lease(store: Store, queue: QueueDefinition, limit: int) -> list[Ranges]:
    stop = Ledger(store, queue.queue_id).read_head().offered_below()
    request = LeaseRequest(
        held=None, token=uuid4(), lease=timedelta(minutes=5), max_messages=limit, stop=stop
    )
    lease = ConsumerGroup(Ledger(store, queue.queue_id), "g").lease(request)
    return [each.monotons for each in lease.leased]


def test_a_queue_is_altered(queue_command: Command, queue: QueueDefinition):
    dead = f"{queue.name}.dead"
    settings = ["--lease", "5s", "--max-deliveries", "3", "--dead-letter-queue", dead]
    queue_command("alter", queue.name, *settings, "--expire-after", "2h")

    values = shown(queue_command, queue.name)
    assert (values["lease_seconds"], values["max_deliveries"]) == (5, 3)
    assert (values["dead_letter_queue"], values["expire_after_seconds"]) == (dead, 7200)
    assert values["bucket_size"] == queue.bucket_size
    assert status(queue_command, dead) == "active"
    queue_command("alter", queue.name, "--drop-dead", "--expire-after", "0s")
    values = shown(queue_command, queue.name)
    assert (values["dead_letter_queue"], values["expire_after_seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to alter"),
        (["--bucket-size", "1024"], "the keys of all stored messages"),
        (["--chunk-size", "64"], "create another queue"),
        (["--order", "strict"], "the order can't be altered"),
        (["--drop-dead", "--dead-letter-queue", "d"], "cannot be combined with"),
        (["--lease", "0s"], "at least a second"),
        (["--dead-letter-queue", "d"], "needs a limit"),
        (["--expire-after", "soon"], "--expire-after must be a duration"),
    ],
)
def test_what_cannot_be_altered_is_refused_with_a_reason(
    queue_command: Command, queue: QueueDefinition, arguments: list[str], complaint: str
):
    before = shown(queue_command, queue.name)

    with pytest.raises(OptionError, match=complaint):
        queue_command("alter", queue.name, *arguments)
    assert shown(queue_command, queue.name) == before


def test_a_paused_queue_gives_nothing_out_until_it_is_resumed(
    queue_command: Command, queue: QueueDefinition, cassandra_store: Store
):
    assert "is paused." in queue_command("pause", queue.name).stdout
    assert "is paused already" in queue_command("pause", queue.name).stdout
    assert shown(queue_command, queue.name)["paused"] is True
    assert lease(cassandra_store, queue, 10) == []
    publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 5)])

    assert "is resumed" in queue_command("resume", queue.name).stdout
    assert "was not paused" in queue_command("resume", queue.name).stdout
    assert shown(queue_command, queue.name)["paused"] is False
    assert list(map(str, lease(cassandra_store, queue, 10))) == ["0-10"]


def test_a_queue_is_purged_under_its_readers_and_writers(
    queue_command: Command, queue: QueueDefinition, cassandra_store: Store
):
    lease(cassandra_store, queue, 10)
    with pytest.raises(QueueStateError, match=r"readers of group 'g' .* hold messages 0 to 9"):
        queue_command("purge", queue.name, "--yes")

    assert f"{queue.name}@2" in queue_command("purge", queue.name, "--yes", "--force").stdout

    with pytest.raises(QueueStateError, match="was purged"):
        publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 5)])
    with pytest.raises(QueueStateError, match="was purged"):
        ensure_group(
            ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "new"), starting="earliest"
        )
    assert lease(cassandra_store, queue, 10) == []
    purged = read_queue(cassandra_store, queue.name)
    assert [group.name for group in Ledger(cassandra_store, purged.queue_id).read_groups()] == [
        "g"
    ]
    again = [PendingBlock(new_block_id(), 1_000)]
    batch = SinkBatch("app:loader", 7)
    assert publish(Ledger(cassandra_store, purged.queue_id), again, batch=batch).monotons is None
    publish(Ledger(cassandra_store, purged.queue_id), [PendingBlock(new_block_id(), 5)])
    ensure_group(ConsumerGroup(Ledger(cassandra_store, purged.queue_id), "g"), starting="latest")
    assert list(map(str, lease(cassandra_store, purged, 10))) == ["0-5"]


def test_a_deleted_queue_is_listed_until_nothing_is_left_and_can_be_made_anew(
    queue_command: Command, queue: QueueDefinition, cassandra_store: Store
):
    assert "is deleted" in queue_command("delete", queue.name, "--yes").stdout

    assert status(queue_command, queue.name) == "deleting"
    with pytest.raises(QueueStateError, match="was deleted"):
        publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 5)])
    with pytest.raises(QueueStateError, match="there is no queue"):
        queue_command("show", queue.name)
    assert f"{queue.name}@2" in queue_command("create", queue.name, "--drop-dead").stdout
    assert not Ledger(cassandra_store, queue.queue_id).create()
    assert lease(cassandra_store, queue, 10) == []
    record = read_record(cassandra_store, queue.name)
    assert record is not None
    assert record.to_retire == (queue.queue_id,)


def test_a_queue_that_others_need_is_deleted_by_force_only(queue_command: Command):
    name = f"life-{uuid4().hex[:10]}"
    queue_command("create", name)

    with pytest.raises(QueueStateError, match=f"is the dead-letter queue of {name}; "):
        queue_command("delete", f"{name}.dead", "--yes")
    queue_command("delete", f"{name}.dead", "--yes", "--force")

    assert status(queue_command, f"{name}.dead") == "deleting"
    assert status(queue_command, name) == "active"


@pytest.mark.parametrize("command", ["purge", "delete"])
def test_nothing_is_thrown_away_unless_somebody_said_so(
    queue_command: Command,
    cassandra_store: Store,
    queue: QueueDefinition,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
):
    create_schedule(cassandra_store, queue.name, "yearly", "{}", cron="@yearly")
    with pytest.raises(OptionError, match="give --yes"):
        queue_command(command, queue.name)
    monkeypatch.setattr(output, "is_interactive", lambda: True)

    declined = queue_command(command, queue.name, said="n\n")

    schedules = " and has 1 schedule(s)" if command == "delete" else ""
    assert f"which stores 1,000 message(s) for 1 group(s){schedules}?" in declined.stderr
    assert declined.exit_code == 1
    assert status(queue_command, queue.name) == "active"
    assert queue_command(command, queue.name, said="y\n").exit_code == 0


@pytest.mark.parametrize("command", ["alter", "pause", "resume", "purge", "delete"])
def test_a_queue_that_does_not_exist_is_named(queue_command: Command, command: str):
    arguments = {"alter": ["--lease", "5s"], "purge": ["--yes"], "delete": ["--yes"]}

    with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
        queue_command(command, "nobody", *arguments.get(command, []))


def test_attributes_are_shown_set_and_removed(queue_command: Command, queue: QueueDefinition):
    told = queue_command("attributes", queue.name).stdout
    set_now = queue_command(
        "attributes", queue.name, "--set", "team=a=b", "--set", "tier=1", "--json"
    ).stdout
    left = queue_command("attributes", queue.name, "--remove", "tier").stdout
    shown = json.loads(queue_command("show", queue.name, "--json").stdout)

    assert told == f"Queue {queue.name} has no attributes.\n"
    assert json.loads(set_now) == {"team": "a=b", "tier": "1"}
    assert left.split() == ["team", "a=b"]
    assert shown["attributes"] == {"team": "a=b"}
    assert "a=b" in queue_command("show", queue.name).stdout


def test_what_a_clock_that_was_ahead_has_done_is_undone(
    queue_command: Command, queue: QueueDefinition, cassandra_store: Store
):
    head = Ledger(cassandra_store, queue.queue_id).read_head()
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    assert Ledger(cassandra_store, queue.queue_id).raise_fence(head, ahead)
    group = ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "g")
    stop = Ledger(cassandra_store, queue.queue_id).read_head().next
    request = LeaseRequest(
        held=None, token=uuid4(), lease=timedelta(days=30), max_messages=None, stop=stop
    )
    held = group.lease(request)

    planned = json.loads(queue_command("fix-clocks", queue.name, "--dry-run", "--json").stdout)
    fixed = queue_command("fix-clocks", queue.name)
    told = fixed.stdout
    again = queue_command("fix-clocks", queue.name).stdout

    assert (planned["fence"][0], planned["due"]) == (ahead.isoformat(), {"g": stop})
    assert f"Group g: {stop:,} message(s) are due now, or one lease from now." in told
    assert "before the fence is lowered, stop all writers" in fixed.stderr
    assert "Nothing" in again
    fence = Ledger(cassandra_store, queue.queue_id).read_head().fence
    assert abs(fence - datetime.now(UTC) - CLOCKS_APART) < timedelta(minutes=1)
    assert not group.lease(replace(request, token=uuid4())).leased
    (slot,) = (each for each in group.read().slots if each.monotons)
    assert [slot.monotons] == [each.monotons for each in held.leased]
    assert abs(slot.due_at - datetime.now(UTC) - queue.lease) < timedelta(minutes=1)
