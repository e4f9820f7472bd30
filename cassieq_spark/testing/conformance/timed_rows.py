"""Rows with a time to live: written by their only writer, or inserted by a compare-and-set."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Partition,
    Row,
    RowKey,
    Slice,
    Store,
    Update,
    Value,
    When,
    partition_of_history,
    partition_of_lock,
)
from cassieq_spark.testing.conformance.rows import HEAD, fresh_ledger, put

ENTRY: RowKey = ("entry", "")
MINE: RowKey = ("ticket", "mine")
YOURS: RowKey = ("ticket", "yours")
ONCE: RowKey = ("once", 0, "name")
LONG = timedelta(hours=1)
SHORT = timedelta(seconds=2)
#: By how many seconds a server may round a time to live down.
SECOND = 1.0
HANGS_AFTER_SECONDS = 60.0


class TimedRowContract:
    """`Store.write_row`, `Store.delete_row` and `Insert.ttl`."""

    def test_a_row_with_a_time_to_live_is_read_with_others(self, store: Store) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"owner": "me", "number": 3}, timestamp=10, ttl=LONG)
        store.write_row(lock, YOURS, {"owner": "you"}, timestamp=10, ttl=LONG)

        rows = store.read_rows(lock, Slice(kinds=("ticket",)))

        assert [(row["ticket"], row["owner"], row["number"]) for row in rows.rows] == [
            ("mine", "me", 3),
            ("yours", "you", None),
        ]
        assert rows.now is not None

    def test_the_highest_timestamp_wins_in_whatever_order_they_arrive(self, store: Store) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"owner": "new"}, timestamp=20, ttl=LONG)
        store.write_row(lock, MINE, {"owner": "old"}, timestamp=10, ttl=LONG)

        assert _read(store, lock, MINE)["owner"] == "new"

    def test_columns_that_a_later_write_adds_are_not_lost_to_a_late_earlier_one(
        self, store: Store
    ) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"owner": "me", "number": 1}, timestamp=20, ttl=LONG)
        store.write_row(lock, MINE, {"owner": "me"}, timestamp=10, ttl=LONG)

        assert _read(store, lock, MINE)["number"] == 1

    def test_writing_it_again_changes_nothing(self, store: Store) -> None:
        lock = _fresh_lock()
        for _ in range(2):
            store.write_row(lock, MINE, {"owner": "me"}, timestamp=10, ttl=LONG)

        assert _read(store, lock, MINE)["owner"] == "me"

    def test_a_deleted_row_is_gone_and_what_was_written_before_stays_away(
        self, store: Store
    ) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"owner": "me"}, timestamp=10, ttl=LONG)
        store.write_row(lock, YOURS, {"owner": "you"}, timestamp=10, ttl=LONG)

        store.delete_row(lock, MINE, timestamp=20)
        for late in (10, 20):
            store.write_row(lock, MINE, {"owner": "me"}, timestamp=late, ttl=LONG)

        assert [row["ticket"] for row in store.read_rows(lock).rows] == ["yours"]

    def test_a_deletion_spares_what_was_written_later(self, store: Store) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"owner": "me"}, timestamp=30, ttl=LONG)

        store.delete_row(lock, MINE, timestamp=20)

        assert _read(store, lock, MINE)["owner"] == "me"

    def test_a_row_vanishes_when_its_time_is_over(self, store: Store) -> None:
        lock, began = _fresh_lock(), time.monotonic()
        store.write_row(lock, MINE, {"owner": "me"}, timestamp=10, ttl=SHORT)
        store.write_row(lock, YOURS, {"owner": "you"}, timestamp=10, ttl=SHORT)
        store.write_row(lock, YOURS, {"owner": "you"}, timestamp=11, ttl=LONG)

        _await_rows(store, lock, 1)

        assert time.monotonic() - began >= SHORT.total_seconds() - SECOND
        assert _read(store, lock, YOURS)["owner"] == "you"

    def test_what_has_vanished_may_be_written_again(self, store: Store) -> None:
        lock = _fresh_lock()
        store.write_row(lock, MINE, {"number": 1}, timestamp=10, ttl=timedelta(seconds=1))
        _await_rows(store, lock, 0)

        store.write_row(lock, MINE, {"owner": "me"}, timestamp=11, ttl=LONG)

        row = _read(store, lock, MINE)
        assert (row["owner"], row["number"]) == ("me", None)

    def test_compare_and_sets_of_another_row_are_independent_of_it(self, store: Store) -> None:
        lock = _fresh_lock()
        assert store.cas(lock, [Insert(ENTRY, {"epoch": 1}, if_absent=True)])

        store.write_row(lock, MINE, {"owner": "me"}, timestamp=10, ttl=LONG)

        assert store.cas(lock, [Update(ENTRY, {"epoch": 2}, (When("epoch", "=", 1),))])
        assert _read(store, lock, ENTRY, serial=True)["epoch"] == 2
        assert _read(store, lock, MINE)["owner"] == "me"

    def test_the_last_of_many_come_first_in_reverse(self, store: Store) -> None:
        history = partition_of_history(f"conformance-{uuid4()}")
        for epoch in range(5):
            values: dict[str, Value] = {"runner": "me", "duration_ms": 10 * epoch}
            store.write_row(history, (epoch,), values, timestamp=1, ttl=LONG)

        rows = store.read_rows(history, Slice(limit=2, reverse=True)).rows

        assert [(row["epoch"], row["duration_ms"]) for row in rows] == [(4, 40), (3, 30)]

    @pytest.mark.parametrize(
        "ttl", [timedelta(0), timedelta(milliseconds=1500), timedelta(seconds=-1)]
    )
    def test_the_time_is_in_whole_seconds(self, store: Store, ttl: timedelta) -> None:
        with pytest.raises(ValueError, match="for whole seconds"):
            store.write_row(_fresh_lock(), MINE, {"owner": "me"}, timestamp=1, ttl=ttl)

    def test_no_value_is_null(self, store: Store) -> None:
        with pytest.raises(ValueError, match="no nulls"):
            store.write_row(_fresh_lock(), MINE, {"owner": None}, timestamp=1, ttl=LONG)

    def test_a_row_that_is_inserted_for_a_time_is_there_meanwhile(self, store: Store) -> None:
        ledger = fresh_ledger()
        insert = Insert(ONCE, {"batch_id": 1}, if_absent=True, ttl=LONG)
        assert store.cas(ledger, [insert])

        assert not store.cas(ledger, [replace(insert, values={"batch_id": 2})])
        assert _read(store, ledger, ONCE)["batch_id"] == 1

    def test_a_row_that_is_inserted_for_a_time_vanishes_by_itself_and_may_be_inserted_again(
        self, store: Store
    ) -> None:
        ledger, began = fresh_ledger(), time.monotonic()
        insert = Insert(ONCE, {"batch_id": 1}, if_absent=True, ttl=SHORT)
        assert store.cas(ledger, [insert])

        _await_rows(store, ledger, 0)

        assert time.monotonic() - began >= SHORT.total_seconds() - SECOND
        assert store.cas(ledger, [replace(insert, values={"batch_id": 3}, ttl=LONG)])
        assert _read(store, ledger, ONCE, serial=True)["batch_id"] == 3

    def test_it_vanishes_and_rows_of_the_same_compare_and_set_stay(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)
        ops: list[Op] = [
            Update(HEAD, {"next": 1}, (When("next", "=", 0),)),
            Insert(ONCE, {"batch_id": 0}, if_absent=True, ttl=timedelta(seconds=1)),
            Insert(("once", 0, "other"), {"batch_id": 0}, if_absent=True, ttl=LONG),
            Insert(("sink", 0, "s"), {"batch_id": 7}, if_absent=True),
        ]

        assert store.cas(ledger, ops)
        assert not store.cas(ledger, [Update(HEAD, {"next": 2}, (When("next", "=", 1),)), ops[2]])
        _await_rows(store, ledger, 3)

        found = {str(row["name"]): row["batch_id"] for row in store.read_rows(ledger).rows}
        assert found == {"": None, "other": 0, "s": 7}
        assert _read(store, ledger, HEAD)["next"] == 1

    @pytest.mark.parametrize("ttl", [timedelta(0), timedelta(milliseconds=1500)])
    def test_the_time_of_what_is_inserted_is_in_whole_seconds(
        self, store: Store, ttl: timedelta
    ) -> None:
        with pytest.raises(ValueError, match="for whole seconds"):
            store.cas(fresh_ledger(), [Insert(ONCE, {"batch_id": 1}, if_absent=True, ttl=ttl)])

    def test_an_insert_for_a_time_must_be_one_if_absent(self, store: Store) -> None:
        with pytest.raises(ValueError, match="inserted if absent"):
            store.cas(fresh_ledger(), [Insert(ONCE, {"batch_id": 1}, ttl=LONG)])


def _fresh_lock() -> Partition:
    return partition_of_lock(f"conformance-{uuid4()}")


def _await_rows(store: Store, partition: Partition, count: int) -> None:
    deadline = time.monotonic() + HANGS_AFTER_SECONDS
    while len(store.read_rows(partition).rows) > count:
        assert time.monotonic() < deadline


def _read(store: Store, partition: Partition, row: RowKey, *, serial: bool = False) -> Row:
    (found,) = store.read_rows(partition, Slice(row=row), serial=serial).rows
    return found
