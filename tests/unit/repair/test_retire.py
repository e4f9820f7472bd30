from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark.client import Client
from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.decide import place_seek_pin
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, QueueId, SinkBatch
from cassieq_spark.queues import (
    Status,
    create_queue,
    delete_queue,
    purge_queue,
    read_queue,
    read_record,
)
from cassieq_spark.repair.diagnosis import Belonging
from cassieq_spark.repair.report import Counts, Report
from cassieq_spark.repair.scan import DriverScan, Run
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import last_batch, make_pending
from tests.unit.repair.repaired_queue import RepairedQueue, chunks_of

DAY = timedelta(days=1)
MOMENT = timedelta(milliseconds=1)


class Scene(RepairedQueue):
    """Queue ``orders`` with three blocks, one of which no ledger knows, a sink, and two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = FaultyStore(self.store)
        self.publish(6, 10)
        self.write(5)
        batch = SinkBatch("app:loader", 7)
        publish(
            Ledger(self.store, self.queue_id),
            make_pending([2], self.clock.now + MOMENT),
            batch=batch,
        )
        self.register("idle")
        self.consume("billing", 3)

    def retire(self, *steps: Step, **options: Any) -> Report:
        return self.repair(*(steps or (Step.CLEAN, Step.RETIRE)), **options)

    def check_gone(self, *versions: int) -> None:
        """Nothing is left of them but the heads of their ledgers, and one row of each group."""
        gone = {QueueId(f"orders@{version}") for version in versions}
        assert not [row for row in self.store.scan(Table.CHUNK) if row["queue_id"] in gone]
        for queue_id in gone:
            (row,) = self.store.read_rows(partition_of_ledger(queue_id)).rows
            assert row["kind"] == "head"
            head = Ledger(self.store, queue_id).read_head()
            assert head.is_closed
            assert head.finalised == head.next

    @property
    def status(self) -> tuple[Status, int]:
        record = read_record(self.store, "orders")
        assert record is not None
        return record.status, record.retired


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_deleted_queue_goes_as_a_whole(scene: Scene):
    delete_queue(scene.store, "orders", force=True)

    report = scene.retire()

    scene.check_gone(1)
    assert scene.status == (Status.DELETED, 1)
    assert report.totals.retired_versions == 1
    assert report.foreign == {}
    assert create_queue(scene.store, "orders").version == 2


def test_without_a_scan_what_the_ledger_knows_goes_and_the_next_scan_finds_the_rest(scene: Scene):
    delete_queue(scene.store, "orders", force=True)

    scene.retire(Step.RETIRE)

    assert scene.status == (Status.DELETED, 1)
    assert len({block for block, _ in scene.buckets()}) == 1
    report = scene.retire()
    scene.check_gone(1)
    assert (report.totals.unpublished_blocks, report.totals.retired_versions) == (1, 0)


def test_a_version_that_was_purged_goes_and_the_one_that_follows_stays(scene: Scene):
    purge_queue(scene.store, "orders", force=True)
    queue = read_queue(scene.store, "orders")
    (written,) = make_pending([3], scene.clock.now + MOMENT)
    scene.store.write_chunks(queue.queue_id, written.block, chunks_of(3))
    publish(Ledger(scene.store, queue.queue_id), [written])

    report = scene.repair()

    scene.check_gone(1)
    assert scene.status == (Status.ACTIVE, 1)
    assert report.is_whole
    assert report.foreign == {}
    assert {block for block, _ in scene.buckets()} == {written.block}
    assert [group.name for group in Ledger(scene.store, queue.queue_id).read_groups()] == [
        "billing",
        "idle",
    ]
    assert last_batch(scene.store, queue.queue_id, "app:loader") == 7


def test_a_block_that_claims_more_buckets_than_any_writer_makes_is_an_error_of_its_queue(
    scene: Scene,
):
    # Before, all of its buckets were listed: the repair ran out of memory.
    rows = scene.store._rows[partition_of_ledger(scene.queue_id)]
    last = max(key for key in rows if key[0] == "block")
    rows[last]["stop"] = 2**62
    delete_queue(scene.store, "orders", force=True)

    report = scene.retire(Step.RETIRE)

    assert "no writer makes more than 1000000" in str(report.queues["orders"].error)
    assert scene.status == (Status.DELETING, 0)


def test_the_hold_of_a_seek_that_broke_off_goes_as_well(scene: Scene):
    (group, _) = Ledger(scene.store, scene.queue_id).read_groups()
    pin = place_seek_pin(Ledger(scene.store, scene.queue_id).read_head(), group, 5)
    assert scene.store.cas(partition_of_ledger(scene.queue_id), pin)
    delete_queue(scene.store, "orders", force=True)

    scene.retire()

    scene.check_gone(1)


def test_many_versions_go_in_order(scene: Scene):
    for _ in range(3):
        purge_queue(scene.store, "orders", force=True)
    delete_queue(scene.store, "orders", force=True)

    report = scene.retire()

    scene.check_gone(1, 2, 3, 4)
    assert report.totals.retired_versions == 4


def test_a_writer_that_goes_on_after_its_version_is_retired_leaves_no_chunks(scene: Scene):
    delete_queue(scene.store, "orders", force=True)
    scene.retire()
    scene.write(5)

    report = scene.retire()

    scene.check_gone(1)
    assert report.totals.unpublished_blocks == 1


def test_a_deletion_that_broke_off_is_finished(scene: Scene):
    scene.trouble.interrupt(crash, after=4)
    with suppress(Crash):
        delete_queue(scene.trouble, "orders", force=True)
    assert scene.status[0] is Status.DELETING
    assert not Ledger(scene.store, scene.queue_id).read_head().is_closed

    scene.retire()

    scene.check_gone(1)
    with pytest.raises(QueueStateError, match="was deleted"):
        scene.publish(3)


def test_a_purge_that_broke_off_is_told_and_what_it_needs_stays(scene: Scene):
    scene.trouble.interrupt(crash, after=12)
    with suppress(Crash):
        purge_queue(scene.trouble, "orders", force=True)
    assert scene.status[0] is Status.PURGING
    before = scene.buckets()

    report = scene.repair()

    assert scene.buckets() == before
    (problem,) = report.problems()
    assert problem.endswith("until you repeat it: cassieq queue purge orders")
    purge_queue(scene.store, "orders")
    groups = Ledger(scene.store, read_queue(scene.store, "orders").queue_id).read_groups()
    assert [group.name for group in groups] == ["billing", "idle"]


def test_where_nothing_is_left_it_costs_no_read_but_the_clock(scene: Scene):
    store = CountingStore(scene.store)

    assert scene.retire(Step.RETIRE, store=store).totals == Counts()
    assert (store.read_count, store.serial_read_count, store.cas_count) == (1, 0, 0)
    delete_queue(scene.store, "orders", force=True)
    scene.retire()
    store.reset()

    report = scene.retire(Step.RETIRE, store=store)

    assert report.queues == {}
    assert (store.read_count, store.serial_read_count, store.cas_count) == (0, 0, 0)


def test_a_dry_run_only_tells(scene: Scene):
    delete_queue(scene.store, "orders", force=True)
    store, before = CountingStore(scene.store), scene.buckets()

    report = scene.retire(store=store, dry_run=True)

    *planned, unpublished, empty, retire = report.queues["orders"].planned
    assert planned == [
        "close the versions of the deleted queue, if any are open",
        "finalise monotons [0, 18)",
        "delete 6 settled bucket(s) of 3 block(s)",
    ]
    assert unpublished.startswith("delete 2 bucket(s) of unpublished block")
    assert (empty, retire) == ("empty the ledger of orders@1", "retire orders@1")
    assert (store.cas_count, scene.buckets()) == (0, before)


def test_a_queue_that_is_not_repaired_is_not_retired(scene: Scene):
    create_queue(scene.store, "others")
    delete_queue(scene.store, "orders", force=True)
    before = scene.buckets()

    scene.retire(queues=["others"])

    assert scene.buckets() == before
    assert scene.status == (Status.DELETING, 0)
    scene.retire(queues=["orders"])
    scene.check_gone(1)
    with pytest.raises(QueueStateError, match="there is no queue 'orders'; there are: others"):
        scene.retire(queues=["orders"])


def test_where_versions_are_not_retired_their_blocks_are_told(scene: Scene):
    delete_queue(scene.store, "orders", force=True)

    report = scene.repair(Step.AUDIT, explain=True)

    assert (report.foreign, report.obsolete) == ({}, {"orders@1": 3})
    assert not list(report.alarms()), "nothing is lost"
    (problem,) = report.problems()
    assert problem.endswith("3 block(s) of it are left; the step retire deletes them")
    assert {each.belonging for each in report.orphans} == {Belonging.OBSOLETE}


def test_blocks_that_a_purge_under_way_still_needs_are_not_called_strange(scene: Scene):
    scene.trouble.interrupt(crash, after=12)
    with suppress(Crash):
        purge_queue(scene.trouble, "orders", force=True)
    assert scene.status[0] is Status.PURGING

    report = scene.repair(Step.AUDIT, explain=True)

    assert (report.foreign, report.obsolete) == ({}, {"orders@1": 3})
    assert not [each for each in report.orphans if "by hand" in str(each)]


@pytest.mark.parametrize("steps", [(Step.AUDIT,), (Step.AUDIT, Step.RETIRE)])
def test_blocks_of_a_version_that_a_purge_opens_during_the_scan_are_not_told(
    scene: Scene, steps: tuple[Step, ...]
):
    scene.trouble.interrupt(crash, after=12)
    with suppress(Crash):
        purge_queue(scene.trouble, "orders", force=True)
    assert scene.status[0] is Status.PURGING

    def scan(bucket_sizes: Mapping[QueueId, int]) -> Iterable[Run]:
        purge_queue(scene.store, "orders", force=True)
        Client.from_store(scene.store).put("orders", "live")
        return list(DriverScan(scene.store)(bucket_sizes))

    report = scene.repair(*steps, scan=scan, explain=True)

    assert report.foreign == {}
    assert "orders@2" not in report.obsolete
    assert "orders@2" not in {each.queue_id for each in report.orphans}


def test_a_run_of_one_queue_does_not_call_blocks_of_a_deleted_one_strange(scene: Scene):
    create_queue(scene.store, "others")
    delete_queue(scene.store, "orders", force=True)

    report = scene.repair(queues=["others"])

    assert (report.foreign, report.obsolete) == ({}, {"orders@1": 3})


# -- trouble --------------------------------------------------------------------------------------

CALLS = 40


class Crash(BaseException):
    """The process is no more: nothing may catch it."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("after", range(CALLS))
