"""The rows that a read of one partition returns, and their order."""

from __future__ import annotations

import pytest

from cassieq_spark.store.protocol import (
    Insert,
    Partition,
    RowKey,
    Slice,
    Store,
    Update,
    When,
    partition_of_group,
)
from cassieq_spark.store.tables import SHAPES, Table
from cassieq_spark.testing.conformance.rows import (
    HEAD,
    block,
    fresh_ledger,
    fresh_queue_id,
    put,
    sink,
)

IN_ORDER = [block(0), block(10), block(20), block(30), HEAD, sink("a"), sink("b")]
BLOCK_ROWS = {
    "all of the kind": (Slice(kinds=("block",)), [0, 10, 20, 30]),
    "from a start": (Slice(kinds=("block",), start=10), [10, 20, 30]),
    "up to a stop": (Slice(kinds=("block",), stop=20), [0, 10]),
    "between": (Slice(kinds=("block",), start=10, stop=30), [10, 20]),
    "between, off the rows": (Slice(kinds=("block",), start=1, stop=21), [10, 20]),
    "limited": (Slice(kinds=("block",), start=10, limit=2), [10, 20]),
    "reversed": (Slice(kinds=("block",), reverse=True), [30, 20, 10, 0]),
    "the last one before": (Slice(kinds=("block",), stop=25, limit=1, reverse=True), [20]),
    "nothing": (Slice(kinds=("block",), start=31), []),
    "an empty run": (Slice(kinds=("block",), start=10, stop=10), []),
}


class SliceContract:
    """Order, bounds, kinds, serial reads."""

    @pytest.fixture
    def ledger(self, store: Store) -> Partition:
        """A ledger with the rows of `IN_ORDER`."""
        ledger = fresh_ledger()
        inserts = [Insert(key, {"stop": 1}, if_absent=True) for key in reversed(IN_ORDER)]
        assert store.cas(ledger, inserts)
        return ledger

    @pytest.mark.parametrize("serial", [False, True])
    def test_the_rows_of_some_keys_come_in_order_and_nothing_else(
        self, store: Store, ledger: Partition, *, serial: bool
    ) -> None:
        keys = (sink("b"), HEAD, sink("none"), block(20))

        found = store.read_rows(ledger, Slice(rows=keys), serial=serial)

        in_order = [(row["kind"], row["position"], row["name"]) for row in found.rows]
        assert in_order == [block(20), HEAD, sink("b")]
        assert found.now is not None
        assert store.read_rows(ledger, Slice(rows=(sink("none"),))).rows == []

    @pytest.mark.parametrize("serial", [False, True])
    def test_a_partition_without_rows_has_no_time(self, store: Store, *, serial: bool) -> None:
        rows = store.read_rows(fresh_ledger(), serial=serial)

        assert list(rows.rows) == []
        assert rows.now is None

    @pytest.mark.parametrize("serial", [False, True])
    def test_rows_come_in_the_order_of_their_keys(
        self, store: Store, ledger: Partition, *, serial: bool
    ) -> None:
        assert _keys(store, ledger, Slice(), serial=serial) == IN_ORDER

    def test_rows_have_every_column_of_their_table(self, store: Store, ledger: Partition) -> None:
        shape = SHAPES[Table.LEDGER]

        for row in store.read_rows(ledger).rows:
            assert set(row) == {*shape.partition, *shape.clustering, *shape.columns}
            assert row["queue_id"] == ledger.key[0]

    @pytest.mark.parametrize("name", BLOCK_ROWS)
    def test_a_slice_of_a_kind_has_the_rows_within_its_bounds(
        self, store: Store, ledger: Partition, name: str
    ) -> None:
        which, positions = BLOCK_ROWS[name]

        assert _keys(store, ledger, which) == [block(position) for position in positions]

    @pytest.mark.parametrize("serial", [False, True])
    def test_a_slice_may_be_one_row(
        self, store: Store, ledger: Partition, *, serial: bool
    ) -> None:
        assert _keys(store, ledger, Slice(row=sink("a")), serial=serial) == [sink("a")]
        assert _keys(store, ledger, Slice(row=sink("c")), serial=serial) == []

    def test_a_slice_may_have_several_kinds(self, store: Store, ledger: Partition) -> None:
        which = Slice(kinds=("sink", "head"))

        assert _keys(store, ledger, which) == [HEAD, sink("a"), sink("b")]
        assert _keys(store, ledger, which, serial=True) == [HEAD, sink("a"), sink("b")]

    def test_a_slice_of_all_kinds_may_be_reversed_and_limited(
        self, store: Store, ledger: Partition
    ) -> None:
        assert _keys(store, ledger, Slice(reverse=True, limit=3)) == IN_ORDER[:-4:-1]

    def test_a_serial_read_sees_what_was_just_applied(
        self, store: Store, ledger: Partition
    ) -> None:
        for turn in range(1, 20):
            assert store.cas(
                ledger, [Update(HEAD, {"stop": turn + 1}, (When("stop", "=", turn),))]
            )

            (row,) = store.read_rows(ledger, Slice(kinds=("head",)), serial=True).rows
            assert row["stop"] == turn + 1

    def test_partitions_know_nothing_of_each_other(self, store: Store) -> None:
        queue_id = fresh_queue_id()
        mine, yours = (partition_of_group(queue_id, group) for group in ("mine", "yours"))
        put(store, mine, ("head", 0, 0), pointer=1)

        assert list(store.read_rows(yours).rows) == []

    def test_more_rows_than_a_page_come_as_one_answer(self, store: Store) -> None:
        ledger = fresh_ledger()
        for first in range(0, 12_000, 4_000):
            ops = [Insert(block(at), {"stop": at + 1}) for at in range(first, first + 4_000)]
            assert store.cas(ledger, [*ops, Insert(sink(str(first)), {}, if_absent=True)])

        rows = store.read_rows(ledger, Slice(kinds=("block",))).rows

        assert [row["position"] for row in rows] == list(range(12_000))


def _keys(store: Store, ledger: Partition, which: Slice, *, serial: bool = False) -> list[RowKey]:
    rows = store.read_rows(ledger, which, serial=serial)
    assert (rows.now is None) == (not rows.rows)
    return [(str(row["kind"]), int(str(row["position"])), str(row["name"])) for row in rows.rows]
