"""When a compare-and-set is applied, and when it is refused."""

from __future__ import annotations

from typing import Literal
from uuid import uuid1

import pytest

from cassieq_spark.store.protocol import Delete, Insert, Op, Store, Update, When
from cassieq_spark.testing.conformance.rows import (
    HEAD,
    fresh_ledger,
    head_of,
    put,
    rows_by_key,
    sink,
)

Comparison = Literal["=", "<", "<=", ">", ">="]

EVERY_COMPARISON = pytest.mark.parametrize("comparison", ["=", "<", "<=", ">", ">="])


class ConditionContract:
    """Null semantics, comparisons, all or nothing."""

    @EVERY_COMPARISON
    def test_no_comparison_with_a_value_holds_for_a_missing_row(
        self, store: Store, comparison: Comparison
    ) -> None:
        ledger = fresh_ledger()

        applied = store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", comparison, 0),))])

        assert not applied
        assert rows_by_key(store, ledger) == {}

    @EVERY_COMPARISON
    def test_no_comparison_with_a_value_holds_for_a_missing_column(
        self, store: Store, comparison: Comparison
    ) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, finalised=3)

        applied = store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", comparison, 0),))])

        assert not applied
        assert head_of(store, ledger)["next"] is None

    def test_equal_to_null_holds_for_a_missing_row_and_the_update_makes_it(
        self, store: Store
    ) -> None:
        ledger = fresh_ledger()

        applied = store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", "=", None),))])

        assert applied
        assert head_of(store, ledger)["next"] == 1

    def test_equal_to_null_holds_for_a_missing_column(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, finalised=3)

        assert store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", "=", None),))])

    def test_equal_to_null_does_not_hold_for_a_value(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)

        assert not store.cas(ledger, [Update(HEAD, {"next": 1}, (When("next", "=", None),))])

    @pytest.mark.parametrize(
        ("comparison", "value", "holds"),
        [
            ("=", 5, True),
            ("=", 6, False),
            ("<", 6, True),
            ("<", 5, False),
            ("<=", 5, True),
            ("<=", 4, False),
            (">", 4, True),
            (">", 5, False),
            (">=", 5, True),
            (">=", 6, False),
        ],
    )
    def test_a_comparison_holds_as_arithmetic_says(
        self, store: Store, comparison: Comparison, value: int, *, holds: bool
    ) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)
        update = Update(HEAD, {"finalised": 1}, (When("next", comparison, value),))

        assert store.cas(ledger, [update]) is holds

    def test_uuids_compare_for_equality(self, store: Store) -> None:
        ledger, block = fresh_ledger(), uuid1()
        put(store, ledger, HEAD, block=block)
        theirs = (When("block", "=", uuid1()),)
        ours = (When("block", "=", block),)

        assert not store.cas(ledger, [Update(HEAD, {"next": 1}, theirs)])
        assert store.cas(ledger, [Update(HEAD, {"next": 1}, ours)])

    def test_all_conditions_of_an_update_must_hold(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5, finalised=2)
        one_wrong = (When("next", "=", 5), When("finalised", "=", 3))
        both_right = (When("next", "=", 5), When("finalised", "=", 2))

        assert not store.cas(ledger, [Update(HEAD, {"next": 6}, one_wrong)])
        assert store.cas(ledger, [Update(HEAD, {"next": 6}, both_right)])

    def test_one_column_may_have_two_conditions(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)
        outside = (When("next", ">", 5), When("next", "<", 9))
        inside = (When("next", ">=", 5), When("next", "<", 9))

        assert not store.cas(ledger, [Update(HEAD, {"next": 6}, outside)])
        assert store.cas(ledger, [Update(HEAD, {"next": 6}, inside)])

    def test_conditions_see_the_state_before_the_compare_and_set(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)
        update = Update(HEAD, {"next": 6, "finalised": 6}, (When("next", "=", 5),))

        assert store.cas(ledger, [update])
        assert not store.cas(ledger, [update])

    def test_one_false_condition_among_many_rows_refuses_everything(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)
        put(store, ledger, sink("a"), batch_id=1)
        put(store, ledger, sink("gone"), batch_id=1)
        before = rows_by_key(store, ledger)

        applied = store.cas(ledger, _on_many_rows(When("batch_id", "=", 7)))

        assert not applied
        assert rows_by_key(store, ledger) == before

    def test_conditions_of_different_kinds_on_different_rows_apply_together(
        self, store: Store
    ) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=5)
        put(store, ledger, sink("a"), batch_id=1)
        put(store, ledger, sink("gone"), batch_id=1)

        applied = store.cas(ledger, _on_many_rows(When("batch_id", "<", 2)))

        after = rows_by_key(store, ledger)
        assert applied
        assert {key: row["batch_id"] for key, row in after.items()} == {
            HEAD: None,
            sink("a"): 2,
            sink("b"): 0,
            sink("c"): 0,
        }
        assert after[HEAD]["next"] == 6


def _on_many_rows(condition: When) -> list[Op]:
    return [
        Update(HEAD, {"next": 6}, (When("next", "=", 5),)),
        Update(sink("a"), {"batch_id": 2}, (condition,)),
        Insert(sink("b"), {"batch_id": 0}, if_absent=True),
        Insert(sink("c"), {"batch_id": 0}),
        Delete(sink("gone")),
    ]
