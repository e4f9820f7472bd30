"""The cost of concurrent publishes and leases, by the number of partitions.

Runs on three nodes with replication 3. Publishers are threads that share nothing, like clients in
separate processes. Each publishes one batch after the other, of one key each: first without a
pause, then about once a second, like a stream with a trigger of one second. Counted is what they
do after a warm-up, in which each finds out how many compete.
Readers are streams of one group, without Spark, that read a full queue in batches. Prints JSON
lines: the LWTs of each publish, the LWTs of each partition of each batch that was read, and the
publishes or partitions per second.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any

import pyarrow as pa

from benchmarks.lines import show
from cassieq_spark.errors import StoreError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.partitions import create_groups
from cassieq_spark.groups.presence import LATEST
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.group_commit import GroupCommit
from cassieq_spark.producer.publisher import Written, publish_written, write_partition
from cassieq_spark.queues import create_queue, ledgers_of
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from trials.environment import cassandra

PARTITIONS = (1, 4, 16)
PUBLISHERS = (1, 2, 4, 8, 16, 32)
#: About how many seconds a publisher waits after each publish.
EVERY = (0.0, 1.0)
READERS = (1, 2, 4, 8, 16)
GROUP = "g"
#: Messages in each publish, and in each batch that is read.
_WRITTEN, _READ = 100, 1600
_MESSAGES = pa.record_batch({"value": pa.array([b"x" * 200] * _WRITTEN, pa.binary())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="for each number of publishers")
    parser.add_argument("--warm-up", type=float, default=5, help="seconds before")
    parser.add_argument("--batches", type=int, default=10, help="of each reader")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with cassandra(nodes=given.nodes) as environment:
        for partitions in PARTITIONS:
            for publishers in PUBLISHERS:
                for every in EVERY:
                    figures = publishing(
                        environment.store, partitions, publishers, every=every, given=given
                    )
                    about = {"partitions": partitions, "publishers": publishers, "every": every}
                    show(what="publish", **about, **figures)
            for readers in READERS:
                figures = reading(environment.store, partitions, readers, given)
                show(what="lease", partitions=partitions, readers=readers, **figures)


def publishing(
    store: Store, partitions: int, publishers: int, *, every: float, given: argparse.Namespace
) -> Mapping[str, Any]:
    """Let publishers publish for the given seconds."""
    counted = CountingStore(store)
    queue = create_queue(store, f"p{partitions}x{publishers}-{every:g}", partitions=partitions)
    over, published = Event(), [0] * publishers
    failed: list[Counter[str]] = [Counter() for _ in range(publishers)]

    def work(number: int) -> None:
        chance = Random(given.seed + number)
        commits = GroupCommit(counted)
        while not over.wait(chance.uniform(0, 2 * every)):
            try:
                commits.publish([_write(counted, chance.choice(queue.by_partition))])
            except StoreError as error:
                failed[number][f"{type(error).__name__}: {error}"] += 1
            else:
                published[number] += 1

    with ThreadPoolExecutor(publishers) as pool:
        done = pool.map(work, range(publishers))
        over.wait(given.warm_up)
        before, began = sum(published), time.perf_counter()
        counted.reset()
        over.wait(given.seconds)
        over.set()
        list(done)
    return _figures(counted, sum(published) - before, began) | {"failed": sum(failed, Counter())}


def reading(
    store: Store, partitions: int, readers: int, given: argparse.Namespace
) -> Mapping[str, Any]:
    """Let readers of one group read a queue that never runs out of messages."""
    counted = CountingStore(store)
    queue = create_queue(store, f"r{partitions}x{readers}", partitions=partitions)
    create_groups(ledgers_of(store, queue), GROUP, "earliest")
    for _ in range(readers * (given.batches + 2) * _READ // _WRITTEN // partitions):
        for part in queue.by_partition:
            publish_written(store, [_write(store, part)])
    request = LeaseRequest(lease=queue.lease)
    streams = [
        QueueReader(counted, queue, GROUP, starting="earliest", request=request)
        for _ in range(readers)
    ]
    # Each reader learns of all others first, as if all had been active for a while.
    for _ in range(2 if partitions > 1 else 0):
        for stream in streams:
            stream.share()
        time.sleep(LATEST.total_seconds())
    ends: list[Mapping[str, Any]] = [initial_offset(queue.name, GROUP)] * readers
    parts = [0] * readers

    def work(number: int) -> None:
        for _ in range(given.batches):
            end = streams[number].next_batch(ends[number], limit=_READ)
            if end is not ends[number]:
                parts[number] += len(end.get("partitions", (0,)))
            ends[number] = end

    counted.reset()
    began = time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(work, range(readers)))
    figures = _figures(counted, sum(parts), began)
    for stream in streams:
        stream.stop()
    return figures


def _write(store: Store, part: QueueDefinition) -> Written:
    return write_partition(store, part, [_MESSAGES])


def _figures(counted: CountingStore, done: int, began: float) -> dict[str, float]:
    return {
        "done": done,
        "lwts_each": round(counted.cas_count / max(1, done), 2),
        "a_second": round(done / (time.perf_counter() - began), 1),
    }


if __name__ == "__main__":
    main()
