"""What each operation does to its row, and that it does nothing to other rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid1, uuid4

import pytest

from cassieq_spark.errors import TooLargeError
from cassieq_spark.store.protocol import (
    MOST_OPS,
    Delete,
    DeleteBelow,
    Insert,
    Store,
    Update,
    Value,
    When,
    partition_of_queue,
)
from cassieq_spark.testing.conformance.rows import (
    HEAD,
    block,
    fresh_group_state,
    fresh_ledger,
    fresh_queue_id,
    head_of,
    put,
    rows_by_key,
    sink,
)


class OperationContract:
    """Insert, update, delete."""

    def test_an_insert_if_absent_takes_a_place_once(self, store: Store) -> None:
        ledger = fresh_ledger()

        assert store.cas(ledger, [Insert(HEAD, {"next": 1}, if_absent=True)])
        assert not store.cas(ledger, [Insert(HEAD, {"next": 2}, if_absent=True)])
        assert head_of(store, ledger)["next"] == 1

    def test_an_insert_over_a_row_keeps_the_columns_that_it_does_not_name(
        self, store: Store
    ) -> None:
        ledger = fresh_ledger()
        put(store, ledger, sink("a"), batch_id=1, block=uuid1())
        before = rows_by_key(store, ledger)[sink("a")]

        insert = Insert(sink("a"), {"batch_id": 2, "block": None})
        assert store.cas(ledger, [insert, Insert(HEAD, {"next": 0}, if_absent=True)])

        assert rows_by_key(store, ledger)[sink("a")] == {**before, "batch_id": 2}

    def test_a_row_may_consist_of_its_key(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, sink("a"))

        assert list(rows_by_key(store, ledger)) == [sink("a")]
        assert not store.cas(ledger, [Insert(sink("a"), {}, if_absent=True)])

    def test_an_update_changes_the_columns_that_it_names_and_no_others(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5, finalised=2, fence=datetime(2026, 1, 2, tzinfo=UTC))
        put(store, ledger, sink("a"), batch_id=1)
        before = rows_by_key(store, ledger)

        assert store.cas(ledger, [Update(HEAD, {"next": 6}, (When("next", "=", 5),))])

        after = rows_by_key(store, ledger)
        assert after[HEAD] == {**before[HEAD], "next": 6}
        assert after[sink("a")] == before[sink("a")]

    def test_a_deleted_row_is_gone_and_its_place_is_free(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, sink("a"), batch_id=1, block=uuid1())

        assert store.cas(ledger, [Delete(sink("a"))])
        assert rows_by_key(store, ledger) == {}

        put(store, ledger, sink("a"), batch_id=2)
        assert rows_by_key(store, ledger)[sink("a")]["block"] is None

    def test_deleting_a_row_that_does_not_exist_refuses_everything(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)

        applied = store.cas(
            ledger,
            [Delete(sink("a")), Update(HEAD, {"next": 6}, (When("next", "=", 5),))],
        )

        assert not applied
        assert head_of(store, ledger)["next"] == 5

    def test_delete_below_rides_along_with_an_update_of_the_head(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, finalised=0)
        for position in (0, 10, 20, 30):
            put(store, ledger, block(position), stop=position + 10)
        trim = DeleteBelow("block", 20)

        assert not store.cas(
            ledger, [Update(HEAD, {"finalised": 20}, (When("finalised", "=", 9),)), trim]
        )
        assert len(rows_by_key(store, ledger)) == 5
        assert store.cas(
            ledger, [Update(HEAD, {"finalised": 20}, (When("finalised", "=", 0),)), trim]
        )
        assert list(rows_by_key(store, ledger)) == [block(20), block(30), HEAD]

    def test_delete_below_leaves_other_kinds_alone(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)
        put(store, ledger, sink("a"), batch_id=0)
        put(store, ledger, block(0), stop=1)

        assert store.cas(
            ledger, [Update(HEAD, {"next": 1}, (When("next", "=", 0),)), DeleteBelow("block", 9)]
        )

        assert list(rows_by_key(store, ledger)) == [HEAD, sink("a")]

    def test_what_one_compare_and_set_writes_outlives_what_it_deletes(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, block(1), stop=2)

        assert store.cas(
            ledger,
            [
                DeleteBelow("block", 9),
                Insert(block(5), {"stop": 6}),
                Insert(HEAD, {"next": 6}, if_absent=True),
            ],
        )

        assert list(rows_by_key(store, ledger)) == [block(5), HEAD]

    def test_bytes_come_back_as_they_were(self, store: Store) -> None:
        ledger, ids = fresh_ledger(), bytes(range(256)) * 64
        unique = ("unique", 7, "")

        assert store.cas(
            ledger,
            [
                Insert(unique, {"ids": ids, "ids_before": 3}),
                Insert(HEAD, {"next": 9, "last_ids": 7}, if_absent=True),
            ],
        )

        found: Any = rows_by_key(store, ledger)
        assert (bytes(found[unique]["ids"]), found[unique]["ids_before"]) == (ids, 3)
        assert found[HEAD]["last_ids"] == 7

    def test_a_compare_and_set_needs_a_condition(self, store: Store) -> None:
        with pytest.raises(ValueError, match="needs a condition"):
            store.cas(fresh_ledger(), [Insert(HEAD, {"next": 0}), DeleteBelow("block", 9)])

    def test_no_two_operations_may_name_one_row(self, store: Store) -> None:
        with pytest.raises(ValueError, match="two operations on one row"):
            store.cas(fresh_ledger(), [Delete(HEAD), Insert(HEAD, {"next": 0})])

    def test_more_operations_than_a_compare_and_set_has_room_for_are_refused(
        self, store: Store
    ) -> None:
        ledger = fresh_ledger()
        inserts = [Insert(block(at), {"stop": at + 1}) for at in range(MOST_OPS)]

        with pytest.raises(TooLargeError, match=f"{MOST_OPS + 1} operations.*smaller parts"):
            store.cas(ledger, [*inserts, Insert(HEAD, {"next": 0}, if_absent=True)])

        assert store.read_rows(ledger).rows == []

    def test_a_thousand_rows_are_one_compare_and_set(self, store: Store) -> None:
        ledger = fresh_ledger()
        inserts = [Insert(block(at), {"stop": at + 1, "block": uuid1()}) for at in range(1000)]

        assert store.cas(ledger, [*inserts, Insert(HEAD, {"next": 1000}, if_absent=True)])

        assert len(store.read_rows(ledger).rows) == 1001

    def test_every_type_of_value_comes_back_as_it_was(self, store: Store) -> None:
        ledger = fresh_ledger()
        values: dict[str, Value] = {
            "next": 2**62,
            "block": uuid1(),
            "created_at": datetime(2026, 11, 20, 12, 30, 1, 789_000, tzinfo=UTC),
        }
        put(store, ledger, sink("Größe ✓"), **values)

        row = rows_by_key(store, ledger)[sink("Größe ✓")]

        assert {column: row[column] for column in values} == values

    def test_a_definition_is_a_partition_of_one_row_without_further_key(
        self, store: Store
    ) -> None:
        queue = partition_of_queue(fresh_queue_id())

        assert store.cas(queue, [Insert((), {"version": 1, "status": "live"}, if_absent=True)])
        assert store.cas(queue, [Update((), {"status": "deleted"}, (When("version", "=", 1),))])

        (row,) = store.read_rows(queue).rows
        assert row["name"] == queue.key[0]
        assert (row["version"], row["status"], row["lease_seconds"]) == (1, "deleted", None)

    def test_delivery_rows_have_kind_ordinal_and_position(self, store: Store) -> None:
        group_state, lease = fresh_group_state(), uuid4()
        put(store, group_state, ("slot", 3, 0), ranges="5-9", lease=lease, deliveries=1)

        assert store.cas(
            group_state, [Update(("slot", 3, 0), {"ranges": ""}, (When("lease", "=", lease),))]
        )

        (row,) = store.read_rows(group_state).rows
        assert (row["kind"], row["ordinal"], row["position"]) == ("slot", 3, 0)
        assert (row["ranges"], row["deliveries"]) == ("", 1)
        assert (row["queue_id"], row["consumer_group"]) == group_state.key
