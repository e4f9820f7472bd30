"""Reads that come in pages, as Cassandra's do: each page is of a moment of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Ranges
from cassieq_spark.repair.read import see
from cassieq_spark.store.cassandra.store import page_rows
from cassieq_spark.store.protocol import EVERYTHING, Partition, Row, Rows, Slice, Store
from cassieq_spark.testing.stores import WrappedStore
from cassieq_spark.testing.tearing import key_of
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue, make_request


class PagedStore(WrappedStore):
    """Reads in pages, and lets something happen after the first one.

    Args:
        store: The store that does the work.
        between: What happens there, once.
        rows: A page. The first one of head and slots ends with slot 0.
        is_paged: Which reads are; those of the store on Cassandra, if it is not given.
    """

    def __init__(
        self,
        store: Store,
        between: Callable[[], object],
        *,
        rows: int = 2,
        is_paged: Callable[[Slice], bool] = lambda which: page_rows(which) is not None,
    ) -> None:
        super().__init__(store)
        self._between = iter([between])
        self._rows = rows
        self._is_paged = is_paged

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        shown: list[Row] = []
        rest = list(found.rows)
        while self._is_paged(which) and len(rest) > self._rows:
            shown += rest[: self._rows]
            for happens in self._between:
                happens()
            last = key_of(partition, shown[-1])
            rows = super().read_rows(partition, which, serial=serial).rows
            rest = [row for row in rows if key_of(partition, row) > last]
        return Rows([*shown, *rest], found.now, found.here)


class Scene:
    """Nine messages in three slots, of which the first two are settled: the third has 6-9."""

    def __init__(self) -> None:
        self.memory, self.clock = make_clocked_store()
        self.queue_id = make_queue(self.memory, [9]).queue_id
        self.group = make_group(self.memory, self.queue_id)
        first, second, self.third = (self.exchange(max_messages=3) for _ in range(3))
        for done in (first, second):
            self.exchange(held=done.token, max_messages=0)

    def exchange(self, **request: object) -> Lease:
        return self.group.lease(make_request(stop=9, **request))

    def settle(self, **what: object) -> None:
        self.group.settle(self.third.token, Settlement(**what))  # type: ignore[arg-type]

    def extend(self) -> None:
        """Move what is leased from slot 2 to slot 0, which is free."""
        self.settle(extended={LEASE: Ranges.parse("6-9")})
        slots = {slot.number: str(slot.monotons) for slot in self.group.read().slots}
        assert slots == {0: "6-9", 1: "", 2: ""}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_head_and_slots_read_page_by_page_would_miss_what_moves_between_slots(scene: Scene):
    # What this file rests on: such a read is torn here.
    store = PagedStore(scene.memory, scene.extend, is_paged=lambda which: "slot" in which.kinds)

    assert read_group_states(Ledger(store, scene.queue_id))["g"].floor == 9


def test_a_floor_counts_what_moves_between_slots_beyond_a_page(scene: Scene):
    store = PagedStore(scene.memory, scene.extend)

    assert read_group_states(Ledger(store, scene.queue_id))["g"].floor == 6


def test_a_survey_sees_what_moves_between_slots_beyond_a_page(scene: Scene):
    # It reads the registration as well, before the slots.
    seen = see(Ledger(PagedStore(scene.memory, scene.extend, rows=3), scene.queue_id))

    assert seen is not None
    assert [str(slot.monotons) for slot in seen.states["g"].slots if slot.monotons] == ["6-9"]


def test_a_floor_counts_what_is_leased_between_two_pages_of_what_waits(scene: Scene):
    # These do come in pages; that the head has changed meanwhile makes the floor's reader begin
    # again.
    delays = [timedelta(seconds=each) for each in (1, 2, 3)]
    parts = map(Ranges.parse, ("8-9", "7-8", "6-7"))
    scene.settle(released=dict(zip(delays, parts, strict=True)))
    scene.clock.advance(delays[-1])
    leased: list[Ranges] = []

    def lease() -> None:
        for _ in delays:
            leased.extend(each.monotons for each in scene.exchange().leased)

    store = PagedStore(scene.memory, lease)

    assert ConsumerGroup(Ledger(store, scene.queue_id), "g").read(every_waiting=True).floor == 6
    assert Ranges.parse("6-7") in leased
