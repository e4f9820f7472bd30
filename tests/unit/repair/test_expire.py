from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.lease import Lease, LeasedSlot
from cassieq_spark.groups.registration import delete_group, ensure_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, Range, Ranges
from cassieq_spark.queues import create_queue
from cassieq_spark.repair import expire as expire_module
from cassieq_spark.repair.actions import EXPIRED
from cassieq_spark.repair.expire import Expire
from cassieq_spark.repair.report import Counts, Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import POSTPONED, Step, run_once
from cassieq_spark.store.protocol import Store, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_request,
)

HOUR = timedelta(hours=1)
EXPIRE_AFTER = 10 * HOUR
MOMENT = timedelta(milliseconds=1)


class Scene:
    """Queue ``q``, which keeps messages for ten hours, and group ``g``."""

    def __init__(self, **settings: Any) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = FaultyStore(self.memory)
        settings = {"lease": LEASE, "expire_after": EXPIRE_AFTER} | settings
        self.queue = create_queue(self.memory, "q", bucket_size=8, chunk_size=4, **settings)
        self.queue_id = self.queue.queue_id
        self.group = make_group(self.memory, self.queue_id)

    def publish(self, *counts: int, delay: timedelta | None = None) -> None:
        pending = make_pending(counts, self.clock.now)
        delayed = [PendingBlock(each.block, each.count, 0, delay) for each in pending]
        publish(Ledger(self.memory, self.queue_id), delayed)

    def take(self, **changes: Any) -> Lease:
        head = Ledger(self.memory, self.queue_id).read_head()
        request = {"stop": head.next, "delayed_stop": head.delayed_stop} | changes
        return self.group.lease(make_request(**request))

    def taken(self, **changes: Any) -> str:
        return ",".join(str(each.monotons) for each in self.take(**changes).leased)

    def expire(self, store: Store | None = None) -> int:
        (group,) = Ledger(self.memory, self.queue_id).read_groups()
        return Expire(self.queue, group, 0).apply(store or self.store).expired

    def repair(self, *steps: Step, store: Store | None = None, **options: Any) -> Report:
        store = store or self.store
        return run_once(store, scan=DriverScan(store), steps=steps or (Step.EXPIRE,), **options)

    @property
    def outstanding(self) -> list[str]:
        state = self.group.read(every_waiting=True)
        return [str(each.monotons) for each in (*state.slots, *state.waiting) if each.monotons]

    @property
    def pointer(self) -> int:
        return self.group.read().head.pointer


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_was_never_offered_expires_by_block(scene: Scene):
    scene.publish(3, 2)
    scene.clock.advance(HOUR)
    scene.publish(4)
    scene.clock.advance(EXPIRE_AFTER - HOUR)
    assert scene.expire() == 0, "kept for as long as that, not less"

    scene.clock.advance(MOMENT)

    assert scene.expire() == 5
    assert scene.pointer == 5
    assert scene.taken() == "5-9"


def test_what_is_parked_in_a_lane_expires_bit_by_bit(scene: Scene):
    scene.publish(2)
    scene.clock.advance(HOUR)
    scene.publish(2)
    lanes = [7, 7, 7, 3]
    request = make_request(stop=4, max_messages=1, by_receipts=True, strict_fifo=True)
    for _ in range(2):
        again = replace(request, token=uuid4())
        scene.group.lease(
            again,
            ahead=lambda state, _: Window(state.head.pointer, lanes[state.head.pointer :]),
        )
    assert scene.outstanding == ["0-1", "1-3", "3-4"]
    scene.clock.advance(EXPIRE_AFTER - HOUR + MOMENT)

    assert scene.expire() == 2
    assert scene.outstanding == ["2-3", "3-4"]


def test_a_block_that_was_offered_in_part_expires_from_there(scene: Scene):
    scene.publish(6)
    batch = scene.take(max_messages=2)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.group.extend(batch.token, batch.leased, by=LEASE)

    assert scene.expire() == 4
    assert (scene.pointer, scene.outstanding) == (6, ["0-2"])


def test_leases_that_run_are_left_alone_and_those_that_ran_out_are_not(scene: Scene):
    scene.publish(6)
    scene.take(max_messages=2)
    scene.clock.advance(EXPIRE_AFTER)
    scene.take(max_messages=2, prefer_fresh=True)

    assert scene.expire() == 0
    scene.clock.advance(MOMENT)

    assert scene.expire() == 4
    assert scene.outstanding == ["2-4"]


