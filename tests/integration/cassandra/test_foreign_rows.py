"""Rows that other programs have written: they break no connection, and no other queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT
from cassieq_spark.errors import CassieqError
from cassieq_spark.model import QueueId, to_millis
from cassieq_spark.queues import list_queues
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import Insert, Slice, partition_of_ledger
from tests.support.command_line import make_command
from tests.support.snapshots import read_snapshot

#: As 9999-12-31T23:59:59-23:59 is stored, and 0001-01-01T00:00:00+14:00; and the ends.
FAR = (253_402_387_139_000, -62_135_647_200_000, 2**63 - 1, -(2**63))
FOR_AN_HOUR = timedelta(hours=1)


@pytest.fixture
def own(connection: ConnectionOptions) -> ConnectionOptions:
    """A keyspace of a test's own: its queues fail."""
    options = replace(connection, keyspace=f"cassieq_test_{uuid4().hex[:12]}")
    apply_schema(options, {"SimpleStrategy": 1})
    return options


@pytest.fixture
def store(own: ConnectionOptions) -> Iterator[CassandraStore]:
    store = open_store(own)
    assert isinstance(store, CassandraStore)
    yield store
    store.close()


def execute(store: CassandraStore, text: str) -> None:
    """As any program does that may write to the tables."""
    session = store._session
    session.driver.execute(text.replace(" TABLE ", f" {session.options.keyspace}."))


def is_up(store: CassandraStore) -> bool:
    return all(host.is_up for host in store._session._cluster.metadata.all_hosts())


@pytest.mark.parametrize("milliseconds", FAR)
def test_an_instant_that_no_calendar_has_is_read_as_the_nearest_one(
    store: CassandraStore, milliseconds: int
):
    ledger = partition_of_ledger(QueueId(f"{uuid4()}@1"))
    store.cas(ledger, [Insert(("block", 0, ""), {"stop": 1}, if_absent=True)])
    execute(
        store,
        f"INSERT INTO TABLE ledger (queue_id, kind, position, name, visible_at) "
        f"VALUES ('{ledger.key[0]}', 'block', 0, '', {milliseconds})",
    )

    nearest = LAST_INSTANT if milliseconds > 0 else FIRST_INSTANT
    for serial in (False, True):
        (row,) = store.read_rows(ledger, Slice(kinds=("block",)), serial=serial).rows
        assert row["visible_at"] == nearest
    assert is_up(store)


def test_instants_come_back_to_the_millisecond(store: CassandraStore):
    ledger = partition_of_ledger(QueueId(f"{uuid4()}@1"))
    for number, milliseconds in enumerate((0, 1, 999, 1_763_827_200_123, to_millis(LAST_INSTANT))):
        at = FIRST_INSTANT + timedelta(milliseconds=milliseconds)
        store.cas(ledger, [Insert(("block", number, ""), {"visible_at": at}, if_absent=True)])
        (row,) = store.read_rows(ledger, Slice(row=("block", number, ""))).rows
        assert row["visible_at"] == at


@pytest.mark.parametrize("column", ["visible_at", "published_at"])
@pytest.mark.parametrize("milliseconds", FAR)
def test_a_far_instant_stops_neither_other_queues_nor_the_repair_and_the_queue_can_be_purged(
    own: ConnectionOptions, store: CassandraStore, column: str, milliseconds: int
):
    client = Client.from_store(store)
    for name in ("bad", "good"):
        client.create_queue(name, drop_dead=True)
        client.put(name, "first")
        client.put(name, "delayed", delay=FOR_AN_HOUR)
    execute(
        store,
        f"UPDATE TABLE ledger SET {column} = {milliseconds} "
        "WHERE queue_id = 'bad@1' AND kind = 'block' AND position = 1 AND name = ''",
    )

    for name in ("bad", "good"):
        (message,) = client.receive(name, "g", max=5)[:1]
        client.ack(message)
    snapshot = read_snapshot(store)
    report = run_once(store, scan=DriverScan(store))

    assert is_up(store)
    assert {each.name for each in snapshot.queues} == {"bad", "good"}
    assert report.outcome is Outcome.DONE
    purged = make_command(own, "queue", "purge")("bad", "--yes", "--force")
    assert purged.exit_code == 0
    client.put("bad", "again")
    (message,) = client.receive("bad", "g")
    assert message.value == b"again"


def test_a_queue_whose_row_cannot_be_read_is_one_error_and_can_be_deleted(
    own: ConnectionOptions, store: CassandraStore
):
    client = Client.from_store(store)
    for name in ("bad", "good"):
        client.create_queue(name, drop_dead=True)
        client.put(name, "first")
    execute(store, "UPDATE TABLE queue SET lease_seconds = null WHERE name = 'bad'")
    execute(store, "INSERT INTO TABLE queue (name) VALUES ('worse')")

    listed = make_command(own, "queue", "list")()
    watched = make_command(own, "top")("--once")
    report = run_once(store, scan=DriverScan(store))

    assert [queue.name for queue in list_queues(store)] == ["good"]
    assert listed.exit_code == 0
    assert "bad" in listed.output
    assert watched.exit_code == 0
    assert set(report.failed) == {"bad", "worse"}
    assert report.outcome is Outcome.SOME_FAILED
    for name in ("bad", "worse"):
        with pytest.raises(CassieqError, match=f"name '{name}' can't be read"):
            client.put(name, "x")
        assert make_command(own, "queue", "delete")(name, "--yes").exit_code == 0
    after = run_once(store, scan=DriverScan(store))
    assert after.outcome is Outcome.DONE
    client.create_queue("bad", drop_dead=True)
    assert client.put("bad", "x") == 0
