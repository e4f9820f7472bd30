"""Concurrent compare-and-sets and reads of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID, uuid1

import pytest

from cassieq_spark.store.protocol import Insert, Op, Partition, Slice, Store, Update, When
from cassieq_spark.testing.conformance.rows import (
    HEAD,
    block,
    fresh_group_state,
    fresh_ledger,
    head_of,
    put,
)

RACERS = 2
ROUNDS = 10
STEPS = 15
SLOTS = 9


class RaceContract:
    """One winner, no lost update, consistent reads."""

    @pytest.fixture
    def few_rows_a_page(self) -> None:
        """Override this if the store reads in pages, so that two or three rows fill a page."""

    def test_of_two_that_set_the_same_row_one_is_applied(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)
        gate = Barrier(RACERS)

        def race(turn: int, block: UUID) -> bool:
            update = Update(HEAD, {"next": turn + 1, "block": block}, (When("next", "=", turn),))
            gate.wait()
            return store.cas(ledger, [update])

        with ThreadPoolExecutor(RACERS) as threads:
            for turn in range(ROUNDS):
                blocks = [uuid1() for _ in range(RACERS)]
                outcomes = list(threads.map(race, [turn] * RACERS, blocks))
                head = head_of(store, ledger)

                assert sorted(outcomes) == [False, True]
                assert head["next"] == turn + 1
                assert head["block"] == blocks[outcomes.index(True)]

    def test_a_read_of_several_rows_is_of_one_moment(self, store: Store) -> None:
        ledger, rows = fresh_ledger(), [block(0), block(10), HEAD]
        for row in rows:
            put(store, ledger, row, stop=0)
        seen: list[set[object]] = []

        def write() -> None:
            for turn in range(ROUNDS):
                ops = [Update(row, {"stop": turn + 1}, (When("stop", "=", turn),)) for row in rows]
                assert store.cas(ledger, ops)

        for _ in _while_running(write):
            for serial in (False, True):
                found = store.read_rows(ledger, serial=serial).rows
                seen.append({row["stop"] for row in found})

        assert all(len(each) == 1 for each in seen)

    @pytest.mark.usefixtures("few_rows_a_page")
    @pytest.mark.parametrize("serial", [False, True])
    def test_a_read_of_several_kinds_is_of_one_moment_however_many_rows_there_are(
        self, store: Store, *, serial: bool
    ) -> None:
        group_state, last = fresh_group_state(), SLOTS - 1
        put(store, group_state, ("head", 0, 0), pointer=1)
        for number in range(SLOTS):
            put(store, group_state, ("slot", number, 0), ranges="0-1" if number == last else "")
        seen: list[list[object]] = []

        def move() -> None:
            for turn in range(ROUNDS):
                taker, giver = (0, last) if turn % 2 == 0 else (last, 0)
                ops = [
                    Update(("slot", giver, 0), {"ranges": ""}, (When("ranges", "=", "0-1"),)),
                    Update(("slot", taker, 0), {"ranges": "0-1"}, (When("ranges", "=", ""),)),
                ]
                assert store.cas(group_state, ops)

        for _ in _while_running(move):
            found = store.read_rows(group_state, Slice(kinds=("head", "slot")), serial=serial)
            seen.append([row["ordinal"] for row in found.rows if row["ranges"] == "0-1"])

        assert all(len(holders) == 1 for holders in seen)

    def test_what_was_answered_is_never_missed(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)

        for turn in range(ROUNDS):
            ops: list[Op] = [
                Update(HEAD, {"next": turn + 1}, (When("next", "=", turn),)),
                Insert(block(turn), {"stop": turn + 1}),
            ]
            assert store.cas(ledger, ops)

            assert head_of(store, ledger)["next"] == turn + 1
            assert len(store.read_rows(ledger, Slice(kinds=("block",))).rows) == turn + 1

    def test_of_two_that_insert_the_same_row_one_is_applied(self, store: Store) -> None:
        gate = Barrier(RACERS)

        def race(ledger: Partition) -> bool:
            gate.wait()
            return store.cas(ledger, [Insert(HEAD, {"block": uuid1()}, if_absent=True)])

        with ThreadPoolExecutor(RACERS) as threads:
            for _ in range(ROUNDS):
                assert sorted(threads.map(race, [fresh_ledger()] * RACERS)) == [False, True]

    def test_no_step_of_a_shared_counter_is_lost(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)

        def count(_: int) -> None:
            for _step in range(STEPS):
                applied = False
                while not applied:
                    now = head_of(store, ledger)["next"]
                    update = Update(HEAD, {"next": int(str(now)) + 1}, (When("next", "=", now),))
                    applied = store.cas(ledger, [update])

        with ThreadPoolExecutor(RACERS) as threads:
            list(threads.map(count, range(RACERS)))

        assert head_of(store, ledger)["next"] == RACERS * STEPS


def _while_running(action: Callable[[], None]) -> Iterator[None]:
    """Yield repeatedly while another thread does something."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(action)
        while not running.done():
            yield
        running.result()