def test_waiting_rows_go_once_all_of_them_is_too_old(scene: Scene):
    scene.publish(2)
    scene.clock.advance(HOUR)
    scene.publish(2)
    lease = scene.take().token
    released = {HOUR: Ranges.parse("0-1"), 20 * HOUR: Ranges.parse("1-3")}
    scene.group.settle(lease, Settlement(released=released, acked=Ranges.parse("3-4")))
    scene.clock.advance(EXPIRE_AFTER - HOUR + MOMENT)

    assert scene.expire() == 1
    assert scene.outstanding == ["1-3"]
    scene.clock.advance(HOUR)
    assert scene.expire() == 2
    assert scene.outstanding == []


def test_more_rows_than_one_compare_and_set_takes_go_one_after_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 2)
    scene.publish(7)
    lease = scene.take().token
    released = {each * HOUR: Ranges.parse(f"{each}-{each + 1}") for each in range(7)}
    scene.group.settle(lease, Settlement(released=released))
    for _ in range(5):
        scene.publish(1, delay=30 * HOUR)
        scene.clock.advance(MOMENT)
    scene.publish(1)
    scene.clock.advance(EXPIRE_AFTER + HOUR)

    (planned,) = scene.repair(dry_run=True).queues["q"].planned
    assert planned == "let 8 message(s) of group 'g' expire"
    assert scene.expire() == 8
    assert scene.pointer == 13
    assert scene.outstanding == [f"{each}-{each + 1}" for each in range(7, 12)]


def test_what_lies_behind_many_delayed_blocks_expires_and_nothing_else_is_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 2)
    for _ in range(5):
        scene.publish(1, delay=30 * HOUR)
        scene.clock.advance(MOMENT)
    scene.publish(3)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(1)

    report = scene.repair()

    assert report.totals.expired == 3
    assert [getattr(each, "count", None) for each in caplog.records] == [3]
    assert scene.pointer == 8
    assert scene.taken() == "8-9"
    scene.clock.advance(30 * HOUR - EXPIRE_AFTER)
    assert scene.taken(prefer_fresh=True) == "0-5"


def test_what_lies_behind_very_many_delayed_blocks_expires_with_a_later_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(expire_module, "_MOST_PASSES", 3)
    for _ in range(9):
        scene.publish(1, delay=30 * HOUR)
        scene.clock.advance(MOMENT)
    scene.publish(1)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(1)
    store = CountingStore(scene.store)

    with caplog.at_level(logging.INFO):
        first = scene.repair(store=store)

    assert (first.totals.expired, first.totals.postponed) == (0, 1)
    assert (store.cas_count, scene.pointer) == (3, 6)
    (told,) = [each for each in caplog.records if getattr(each, "action", None) == POSTPONED]
    assert told.getMessage().endswith(
        "left to the next run: the rest of: let 1 message(s) of group 'g' expire"
    )

    second = scene.repair()

    assert (second.totals.expired, second.totals.postponed) == (1, 0)
    assert scene.pointer == 10


def test_so_do_very_many_waiting_rows_and_the_last_ones_leave_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 1)
    monkeypatch.setattr(expire_module, "_MOST_PASSES", 3)
    scene.publish(6)
    lease = scene.take().token
    released = {each * HOUR: Ranges.parse(f"{each}-{each + 1}") for each in range(6)}
    scene.group.settle(lease, Settlement(released=released))
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    reports = [scene.repair().totals for _ in range(3)]

    assert [(each.expired, each.postponed) for each in reports] == [(3, 1), (3, 0), (0, 0)]


def test_delayed_blocks_with_nothing_too_old_behind_them_are_not_stepped_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 2)
    for _ in range(5):
        scene.publish(1, delay=30 * HOUR)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(1)
    store = CountingStore(scene.store)

    assert scene.expire(store) == 0
    assert (store.cas_count, scene.pointer) == (0, 0)


