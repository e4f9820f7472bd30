"""What a batch costs as a queue grows: in messages, tasks, groups, readers, and beside others.

Publishes and consumes as Spark's tasks and drivers do, without Spark, so that what differs is the
queue's own. Everything of one kind is measured in turn, round by round, in an order of its own.
Prints JSON lines: for each size, the median time of a batch, its ratio to the smallest size (the
median over the rounds), and LWTs, reads and bytes of a batch, as Cassandra and the sockets count.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from cassandra.cluster import Session

from benchmarks.bench.counters import Counts
from benchmarks.bench.payloads import PAYLOADS, READINGS
from cassieq_spark.fetch import fetch
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, SinkBatch
from cassieq_spark.node import Cluster
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.reader import Reader
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.cassandra.store import CassandraStore

#: Messages of a batch.
BATCH = 10_000
GROUP = "g"

_FILLED_AT_ONCE = 100_000
_TCP_INFO_BYTES = struct.Struct("=120xQQ")  # acknowledged, received: linux/tcp.h
_NOT_COUNTED = 2


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs, and the messages that are used."""

    store: CassandraStore
    cql: Session
    messages: pa.RecordBatch

    def bytes_moved(self) -> int:
        """Bytes that the store has sent and received, headers of the protocol included."""
        cluster = self.store._link._cluster  # noqa: SLF001 (nobody else knows its sockets)
        return sum(
            sum(_TCP_INFO_BYTES.unpack_from(each.getsockopt(*_TCP_INFO)))
            for holder in cluster.get_connection_holders()
            for each in (connection._socket for connection in holder.get_connections())  # noqa: SLF001
        )


_TCP_INFO = (socket.IPPROTO_TCP, socket.TCP_INFO, 256)


