"""Checks that ledger and group state are linearizable, also while a node is paused.

Threads publish, also with unique ids, lease, also in lanes, settle and read on a store that
records calls and answers, while the node is paused now and then. Every second queue has two
partitions, in order by key. The exit code is 1 if a history has no order.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Event
from uuid import UUID, uuid4

from cassieq_spark.errors import BatchOrderError, StoreError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.state import HEAD as GROUP_HEAD
from cassieq_spark.groups.state import GroupState, Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.unique import ID_BYTES
from cassieq_spark.ledger.window import UniqueWindow, UniqueWindows
from cassieq_spark.model import (
    DEFAULT_LEASE,
    Order,
    PendingBlock,
    QueueDefinition,
    QueueId,
    SinkBatch,
)
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.producer.group_commit import GroupCommit
from cassieq_spark.producer.publisher import Written
from cassieq_spark.queues import create_queue, ledgers_of
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Slice, Store, partition_of_group
from tests.support.recorded import RecordingStore, find_violations
from trials.environment import Report, arguments, carry_out, cassandra

GROUP = "g"
KEYSPACE = "history"
#: Shorter than most pauses, so that clients give up; Cassandra itself gives up after half of it.
REQUEST_TIMEOUT = timedelta(milliseconds=600)
_UNIQUE = timedelta(seconds=20)
#: How many leases in order are those of clients.
_IN_LANES = 0.5


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="length of the trial")
    parser.add_argument("--threads", type=int, default=6, help="threads at the same time")
    parser.add_argument("--calls", type=int, default=40, help="calls of each thread in a history")
    given = parser.parse_args()

    def play(_: Path) -> Report:
        totals = Counter(histories=0, calls=0, unknown=0, pauses=0, violations=0)
        chance = Random(given.seed)
        with cassandra(KEYSPACE) as environment:
            cluster = environment.cluster
            hasty = replace(environment.connection, request_timeout=REQUEST_TIMEOUT)

            def pause() -> None:
                time.sleep(chance.uniform(0.1, 1.0))
                cluster.pause(0)
                try:
                    time.sleep(chance.choice([0.05, 0.3, 0.8, 1.5]))
                finally:
                    cluster.resume(0)
                totals["pauses"] += 1

            with closing(open_store(hasty)) as store:
                until = time.monotonic() + given.seconds
                while time.monotonic() < until:
                    recorded = gather(
                        store,
                        threads=given.threads,
                        calls=given.calls,
                        seed=given.seed + 1000 * totals["histories"],
                        partitions=1 + totals["histories"] % 2,
                        meanwhile=pause,
                    )
                    totals["histories"] += 1
                    for history in recorded.histories.values():
                        totals["calls"] += len(history)
                        totals["unknown"] += sum(call.is_pending for call in history)
                    violations = find_violations(recorded.histories)
                    totals["violations"] += len(violations)
                    for partition, violation in violations.items():
                        print(f"{partition}: {violation}", flush=True)
        return {**totals, "seed": given.seed}

    return carry_out("linearizability", play, fine=lambda report: not report["violations"])


def gather(
    store: Store,
    *,
    threads: int,
    calls: int,
    seed: int,
    partitions: int = 1,
    meanwhile: Callable[[], None],
) -> RecordingStore:
    """Let threads use a new queue, and record their calls.

    Args:
        store: The store.
        threads: How many threads.
        calls: How many calls of each thread.
        seed: Decides what the threads do, but not when.
        partitions: Partitions of the queue; if there are several, it is ordered by key.
        meanwhile: Called repeatedly until all threads have ended.
    """
    recorded = RecordingStore(store)
    order = Order.KEY if partitions > 1 else Order.NONE
    name = f"history-{uuid4().hex[:12]}"
    queue = create_queue(recorded, name, order=order, partitions=partitions)
    for ledger in ledgers_of(recorded, queue):
        ensure_group(ConsumerGroup(ledger, GROUP), starting="earliest")
    commits, done = GroupCommit(recorded), Event()
    with ThreadPoolExecutor(threads + 1) as pool:
        users = [
            pool.submit(_use, recorded, commits, queue, Random(seed + number), calls)
            for number in range(threads)
        ]

        def disturb() -> None:
            while not done.is_set():
                meanwhile()

        disturber = pool.submit(disturb)
        try:
            for each in users:
                each.result()
        finally:
            done.set()
        disturber.result()
    return recorded


def _use(
    store: Store, commits: GroupCommit, queue: QueueDefinition, chosen: Random, calls: int
) -> None:
    holds: dict[QueueId, UUID | None] = {}
    windows = UniqueWindows()
    for number in range(calls):
        queue_id = chosen.choice(queue.by_partition).queue_id
        ledger, held = Ledger(store, queue_id), holds.get(queue_id)
        group = ConsumerGroup(ledger, GROUP)
        # The history has the calls that are lost, late or refused.
        with suppress(StoreError, BatchOrderError):
            match chosen.randrange(7):
                case 0:
                    publish(ledger, [PendingBlock(new_block_id(), 2)])
                case 6:
                    ids = b"".join(bytes([chosen.randrange(1, 200)]) * ID_BYTES for _ in "ab")
                    block = PendingBlock(new_block_id(), 2, ids=ids)
                    publish(ledger, [block], window=UniqueWindow(_UNIQUE, windows.of(queue_id)))
                case 1:
                    blocks = (PendingBlock(new_block_id(), 2),)
                    commits.publish([Written(queue_id, blocks=blocks)])
                case 2:
                    batch = SinkBatch(f"app:{chosen.randrange(2)}", number)
                    publish(ledger, [PendingBlock(new_block_id(), 1)], batch=batch)
                case 3:
                    request = LeaseRequest(
                        held=held,
                        token=uuid4(),
                        lease=DEFAULT_LEASE,
                        max_messages=3,
                        strict_fifo=queue.order is Order.KEY,
                        stop=ledger.read_head().next,
                    )
                    ahead = None
                    if queue.order is Order.KEY and chosen.random() < _IN_LANES:
                        request = replace(request, held=None, by_receipts=True)
                        ahead = _lanes_ahead
                    holds[queue_id] = group.lease(request, ahead=ahead).token
                case 4 if held is not None:
                    slots = group.read().held_by(held)
                    acked = slots[0].monotons.split(1)[0] if slots else Settlement().acked
                    group.settle(held, Settlement(acked=acked))
                case _:
                    ledger.read_head(serial=chosen.random() < 0.5)
                    partition = partition_of_group(queue_id, GROUP)
                    store.read_rows(partition, Slice(row=GROUP_HEAD), serial=True)


def _lanes_ahead(state: GroupState, request: LeaseRequest) -> Window:
    """The lanes of messages that nobody has written: their monotons tell."""
    start = state.head.pointer
    return Window(start, [at % 5 for at in range(start, min(request.stop, start + 20))])


if __name__ == "__main__":
    sys.exit(main())
