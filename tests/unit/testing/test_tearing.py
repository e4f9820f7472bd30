from __future__ import annotations

import pytest

from cassieq_spark.model import QueueId
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    DeleteBelow,
    Insert,
    Op,
    Slice,
    Update,
    When,
    partition_of_ledger,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.tearing import TearingStore
from tests.support.faults import FakeClock

LEDGER = partition_of_ledger(QueueId("q@1"))
OTHER = partition_of_ledger(QueueId("q@2"))
HEAD = ("head", 0, "")
HEADS, BLOCKS = Slice(kinds=("head",)), Slice(kinds=("block",))
ADVANCE: list[Op] = [
    Update(HEAD, {"next": 2}, when=(When("next", "=", 1),)),
    Insert(("block", 1, ""), {"stop": 2}),
]


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(FakeClock())


@pytest.fixture
def store(memory: MemoryStore) -> TearingStore:
    store = TearingStore(memory)
    for partition in (LEDGER, OTHER):
        store.cas(
            partition,
            [Insert(HEAD, {"next": 1}, if_absent=True), Insert(("block", 0, ""), {"stop": 1})],
        )
    return store


def reach_one(store: TearingStore, draws: str, ops: list[Op] = ADVANCE) -> None:
    """Let a commit reach one replica only."""
    with store.tearing():
        assert store.cas(LEDGER, ops)
    store.draw(draws)


def next_of(store: TearingStore, *, serial: bool = False) -> object:
    return store.read_rows(LEDGER, HEADS, serial=serial).rows[0]["next"]


def blocks_of(store: TearingStore, which: Slice = BLOCKS) -> list[object]:
    return [row["position"] for row in store.read_rows(LEDGER, which).rows]


def test_two_plain_reads_may_be_of_two_moments(store: TearingStore):
    reach_one(store, "fs")

    assert next_of(store) == 2
    assert blocks_of(store) == [0]


def test_a_read_of_one_slice_is_of_one_moment(store: TearingStore):
    reach_one(store, "sf")

    before, after = (store.read_rows(LEDGER).rows for _ in range(2))

    assert [len(before), before[-1]["next"]] == [2, 1]
    assert [len(after), after[-1]["next"]] == [3, 2]


def test_a_row_that_was_shown_is_never_missed_again(store: TearingStore):
    reach_one(store, "fss")

    assert [next_of(store), next_of(store), blocks_of(store)] == [2, 2, [0]]


def test_a_limited_read_repairs_no_more_than_it_has_shown(store: TearingStore):
    reach_one(store, "fsss", [*ADVANCE, Insert(("block", 2, ""), {"stop": 3})])

    assert blocks_of(store, Slice(kinds=("block",), start=1, limit=1)) == [1]
    assert blocks_of(store) == [0, 1]
    assert blocks_of(store, Slice(kinds=("block",), reverse=True)) == [1, 0]


def test_what_was_shown_to_be_gone_stays_so(store: TearingStore):
    reach_one(store, "sfs", [ADVANCE[0], DeleteBelow("block", 1)])

    assert [blocks_of(store), blocks_of(store), blocks_of(store)] == [[0], [], []]


def test_a_serial_read_completes_the_commit(store: TearingStore):
    reach_one(store, "s")

    assert next_of(store, serial=True) == 2
    assert blocks_of(store) == [0, 1]


def test_the_next_compare_and_set_completes_it_though_it_is_refused(store: TearingStore):
    reach_one(store, "s")

    assert not store.cas(LEDGER, ADVANCE)
    assert blocks_of(store) == [0, 1]


def test_what_is_refused_is_on_no_replica(store: TearingStore):
    with store.tearing():
        assert not store.cas(LEDGER, [Insert(HEAD, {"next": 7}, if_absent=True)])

    assert store.pending(LEDGER) is None


def test_an_answer_completes_its_own_commit_only(store: TearingStore):
    reach_one(store, "s")
    mine = store.pending(LEDGER)
    reach_one(store, "s", [Update(HEAD, {"next": 3}, when=(When("next", "=", 2),))])

    store.complete(LEDGER, mine)
    assert next_of(store) == 2
    store.complete(LEDGER, store.pending(LEDGER))
    assert next_of(store) == 3


def test_another_partition_is_not_torn(store: TearingStore):
    reach_one(store, "s")

    assert len(store.read_rows(OTHER).rows) == 2
    assert store.drawn == 0


def test_a_partition_whose_rows_are_all_gone_may_still_be_seen(store: TearingStore):
    with store.tearing():
        gone = [DeleteBelow(kind, 9) for kind in ("head", "block")]
        assert store.cas(LEDGER, [Insert(("sink", 0, "x"), {}, if_absent=True), *gone])
    store.draw("s")

    rows = store.read_rows(LEDGER)

    assert [row["kind"] for row in rows.rows] == ["block", "head"]
    assert rows.now is not None


@pytest.mark.parametrize(("draws", "expected"), [("s", [1, 1]), ("f", [1, 2])])
def test_a_scan_sees_each_partition_as_the_replicas_it_asks_have_it(
    store: TearingStore, draws: str, expected: list[int]
):
    reach_one(store, draws)

    assert sorted(row["next"] for row in store.scan(Table.LEDGER, ["head"])) == expected
