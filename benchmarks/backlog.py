"""The cost of each call on a queue with 10,000 unread messages, and with 100,000,000.

The ledger rows of the larger queue are made here, without chunks, so a batch is leased, but not
read. Publishing, leasing and acking, moving a group, statistics, and a repair run of each queue
are timed round by round, in random order. Prints JSON lines: the median and 95th percentile in ms,
and the ratio to the smaller queue (median over the rounds).
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid1

from benchmarks.lines import compared, show
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import HEAD, block_key
from cassieq_spark.model import PendingBlock, QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.protocol import Insert, Store, Update, When, partition_of_ledger
from trials.environment import cassandra

GROUP = "g"
#: Messages and bytes of a block.
_MESSAGES, _BYTES = 1_000, 200_000
#: Blocks that one conditional batch carries while a ledger is filled.
_BLOCKS_AT_ONCE = 5_000
#: Rounds whose times are left out: caches are cold.
_NOT_COUNTED = 3
#: The steps of a repair run that read no chunks.
_STEPS = (Step.REDELIVER, Step.EXPIRE, Step.FINALISE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unread", default="10000,100000000", help="messages of each queue")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    with cassandra(nodes=1, heap_mb=1024) as environment:
        store = environment.store
        queues = {unread: Used(store, unread) for unread in map(int, given.unread.split(","))}
        took: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(given.rounds + _NOT_COUNTED):
            for unread, used in random.sample(list(queues.items()), len(queues)):
                for name, step in used.steps.items():
                    began = time.perf_counter()
                    step()
                    if number >= _NOT_COUNTED:
                        took[name][unread].append((time.perf_counter() - began) * 1000)
        for name, by_unread in took.items():
            for unread, figures in compared(by_unread):
                show(step=name, unread=unread, **figures)


class Used:
    """A queue, and a reader of a group that has read nothing yet."""

    def __init__(self, store: Store, unread: int) -> None:
        self._store = store
        self.queue = create_queue(store, f"unread{unread}")
        self.ledger = Ledger(store, self.queue.queue_id)
        self.group = ConsumerGroup(self.ledger, GROUP)
        self._middle = fill(store, self.queue, unread // _MESSAGES)
        ensure_group(self.group, starting="earliest")
        self._consumer = Consumer(store, self.queue, GROUP)
        self.steps: dict[str, Callable[[], object]] = {
            "publish": self._publish,
            "lease and ack": self._lease_and_ack,
            "stats": lambda: queue_stats(self.ledger),
            "repair": self._repair,
            "seek to an instant": lambda: seek_group(self.group, self._middle, force=True),
            "seek to earliest": lambda: seek_group(self.group, "earliest", force=True),
        }

    def _publish(self) -> None:
        publish(self.ledger, [PendingBlock(uuid1(), _MESSAGES, _BYTES)])

    def _lease_and_ack(self) -> None:
        lease = self._consumer.poll(LeaseRequest(max_messages=_MESSAGES))
        pieces = self._consumer.find(lease.leased)
        assert len(pieces) == 1  # noqa: S101 (its own rows)
        self._consumer.ack(LeaseRequest(held=lease.token))

    def _repair(self) -> None:
        run_once(self._store, scan=_no_scan, queues=[self.queue.name], steps=_STEPS)


def _no_scan(*_: object) -> Any:
    raise AssertionError("no step of these reads chunks")


def fill(store: Store, queue: QueueDefinition, blocks: int) -> datetime:
    """Make the ledger rows of blocks, one for each second; return when half were published."""
    first = datetime.now(UTC) - timedelta(seconds=blocks)
    ledger = partition_of_ledger(queue.queue_id)
    for done in range(0, blocks, _BLOCKS_AT_ONCE):
        numbers = range(done, min(blocks, done + _BLOCKS_AT_ONCE))
        unchanged = When("next", "=", numbers.start * _MESSAGES)
        head = Update(HEAD, {"next": numbers.stop * _MESSAGES}, when=(unchanged,))
        rows = [
            Insert(
                block_key(number * _MESSAGES),
                {
                    "stop": (number + 1) * _MESSAGES,
                    "block": uuid1(),
                    "published_at": first + timedelta(seconds=number),
                    "size": _BYTES,
                },
            )
            for number in numbers
        ]
        store.cas(ledger, [head, *rows])
    return first + timedelta(seconds=blocks // 2)


if __name__ == "__main__":
    main()
