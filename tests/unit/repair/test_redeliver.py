from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark.dead_letters.dead_letter import RETRY_AFTER, dead_letter_messages
from cassieq_spark.groups.deliveries import LONGEST_BACKOFF
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeasedSlot
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import delete_group, ensure_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import alter_queue, create_queue, delete_queue, pause_queue
from cassieq_spark.repair.redeliver import BROKEN_OFF, GRACE, PATIENCE
from cassieq_spark.repair.report import Counts, Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store, partition_of_group
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_request
from tests.unit.dead_letters.test_dead_letter import Scene as DeadLettering

MOMENT = timedelta(milliseconds=1)
LATE = PATIENCE + MOMENT


class Scene(DeadLettering):
    """Twelve messages; a reader died of the first six, and nobody reads since."""

    def repair(self, *, store: Store | None = None, **options: Any) -> Report:
        store = store or self.store
        return run_once(store, scan=DriverScan(store), steps=[Step.REDELIVER], **options)

    def check(self) -> None:
        """I9: each of the six has one copy, and has left the group."""
        assert sorted(self.values()) == [str(number) for number in range(6)]
        assert self.outstanding() == []


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.clock.advance(LATE)
    return scene


def test_what_was_handed_out_too_often_is_dead_lettered_where_no_reader_comes(scene: Scene):
    report = scene.repair()

    scene.check()
    assert report.totals == Counts(dead_lettered=6)
    assert scene.repair().totals == Counts()


def test_what_was_rejected_is_dead_lettered_where_no_reader_comes(scene: Scene):
    lease = scene.group.lease(scene.request(max_messages=2)).token
    rejected = Settlement(rejected={"bad": Ranges.parse("6-8")})
    scene.group.settle(lease, rejected)
    scene.clock.advance(LATE)

    report = scene.repair()

    assert report.totals.dead_lettered == 8
    assert {copy["value"].decode() for copy in scene.copies()} == set("01234567")


def test_a_query_that_is_down_has_an_hour_to_come_back_and_ack_what_it_had():
    """It may have processed and committed it before it was stopped."""
    scene = Scene()
    scene.clock.advance(PATIENCE - MOMENT)

    assert scene.repair().totals == Counts()
    scene.clock.advance(MOMENT)
    assert scene.repair().totals.dead_lettered == 6


def test_it_has_ten_leases_if_they_are_longer_than_an_hour():
    scene = Scene()
    alter_queue(scene.memory, "q", lease=timedelta(hours=1))
    scene.clock.advance(timedelta(hours=10) - MOMENT)

    assert scene.repair().totals == Counts()
    scene.clock.advance(MOMENT)
    assert scene.repair().totals.dead_lettered == 6


def test_what_no_token_can_settle_any_more_is_left_to_readers_for_a_minute():
    scene = Scene(count=0)
    lease = scene.hand_out(2)
    scene.group.settle(lease, Settlement(rejected={"bad": Ranges.parse("0-2")}))
    scene.clock.advance(GRACE)

    assert scene.repair().totals == Counts()
    scene.clock.advance(MOMENT)
    assert scene.repair().totals.dead_lettered == 2


def test_what_is_alive_stays(scene: Scene):
    scene.group.lease(make_request(stop=12, max_messages=3))
    alter_queue(scene.memory, "q", max_deliveries=3)
    scene.clock.advance(LEASE + LATE)

    assert scene.repair().totals == Counts()
    assert scene.outstanding() == ["0-3", "3-6"]


def test_in_a_queue_without_a_limit_only_what_was_rejected_is_dead(scene: Scene):
    alter_queue(scene.memory, "q", max_deliveries=0, dead_letter_queue="")

    assert scene.repair().totals == Counts()


def test_a_queue_where_something_waits_costs_reads_only(scene: Scene):
    scene.repair()
    store = CountingStore(scene.memory)

    scene.repair(store=store)

    # The clock; its ledger, its one group.
    assert (store.read_count, store.serial_read_count, store.cas_count) == (1 + 1 + 3, 0, 0)


def test_a_dry_run_only_tells(scene: Scene):
    store = CountingStore(scene.store)

    report = scene.repair(store=store, dry_run=True)

    assert report.queues["q"].planned == [
        "move to queue 'q.dead' the dead messages 0 to 5 of group 'g'"
    ]
    assert store.cas_count == 0


