"""Reads of different moments: a compare-and-set is on one replica, and plain reads ask any two."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.registration import ensure_group, read_group_states
from cassieq_spark.groups.state import Settlement, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Ranges
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    make_clocked_store,
    make_group,
    make_queue,
    make_request,
    monotons_of,
)

MOMENT = timedelta(milliseconds=1)
#: Which replicas are asked: for head and slots the one that has it, for what waits the others.
TORN = "fs"


def ranges(text: str) -> Ranges:
    return Ranges.parse(text)


class Crash(BaseException):
    """The process ends: nothing may catch it."""


class Scene:
    """Nine messages, three of them leased by each of three readers."""

    def __init__(self) -> None:
        self.memory, self.clock = make_clocked_store()
        self.trouble = FaultyStore(self.memory)
        self.store = CountingStore(self.trouble)
        self.queue_id = make_queue(self.store, [9]).queue_id
        self.group = make_group(self.store, self.queue_id)
        self.first, self.second, self.third = (self.exchange(max_messages=3) for _ in range(3))
        self.store.reset()

    def exchange(self, **request: object) -> Lease:
        return self.group.lease(make_request(stop=9, **request))

    def release(self, lease: Lease, monotons: str, *, by: timedelta = timedelta(0)) -> None:
        self.group.settle(lease.token, Settlement(released={by: ranges(monotons)}))

    def breaks_off(self, doing: Callable[[], object], draws: str, *, calls: int = 2) -> None:
        """Let a process die when its next compare-and-set has reached one replica."""

        def crash() -> None:
            raise Crash

        # Two reads, and a third if what waits is to leave.
        self.trouble.interrupt(crash, after=calls + 1, bit_by_bit=True)
        with pytest.raises(Crash):
            doing()
        self.trouble.replicas.draw(draws)

    @property
    def owed(self) -> set[int]:
        """By what is decided."""
        state = ConsumerGroup(Ledger(self.memory, self.queue_id), "g").read(every_waiting=True)
        held = [
            *(slot.monotons for slot in state.slots),
            *(each.monotons for each in state.waiting),
        ]
        return {at for each in held for part in each for at in range(part.start, part.stop)}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_waits_unseen_is_not_passed_by_a_lease_of_what_waits(scene: Scene):
    scene.release(scene.first, "0-3", by=MOMENT)
    scene.breaks_off(lambda: scene.release(scene.second, "3-6"), TORN)
    scene.clock.advance(MOMENT)

    scene.exchange()

    assert scene.owed == set(range(9))


def test_what_waits_unseen_is_not_passed_by_dead_lettering(scene: Scene):
    rejected = Settlement(rejected={"bad": ranges("0-3")})
    (dead,) = scene.group.settle(scene.first.token, rejected).dead
    assert isinstance(dead, Waiting)
    scene.breaks_off(lambda: scene.release(scene.second, "3-6"), TORN)

    assert scene.group.remove_dead(dead)

    assert scene.owed == set(range(3, 9))


def test_what_is_gone_unseen_is_not_handed_out_twice(scene: Scene):
    scene.release(scene.first, "0-3")
    scene.breaks_off(scene.exchange, TORN, calls=3)

    assert not scene.exchange().leased


def test_what_waits_is_read_serially_only_if_it_leaves(scene: Scene):
    scene.exchange(held=scene.first.token)
    assert (scene.store.read_count, scene.store.serial_read_count) == (2, 0)
    scene.release(scene.second, "3-6")
    scene.store.reset()

    lease = scene.exchange()

    assert monotons_of(lease.leased) == [ranges("3-6")]
    assert (scene.store.read_count, scene.store.serial_read_count) == (2, 1)
    assert scene.store.cas_count == 1


@pytest.mark.parametrize("alone", [{"strict_fifo": True}, {"max_in_flight": 1}])
def test_what_a_scan_has_repaired_by_half_is_not_overtaken(alone: dict[str, object]):
    memory, _ = make_clocked_store()
    store = FaultyStore(memory)
    group = make_group(store, make_queue(store, [2]).queue_id)
    lease = group.lease(make_request(stop=2, max_messages=1, **alone)).token
    extension = Settlement(extended={timedelta(hours=1): ranges("0-1")})
    with store.replicas.tearing():
        group.settle(lease, extension)
    # The first page of the scan has the slot that it leaves, and not the one that it goes to.
    store.replicas.draw("fs")
    list(store.scan(Table.GROUP_STATE, ("head", "registration", "slot")))

    batch = group.lease(make_request(stop=2, held=lease, **alone))

    assert not batch.leased


def test_in_strict_order_what_waits_is_read_serially_at_once(scene: Scene):
    scene.release(scene.first, "0-3")
    scene.store.reset()

    lease = scene.exchange(strict_fifo=True)

    assert monotons_of(lease.leased) == [ranges("0-3")]
    assert (scene.store.read_count, scene.store.serial_read_count) == (1, 1)


def test_dead_lettering_costs_two_reads(scene: Scene):
    rejected = Settlement(rejected={"bad": ranges("0-3")})
    (dead,) = scene.group.settle(scene.first.token, rejected).dead
    scene.store.reset()

    assert scene.group.remove_dead(dead)

    assert (scene.store.read_count, scene.store.serial_read_count) == (1, 1)
    assert not scene.group.remove_dead(dead)


def test_a_group_of_which_one_replica_knows_exists(scene: Scene):
    scene.trouble.interrupt(lambda: setattr(scene.trouble, "fault", Fault.REACHED_ONE), after=5)
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting="earliest")
    assert scene.trouble.troubles == 2
    scene.trouble.replicas.draw("s")

    assert ConsumerGroup(Ledger(scene.store, scene.queue_id), "new").read().head.pointer == 0


def test_floors_rest_on_serial_reads_only(scene: Scene):
    scene.release(scene.second, "3-4")
    scene.store.reset()

    states = read_group_states(Ledger(scene.store, scene.queue_id))

    assert states["g"].floor == 0
    assert (scene.store.read_count, scene.store.serial_read_count) == (0, 5)
