"""What the repair does for queues that nobody reads, and that are no more, on a real Cassandra."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import BucketSlice, PendingBlock, QueueDefinition, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import Status, create_queue, delete_queue, read_queue, read_record
from cassieq_spark.repair.report import Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Slice, Store, partition_of_ledger

NOTHING = timedelta(0)
HOUR = timedelta(hours=1)
LONG_AGO = -HOUR


class Queue:
    """A queue with a dead-letter queue, and a group."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.store = store
        self.name = f"upkeep-{uuid4().hex[:12]}"
        settings = {"max_deliveries": 1, "dead_letter_queue": f"{self.name}.dead"} | settings
        self.queue = create_queue(store, self.name, bucket_size=8, chunk_size=4, **settings)
        self.dead = read_queue(store, f"{self.name}.dead")
        ensure_group(ConsumerGroup(Ledger(store, self.queue.queue_id), "g"), starting="earliest")
        self.group = ConsumerGroup(Ledger(store, self.queue.queue_id), "g")

    def publish(self, count: int, *, delay: timedelta | None = None) -> None:
        batch = pa.record_batch({"value": pa.array([str(number) for number in range(count)])})
        written = write_block(self.store, self.queue, [batch], SinkOptions(queue=self.name))
        timed = PendingBlock(written.block, written.count, written.size, delay)
        publish(Ledger(self.store, self.queue.queue_id), [timed])

    def lease(self, *, length: timedelta, limit: int | None = None) -> Lease:
        """Of a length below zero, it has run out."""
        head = Ledger(self.store, self.queue.queue_id).read_head()
        request = LeaseRequest(
            held=None,
            token=uuid4(),
            lease=length,
            max_messages=limit,
            stop=head.next,
            delayed_stop=head.delayed_stop,
            prefer_fresh=True,
        )
        return self.group.lease(request)

    def repair(self, *steps: Step, **options: Any) -> Report:
        return run_once(
            self.store,
            scan=DriverScan(self.store),
            queues=[self.queue.name, self.dead.name],
            steps=steps,
            **options,
        )

    def outstanding(self) -> list[str]:
        state = self.group.read(every_waiting=True)
        return [str(each.monotons) for each in (*state.slots, *state.waiting) if each.monotons]


def is_stored(store: Store, queue: QueueDefinition, block: Any) -> bool:
    pieces = [BucketSlice(block, bucket, 0, 100) for bucket in range(3)]
    return any(True for _ in store.read_chunks(queue.queue_id, pieces))


def test_what_no_reader_dead_letters_is_dead_lettered_once(cassandra_store: Store):
    queue = Queue(cassandra_store)
    queue.publish(6)
    queue.lease(length=LONG_AGO, limit=4)

    report = queue.repair(Step.REDELIVER)

    assert report.totals.dead_lettered == 4
    assert Ledger(cassandra_store, queue.dead.queue_id).read_head().next == 4
    assert queue.outstanding() == []
    assert queue.repair(Step.FINALISE).totals.finalised == 4
    ledger = partition_of_ledger(queue.dead.queue_id)
    (name,) = cassandra_store.read_rows(ledger, Slice(kinds=("once",))).rows
    assert str(name["name"]).startswith(f"dead:{queue.queue.queue_id}:")


def test_what_is_kept_for_long_enough_expires(cassandra_store: Store):
    queue = Queue(cassandra_store, expire_after=timedelta(seconds=1), max_deliveries=3)
    queue.publish(2, delay=HOUR)
    queue.publish(10)
    lease = queue.lease(length=HOUR, limit=3).token
    released = {HOUR: Ranges.parse("2-3")}
    queue.group.settle(lease, Settlement(released=released))
    queue.lease(length=LONG_AGO, limit=3)

    expired, deadline = 0, time.monotonic() + 60
    while expired < 8:
        expired += queue.repair(Step.EXPIRE).totals.expired
        assert time.monotonic() < deadline, "nothing expires"

    state = queue.group.read(every_waiting=True)
    assert state.head.pointer == 12
    assert queue.outstanding() == ["3-5", "0-2"], "what is leased and what is delayed"


@pytest.mark.parametrize("anew", [True, False])
def test_a_deleted_queue_goes_as_a_whole(cassandra_store: Store, *, anew: bool):
    queue = Queue(cassandra_store)
    queue.publish(20)
    queue.lease(length=HOUR, limit=5)
    (block,) = Ledger(cassandra_store, queue.queue.queue_id).read_blocks()
    delete_queue(cassandra_store, queue.name, force=True)
    if anew:
        create_queue(cassandra_store, queue.name)

    report = queue.repair(Step.RETIRE)

    assert report.totals.retired_versions == 1
    assert not is_stored(cassandra_store, queue.queue, block.block)
    ledger = partition_of_ledger(queue.queue.queue_id)
    (row,) = cassandra_store.read_rows(ledger, serial=True).rows
    assert (row["kind"], row["next"], row["finalised"]) == ("head", 20, 20)
    record = read_record(cassandra_store, queue.name, serial=True)
    assert record is not None
    assert (record.status, record.retired) == (Status.ACTIVE if anew else Status.DELETED, 1)