def test_what_is_dead_lettered_is_not_said_to_want_a_reader(scene: Scene):
    scene.clock.advance(10 * LEASE + LONGEST_BACKOFF)
    assert scene.repair(dry_run=True).queues["q"].planned

    report = scene.repair()

    assert (report.totals.dead_lettered, list(report.problems())) == (6, [])


def test_without_a_dead_letter_queue_they_are_dropped():
    scene = Scene(dropping=True)
    scene.clock.advance(LATE)

    assert scene.repair(dry_run=True).queues["q"].planned == [
        "drop dead messages 0 to 5 of group 'g'"
    ]
    assert scene.repair().totals.dead_lettered == 6
    assert (scene.values(), scene.outstanding()) == ([], [])


def test_without_the_dead_letter_queue_that_there_should_be_they_stay_and_that_is_told(
    scene: Scene,
):
    delete_queue(scene.memory, "q.dead", force=True)

    report = scene.repair()

    assert report.totals.not_dead_lettered == 6
    (problem,) = report.problems()
    assert problem.startswith("q: 6 dead message(s) are left")
    create_queue(scene.memory, "q.dead", bucket_size=8, chunk_size=4)
    scene.clock.advance(RETRY_AFTER + LATE)
    assert scene.repair().totals.dead_lettered == 6
    assert scene.outstanding() == []


# -- others at the same time ----------------------------------------------------------------------

CALLS = 30


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(CALLS))
def test_whatever_answer_is_lost_there_is_one_copy(scene: Scene, fault: Fault, after: int):
    def lose() -> None:
        scene.store.fault = fault

    scene.store.interrupt(lose, after=after)

    scene.repair()
    scene.store.calm()
    scene.store.arrive()
    scene.clock.advance(RETRY_AFTER + LATE)
    scene.repair()

    scene.check()


def test_a_lease_that_was_marked_dead_though_the_answer_was_lost_is_dead_lettered_at_once(
    scene: Scene,
):
    scene.store.fault = Fault.ANSWER_LOST

    assert scene.repair().totals == Counts(dead_lettered=6)


