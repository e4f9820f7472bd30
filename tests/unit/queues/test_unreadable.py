"""Rows of the table of queues that other programs have written, or that were changed by hand."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.monitoring.board import lines
from cassieq_spark.queues import (
    create_queue,
    delete_queue,
    list_queues,
    list_records,
    read_queue,
    read_records,
)
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_queue
from tests.support.snapshots import read_snapshot

LOST: tuple[dict[str, Any], ...] = (
    {"version": None},
    {"version": 0},
    {"version": -3},
    {"version": 2**31 - 1},
    {"status": None},
    {"status": "resting"},
    {"retired": 7},
    {"retired": -1},
    {"bucket_size": None},
    {"bucket_size": 0},
    {"bucket_size": 100},
    {"chunk_size": None},
    {"chunk_size": -1},
    {"lease_seconds": None},
    {"lease_seconds": 0},
    {"max_deliveries": -1},
    {"dead_letter_queue": "not a name"},
    {"dead_letter_queue": "bad"},
    {"expire_after_seconds": -1},
    {"keep_settled_seconds": 2**31 - 1},
)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    with Client.from_store(store) as client:
        for name in ("bad", "good", "other"):
            client.create_queue(name, max_deliveries=3, drop_dead=True)
            client.put_many(name, ["a", "b"])
            client.receive(name, "g")
    return store


def spoil(store: MemoryStore, **values: Any) -> None:
    row = store._rows[partition_of_queue("bad")][()]
    for column, value in values.items():
        row[column] = value
        if value is None:
            del row[column]


@pytest.mark.parametrize("values", LOST, ids=str)
def test_a_row_that_cannot_be_read_is_one_error_that_names_its_queue(
    store: MemoryStore, values: dict[str, Any]
):
    spoil(store, **values)

    records = read_records(store)
    snapshot = read_snapshot(store)
    report = run_once(store, scan=DriverScan(store))

    assert list(records.readable) == ["good", "other"]
    assert [record.name for record in list_records(store)] == ["good", "other"]
    assert [queue.name for queue in list_queues(store)] == ["good", "other"]
    assert "name 'bad' can't be read" in str(records.unreadable["bad"])
    assert [queue.name for queue in snapshot.queues] == ["good", "other"]
    assert set(snapshot.errors) == {"bad"}
    assert [line.queue for line in lines(None, snapshot) if line.error] == ["bad"]
    assert (report.outcome, report.failed) == (Outcome.SOME_FAILED, ["bad"])
    assert any("name 'bad' can't be read" in problem for problem in report.problems())
    with pytest.raises(InvariantError, match="name 'bad' can't be read"):
        read_queue(store, "bad")


@pytest.mark.parametrize("values", LOST, ids=str)
def test_a_queue_whose_row_cannot_be_read_is_deleted_and_made_anew(
    store: MemoryStore, values: dict[str, Any]
):
    spoil(store, **values)

    delete_queue(store, "bad", force=True)
    report = run_once(store, scan=DriverScan(store))

    assert report.outcome is Outcome.DONE
    assert not report.failed
    queue = create_queue(store, "bad")
    assert queue.version == 2, "no id comes again"
    with Client.from_store(store) as client:
        assert client.put("bad", "x") == 0
        assert [message.value for message in client.receive("bad", "g")] == [b"x"]
    assert not [key for key in store._chunks if key[0] == "bad@1"]


def test_what_readers_hold_of_it_is_told_before_it_is_deleted(store: MemoryStore):
    spoil(store, lease_seconds=None)

    with pytest.raises(CassieqError, match="readers of group 'g' of queue bad@1 hold"):
        delete_queue(store, "bad")

    assert "bad" in read_records(store).unreadable


def test_a_row_of_another_program_alone_is_deleted_too(store: MemoryStore):
    store._rows[partition_of_queue("stray")] = {(): {"change": uuid4()}}
    assert set(read_records(store).unreadable) == {"stray"}

    delete_queue(store, "stray")

    assert run_once(store, scan=DriverScan(store)).outcome is Outcome.DONE
    assert not read_records(store).unreadable


def test_the_repair_of_a_named_queue_that_cannot_be_read_says_so(store: MemoryStore):
    spoil(store, status="resting")

    report = run_once(store, scan=DriverScan(store), queues=["bad"])

    assert report.failed == ["bad"]
    assert run_once(store, scan=DriverScan(store), queues=["good"]).outcome is Outcome.DONE
