"""A queue in use, commands that break off, and what must hold whatever happened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import HEAD, check_open
from cassieq_spark.model import QueueDefinition, QueueId, SinkBatch
from cassieq_spark.queues import (
    QueueRecord,
    close_versions,
    create_queue,
    list_records,
    mark_retired,
    read_queue,
    read_record,
)
from cassieq_spark.store.protocol import DeleteBelow, Store, Update, When, partition_of_ledger
from cassieq_spark.testing.faults import FaultyStore
from tests.support.builders import (
    LEASE,
    last_batch,
    make_clocked_store,
    make_pending,
    make_request,
)

BATCH = SinkBatch("app:loader", 7)


class Crash(Exception):  # noqa: N818
    """The process is no more."""


class Scene:
    """Queue ``q`` with eight messages, five of them leased by group ``g``; ``idle`` has no reader.

    Attributes:
        old: The queue as its writers and readers know it.
    """

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.store = FaultyStore(memory)
        self.old = create_queue(
            self.store,
            "q",
            bucket_size=8,
            chunk_size=4,
            lease=LEASE,
        )
        publish(Ledger(self.store, self.old.queue_id), make_pending([5]), batch=BATCH)
        self.reader = ConsumerGroup(Ledger(self.store, self.old.queue_id), "g")
        self.lease(self.old, "g")
        publish(Ledger(self.store, self.old.queue_id), make_pending([3]))
        ensure_group(
            ConsumerGroup(Ledger(self.store, self.old.queue_id), "idle"), starting="earliest"
        )

    def publish(self, queue: QueueDefinition) -> None:
        publish(Ledger(self.store, queue.queue_id), make_pending([2], self.clock.now))

    def lease(self, queue: QueueDefinition, group: str) -> Lease:
        """As a reader does: look at the head, then lease."""
        ensure_group(ConsumerGroup(Ledger(self.store, queue.queue_id), group), starting="earliest")
        head = Ledger(self.store, queue.queue_id).read_head()
        check_open(queue.queue_id, head)
        request = make_request(stop=head.offered_below())
        return ConsumerGroup(Ledger(self.store, queue.queue_id), group).lease(request)

    def run_out(self) -> None:
        """Let every lease run out."""
        self.clock.advance(2 * LEASE)

    @property
    def record(self) -> QueueRecord:
        found = read_record(self.store, "q")
        assert found is not None
        return found

    def groups(self, queue_id: QueueId) -> list[str]:
        return [group.name for group in Ledger(self.store, queue_id).read_groups()]

    @contextlib.contextmanager
    def broken_off(self, *, before_call: int) -> Iterator[None]:
        """The process dies before one of its calls to the store."""

        def crash() -> None:
            raise Crash

        self.store.interrupt(crash, after=before_call)
        with contextlib.suppress(Crash):
            yield
        self.store.calm()

    def check_over(self, queue: QueueDefinition) -> None:
        """Nothing goes into a version that is over, or comes out of it."""
        queue_id = queue.queue_id
        before = len(Ledger(self.store, queue_id).read_blocks())
        for attempt in (
            lambda: self.publish(queue),
            lambda: publish(
                Ledger(self.store, queue_id), make_pending([1]), batch=SinkBatch("new", 0)
            ),
            lambda: self.lease(queue, "g"),
            lambda: self.lease(queue, "idle"),
            lambda: self.lease(queue, "another"),
        ):
            with contextlib.suppress(QueueStateError):
                attempt()
                raise AssertionError("an old version was used")
        assert len(Ledger(self.store, queue_id).read_blocks()) == before
        for group in self.groups(queue_id):
            request = make_request(stop=Ledger(self.store, queue_id).read_head().next)
            late = ConsumerGroup(Ledger(self.store, queue_id), group).lease(request)
            assert not late.leased, "a reader that had read the head before"

    def check_purged(self, queue: QueueDefinition) -> None:
        """It has no message, its groups are owed what comes, and its sinks go on."""
        assert read_queue(self.store, "q") == queue
        assert Ledger(self.store, queue.queue_id).read_blocks() == []
        assert self.groups(queue.queue_id) == ["g", "idle"]
        assert last_batch(self.store, queue.queue_id, BATCH.sink) == BATCH.batch_id
        self.publish(queue)
        for group in ("g", "idle"):
            (leased,) = self.lease(queue, group).leased
            assert str(leased.monotons) == "0-2"


def retire(store: Store) -> None:
    """As the repair does, but for the buckets: delete what is left of old versions."""
    for record in list_records(store):
        close_versions(store, record)
        for queue_id in record.to_retire:
            partition = partition_of_ledger(queue_id)
            end = Ledger(store, queue_id).read_head(serial=True).next
            finalised = Update(HEAD, {"finalised": end}, when=(When("next", "=", end),))
            rows = [
                DeleteBelow(kind, 2**63 - 1) for kind in ("block", "sink", "group", "seek_pin")
            ]
            store.cas(partition, [finalised, *rows])
            mark_retired(store, record.name, int(queue_id.rpartition("@")[2]))
