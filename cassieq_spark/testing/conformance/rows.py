"""Rows for tests, in partitions that no other test uses."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    Insert,
    Partition,
    Row,
    RowKey,
    ServerNow,
    Store,
    Value,
    partition_of_group,
    partition_of_ledger,
)

HEAD: RowKey = ("head", 0, "")


def fresh_queue_id() -> QueueId:
    """A new queue id."""
    return QueueId(f"conformance-{uuid4()}@1")


def fresh_ledger() -> Partition:
    """An empty ledger."""
    return partition_of_ledger(fresh_queue_id())


def fresh_group_state() -> Partition:
    """An empty group state."""
    return partition_of_group(fresh_queue_id(), "group")


def sink(name: str) -> RowKey:
    """The key of a row that has a name."""
    return ("sink", 0, name)


def block(position: int) -> RowKey:
    """The key of a row that has a position."""
    return ("block", position, "")


def put(store: Store, partition: Partition, row: RowKey, **values: Value | ServerNow) -> None:
    """Insert a row that does not exist yet."""
    assert store.cas(partition, [Insert(row, values, if_absent=True)])


def rows_by_key(store: Store, partition: Partition) -> dict[RowKey, Row]:
    """All rows of a ledger, by their keys."""
    return {
        (str(row["kind"]), int(str(row["position"])), str(row["name"])): row
        for row in store.read_rows(partition).rows
    }


def head_of(store: Store, partition: Partition) -> Row:
    """The head of a ledger."""
    return rows_by_key(store, partition)[HEAD]


def instant_of(row: Row, column: str) -> datetime:
    """The instant in a column, in UTC and whole milliseconds."""
    instant = row[column]
    assert isinstance(instant, datetime)
    assert instant.tzinfo is UTC
    assert instant.microsecond % 1000 == 0
    return instant
