"""Queues purged, deleted and made anew under writers and readers, on real nodes."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Semaphore
from uuid import UUID, uuid4

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import PendingBlock, QueueId
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import create_queue, delete_queue, purge_queue, read_queue
from cassieq_spark.store.protocol import Store

USERS = 3
ROUNDS = 4
LEASE = timedelta(minutes=5)


@dataclass
class Users:
    """Threads that publish and lease, and start again when their version is over.

    Attributes:
        published: The version that each block went into, as its writer was told.
        refused: How often a writer or reader was told that its version is over.
        progress: Released with every publish.
    """

    store: Store
    name: str
    enough: Event = field(default_factory=Event)
    progress: Semaphore = field(default_factory=lambda: Semaphore(0))
    published: dict[UUID, QueueId] = field(default_factory=dict)
    refused: int = 0

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                queue_id = read_queue(self.store, self.name).queue_id
                while not self.enough.is_set():
                    self._use(queue_id)
            except QueueStateError:
                self.refused += 1

    def _use(self, queue_id: QueueId) -> None:
        block = new_block_id()
        publish(Ledger(self.store, queue_id), [PendingBlock(block, 2)])
        self.published[block] = queue_id
        self.progress.release()
        ensure_group(ConsumerGroup(Ledger(self.store, queue_id), "g"), starting="earliest")
        head = Ledger(self.store, queue_id).read_head()
        check_open(queue_id, head)
        request = LeaseRequest(
            held=None, token=uuid4(), lease=LEASE, max_messages=2, stop=head.offered_below()
        )
        with contextlib.suppress(ContentionError):
            ConsumerGroup(Ledger(self.store, queue_id), "g").lease(request)


def test_whatever_was_published_is_in_the_version_that_its_writer_knew(cassandra_store: Store):
    name = f"race-{uuid4().hex[:10]}"
    create_queue(cassandra_store, name)
    users = Users(cassandra_store, name)
    with ThreadPoolExecutor(USERS) as threads:
        running = [threads.submit(users.run) for _ in range(USERS)]
        try:
            for round_ in range(ROUNDS):
                for _ in range(10):
                    assert users.progress.acquire(timeout=60), "nobody publishes any more"
                before = dict(users.published)
                if round_ % 2:
                    delete_queue(cassandra_store, name, force=True)
                    queue = create_queue(cassandra_store, name)
                else:
                    queue = purge_queue(cassandra_store, name, force=True)
                there = {
                    each.block for each in Ledger(cassandra_store, queue.queue_id).read_blocks()
                }
                assert not there & before.keys(), "published before, and there after"
        finally:
            users.enough.set()
        for each in running:
            each.result()

    found = {
        block.block: QueueId(f"{name}@{version}")
        for version in range(1, ROUNDS + 2)
        for block in Ledger(cassandra_store, QueueId(f"{name}@{version}")).read_blocks()
    }
    assert found == users.published
    assert users.refused >= ROUNDS
    for version in range(1, ROUNDS + 1):
        assert Ledger(cassandra_store, QueueId(f"{name}@{version}")).read_head().is_closed
    assert {each.name for each in Ledger(cassandra_store, QueueId(f"{name}@1")).read_groups()} == {
        "g"
    }


def test_of_many_commands_at_once_each_does_what_it_says(cassandra_store: Store):
    name = f"race-{uuid4().hex[:10]}"
    create_queue(cassandra_store, name)

    def purge(_: int) -> None:
        purge_queue(cassandra_store, name)

    def replace(_: int) -> None:
        with contextlib.suppress(QueueStateError):
            delete_queue(cassandra_store, name)
        with contextlib.suppress(QueueStateError):
            create_queue(cassandra_store, name)

    with ThreadPoolExecutor(USERS) as threads:
        list(threads.map(purge, range(USERS)))
        list(threads.map(replace, range(USERS)))

    queue = read_queue(cassandra_store, name)
    assert not Ledger(cassandra_store, queue.queue_id).read_head().is_closed
    for version in range(1, queue.version):
        assert Ledger(cassandra_store, QueueId(f"{name}@{version}")).read_head().is_closed
    publish(Ledger(cassandra_store, queue.queue_id), [PendingBlock(new_block_id(), 1)])
