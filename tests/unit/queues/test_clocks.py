"""A clock that is wrong for a while: what it can't do, and what undoes what it did."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from typer.testing import CliRunner

from cassieq_spark import backoff
from cassieq_spark.cli import app
from cassieq_spark.cli import queue as queue_command
from cassieq_spark.errors import ClockError, NotAppliedError, OptionError, QueueStateError
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import FOR_EVER
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, Ranges, to_millis
from cassieq_spark.queues import alter_queue, fix_clocks, purge_queue
from cassieq_spark.queues.clocks import plan_due_now
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import CLOCKS_APART, EVERYTHING, Partition, Rows, Slice
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.builders import make_clocked_store, make_group, make_queue, make_request
from tests.support.faults import FakeClock, make_block_id
from tests.unit.repair.repaired_queue import LEASE, WRITE_TIMEOUT, RepairedQueue

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MONTH = 30 * DAY


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)


class Scene:
    """A queue with a group, and servers whose clocks can be set ahead."""

    def __init__(self) -> None:
        self.store, self.clock = make_clocked_store()
        self.queue = make_queue(self.store, [6])
        self.group = make_group(self.store, self.queue.queue_id)
        self.clock.advance(SECOND)

    def take(self, limit: int | None = None, held: UUID | None = None) -> Lease:
        stop = Ledger(self.store, self.queue.queue_id).read_head().next
        request = make_request(max_messages=limit, held=held, stop=stop, prefer_fresh=True)
        return self.group.lease(request)

    def taken(self) -> list[str]:
        return [str(each.monotons) for each in self.take().leased]

    def put(self) -> None:
        written = PendingBlock(make_block_id(self.clock.now), 1)
        publish(Ledger(self.store, self.queue.queue_id), [written])

    @property
    def fence(self) -> datetime:
        return Ledger(self.store, self.queue.queue_id).read_head().fence

    def raise_fence(self, fence: datetime) -> None:
        head = Ledger(self.store, self.queue.queue_id).read_head()
        assert Ledger(self.store, self.queue.queue_id).raise_fence(head, fence)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def clock(scene: Scene) -> FakeClock:
    return scene.clock


# -- what a wrong clock can't do --------------------------------------------------------------


def test_what_is_released_by_a_clock_that_is_ahead_is_due_when_it_was_told(
    scene: Scene, clock: FakeClock
):
    lease = scene.take().token
    clock.ahead = MONTH
    scene.group.settle(lease, Settlement(released={10 * SECOND: Ranges.parse("0-6")}))
    clock.ahead = timedelta(0)

    assert scene.taken() == []
    clock.advance(10 * SECOND)
    assert scene.taken() == ["0-6"]


def test_what_is_released_after_a_clock_was_ahead_is_due_at_once(scene: Scene, clock: FakeClock):
    lease = scene.take(limit=3).token
    scene.group.settle(lease, Settlement(released={timedelta(0): Ranges.parse("0-3")}))
    clock.ahead = MONTH
    first = scene.group.lease(make_request(stop=3))
    clock.ahead = timedelta(0)

    scene.group.settle(first.token, Settlement(released={timedelta(0): Ranges.parse("0-3")}))

    assert str(scene.group.lease(make_request(stop=3)).leased[0].monotons) == "0-3"


def test_a_clock_that_is_ahead_by_seconds_counts(scene: Scene, clock: FakeClock):
    lease = scene.take().token
    clock.ahead = CLOCKS_APART
    scene.group.settle(lease, Settlement(released={SECOND: Ranges.parse("0-6")}))

    (row,) = scene.group.read().waiting

    assert row.due == to_millis(clock.now + CLOCKS_APART + SECOND)


def test_messages_that_are_too_old_by_a_wrong_clock_only_are_not_skipped(
    scene: Scene, clock: FakeClock
):
    clock.ahead = MONTH

    lease = scene.group.lease(make_request(stop=6, skip_older_than=HOUR))

    assert (lease.skipped, str(lease.leased[0].monotons)) == (0, "0-6")


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_a_repair_by_a_wrong_clock_refuses_no_put_and_throws_nothing_away(ahead: timedelta):
    queue = RepairedQueue(expire_after=DAY, keep_settled=HOUR)
    kept = RepairedQueue(keep_settled=DAY)
    for each in (queue, kept):
        each.publish(5)
        each.write(3)
        each.clock.advance(SECOND)
    kept.settle("billing", 5)
    queue.clock.ahead = kept.clock.ahead = ahead

    report = queue.repair()
    kept.repair()

    assert (queue.finalised, kept.finalised) == (0, 0)
    assert len(queue.buckets()) == 3
    (problem,) = (each for each in report.problems() if each.startswith("clocks disagree"))
    server = (queue.clock.now + ahead).isoformat(timespec="seconds")
    assert f"it was {server} by a server's" in problem
    assert "cassieq queue fix-clocks" in problem
    queue.clock.ahead = timedelta(0)
    assert Ledger(queue.store, queue.queue_id).read_head().fence < queue.clock.now
    queue.publish(1)


def test_messages_under_their_last_lease_are_not_dead_by_a_wrong_clock():
    queue = RepairedQueue()
    alter_queue(queue.store, "orders", max_deliveries=1)
    queue.publish(4)
    queue.consume("billing")
    queue.clock.ahead = MONTH

    assert queue.repair(Step.REDELIVER).totals.dead_lettered == 0


def test_clocks_that_agree_are_not_told_of():
    queue = RepairedQueue()
    queue.publish(5)
    queue.clock.ahead = CLOCKS_APART

    assert queue.repair().clocks is None


# -- what undoes what it did ------------------------------------------------------------------


def test_what_a_writer_whose_clock_was_ahead_had_begun_stays_refused(
    scene: Scene, clock: FakeClock
):
    begun = PendingBlock(make_block_id(clock.now + DAY), 1)
    scene.raise_fence(clock.now + MONTH)
    fix_clocks(scene.store, "q")
    clock.advance(HOUR)

    with pytest.raises(NotAppliedError, match="correct the clock of the writer"):
        publish(Ledger(scene.store, scene.queue.queue_id), [begun])

    scene.put()
    assert Ledger(scene.store, scene.queue.queue_id).read_head().next == 7


def test_what_a_writer_whose_clock_was_ahead_has_sent_before_goes_in_no_more(
    scene: Scene, clock: FakeClock
):
    store = FaultyStore(scene.store)
    store.fault = Fault.REQUEST_LATE
    store.interrupt(lambda: scene.raise_fence(clock.now + MONTH), after=2)
    with pytest.raises(NotAppliedError):
        publish(
            Ledger(store, scene.queue.queue_id), [PendingBlock(make_block_id(clock.now + DAY), 1)]
        )
    fix_clocks(scene.store, "q")

    store.arrive()

    assert Ledger(scene.store, scene.queue.queue_id).read_head().next == 6


def test_a_fence_that_goes_down_twice_is_remembered_where_it_stood_highest(
    scene: Scene, clock: FakeClock
):
    for ahead in (DAY, MONTH, HOUR):
        highest = clock.now + MONTH
        scene.raise_fence(clock.now + ahead)
        fix_clocks(scene.store, "q")

    assert Ledger(scene.store, scene.queue.queue_id).read_head().unfenced_until == highest


def test_puts_are_taken_again_and_blocks_begun_before_stay_refused(scene: Scene, clock: FakeClock):
    scene.raise_fence(clock.now + MONTH)
    begun_before = PendingBlock(make_block_id(clock.now + CLOCKS_APART), 1)
    with pytest.raises(NotAppliedError, match="fix-clocks"):
        scene.put()

    fixed = fix_clocks(scene.store, "q")

    assert fixed.fence == (clock.now + MONTH, clock.now + CLOCKS_APART)
    assert fix_clocks(scene.store, "q").fence is None
    clock.advance(CLOCKS_APART + SECOND)
    with pytest.raises(NotAppliedError):
        publish(Ledger(scene.store, scene.queue.queue_id), [begun_before])
    scene.put()
    assert Ledger(scene.store, scene.queue.queue_id).read_head().next == 7


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--json"]])
def test_who_lowers_a_fence_is_told_to_stop_the_writers_of_the_wrong_clock(
    scene: Scene, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, more: list[str]
):
    monkeypatch.setattr(queue_command, "open_store", lambda _: scene.store)
    command = ["queue", "fix-clocks", "q", *more]
    assert CliRunner().invoke(app, command).stderr == ""
    scene.raise_fence(clock.now + MONTH)

    told = CliRunner().invoke(app, command)

    assert "before the fence is lowered, stop all writers" in told.stderr
    assert "Warning" not in told.stdout


def test_a_fence_that_is_not_ahead_stays(scene: Scene, clock: FakeClock):
    scene.raise_fence(clock.now + CLOCKS_APART)
    store = CountingStore(scene.store)

    assert fix_clocks(store, "q").fence is None
    assert store.cas_count == 0
    assert scene.fence == clock.now + CLOCKS_APART


def test_a_queue_that_is_purged_meanwhile_stays_closed():
    for after in range(8):
        scene = Scene()
        scene.raise_fence(scene.clock.now + MONTH)
        store = FaultyStore(scene.store)
        store.interrupt(lambda scene=scene: purge_queue(scene.store, "q", force=True), after=after)

        with suppress(QueueStateError):
            fix_clocks(store, "q")

        store.calm()
        purge_queue(scene.store, "q", force=True)
        assert scene.fence == FOR_EVER, after


@pytest.mark.parametrize("lease", [LEASE / 2, LEASE, 30 * LEASE])
def test_who_holds_messages_by_a_clock_that_was_ahead_keeps_them_for_its_lease(
    scene: Scene, clock: FakeClock, lease: timedelta
):
    """Its holder may be alive, and counts the lease by a clock that is right."""
    clock.ahead = MONTH
    held = scene.group.lease(make_request(lease=lease, stop=6)).token
    clock.ahead = timedelta(0)
    clock.advance(lease / 2)

    assert fix_clocks(scene.store, "q").due == {"g": 6}

    clock.advance(lease / 2)
    assert scene.taken() == []
    assert scene.group.settle(held, Settlement(acked=Ranges.parse("0-6"))).count == 6


def test_a_lease_that_was_extended_by_a_clock_that_was_ahead_lasts_a_lease_of_the_queue(
    scene: Scene, clock: FakeClock
):
    held = scene.take().token
    clock.ahead = MONTH
    scene.group.settle(held, Settlement(extended={LEASE: Ranges.parse("0-6")}))
    clock.ahead = timedelta(0)

    fix_clocks(scene.store, "q")

    clock.advance(scene.queue.lease)
    assert scene.taken() == []
    clock.advance(SECOND)
    assert scene.taken() == ["0-6"]


def test_of_a_lease_no_more_is_left_than_anybody_has_asked_for(scene: Scene, clock: FakeClock):
    clock.ahead = MONTH
    scene.take()
    clock.ahead = timedelta(0)

    fix_clocks(scene.store, "q", longest=SECOND)

    clock.advance(2 * SECOND)
    assert scene.taken() == ["0-6"]


def test_a_lease_of_a_month_is_over_after_a_lease(scene: Scene, clock: FakeClock):
    clock.ahead = MONTH
    scene.take(limit=4)
    clock.ahead = timedelta(0)
    clock.advance(DAY)
    assert scene.taken() == ["4-6"]

    assert fix_clocks(scene.store, "q").due == {"g": 4}

    clock.advance(scene.queue.lease + SECOND)
    assert "0-4" in scene.taken()


def test_a_lease_of_days_is_kept_where_the_queue_has_such_leases(scene: Scene, clock: FakeClock):
    alter_queue(scene.store, "q", lease=3 * DAY)
    stop = Ledger(scene.store, scene.queue.queue_id).read_head().next
    scene.group.lease(make_request(max_messages=2, lease=3 * DAY, stop=stop, prefer_fresh=True))
    scene.group.lease(make_request(lease=31 * DAY, stop=stop, prefer_fresh=True))

    assert fix_clocks(scene.store, "q", dry_run=True, longest=DAY).due == {"g": 6}
    assert fix_clocks(scene.store, "q").due == {"g": 4}


def test_what_waits_for_a_month_is_due_at_once_unless_it_was_never_handed_out(
    scene: Scene, clock: FakeClock
):
    delayed = PendingBlock(make_block_id(clock.now), 2, visible=MONTH)
    publish(Ledger(scene.store, scene.queue.queue_id), [delayed])
    lease = scene.take(limit=6).token
    scene.group.lease(make_request(stop=8, delayed_stop=8))
    released = {MONTH: Ranges.parse("0-3"), HOUR: Ranges.parse("3-4")}
    scene.group.settle(lease, Settlement(released=released, rejected={"bad": Ranges.parse("4-5")}))
    before = scene.group.read(every_waiting=True).waiting

    assert fix_clocks(scene.store, "q", dry_run=True).due == {"g": 3}
    assert scene.group.read(every_waiting=True).waiting == before
    assert fix_clocks(scene.store, "q", longest=2 * MONTH).due == {}
    assert fix_clocks(scene.store, "q").due == {"g": 3}

    waiting = scene.group.read(every_waiting=True).waiting
    due = {str(each.monotons): each.due - to_millis(clock.now) for each in waiting}
    in_ms = {HOUR: 3_600_000, MONTH: 30 * 86_400_000}
    assert due["0-3"] == 0
    assert (due["3-4"], due["6-8"]) == (in_ms[HOUR], in_ms[MONTH])


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("after", range(12))
def test_whatever_answer_is_lost_it_is_mended(fault: Fault, after: int):
    scene = Scene()
    scene.clock.ahead = MONTH
    scene.take(limit=4)
    scene.clock.ahead = timedelta(0)
    scene.raise_fence(scene.clock.now + MONTH)
    store = FaultyStore(scene.store)
    store.interrupt(lambda: setattr(store, "fault", fault), after=after)

    fix_clocks(store, "q")

    assert scene.fence == scene.clock.now + CLOCKS_APART
    scene.clock.advance(scene.queue.lease + SECOND)
    assert scene.group.lease(make_request(stop=4)).leased


def test_a_reader_that_has_extended_its_lease_meanwhile_keeps_it(scene: Scene, clock: FakeClock):
    clock.ahead = MONTH
    batch = scene.take()
    clock.ahead = timedelta(0)
    store = FaultyStore(scene.store)
    store.interrupt(lambda: scene.group.extend(batch.token, batch.leased, by=LEASE), after=6)

    assert fix_clocks(store, "q").due == {}
    assert scene.taken() == []


class OneServerAhead(WrappedStore):
    """Some answers come from a server whose clock is a month ahead."""

    def __init__(self, scene: Scene, wrong: int) -> None:
        super().__init__(scene.store)
        self._left = wrong

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        found = super().read_rows(partition, which, serial=serial)
        if found.now is None or not self._left:
            return found
        self._left -= 1
        return Rows(found.rows, found.now + MONTH, found.here)


def test_another_server_is_asked_if_one_disagrees(scene: Scene, clock: FakeClock):
    scene.raise_fence(clock.now + 2 * MONTH)

    assert fix_clocks(OneServerAhead(scene, 3), "q").fence is not None

    assert scene.fence == clock.now + CLOCKS_APART


@pytest.mark.parametrize("ahead", [MONTH, -MONTH])
def test_nothing_is_mended_while_clocks_disagree(scene: Scene, clock: FakeClock, ahead: timedelta):
    fence = clock.now + 2 * MONTH
    scene.raise_fence(fence)
    clock.ahead = ahead

    with pytest.raises(ClockError, match=r"by the clock of a server, .* correct the wrong clock"):
        fix_clocks(scene.store, "q")

    assert scene.fence == fence


def test_the_longest_lease_is_a_time(scene: Scene):
    with pytest.raises(OptionError, match="above 0"):
        fix_clocks(scene.store, "q", longest=timedelta(0))


def test_rows_are_made_due_some_at_a_time(scene: Scene, clock: FakeClock):
    lease = scene.take().token
    released = {
        MONTH + number * SECOND: Ranges.parse(f"{number}-{number + 1}") for number in range(6)
    }
    scene.group.settle(lease, Settlement(released=released))

    plan = plan_due_now(scene.group.read(every_waiting=True), DAY, LEASE, at_once=4)

    assert plan.count == 4
    assert fix_clocks(scene.store, "q").due == {"g": 6}


# -- what tells of it -------------------------------------------------------------------------


def test_a_repair_tells_of_a_fence_and_of_leases_that_are_ahead():
    queue = RepairedQueue()
    queue.publish(5)
    queue.clock.ahead = MONTH
    queue.consume("billing", 3)
    queue.clock.ahead = timedelta(0)
    head = Ledger(queue.store, queue.queue_id).read_head()
    assert Ledger(queue.store, queue.queue_id).raise_fence(head, queue.clock.now + MONTH)

    fence, leases = queue.repair(Step.REDELIVER).queues["orders"].notes

    assert fence.startswith("its fence is 30 days, 0:00:00 ahead")
    assert leases.startswith("3 message(s) of group 'billing' were leased by a clock")
    assert all("cassieq queue fix-clocks orders" in each for each in (fence, leases))
    fix_clocks(queue.store, "orders")
    queue.clock.advance(WRITE_TIMEOUT)
    assert queue.repair(Step.REDELIVER).queues["orders"].notes == []


def test_a_repair_does_not_tell_of_leases_that_are_as_long_as_they_should_be():
    queue = RepairedQueue()
    queue.publish(5)
    queue.consume("billing", 3)

    assert queue.repair(Step.REDELIVER).queues["orders"].notes == []
