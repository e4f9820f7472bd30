"""Dead letters, repair, figures and views of a queue with several partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from cassieq_spark.client.files import export_queue, import_file
from cassieq_spark.dead_letters.survey import Survey
from cassieq_spark.errors import LeaseLostError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId, id_of
from cassieq_spark.queues import delete_queue, purge_queue, read_record
from cassieq_spark.repair.report import Counts, Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.views import VIEWS, read_view
from tests.support.snapshots import read_snapshot
from tests.unit.partitions.scene import KEYS, PARTITIONS, PartitionedQueue, by_key, text

ALL = [key for keys in KEYS.values() for key in keys]
HOUR = timedelta(hours=1)


@pytest.fixture
def queue() -> PartitionedQueue:
    return PartitionedQueue(max_deliveries=2)


def repair(queue: PartitionedQueue, *steps: Step) -> Report:
    return run_once(queue.store, scan=DriverScan(queue.store), steps=steps or tuple(Step))


def count(found: Survey) -> int:
    return sum(group.monotons.count for group in found.groups)


def buckets(queue: PartitionedQueue, queue_id: QueueId) -> set[UUID]:
    """Blocks of a partition that are stored."""
    found = DriverScan(queue.memory)({queue_id: 8192})
    return {run.block for run in found if run.queue_id == queue_id}


def test_the_repair_deletes_what_is_settled_in_each_partition(queue: PartitionedQueue):
    queue.put(*ALL)
    messages = queue.receive()
    queue.client.ack(*(each for each in messages if each.partition != 2))

    report = repair(queue)

    assert {label: each.counts.finalised for label, each in report.queues.items()} == {
        "orders/0": 2, "orders/1": 2, "orders/2": 0, "orders/3": 2, "orders.dead": 0,
    }  # fmt: skip
    assert not report.failed
    assert [bool(buckets(queue, id_of("orders", 1, n))) for n in range(4)] == [
        False, False, True, False,
    ]  # fmt: skip
    assert sorted(by_key(queue.peek())) == sorted(KEYS[2])
    queue.client.ack(*(each for each in messages if each.partition == 2))
    assert repair(queue).queues["orders/2"].counts.finalised == 2


def test_the_audit_finds_what_one_partition_lacks(queue: PartitionedQueue):
    queue.put(*ALL)
    lost = id_of("orders", 1, 3)
    (block,) = Ledger(queue.store, lost).read_blocks()
    queue.memory.delete_buckets(lost, [(block.block, 0)])

    report = repair(queue, Step.AUDIT)

    assert [len(each.findings) for each in report.queues.values()] == [0, 0, 0, 1, 0]
    assert len(report.queues["orders/3"].findings) == 1
    with pytest.raises(LeaseLostError):
        queue.peek()


def test_an_error_of_one_partition_does_not_keep_the_repair_from_the_others(
    queue: PartitionedQueue,
):
    queue.put(*ALL)
    queue.client.ack(*queue.receive())
    broken = Ledger(queue.memory, id_of("orders", 1, 1))
    broken.finalise(broken.read_head(), 2)
    assert broken.trim(finalised=2, below=2)

    report = repair(queue)

    finalised = [report.queues[f"orders/{n}"].counts.finalised for n in (0, 2, 3)]
    assert finalised == [2, 2, 2]


def test_what_a_purge_and_a_deletion_leave_is_retired_in_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL)
    purge_queue(queue.store, "orders")
    queue.put(*ALL)
    delete_queue(queue.store, "orders", force=True)

    report = repair(queue)

    record = read_record(queue.store, "orders")
    assert record is not None
    assert (record.retired, record.status) == (2, "deleted")
    assert report.queues["orders"].counts.retired_versions == 2
    for version in (1, 2):
        for partition in range(PARTITIONS):
            assert not buckets(queue, id_of("orders", version, partition))


def test_versions_with_other_numbers_of_partitions_are_retired(queue: PartitionedQueue):
    queue.put(*ALL)
    delete_queue(queue.store, "orders")
    queue.client.create_queue("orders", partitions=2)
    queue.put(*ALL)
    delete_queue(queue.store, "orders")
    queue.client.create_queue("orders")
    queue.put(*ALL)

    report = repair(queue)

    assert report.queues["orders"].counts.retired_versions == 2
    assert report.foreign == {}
    left = [id_of("orders", 1, n) for n in range(4)] + [id_of("orders", 2, n) for n in range(2)]
    assert not any(buckets(queue, queue_id) for queue_id in left)
    assert len(queue.peek()) == 8


def test_an_idle_queue_costs_the_repair_nothing_more_than_the_survey(queue: PartitionedQueue):
    queue.put(*ALL)
    queue.client.ack(*queue.receive())
    repair(queue)
    queue.store.reset()

    report = repair(queue, Step.REDELIVER, Step.EXPIRE, Step.FINALISE)

    assert queue.store.cas_count == 0
    assert {each.counts for each in report.queues.values()} == {Counts()}
    assert queue.store.read_count <= 1


def test_dead_messages_of_all_partitions_go_to_one_queue_and_back_to_their_own(
    queue: PartitionedQueue,
):
    queue.put(*ALL)
    for message in queue.receive():
        queue.client.reject(message, reason="bad")

    found = queue.client.dead_letters("orders")
    letters = queue.client.peek("orders.dead", max=100)

    assert count(found) == 8
    assert sorted(text(each) for each in letters) == sorted(f"{key}:0" for key in ALL)
    assert sorted({each.headers["cassieq.origin-partition"] for each in letters}) == [*"0123"]
    report = queue.client.redrive(found)
    assert report.redriven == {"orders": 8}
    again = queue.receive()
    assert sorted(by_key(text(each) for each in again)) == sorted(ALL)
    for each in again:
        assert text(each).partition(":")[0] in KEYS[each.partition]
    assert count(queue.client.dead_letters("orders")) == 0


def test_a_redrive_that_broke_off_publishes_each_letter_once(queue: PartitionedQueue):
    queue.put(*ALL)
    for message in queue.receive():
        queue.client.reject(message, reason="bad")

    class Died(Exception):  # noqa: N818
        pass

    def die() -> None:
        raise Died

    for after in range(6, 60, 6):
        queue.trouble.interrupt(die, after=after)
        with suppress(Died):
            queue.client.redrive(queue.client.dead_letters("orders"))
        queue.trouble.calm()
        queue.clock.advance(HOUR)
    queue.client.redrive(queue.client.dead_letters("orders"))

    values = [text(each) for each in queue.receive()]
    assert sorted(values) == sorted(f"{key}:0" for key in ALL)


def test_messages_that_are_delivered_too_often_step_aside(queue: PartitionedQueue):
    queue.put(*ALL)

    for _ in range(3):
        queue.receive()
        queue.clock.advance(HOUR)
    queue.receive()

    assert count(queue.client.dead_letters("orders")) == 8


def test_a_view_has_the_rows_of_all_partitions(queue: PartitionedQueue):
    queue.put(*ALL)
    queue.receive()

    def rows(view: str) -> Iterator[dict[str, object]]:
        options = SourceOptions.parse({"queue": "orders", "view": view})
        names = [column.name for column in VIEWS[view].columns]
        return (dict(zip(names, row, strict=True)) for row in read_view(queue.store, options))

    for view in ("blocks", "leases", "groups", "stats"):
        assert [row["partition"] for row in rows(view)] == [0, 1, 2, 3]
    assert [row["depth"] for row in rows("stats")] == [2, 2, 2, 2]
    (about,) = (row for row in rows("queues") if row["queue"] == "orders")
    assert (about["partitions"], about["order"]) == (4, "none")


def test_a_snapshot_sums_up(queue: PartitionedQueue):
    queue.put(*ALL)
    queue.receive()

    (orders,) = (each for each in read_snapshot(queue.store).queues if each.name == "orders")

    assert (orders.stats.next, orders.leases["billing"]) == (8, 4)
    assert len(orders.stats.partitions) == 4


def test_a_file_has_the_messages_of_all_partitions_and_they_go_back(
    queue: PartitionedQueue, tmp_path: Path
):
    queue.put(*ALL, *ALL)
    queue.client.create_queue("copy", partitions=PARTITIONS)
    file = tmp_path / "orders.parquet"
    told: list[tuple[int, int]] = []

    count = export_queue(
        queue.store, queue.definition, file, force=False, watch=lambda *it: told.append(it)
    )
    imported = import_file(queue.store, queue.client.queue("copy"), file, watch=lambda *_: None)

    assert count == imported == 16
    assert told[-1] == (16, 16)
    copies = queue.client.peek("copy", max=100)
    assert [(each.partition, text(each)) for each in copies] == [
        (each.partition, text(each)) for each in queue.client.peek("orders", max=100)
    ]
