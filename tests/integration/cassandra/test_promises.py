from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from cassieq_spark.model import QueueId
from cassieq_spark.store.cassandra import clocks
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import Insert, Partition, Slice, partition_of_ledger

pytestmark = pytest.mark.cassandra

HEAD = ("head", 0, "")


@pytest.fixture
def ledger(cassandra_store: CassandraStore) -> Partition:
    partition = partition_of_ledger(QueueId(f"{uuid4()}@1"))
    assert cassandra_store.cas(partition, [Insert(HEAD, {"next": 0}, if_absent=True)])
    return partition


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour behind: to this process, the clocks of all nodes are ahead."""
    behind = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(clocks, "time", behind)


def promised(store: CassandraStore, partition: Partition) -> tuple[Any, Any]:
    """Until when replicas have promised to reads, and to LWTs, in ticks of their time."""
    rows = store._session.driver.execute(
        "SELECT in_progress_read_ballot, in_progress_ballot FROM system.paxos "
        "WHERE row_key = textAsBlob(%s)",
        partition.key,
    ).current_rows
    assert len(rows) == 1
    return tuple(each.time if isinstance(each, UUID) else 0 for each in rows[0])


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("row", [HEAD, ("head", 1, "")], ids=["found", "not found"])
def test_before_a_serial_read_by_a_node_that_is_ahead_goes_the_promise_of_an_lwt(
    cassandra_store: CassandraStore, ledger: Partition, row: tuple[str, int, str]
):
    _, to_lwts = promised(cassandra_store, ledger)

    found = cassandra_store.read_rows(ledger, Slice(row=row), serial=True)

    to_reads, to_later_lwts = promised(cassandra_store, ledger)
    assert to_lwts < to_later_lwts < to_reads
    assert len(found.rows) == (row == HEAD)


def test_a_serial_read_by_a_node_whose_clock_is_right_leaves_its_own_promise_alone(
    cassandra_store: CassandraStore, ledger: Partition
):
    _, to_lwts = promised(cassandra_store, ledger)

    cassandra_store.read_rows(ledger, Slice(row=HEAD), serial=True)

    to_reads, to_later_lwts = promised(cassandra_store, ledger)
    assert to_reads > to_later_lwts == to_lwts


@pytest.mark.usefixtures("late")
def test_the_lwt_before_a_serial_read_writes_nothing(
    cassandra_store: CassandraStore, ledger: Partition
):
    before = cassandra_store.read_rows(ledger).rows

    cassandra_store.read_rows(ledger, serial=True)

    assert cassandra_store.read_rows(ledger).rows == before