@pytest.mark.parametrize("after", range(16))
@pytest.mark.parametrize("fault", [None, *Fault])
def test_stepping_over_delayed_blocks_loses_nothing_whatever_happens_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, after: int, fault: Fault | None
):
    monkeypatch.setattr(expire_module, "_ROWS_AT_ONCE", 1)
    for _ in range(3):
        scene.publish(1, delay=30 * HOUR)
        scene.clock.advance(MOMENT)
    scene.publish(3)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(2)
    given: list[Lease] = []

    def interfere() -> None:
        if fault is None:
            given.append(scene.take(max_messages=4))
        scene.store.fault = fault

    scene.store.interrupt(interfere, after=after)

    count = scene.expire()
    scene.store.calm()
    scene.store.arrive()

    leased = Ranges.union([each.monotons for batch in given for each in batch.leased])
    state = scene.group.read(every_waiting=True)
    held = Ranges.union([row.monotons for row in (*state.slots, *state.waiting)])
    expired = Ranges.parse("3-6") - leased
    fresh = Ranges.of(Range(state.head.pointer, 8))
    assert str(Ranges.union([held, fresh])) == str(Ranges.parse("0-8") - expired)
    assert count == expired.count


def test_what_is_delayed_waits_as_if_a_reader_had_stepped_over_it(scene: Scene):
    scene.publish(2, delay=15 * HOUR)
    scene.publish(3)
    scene.publish(2, delay=12 * HOUR)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    assert scene.expire() == 3
    assert scene.outstanding == ["5-7", "0-2"]
    assert scene.pointer == 7
    scene.clock.advance(2 * HOUR)
    assert scene.taken() == "5-7"
    scene.clock.advance(3 * HOUR)
    assert scene.taken(prefer_fresh=True) == "0-2"


@pytest.mark.parametrize("whose", ["server", "writer"])
def test_a_block_from_the_future_holds_up_nothing_and_goes_with_what_is_behind_it(
    scene: Scene, whose: str
):
    scene.publish(2)
    if whose == "server":
        scene.clock.ahead = 1000 * HOUR
        scene.publish(3)
        scene.clock.ahead = timedelta(0)
    else:
        publish(
            Ledger(scene.memory, scene.queue_id), make_pending([3], scene.clock.now + 1000 * HOUR)
        )
    scene.clock.advance(HOUR)
    scene.publish(4)
    scene.clock.advance(EXPIRE_AFTER)

    assert scene.repair().totals.expired == 2, "what is behind tells that it is no older"
    scene.clock.advance(MOMENT)
    assert scene.repair().totals.expired == 7
    assert scene.pointer == 9


def test_a_server_that_is_behind_makes_a_block_from_the_future_no_older(scene: Scene):
    scene.clock.ahead = 1000 * HOUR
    publish(Ledger(scene.memory, scene.queue_id), make_pending([3], scene.clock.now))
    scene.clock.ahead = -1000 * HOUR
    publish(Ledger(scene.memory, scene.queue_id), make_pending([4], scene.clock.now))
    scene.clock.ahead = timedelta(0)
    scene.clock.advance(EXPIRE_AFTER)

    assert scene.expire() == 0

    scene.clock.advance(MOMENT)
    assert scene.expire() == 7


def test_a_block_from_the_future_with_nothing_behind_it_stays(scene: Scene):
    scene.clock.ahead = 1000 * HOUR
    scene.publish(3)
    scene.clock.ahead = timedelta(0)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    assert scene.expire() == 0


def test_delayed_messages_are_kept_from_the_time_when_they_are_visible(scene: Scene):
    scene.publish(2, delay=5 * HOUR)
    scene.clock.advance(EXPIRE_AFTER + 5 * HOUR)
    assert scene.expire() == 0

    scene.clock.advance(MOMENT)

    assert scene.expire() == 2


def test_delayed_messages_alone_make_no_rows(scene: Scene):
    scene.publish(2, delay=50 * HOUR)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    store = CountingStore(scene.store)

    assert scene.expire(store) == 0
    assert (store.cas_count, scene.pointer) == (0, 0)


def test_what_is_dead_is_left_to_be_dead_lettered():
    scene = Scene(max_deliveries=1)
    scene.publish(4)
    lease = scene.take(max_deliveries=1).token
    scene.group.settle(lease, Settlement(rejected={"bad": Ranges.parse("0-1")}))
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    assert scene.expire() == 0
    assert scene.outstanding == ["1-4", "0-1"]


def test_in_a_strictly_ordered_queue_what_expired_counts_as_settled():
    scene = Scene(order="strict")
    scene.publish(2)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(2)

    scene.expire()

    assert scene.taken(strict_fifo=True) == "2-4"