class Used:
    """A queue, its writer, and a reader that acks each batch with the next."""

    def __init__(self, scene: Scene, queue: QueueDefinition) -> None:
        self.scene = scene
        self.queue = queue
        self._options = SinkOptions(queue=queue.name)
        self._version = 0
        self._reader: Reader | None = None
        self._end: Mapping[str, Any] = initial_offset(queue.name, GROUP)

    def fill(self, messages: int) -> None:
        """Publish so many, a hundred thousand at a time."""
        for start in range(0, messages, _FILLED_AT_ONCE):
            wanted = min(messages - start, _FILLED_AT_ONCE)
            parts = islice(cycle([self.scene.messages]), wanted // BATCH)
            publish(self.scene.store, self.queue.queue_id, [self._write(parts)])

    def publish(self, *, tasks: int = 1) -> None:
        """Publish one batch, written by so many tasks."""
        rows = BATCH // tasks
        parts = [self.scene.messages.slice(number * rows, rows) for number in range(tasks)]
        pending = [self._write([part]) for part in parts]
        self._version += 1
        batch = SinkBatch("app:growth", self._version)
        publish(self.scene.store, self.queue.queue_id, pending, batch=batch)

    def consume(self, limit: int = BATCH) -> int:
        """Ack the batch before, lease one, and read it; how many messages it had."""
        reader, done = self.reader(), self._end
        self._end = reader.next_batch(done, limit=limit)
        if self._end is done:
            return 0
        tasks = reader.tasks(self._end, messages_per_task=100_000)
        return sum(
            rows.num_rows
            for task in tasks
            for rows in fetch(self.scene.store, self.queue, task, include_headers=False)
        )

    def reader(self) -> Reader:
        """The reader, made with the first call."""
        if self._reader is None:
            store, length = self.scene.store, self.queue.lease
            self._reader = Reader(store, self.queue, GROUP, starting="earliest", length=length)
        return self._reader

    def stop(self) -> None:
        """Let go of what is held."""
        if self._reader is not None:
            self._reader.stop()

    def _write(self, parts: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> PendingBlock:
        return write_block(self.scene.store, self.queue, parts, self._options)


def new(scene: Scene, name: str) -> Used:
    """A queue that nobody has used."""
    return Used(scene, create_queue(scene.store, name))


Step = Callable[[], object]


def main() -> None:
    """Run it on a Cassandra of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=1_000_000, help="most messages of a queue")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with opened() as scene:
        kinds = {
            "stored": by_stored(scene, given.stored),
            "acked": by_acked(scene, given.stored),
            "tasks": by_tasks(scene),
            "groups": by_groups(scene),
            "queues": by_queues(scene),
        }
        for kind, steps in kinds.items():
            measure(scene, kind, steps, given.rounds)
        for readers in (1, 2, 4, 8, 16):
            show(kind="readers", size=readers, **compete(scene, readers))


@contextmanager
def opened() -> Iterator[Scene]:
    """A node with all tables, and messages of some 200 bytes."""
    with Cluster(nodes=1, heap_mb=1024) as cluster:
        where = (f"{cluster.contact_points[0]}:{cluster.port}",)
        connection = ConnectionOptions(contact_points=where)
        apply_schema(connection)
        driver, cql = connect(connection)
        store = open_store(connection)
        assert isinstance(store, CassandraStore)  # noqa: S101 (there is no other)
        values = pa.array(islice(PAYLOADS[READINGS](Path()), BATCH), pa.binary())
        try:
            yield Scene(store, cql, pa.record_batch({"value": values}))
        finally:
            store.close()
            driver.shutdown()


Steps = dict[int, dict[str, Step]]


def by_stored(scene: Scene, most: int) -> Steps:
    """Queues that hold more and more messages that nobody has consumed."""
    steps: Steps = {}
    size = BATCH
    while size <= most:
        used = new(scene, f"stored{size}")
        # And as many as are consumed meanwhile, so that the smallest does not run dry.
        used.fill(size)
        steps[size] = {"publish": used.publish, "consume": used.consume}
        size *= 10
    return steps


def by_acked(scene: Scene, most: int) -> Steps:
    """A new queue, and one whose group has acked many messages that are still there."""
    steps: Steps = {}
    for size in (0, most):
        used = new(scene, f"acked{size}")
        used.fill(size)
        for _ in range(size // _FILLED_AT_ONCE):
            used.consume(_FILLED_AT_ONCE)
        steps[size] = {"publish": used.publish, "consume": used.consume}
    return steps


def by_tasks(scene: Scene) -> Steps:
    """Batches that more and more tasks have written."""
    steps: Steps = {}
    for tasks in (1, 10, 100, 1000):
        used = new(scene, f"tasks{tasks}")
        steps[tasks] = {
            "publish": lambda used=used, tasks=tasks: used.publish(tasks=tasks),
            "consume": used.consume,
        }
    return steps


def by_groups(scene: Scene) -> Steps:
    """Queues that more and more groups read."""
    steps: Steps = {}
    for groups in (1, 10, 100):
        used = new(scene, f"groups{groups}")
        for number in range(groups - 1):
            ensure_group(scene.store, used.queue.queue_id, f"other{number}", starting="earliest")
        steps[groups] = {"publish": used.publish, "consume": used.consume}
    return steps


def by_queues(scene: Scene) -> Steps:
    """More and more queues, used in turn."""
    steps: Steps = {}
    for queues in (1, 10, 100, 1000):
        all_used = [new(scene, f"queues{queues}-{number}") for number in range(queues)]
        for used in all_used:
            used.reader()
        turns, returns = cycle(all_used), cycle(all_used)
        steps[queues] = {
            "publish": lambda turns=turns: next(turns).publish(),
            "consume": lambda returns=returns: next(returns).consume(),
        }
    return steps


def measure(scene: Scene, kind: str, steps: Steps, rounds: int) -> None:
    """Take all steps of each size in turn, again and again, and show what they took."""
    took: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    costs: defaultdict[tuple[str, int], list[Mapping[str, float]]] = defaultdict(list)
    for _ in range(rounds + _NOT_COUNTED):
        for size, by_name in random.sample(list(steps.items()), len(steps)):
            for name, step in by_name.items():
                before, moved = Counts.read(scene.cql), scene.bytes_moved()
                began = time.perf_counter()
                step()
                took[name, size].append((time.perf_counter() - began) * 1000)
                cost = Counts.read(scene.cql).since(before)
                costs[name, size].append(cost | {"bytes": scene.bytes_moved() - moved})
    for (name, size), all_ms in took.items():
        times, smallest = all_ms[_NOT_COUNTED:], took[name, min(steps)][_NOT_COUNTED:]
        ratios = [ours / theirs for ours, theirs in zip(times, smallest, strict=True)]
        show(
            kind=kind,
            step=name,
            size=size,
            ms=round(statistics.median(times), 2),
            p95_ms=round(sorted(times)[int(0.95 * len(times))], 2),
            ratio=round(statistics.median(ratios), 2),
            **_medians(costs[name, size][_NOT_COUNTED:]),
        )


def compete(scene: Scene, readers: int, batches: int = 200) -> dict[str, float]:
    """Let readers of one group share a queue, in batches of a tenth of the usual size."""
    limit = BATCH // 10
    first = new(scene, f"readers{readers}")
    first.fill(batches * limit)
    done: list[int] = []

    def work(used: Used) -> None:
        while count := used.consume(limit):
            done.append(count)
        used.stop()

    shared = [Used(scene, first.queue) for _ in range(readers)]
    for used in shared:
        used.reader()
    threads = [Thread(target=work, args=(used,)) for used in shared]
    before, began = Counts.read(scene.cql), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    cost = Counts.read(scene.cql).since(before, per=len(done))
    return {
        "ms_per_batch": round(seconds * 1000 / len(done), 2),
        "messages": sum(done),
        **{name: round(value, 2) for name, value in cost.items()},
    }


def _medians(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in costs), 2) for name in costs[0]}


def show(**figures: object) -> None:
    """Print one line of JSON."""
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
