"""Whatever other programs write into the rows of one queue, the others never notice.

Every column of every row of one queue may have any value that Cassandra keeps there. The repair,
the figures and the list of queues go on with the others, and what uses the queue itself works, or
fails by an error of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client, backoff
from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT
from cassieq_spark.errors import CassieqError
from cassieq_spark.queues import delete_queue, list_queues
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey
from cassieq_spark.store.tables import SHAPES, Table
from tests.support.ailing_queue import copy_of
from tests.support.snapshots import read_snapshot
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue, make_busy

DAY = timedelta(days=1)
TABLES = (Table.QUEUE, Table.LEDGER, Table.GROUP_STATE)
_KINDS = {
    "block": (),
    "number": (0, 1, -1, 2, 5, 100, 2**31 - 1),
    "long": (2**31, 2**63 - 1, -(2**63), 10**12),
    "instant": (FIRST_INSTANT, LAST_INSTANT, datetime(2026, 1, 1, tzinfo=UTC)),
    "text": ("", "x", "0-3", "3-0", "0-9223372036854775807", "-", "\x1b[2J", "{}", "open"),
}


@cache
def wells() -> MemoryStore:
    """Two queues with the same to do: what is dead, too old, settled, unpublished, purged."""
    first: RepairedQueue | None = None
    for name in ("bad", "good"):
        queue = RepairedQueue(name, beside=first, max_deliveries=2, expire_after=DAY)
        first = first or queue
        make_busy(queue)
    assert first is not None
    first.clock.advance(timedelta(hours=3))
    return first.store


def cells() -> list[tuple[Partition, RowKey, str]]:
    """Every column of every row of the queue, but for keys."""
    return [
        (partition, key, column)
        for partition, rows in sorted(wells()._rows.items(), key=str)
        if partition.table in TABLES and partition.key[0].split("@")[0] == "bad"
        for key in sorted(rows, key=str)
        for column in SHAPES[partition.table].columns
    ]


def values_of(table: Table, column: str) -> st.SearchStrategy[Any]:
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "int": st.sampled_from(_KINDS["number"]) | st.integers(-(2**31), 2**31 - 1),
        "bigint": st.sampled_from((*_KINDS["number"], *_KINDS["long"]))
        | st.integers(-(2**63), 2**63 - 1),
        "timestamp": st.sampled_from(_KINDS["instant"]),
        "text": st.sampled_from(_KINDS["text"]) | st.text(max_size=20),
        "blob": st.binary(max_size=40),
        "boolean": st.booleans(),
        "uuid": st.builds(uuid4),
        "timeuuid": st.integers(0, 2**60 - 1).map(_time_based),
    }
    return st.none() | kinds[SHAPES[table].columns[column]]


def _time_based(time: int) -> UUID:
    low, middle, high = time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48 & 0xFFF
    return UUID(fields=(low, middle, high | 0x1000, 0x80, 0, 1))


@st.composite
def spoilt(draw: st.DrawFn) -> list[tuple[Partition, RowKey, str, Any]]:
    # The table first: most rows are of the ledger.
    cell = st.sampled_from(TABLES).flatmap(
        lambda table: st.sampled_from([each for each in cells() if each[0].table is table])
    )
    found = draw(st.lists(cell, min_size=1, max_size=3))
    return [
        (partition, key, column, draw(values_of(partition.table, column)))
        for partition, key, column in found
    ]


def state_of(store: MemoryStore) -> dict[object, object]:
    """What the other queue holds, but for the tokens that each repair run draws."""
    return {
        partition: {
            key: {name: each for name, each in row.items() if name not in {"lease", "change"}}
            for key, row in rows.items()
        }
        for partition, rows in store._rows.items()
        if partition.key[0].split("@")[0] == "good"
    } | {key: chunks for key, chunks in store._chunks.items() if key[0].startswith("good@")}


def repair(store: MemoryStore) -> Any:
    return run_once(store, scan=DriverScan(store), write_timeout=WRITE_TIMEOUT)


@cache
def expected() -> tuple[dict[object, object], Any, Any]:
    well = copy_of(wells())
    report = repair(well)
    return state_of(well), report.queues["good"].counts, figures(wells())["good"]


def figures(store: MemoryStore) -> dict[str, Any]:
    return {queue.name: queue.stats for queue in read_snapshot(store).queues}


@pytest.fixture(autouse=True, scope="module")
def _nobody_sleeps() -> Iterator[None]:
    """Where a change is refused for ever, attempts need no pauses between them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


@given(rows=spoilt())
def test_rows_that_nobody_can_make_sense_of_are_the_trouble_of_their_queue(
    rows: list[tuple[Partition, RowKey, str, Any]],
):
    store = copy_of(wells())
    for partition, key, column, value in rows:
        row = store._rows[partition][key]
        row[column] = value
        if value is None:
            del row[column]
    state, counts, stats = expected()

    assert "good" in {queue.name for queue in list_queues(store)}
    assert figures(store)["good"] == stats
    with Client.from_store(store) as client:
        for use in (
            lambda: client.put("bad", "x"),
            lambda: client.receive("bad", "billing", max=3),
            lambda: client.peek("bad"),
            lambda: client.stats("bad"),
        ):
            with contextlib.suppress(CassieqError):
                use()
    report = repair(store)
    assert report.queues["good"].counts == counts
    assert state_of(store) == state
    with contextlib.suppress(CassieqError):
        delete_queue(store, "bad", force=True)
    assert repair(store).queues.get("good") is not None
