"""Queues with messages in them, in a line of a test."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.decide import register_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, QueueId, Ranges
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from tests.support.faults import FakeClock, make_block_id

LEASE = timedelta(seconds=60)
BEGUN_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def make_pending(counts: Sequence[int], begun_at: datetime = BEGUN_AT) -> list[PendingBlock]:
    """Blocks that nobody knows yet, of so many messages each."""
    return [PendingBlock(make_block_id(begun_at), count) for count in counts]


def make_queue(store: Store, counts: Sequence[int] = ()) -> QueueDefinition:
    """A queue ``q`` of small buckets, with blocks of so many messages."""
    queue = create_queue(store, "q", bucket_size=8, chunk_size=4, lease=LEASE)
    publish(Ledger(store, queue.queue_id), make_pending(counts))
    return queue


def make_group(store: Store, queue_id: QueueId, group: str = "g") -> ConsumerGroup:
    """A group that is owed everything."""
    ensure_group(ConsumerGroup(Ledger(store, queue_id), group), starting="earliest")
    return ConsumerGroup(Ledger(store, queue_id), group)


def make_request(**changes: object) -> LeaseRequest:
    """A request for all there is, up to monoton 1000."""
    return LeaseRequest(**({"lease": LEASE, "stop": 1000} | changes))  # type: ignore[arg-type]


def make_clocked_store() -> tuple[MemoryStore, FakeClock]:
    """A store and its clock."""
    clock = FakeClock()
    return MemoryStore(clock, here=clock.here), clock


def monotons_of(leased: Sequence[object]) -> list[Ranges]:
    """What was leased, without the rest."""
    return [each.monotons for each in leased]  # type: ignore[attr-defined]


def last_batch(store: Store, queue_id: QueueId, sink: str) -> int | None:
    """The number of the batch that a sink has published last; None if none."""
    found = Ledger(store, queue_id).read_sink(sink)
    return found and found.batch_id


def register_half(ledger: Ledger, group: str) -> None:
    """Register a group from what is stored on, as a process does that dies before it goes on."""
    head = ledger.read_head(serial=True)
    ledger.cas(register_group(head, group, head.finalised))