def test_wherever_it_breaks_off_the_next_run_goes_on(scene: Scene, after: int):
    purge_queue(scene.store, "orders", force=True)
    delete_queue(scene.store, "orders", force=True)
    scene.trouble.interrupt(crash, after=after)

    with suppress(Crash):
        scene.retire(store=scene.trouble)
    scene.trouble.calm()
    scene.retire()

    scene.check_gone(1, 2)
    assert scene.status == (Status.DELETED, 2)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(CALLS))
def test_whatever_answer_is_lost_the_next_run_goes_on(scene: Scene, fault: Fault, after: int):
    delete_queue(scene.store, "orders", force=True)

    def lose() -> None:
        scene.trouble.fault = fault

    scene.trouble.interrupt(lose, after=after)

    scene.retire(store=scene.trouble)
    scene.trouble.calm()
    scene.trouble.arrive()
    scene.retire()

    scene.check_gone(1)
    assert scene.status == (Status.DELETED, 1)


@pytest.mark.parametrize("after", range(CALLS))
def test_a_queue_that_is_made_anew_meanwhile_is_left_alone(scene: Scene, after: int):
    delete_queue(scene.store, "orders", force=True)
    made: list[QueueDefinition] = []
    (written,) = make_pending([3], scene.clock.now + MOMENT)

    def create() -> None:
        queue = create_queue(scene.store, "orders", bucket_size=8, chunk_size=2)
        ensure_group(ConsumerGroup(Ledger(scene.store, queue.queue_id), "g"), starting="earliest")
        scene.store.write_chunks(queue.queue_id, written.block, chunks_of(3))
        publish(Ledger(scene.store, queue.queue_id), [written])
        made.append(queue)

    scene.trouble.interrupt(create, after=after)

    scene.retire(store=scene.trouble)
    scene.trouble.calm()
    scene.retire()

    scene.check_gone(1)
    for queue in made:
        assert scene.status == (Status.ACTIVE, 1)
        assert [each.block for each in Ledger(scene.store, queue.queue_id).read_blocks()] == [
            written.block
        ]
        assert scene.buckets() == {(written.block, 0)}
        assert len(Ledger(scene.store, queue.queue_id).read_groups()) == 1


@pytest.mark.parametrize("after", range(CALLS))
def test_two_repairs_at_once_retire_it_once(scene: Scene, after: int):
    delete_queue(scene.store, "orders", force=True)
    scene.trouble.interrupt(lambda: scene.retire() and None, after=after)

    scene.retire(store=scene.trouble)
    scene.trouble.calm()

    scene.check_gone(1)
    assert scene.status == (Status.DELETED, 1)


@pytest.mark.parametrize("before_call", range(24))
def test_a_purge_whose_version_is_retired_meanwhile_still_comes_to_its_end(
    scene: Scene, before_call: int
):
    """The purge sleeps; another one finishes it, and the repair retires what it was reading."""

    def overtake() -> None:
        purge_queue(scene.store, "orders", force=True)
        scene.retire()

    scene.trouble.interrupt(overtake, after=before_call)

    purge_queue(scene.trouble, "orders", force=True)
    scene.trouble.calm()

    queue = read_queue(scene.store, "orders")
    assert [each.name for each in Ledger(scene.store, queue.queue_id).read_groups()] == [
        "billing",
        "idle",
    ]
    assert last_batch(scene.store, queue.queue_id, "app:loader") == 7