def test_a_queue_that_keeps_messages_for_ever_costs_nothing():
    scene = Scene(expire_after=None)
    scene.publish(3)
    scene.clock.advance(10_000 * HOUR)
    store = CountingStore(scene.memory)

    report = scene.repair(store=store)

    assert report.totals == Counts()
    # The clock, for all queues together.
    assert (store.cas_count, store.read_count, store.serial_read_count) == (0, 1, 0)


def test_where_nothing_is_too_old_it_costs_a_read(scene: Scene):
    scene.publish(*[1] * 5)
    store = CountingStore(scene.memory)

    scene.repair(store=store)

    assert (store.read_count, store.serial_read_count, store.cas_count) == (1 + 1, 0, 0)


def test_where_nothing_is_owed_it_costs_no_read(scene: Scene):
    store = CountingStore(scene.memory)

    scene.repair(store=store)

    assert (store.read_count, store.serial_read_count, store.cas_count) == (1, 0, 0)


def test_where_one_group_has_settled_what_is_too_old_it_costs_a_few_reads(scene: Scene):
    scene.publish(1)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(*[1] * 5)
    scene.expire()
    store = CountingStore(scene.memory)

    scene.repair(store=store)

    assert (store.read_count, store.serial_read_count, store.cas_count) == (2 + 4, 4, 0)


def test_many_blocks_expire_in_one_compare_and_set(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expire_module, "_BLOCKS_READ", 3)
    for _ in range(4):
        scene.publish(*[1] * 5)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    scene.publish(1)
    store = CountingStore(scene.store)

    assert scene.expire(store) == 20
    assert store.cas_count == 1


def test_it_is_told_loudly(scene: Scene, caplog: pytest.LogCaptureFixture):
    scene.publish(3)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    with caplog.at_level(logging.WARNING):
        report = scene.repair()

    assert report.totals.expired == 3
    (problem,) = report.problems()
    assert problem.startswith("q: 3 message(s) have expired")
    (told,) = [each for each in caplog.records if getattr(each, "action", None) == EXPIRED]
    assert (told.levelno, told.group, told.count) == (  # type: ignore[attr-defined]
        logging.WARNING,
        "g",
        3,
    )


def test_a_dry_run_only_tells(scene: Scene):
    scene.publish(3)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)
    store = CountingStore(scene.store)

    report = scene.repair(store=store, dry_run=True)

    assert report.queues["q"].planned == ["let 3 message(s) of group 'g' expire"]
    assert (store.cas_count, scene.pointer) == (0, 0)


def test_what_has_expired_is_deleted_in_the_same_repair(scene: Scene):
    scene.publish(3)
    scene.clock.advance(EXPIRE_AFTER + MOMENT)

    report = scene.repair(Step.EXPIRE, Step.FINALISE)

    assert (report.totals.expired, report.totals.finalised) == (3, 3)


# -- others at the same time ----------------------------------------------------------------------

CALLS = 12


class Busy(Scene):
    """Of ten old messages two wait, two were leased by one who died, six were never offered."""

    def __init__(self) -> None:
        super().__init__()
        self.publish(10)
        lease = self.take(max_messages=2).token
        self.group.settle(lease, Settlement(released={HOUR: Ranges.parse("0-2")}))
        self.held = self.take(max_messages=2).token
        self.clock.advance(EXPIRE_AFTER + MOMENT)

    def check(self, *, given: AbstractSet[int] = frozenset()) -> None:
        """Everything is settled but what a reader was given."""
        state = self.group.read(every_waiting=True)
        rows = (*state.slots, *state.waiting)
        parts = [part for row in rows for part in row.monotons]
        assert {at for part in parts for at in range(part.start, part.stop)} == given
        assert state.head.pointer == 10


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(CALLS))
def test_a_lost_answer_is_resolved(fault: Fault, after: int):
    busy = Busy()

    def lose() -> None:
        busy.store.fault = fault

    busy.store.interrupt(lose, after=after)

    count = busy.expire()
    busy.store.calm()
    busy.store.arrive()

    assert count == 10
    busy.check()
    assert busy.expire() == 0


@pytest.mark.parametrize("after", range(CALLS))
@pytest.mark.parametrize("fresh", [True, False])
def test_a_reader_that_was_faster_keeps_what_it_got(after: int, *, fresh: bool):
    busy = Busy()
    given: list[Lease] = []
    busy.store.interrupt(
        lambda: given.append(busy.take(max_messages=2, prefer_fresh=fresh)), after=after
    )

    count = busy.expire()
    busy.store.calm()

    got = {
        at
        for batch in given
        for each in batch.leased
        for part in each.monotons
        for at in range(part.start, part.stop)
    }
    busy.check(given=got)
    assert count == 10 - len(got)


