"""Threads that publish, lease and look, on a store that writes down what it is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from uuid import uuid4

from cassieq_spark.errors import BatchOrderError, StoreError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import HEAD as GROUP_HEAD
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import read_head
from cassieq_spark.model import DEFAULT_LEASE, PendingBlock, QueueId, SinkBatch
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import create_queue
from cassieq_spark.store.protocol import Slice, Store, partition_of_delivery
from tests.support.recorded import RecordingStore

GROUP = "g"


def gather(
    store: Store, *, threads: int, calls: int, seed: int, meanwhile: Callable[[], None]
) -> RecordingStore:
    """Let several use a queue of their own until all are done.

    Args:
        store: Where.
        threads: How many.
        calls: How often each of them does something.
        seed: Of what they do; not of when.
        meanwhile: Called again and again while they are at it.
    """
    recorded = RecordingStore(store)
    queue_id = create_queue(recorded, f"history-{uuid4().hex[:12]}").queue_id
    ensure_group(recorded, queue_id, GROUP, starting="earliest")
    done = Event()
    with ThreadPoolExecutor(threads + 1) as pool:
        users = [
            pool.submit(_use, recorded, queue_id, random.Random(seed + number), calls)
            for number in range(threads)
        ]
        disturber = pool.submit(_again_and_again, meanwhile, done)
        try:
            for each in users:
                each.result()
        finally:
            done.set()
        disturber.result()
    return recorded


def _again_and_again(act: Callable[[], None], done: Event) -> None:
    while not done.is_set():
        act()


def _use(store: Store, queue_id: QueueId, chosen: random.Random, calls: int) -> None:
    delivery, held = ConsumerGroup(store, queue_id, GROUP), None
    for number in range(calls):
        # What is lost, late or refused is in the history.
        with suppress(StoreError, BatchOrderError):
            match chosen.randrange(6):
                case 0 | 1:
                    publish(store, queue_id, [PendingBlock(new_block_id(), 2)])
                case 2:
                    batch = SinkBatch(f"app:{chosen.randrange(2)}", number)
                    publish(store, queue_id, [PendingBlock(new_block_id(), 1)], batch=batch)
                case 3:
                    held = _lease(delivery, held)
                case 4 if held is not None:
                    slots = delivery.read().held_by(held)
                    acked = slots[0].monotons.split(1)[0] if slots else Settlement().acked
                    delivery.settle(held, Settlement(acked=acked))
                case _:
                    read_head(store, queue_id, serial=chosen.random() < 0.5)
                    partition = partition_of_delivery(queue_id, GROUP)
                    store.read_rows(partition, Slice(row=GROUP_HEAD), serial=True)


def _lease(delivery: ConsumerGroup, held: object) -> object:
    head = read_head(delivery.store, delivery.queue_id)
    wish = LeaseRequest(
        held=held, token=uuid4(), lease=DEFAULT_LEASE, max_messages=3, stop=head.next
    )
    return delivery.lease(wish).token