class Crash(BaseException):
    """The process is no more: nothing may catch it."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("after", range(CALLS))
def test_wherever_it_breaks_off_the_next_run_goes_on(scene: Scene, after: int):
    scene.store.interrupt(crash, after=after)
    with suppress(Crash):
        scene.repair()
    scene.store.calm()
    scene.clock.advance(RETRY_AFTER + LATE)

    scene.repair()

    scene.check()


@pytest.mark.parametrize("after", range(CALLS))
def test_a_reader_that_comes_meanwhile_and_the_repair_make_one_copy(scene: Scene, after: int):
    reader = ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "g")

    def read() -> None:
        found = reader.lease(scene.request(stop=6)).dead
        dead_letter_messages(scene.memory, scene.queue, reader, found)

    scene.store.interrupt(read, after=after)

    scene.repair()
    scene.store.calm()
    scene.clock.advance(RETRY_AFTER + LATE)
    scene.repair()

    scene.check()


@pytest.mark.parametrize("after", range(CALLS))
def test_a_reader_that_settles_late_and_the_repair_settle_each_message_once(after: int):
    scene = Scene(count=0)
    lease = scene.hand_out(6)
    scene.clock.advance(LATE)
    acked: list[int] = []

    def settle_late() -> None:
        done = Settlement(acked=Ranges.parse("1-3"))
        acked.append(scene.group.settle(lease, done).count)

    scene.store.interrupt(settle_late, after=after)

    scene.repair()
    scene.store.calm()
    scene.clock.advance(RETRY_AFTER + LATE)
    scene.repair()

    copies = set(scene.values())
    assert copies == (set("0345") if acked == [2] else set("012345"))
    assert len(scene.values()) == len(copies)
    assert scene.outstanding() == []


@pytest.mark.parametrize("after", range(CALLS))
def test_a_reader_that_extends_its_lease_late_keeps_what_it_still_has(after: int):
    scene = Scene(count=0)
    lease = scene.hand_out(6)
    scene.clock.advance(LATE)
    (slot,) = scene.group.read().held_by(lease)
    leased = LeasedSlot(slot.number, slot.monotons, slot.deliveries)
    extended: list[bool] = []

    def extend() -> None:
        extended.append(scene.group.extend(lease, [leased], by=LEASE))

    scene.store.interrupt(extend, after=after)

    report = scene.repair()
    scene.store.calm()

    assert scene.outstanding() == (["0-6"] if extended == [True] else [])
    assert len(scene.values()) == report.totals.dead_lettered


@pytest.mark.parametrize("after", range(CALLS))
def test_a_group_that_is_removed_meanwhile_ends_nothing(scene: Scene, after: int):
    def remove() -> None:
        delete_group(ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "g"), force=True)

    scene.store.interrupt(remove, after=after)

    scene.repair()

    assert len(scene.values()) in (0, 6)


# -- what is stuck --------------------------------------------------------------------------------


def notes(scene: Scene, queue: str = "q") -> list[str]:
    return scene.repair(dry_run=True).queues[queue].notes


def test_what_has_been_due_for_long_is_told():
    scene = Scene(count=0)
    alter_queue(scene.memory, "q", max_deliveries=3)
    scene.group.lease(make_request(stop=12, max_messages=3))
    scene.clock.advance(11 * LEASE + LONGEST_BACKOFF)
    assert notes(scene) == []

    scene.clock.advance(MOMENT)

    (note,) = notes(scene)
    assert note.startswith("3 message(s) of group 'g' have been due for up to 1:10:00")
    assert "cassieq group delete q g" in note


def test_while_a_queue_is_paused_nobody_is_missed():
    scene = Scene(count=0)
    alter_queue(scene.memory, "q", max_deliveries=3)
    scene.group.lease(make_request(stop=12, max_messages=3))
    scene.clock.advance(timedelta(days=1))
    pause_queue(scene.memory, "q")

    assert notes(scene) == []


def test_a_seek_that_broke_off_is_told():
    scene = Scene(count=0)
    queue_id = scene.queue.queue_id
    calls = count()
    while not Ledger(scene.memory, queue_id).read_seek_pins("g"):
        scene.store.interrupt(crash, after=next(calls))
        with suppress(Crash):
            seek_group(ConsumerGroup(Ledger(scene.store, queue_id), "g"), 8)
        scene.store.calm()
    assert notes(scene) == []
    scene.clock.advance(BROKEN_OFF + MOMENT)

    (note,) = notes(scene)

    assert note.startswith("moving group 'g' to monoton 8 broke off 0:10:00 ago")
    assert "cassieq group seek q g --to 8" in note
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue.queue_id), "g"), 8)
    assert notes(scene) == []


def test_a_group_that_was_never_opened_is_told():
    scene = Scene(count=0)
    ensure_group(
        ConsumerGroup(Ledger(scene.memory, scene.queue.queue_id), "half"), starting="earliest"
    )
    del scene.memory._rows[partition_of_group(scene.queue.queue_id, "half")]
    assert notes(scene) == []
    scene.clock.advance(BROKEN_OFF + MOMENT)

    (note,) = notes(scene)

    assert note.startswith("creating group 'half' broke off 0:10:00 ago, and it keeps all")


def test_the_claims_of_a_redrive_are_left_alone_and_told():
    memory, clock = make_clocked_store()
    dead = create_queue(memory, "q.dead", bucket_size=8, chunk_size=4, max_deliveries=1)
    ensure_group(ConsumerGroup(Ledger(memory, dead.queue_id), ADMIN_GROUP), starting="earliest")
    batch = pa.record_batch({"value": pa.array(["a", "b"])})
    written = write_block(memory, dead, [batch], SinkOptions(queue="q.dead"))
    publish(Ledger(memory, dead.queue_id), [written])
    claims = ConsumerGroup(Ledger(memory, dead.queue_id), ADMIN_GROUP)
    stop = Ledger(memory, dead.queue_id).read_head().next
    claimed: Lease = claims.lease(make_request(stop=stop, lease=dead.lease))
    clock.advance(timedelta(days=1))

    report = run_once(memory, scan=DriverScan(memory), steps=[Step.REDELIVER])

    assert report.totals == Counts()
    assert claims.read().held_by(claimed.token)[0].monotons == Ranges.parse("0-2")
    (note,) = report.queues["q.dead"].notes
    assert "cassieq dead redrive q.dead" in note
    assert list(report.problems()) == [f"q.dead: {note}"]
