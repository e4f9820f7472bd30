from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT, MOST
from cassieq_spark.errors import OptionError
from cassieq_spark.model import QueueId
from cassieq_spark.store.cassandra.statements import selection_of, statement_of, timed_insert_of
from cassieq_spark.store.checks import check_ops
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Delete,
    DeleteBelow,
    Insert,
    Op,
    ServerNow,
    Slice,
    Update,
    When,
    partition_of_group,
    partition_of_ledger,
    partition_of_lock,
    partition_of_queue,
)

LEDGER = partition_of_ledger(QueueId("q@1"))
HEAD = ("head", 0, "")
#: What the gateway was given: in UTC, the year 10000.
BEYOND = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=23, minutes=59)))
BEFORE = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
MOMENT = timedelta(milliseconds=1)


def conditioned(op: Op) -> list[Op]:
    """With a condition, as each compare-and-set has one."""
    if isinstance(op, Insert):
        return [replace(op, if_absent=True)]
    return [op] if isinstance(op, Delete | Update) else [op, Delete(HEAD)]


REFUSED = {
    "an instant beyond the calendar": (LEDGER, Insert(HEAD, {"visible_at": BEYOND})),
    "an instant before it": (LEDGER, Insert(HEAD, {"visible_at": BEFORE})),
    "an instant just too late": (LEDGER, Insert(HEAD, {"fence": LAST_INSTANT + MOMENT})),
    "an instant just too early": (LEDGER, Insert(HEAD, {"fence": FIRST_INSTANT - MOMENT})),
    "an instant without a time zone": (
        LEDGER,
        Insert(HEAD, {"fence": datetime(2026, 1, 1)}),  # noqa: DTZ001 (that is it)
    ),
    "a number of 64 bits and a sign": (LEDGER, Insert(HEAD, {"next": MOST + 1})),
    "a negative one": (LEDGER, Insert(HEAD, {"next": -MOST - 2})),
    "a number of 32 bits and a sign": (partition_of_queue("q"), Insert((), {"version": 2**31})),
    "a number in a key": (LEDGER, Insert(("block", MOST + 1, ""), {})),
    "a number in the key of a deletion": (LEDGER, Delete(("block", MOST + 1, ""))),
    "the end of a range that goes": (LEDGER, DeleteBelow("block", MOST + 1)),
    "the server's clock and an age": (LEDGER, Insert(HEAD, {"fence": ServerNow(timedelta.max)})),
    "the server's clock less an age": (
        LEDGER,
        Insert(HEAD, {"fence": ServerNow(-timedelta(days=40_000))}),
    ),
    "an update": (LEDGER, Update(HEAD, {"next": MOST + 1}, (When("next", "=", 0),))),
    "what an update depends on": (
        partition_of_group(QueueId("q@1"), "g"),
        Update(("slot", 0, 0), {"deliveries": 1}, (When("due_at", "=", BEYOND),)),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_could_not_be_read_again_is_not_written(what: str):
    partition, op = REFUSED[what]
    store = MemoryStore()

    with pytest.raises(OptionError, match="nothing was sent"):
        check_ops(partition, conditioned(op))
    with pytest.raises(OptionError):
        store.cas(partition, conditioned(op))
    assert not store.read_rows(partition).rows


TAKEN = (
    Insert(HEAD, {"fence": LAST_INSTANT, "next": MOST}, if_absent=True),
    Insert(HEAD, {"fence": FIRST_INSTANT, "next": -MOST - 1}, if_absent=True),
    Insert(("block", MOST, ""), {"visible_at": ServerNow(timedelta(days=365))}, if_absent=True),
    Insert(HEAD, {"visible_at": None, "paused": True, "block": uuid4()}, if_absent=True),
)


@pytest.mark.parametrize("op", TAKEN)
def test_what_the_columns_hold_is_written(op: Insert):
    store = MemoryStore()

    assert store.cas(LEDGER, [op])
    statement_of("k", LEDGER, op)
    assert len(store.read_rows(LEDGER).rows) == 1


def test_rows_for_a_time_are_checked_too():
    lock, ticket = partition_of_lock("repair"), ("ticket", "1")
    for values in ({"number": MOST + 1}, {"entered_at": BEYOND}):
        with pytest.raises(OptionError):
            MemoryStore().write_row(lock, ticket, values, timestamp=0, ttl=timedelta(seconds=1))
        with pytest.raises(OptionError):
            timed_insert_of("k", lock, ticket, values, timestamp=0, ttl=timedelta(seconds=1))


SLICES: tuple[Callable[[int], Slice], ...] = (
    lambda number: Slice(kinds=("block",), start=number),
    lambda number: Slice(kinds=("block",), stop=number),
    lambda number: Slice(row=("block", number, "")),
    lambda number: Slice(rows=(HEAD, ("block", number, ""))),
)


@pytest.mark.parametrize("slice_at", SLICES, ids=("start", "stop", "row", "rows"))
def test_reads_ask_for_numbers_that_there_may_be(slice_at: Callable[[int], Slice]):
    for read in (MemoryStore().read_rows, lambda *it: selection_of("k", *it)):
        read(LEDGER, slice_at(MOST))
        with pytest.raises(OptionError):
            read(LEDGER, slice_at(MOST + 1))


def test_the_end_of_the_calendar_has_a_year_to_spare():
    assert LAST_INSTANT + timedelta(days=364) <= datetime.max.replace(tzinfo=UTC)