@pytest.mark.parametrize("after", range(CALLS))
def test_a_reader_that_settles_late_settles_what_it_still_has(after: int):
    busy = Busy()
    settled: list[int] = []

    def settle_late() -> None:
        acked = Settlement(acked=Ranges.parse("2-4"))
        settled.append(busy.group.settle(busy.held, acked).count)

    busy.store.interrupt(settle_late, after=after)

    count = busy.expire()
    busy.store.calm()

    busy.check()
    assert count + sum(settled) == 10


@pytest.mark.parametrize("after", range(CALLS))
def test_a_reader_that_extends_its_lease_late_keeps_what_it_still_has(after: int):
    busy = Busy()
    (slot,) = busy.group.read().held_by(busy.held)
    leased = LeasedSlot(slot.number, slot.monotons, slot.deliveries)
    extended: list[bool] = []

    def extend() -> None:
        extended.append(busy.group.extend(busy.held, [leased], by=LEASE))

    busy.store.interrupt(extend, after=after)

    count = busy.expire()
    busy.store.calm()

    kept = {2, 3} if extended == [True] else set()
    busy.check(given=kept)
    assert count == 10 - len(kept)


@pytest.mark.parametrize("after", range(CALLS))
def test_what_is_published_meanwhile_stays(after: int):
    busy = Busy()
    busy.store.interrupt(lambda: busy.publish(5), after=after)

    assert busy.expire() == 10

    busy.store.calm()
    busy.check()


@pytest.mark.parametrize("after", range(CALLS))
def test_a_group_that_is_moved_meanwhile_is_where_it_was_moved_to(after: int):
    busy = Busy()
    busy.publish(5)
    moved = []

    def move() -> None:
        moved.append(
            seek_group(ConsumerGroup(Ledger(busy.memory, busy.queue_id), "g"), 12, force=True)
        )

    busy.store.interrupt(move, after=after)

    busy.expire()
    busy.store.calm()

    state = busy.group.read(every_waiting=True)
    assert state.head.pointer == (12 if moved else 10)
    assert state.floor == state.head.pointer


@pytest.mark.parametrize("after", range(CALLS))
@pytest.mark.parametrize("anew", [True, False])
def test_a_group_that_is_removed_meanwhile_is_not_brought_back(after: int, *, anew: bool):
    busy = Busy()
    (group,) = Ledger(busy.memory, busy.queue_id).read_groups()
    removed = []

    def remove() -> None:
        removed.append(
            delete_group(ConsumerGroup(Ledger(busy.memory, busy.queue_id), "g"), force=True)
        )
        if anew:
            ensure_group(
                ConsumerGroup(Ledger(busy.memory, busy.queue_id), "g"), starting="earliest"
            )

    busy.store.interrupt(remove, after=after)

    Expire(busy.queue, group, 0).apply(busy.store)
    busy.store.calm()

    if removed and anew:
        assert busy.pointer == 0, "another registration is left alone"
    elif removed:
        assert not busy.memory.read_rows(partition_of_group(busy.queue_id, "g")).rows


@pytest.mark.parametrize("after", range(CALLS))
def test_another_repair_at_the_same_time_lets_nothing_expire_twice(after: int):
    busy = Busy()
    others: list[int] = []
    busy.store.interrupt(lambda: others.append(busy.expire(busy.memory)), after=after)

    count = busy.expire()
    busy.store.calm()

    assert count + sum(others) == 10
    busy.check()


@pytest.mark.parametrize("after", range(20))
def test_blocks_that_another_repair_trims_meanwhile_are_no_hole(after: int):
    busy = Busy()

    def overtake() -> None:
        busy.expire(busy.memory)
        busy.repair(Step.FINALISE, store=busy.memory)

    busy.store.interrupt(overtake, after=after)

    busy.repair(Step.EXPIRE)
    busy.store.calm()
    busy.repair(Step.EXPIRE)

    busy.check()


def test_of_a_group_that_is_gone_nothing_expires(scene: Scene):
    (group,) = Ledger(scene.memory, scene.queue_id).read_groups()
    delete_group(ConsumerGroup(Ledger(scene.memory, scene.queue_id), "g"))

    assert Expire(scene.queue, group, 0).apply(scene.store) == Counts()
    with pytest.raises(QueueStateError):
        scene.group.read()
