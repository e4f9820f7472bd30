from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import uuid1

import pytest

from cassieq_spark.errors import NotAppliedError, OptionError
from cassieq_spark.lock.bakery import TICKET_DELETED, Bakery
from cassieq_spark.lock.tickets import ticket_key
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Partition,
    RowKey,
    Rows,
    Slice,
    Value,
    partition_of_lock,
)
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.unit.lock.turns import NAME, TTL, World

LOCK = partition_of_lock(NAME)


@pytest.fixture
def world() -> World:
    return World()


def tickets(world: World) -> list[str]:
    rows = world.store.read_rows(LOCK, Slice(kinds=("ticket",))).rows
    return [str(row["owner"]) for row in rows]


def test_the_first_to_come_has_it_and_leaves_no_ticket_behind(world: World):
    held = world.newcomer()

    assert held is not None
    assert (held.epoch, held.is_held(), held.confirm()) == (1, True, True)
    assert held.entered_at == world.clock()
    assert tickets(world) == ["test"]
    held.leave()
    assert (held.is_held(), held.confirm(), tickets(world)) == (False, False, [])


def test_who_comes_second_is_refused_and_leaves_no_ticket_behind(world: World):
    assert world.newcomer() is not None

    assert world.newcomer() is None

    assert tickets(world) == ["test"]


def test_the_epoch_grows_although_the_numbers_begin_anew(world: World):
    epochs = []
    for _ in range(3):
        held = world.newcomer()
        assert held is not None
        epochs.append(held.epoch)
        held.leave()

    assert epochs == [1, 2, 3]


def test_who_waits_enters_when_the_one_before_leaves(world: World):
    first = world.newcomer()
    assert first is not None
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            first.leave()

    second = world.bakery(world.store, sleep).enter(timedelta(minutes=1))

    assert second is not None
    assert (second.epoch, len(looks)) == (2, 3)
    assert all(0.05 <= seconds <= 0.5 for seconds in looks)


def test_who_waits_longer_than_a_ttl_keeps_its_place(world: World):
    first = world.newcomer()
    assert first is not None

    def sleep(_: float) -> None:
        world.clock.advance(timedelta(seconds=1))
        assert first.renew()

    assert world.bakery(world.store, sleep).enter(4 * TTL) is None
    assert first.confirm()


def test_who_waits_never_deletes_the_ticket_of_one_who_writes_it_in_time(world: World):
    world.node.is_ahead = True
    first = world.bakery(world.node).enter(timedelta(0))
    assert first is not None
    passed = timedelta(0)

    def sleep(_: float) -> None:
        nonlocal passed
        passed += timedelta(seconds=1)
        world.clock.advance(timedelta(seconds=1))
        if passed % timedelta(seconds=5) == timedelta(0):
            assert first.renew()

    assert world.bakery(world.store, sleep).enter(4 * TTL) is None
    assert first.confirm()


def test_a_ticket_that_a_node_a_day_ahead_has_written_is_deleted_when_its_process_is_dead(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.node.is_ahead = True
    assert world.bakery(world.node).enter(timedelta(0)) is not None
    world.clock.advance(timedelta(hours=1))
    assert world.newcomer() is None
    began = world.clock()

    held = world.patient_newcomer()

    assert held is not None
    assert TTL <= world.clock() - began < TTL + timedelta(seconds=1)
    assert tickets(world) == ["test"]
    assert [record.action for record in caplog.records] == [TICKET_DELETED]  # type: ignore[attr-defined]


def test_the_ticket_of_an_earlier_release_which_does_not_count_its_writes_is_never_deleted(
    world: World,
):
    values = {"owner": "earlier", "number": 1}
    world.store.write_row(LOCK, ticket_key(uuid1()), values, timestamp=1, ttl=timedelta(days=1))

    assert world.patient_newcomer() is None

    assert tickets(world) == ["earlier"]


def test_patience_ends_at_its_time(world: World):
    first = world.newcomer()
    assert first is not None
    began = world.clock()

    def sleep(_: float) -> None:
        world.clock.advance(timedelta(seconds=1))
        assert first.renew()

    assert world.bakery(world.store, sleep).enter(timedelta(seconds=5)) is None
    assert world.clock() - began == timedelta(seconds=5)


def test_who_does_not_want_it_any_more_stops_waiting(world: World):
    assert world.newcomer() is not None
    answers = iter([True, True, False, False])

    held = world.bakery(world.store).enter(timedelta(days=1), may_continue=lambda: next(answers))

    assert held is None
    assert tickets(world) == ["test"]


def test_the_entry_tells_who_has_it(world: World):
    assert world.bakery(world.store).read_entry() is None
    assert world.newcomer() is not None

    entry = world.bakery(world.store).read_entry()

    assert entry is not None
    assert (entry.epoch, entry.owner, entry.entered_at) == (1, "test", world.clock())


def test_a_free_lock_costs_one_compare_and_set_and_three_reads(world: World):
    store = CountingStore(world.store)

    held = world.bakery(store).enter(timedelta(0))

    assert held is not None
    counts = (store.cas_count, store.read_count, store.serial_read_count)
    assert counts == (1, 2, 1)
    store.reset()
    assert held.confirm()
    assert (store.cas_count, store.read_count, store.serial_read_count) == (0, 1, 0)


def test_locks_of_other_names_know_nothing_of_it(world: World):
    assert world.newcomer() is not None

    other = Bakery(world.store, "other", owner="test", ttl=TTL).enter(timedelta(0))

    assert other is not None
    assert other.epoch == 1


class BrokenStore(WrappedStore):
    """Fails from the n-th read or write of a row on, but deletes."""

    def __init__(self, store: MemoryStore, left: int) -> None:
        super().__init__(store)
        self.left = left

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self._pass()
        return super().read_rows(partition, which, serial=serial)

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        self._pass()
        super().write_row(partition, row, values, timestamp=timestamp, ttl=ttl)

    def _pass(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotAppliedError("no node")


@pytest.mark.parametrize("left", range(5))
def test_an_error_on_the_way_in_leaves_no_ticket_behind(world: World, left: int):
    with pytest.raises(NotAppliedError):
        world.bakery(BrokenStore(world.store, left)).enter(timedelta(0))

    assert tickets(world) == []


def test_without_cassandra_nothing_is_confirmed(world: World):
    store = BrokenStore(world.store, 5)
    held = world.bakery(store).enter(timedelta(0))
    assert held is not None

    with pytest.raises(NotAppliedError):
        held.confirm()
    with pytest.raises(NotAppliedError):
        held.renew()

    assert held.is_held()
    world.clock.advance(TTL * 3 / 4)
    assert not held.is_held()


@pytest.mark.parametrize("ttl", [timedelta(seconds=4), timedelta(seconds=7.5)])
def test_a_ttl_that_no_clock_can_keep_is_refused(ttl: timedelta):
    with pytest.raises(OptionError, match="must be whole seconds, at least 0:00:05"):
        Bakery(MemoryStore(), NAME, owner="test", ttl=ttl)


def test_a_lock_needs_a_name():
    with pytest.raises(OptionError, match="lock name ''"):
        Bakery(MemoryStore(), "", owner="test")
