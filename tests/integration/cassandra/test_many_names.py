"""More names than Cassandra steps over, all of them forgotten at once: nobody minds."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark.errors import StoreError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Mark, Once, mark, read_mark
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import create_queue
from cassieq_spark.repair import read, steps
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.protocol import Slice, Store, partition_of_ledger

pytestmark = pytest.mark.cassandra

#: Cassandra fails a read at 100,000 tombstones.
COUNT, AT_ONCE = 120_000, 4_000
#: They expire while the others are written.
LIFETIME = timedelta(seconds=2)


@pytest.mark.timeout(300)
def test_120_000_names_that_are_forgotten_at_once_are_in_nobodys_way(
    cassandra_store: Store, caplog: pytest.LogCaptureFixture
):
    queue = create_queue(cassandra_store, f"names-{uuid4().hex[:12]}")
    other = create_queue(cassandra_store, f"other-{uuid4().hex[:12]}")
    ledger = partition_of_ledger(queue.queue_id)
    names = [Once(f"key:{number}", LIFETIME) for number in range(COUNT)]
    for at in range(0, COUNT, AT_ONCE):
        marks = [mark(each, Mark.PUBLISHED) for each in names[at : at + AT_ONCE]]
        assert cassandra_store.cas(ledger, marks)
    deadline = time.monotonic() + 120
    while read_mark(Ledger(cassandra_store, queue.queue_id), names[-1]) is not None:
        assert time.monotonic() < deadline
        time.sleep(1)

    with pytest.raises(StoreError):
        cassandra_store.read_rows(ledger, Slice(kinds=("once",)))
    begun = time.monotonic()
    report = run_once(
        cassandra_store,
        scan=lambda _: (),
        steps=(Step.REDELIVER, Step.EXPIRE, Step.FINALISE, Step.FENCE, Step.RETIRE),
    )
    took = time.monotonic() - begun

    assert not {queue.name, other.name} & set(report.failed)
    # Other tests leave rows in this keyspace that no queue has.
    ours = {None, queue.name, other.name, queue.queue_id, other.queue_id}
    actions = {
        getattr(record, "action", "")
        for record in caplog.records
        if getattr(record, "queue", None) in ours
    }
    assert not actions & {read.NOT_SEEN, steps.SURVEY_FAILED, steps.QUEUE_FAILED}
    assert took < 60
    again = Once(names[0].name, timedelta(hours=1))
    done = publish(
        Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 1)], batch=again
    )
    assert done.monotons is not None
    assert read_mark(Ledger(cassandra_store, queue.queue_id), again) is Mark.PUBLISHED
