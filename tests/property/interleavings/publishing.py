"""Scenes of those who publish, also while their queue ends."""

from __future__ import annotations

from dataclasses import replace

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import QueueId, SinkBatch
from cassieq_spark.queues import create_queue, delete_queue, purge_queue, read_queue, read_record
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.tearing import TearingStore
from tests.property.interleavings.scene import (
    BATCH,
    LEASE,
    QueueScene,
    Scene,
    surviving,
)
from tests.property.machine.lifecycle import LifecycleModel
from tests.property.machine.operators import MakeGroup
from tests.property.machine.producers import PublishLate, WriteOnly
from tests.property.machine.readers import Lease
from tests.support.builders import (
    make_clocked_store,
    make_pending,
    make_request,
)


class PublishAgainstPublish(QueueScene):
    """Two writes without a sink, and a reader."""

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        for name, counts in (("a", [2]), ("b", [1, 2])):
            producers = self.producers_as(name)
            producers.write_only(WriteOnly(counts, [None]))
            self.stage.let(name, lambda each=producers: each.publish_late(PublishLate(None)))
        readers = self.readers_as("c")
        self.stage.let("c", lambda: readers.lease(Lease(0)))


class OneBatchTwice(QueueScene):
    """Two drivers publish the same batch of a sink, a third one the next."""

    others = (BATCH, BATCH)

    def begin(self) -> None:
        self.operators.make_group(MakeGroup("one", "earliest"))
        first, second = self.others
        for name, batch in (("a", first), ("b", second), ("c", SinkBatch("left", 1))):
            producers = self.producers_as(name)
            producers.write_only(WriteOnly([2], [None]))
            self.stage.let(
                name, lambda each=producers, its=batch: each.publish_late(PublishLate(its))
            )


class OneBatchWithTwoContents(OneBatchTwice):
    """The same with a query whose rows differ from run to run."""

    others = (replace(BATCH, fingerprint="2:same"), replace(BATCH, fingerprint="2:other"))


class PurgeAgainstPublish(Scene):
    """A queue is purged under a writer and a reader: whatever goes in goes where it was meant to.

    I10, and: no version is used once somebody was told that it is over.
    """

    writes = 3

    def __init__(self) -> None:
        self.memory, clock = make_clocked_store()
        super().__init__(clock, TearingStore(self.memory))
        self.model = LifecycleModel(self.memory)

    def begin(self) -> None:
        setting_up = self.stage.process("-").store_around(self.replicas, self.model.watch)
        queue = create_queue(setting_up, "q", bucket_size=8, chunk_size=4, lease=LEASE)
        ensure_group(ConsumerGroup(Ledger(setting_up, queue.queue_id), "one"), starting="earliest")
        ops, writer, reader = (
            self.stage.process(name).store_around(self.replicas, self.model.watch)
            for name in "abc"
        )
        self.pending = make_pending([2], self.clock.now)
        self.model.intended[self.pending[0].block] = queue.queue_id
        self.told: list[bool] = []

        def write() -> None:
            monotons = publish(Ledger(writer, queue.queue_id), self.pending, batch=BATCH).monotons
            self.told.append(monotons is not None)

        def lease() -> None:
            head = Ledger(reader, queue.queue_id).read_head()
            check_open(queue.queue_id, head)
            request = make_request(stop=head.offered_below(), lease=LEASE)
            ConsumerGroup(Ledger(reader, queue.queue_id), "one").lease(request)

        self.stage.let("a", surviving(lambda: self.bring_to_an_end(ops)))
        self.stage.let("b", surviving(write))
        self.stage.let("c", surviving(lease))

    def check(self) -> None:
        for block in Ledger(self.memory, QueueId("q@2")).read_blocks():
            assert block.block not in self.model.intended, "landed in another version"

    def bring_to_an_end(self, store: Store) -> None:
        purge_queue(store, "q", force=True)

    def end(self) -> None:
        # Whatever broke off, the next one of the kind finishes.
        self.bring_to_an_end(self.stage.process("-").store_around(self.replicas, self.model.watch))
        record = read_record(self.memory, "q")
        assert record is not None
        assert read_queue(self.memory, "q") == record.definition
        assert not Ledger(self.memory, record.definition.queue_id).read_blocks()
        for told in self.told:
            assert told == (self.pending[0].block in self.model.published)


class DeletionAgainstPublish(PurgeAgainstPublish):
    """The same with a queue that is deleted, and made anew."""

    def bring_to_an_end(self, store: Store) -> None:
        delete_queue(store, "q", force=True)
        create_queue(store, "q", bucket_size=8, chunk_size=4, lease=LEASE)
