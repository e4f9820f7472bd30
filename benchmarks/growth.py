"""The cost of a batch as a queue grows: in messages, tasks, groups and readers, and among queues.

Publishes and consumes as Spark's tasks and drivers do, but without Spark, so that only the costs
of the queue differ. Each round measures all sizes of one kind, in random order. Prints JSON lines:
the median time of a batch of each size, its ratio to the smallest size (median over the rounds),
and the LWTs, reads and bytes of a batch, as counted by Cassandra and by the sockets.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from cassandra.cluster import Session

from benchmarks.bench.measures import Counts
from benchmarks.bench.payloads import PAYLOADS, READINGS
from benchmarks.lines import compared, show
from cassieq_spark.arrow.rows import PlainRows
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, SinkBatch
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.cassandra.store import CassandraStore
from trials.environment import cassandra

#: Messages of a batch.
BATCH = 10_000
GROUP = "g"

_FILLED_AT_ONCE = 100_000
_TCP_INFO = (socket.IPPROTO_TCP, socket.TCP_INFO, 256)
_TCP_INFO_BYTES = struct.Struct("=120xQQ")  # acknowledged, received: linux/tcp.h
_NOT_COUNTED = 2


@dataclass(frozen=True, slots=True)
class Environment:
    store: CassandraStore
    cql: Session
    messages: pa.RecordBatch

    def bytes_moved(self) -> int:
        """Bytes that the store has sent and received, with the headers of the protocol."""
        cluster = self.store._session._cluster  # noqa: SLF001 (only it knows its sockets)
        return sum(
            sum(_TCP_INFO_BYTES.unpack_from(each.getsockopt(*_TCP_INFO)))
            for holder in cluster.get_connection_holders()
            for each in (connection._socket for connection in holder.get_connections())  # noqa: SLF001
        )


class Used:
    """A queue, its writer, and a reader that acks each batch as it leases the next."""

    def __init__(self, environment: Environment, queue: QueueDefinition) -> None:
        self.environment = environment
        self.queue = queue
        self._options = SinkOptions(queue=queue.name)
        self._version = 0
        self._end: Mapping[str, Any] = initial_offset(queue.name, GROUP)

    def fill(self, messages: int) -> None:
        """Publish messages, a hundred thousand at a time."""
        for start in range(0, messages, _FILLED_AT_ONCE):
            wanted = min(messages - start, _FILLED_AT_ONCE)
            parts = islice(cycle([self.environment.messages]), wanted // BATCH)
            publish(Ledger(self.environment.store, self.queue.queue_id), [self._write(parts)])

    def publish(self, *, tasks: int = 1) -> None:
        """Publish one batch that some tasks have written."""
        rows = BATCH // tasks
        parts = [self.environment.messages.slice(number * rows, rows) for number in range(tasks)]
        pending = [self._write([part]) for part in parts]
        self._version += 1
        batch = SinkBatch("app:growth", self._version)
        publish(Ledger(self.environment.store, self.queue.queue_id), pending, batch=batch)

    def consume(self, limit: int = BATCH) -> int:
        """Ack the last batch, lease and read the next; return its number of messages."""
        reader, done = self.reader, self._end
        self._end = reader.next_batch(done, limit=limit)
        if self._end is done:
            return 0
        tasks = reader.tasks(self._end, messages_per_task=100_000)
        as_rows = PlainRows(self.queue.name, include_headers=False)
        return sum(
            rows.num_rows
            for (part,) in tasks
            for rows in fetch(self.environment.store, part.queue, part.pieces, as_rows)
        )

    @cached_property
    def reader(self) -> QueueReader:
        store, request = self.environment.store, LeaseRequest(lease=self.queue.lease)
        return QueueReader(store, self.queue, GROUP, starting="earliest", request=request)

    def _write(self, parts: Iterable[pa.RecordBatch]) -> PendingBlock:
        return write_block(self.environment.store, self.queue, parts, self._options)


def new(environment: Environment, name: str) -> Used:
    return Used(environment, create_queue(environment.store, name))


Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--stored", type=int, default=1_000_000, help="messages of the largest queue"
    )
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with opened() as environment:
        kinds = {
            "stored": by_stored(environment, given.stored),
            "acked": by_acked(environment, given.stored),
            "tasks": by_tasks(environment),
            "groups": by_groups(environment),
            "queues": by_queues(environment),
        }
        for kind, steps in kinds.items():
            measure(environment, kind, steps, given.rounds)
        for readers in (1, 2, 4, 8, 16):
            show(kind="readers", size=readers, **compete(environment, readers))


@contextmanager
def opened() -> Iterator[Environment]:
    """A node with all tables, and a batch of messages of about 200 bytes."""
    with cassandra(nodes=1, heap_mb=1024) as environment:
        driver, cql = connect(environment.connection)
        store = environment.store
        assert isinstance(store, CassandraStore)  # noqa: S101 (there is no other)
        values = pa.array(islice(PAYLOADS[READINGS](Path()), BATCH), pa.binary())
        try:
            yield Environment(store, cql, pa.record_batch({"value": values}))
        finally:
            driver.shutdown()


Steps = dict[int, dict[str, Step]]


def by_stored(environment: Environment, most: int) -> Steps:
    """Queues of more and more messages that no group has consumed."""
    steps: Steps = {}
    size = BATCH
    while size <= most:
        used = new(environment, f"stored{size}")
        # Each round publishes as much as it consumes: the smallest never runs empty.
        used.fill(size)
        steps[size] = {"publish": used.publish, "consume": used.consume}
        size *= 10
    return steps


def by_acked(environment: Environment, most: int) -> Steps:
    """A new queue, and one whose group has acked many messages that are still stored."""
    steps: Steps = {}
    for size in (0, most):
        used = new(environment, f"acked{size}")
        used.fill(size)
        for _ in range(size // _FILLED_AT_ONCE):
            used.consume(_FILLED_AT_ONCE)
        steps[size] = {"publish": used.publish, "consume": used.consume}
    return steps


def by_tasks(environment: Environment) -> Steps:
    """Batches written by more and more tasks."""
    steps: Steps = {}
    for tasks in (1, 10, 100, 1000):
        used = new(environment, f"tasks{tasks}")
        publish_by_tasks = partial(used.publish, tasks=tasks)
        steps[tasks] = {"publish": publish_by_tasks, "consume": used.consume}
    return steps


def by_groups(environment: Environment) -> Steps:
    """Queues of more and more groups."""
    steps: Steps = {}
    for groups in (1, 10, 100):
        used = new(environment, f"groups{groups}")
        for number in range(groups - 1):
            ledger = Ledger(environment.store, used.queue.queue_id)
            ensure_group(ConsumerGroup(ledger, f"other{number}"), starting="earliest")
        steps[groups] = {"publish": used.publish, "consume": used.consume}
    return steps


def in_turn(steps: Sequence[Step]) -> Step:
    """A step that takes the next of these steps each time."""
    turns = cycle(steps)

    def step() -> None:
        next(turns)()

    return step


def by_queues(environment: Environment) -> Steps:
    """More and more queues, used in turn."""
    steps: Steps = {}
    for queues in (1, 10, 100, 1000):
        all_used = [new(environment, f"queues{queues}-{number}") for number in range(queues)]
        for used in all_used:
            used.reader  # noqa: B018 (made before anything is timed)
        steps[queues] = {
            "publish": in_turn([used.publish for used in all_used]),
            "consume": in_turn([used.consume for used in all_used]),
        }
    return steps


def measure(environment: Environment, kind: str, steps: Steps, rounds: int) -> None:
    """Take all steps of all sizes, round by round, and show their times and costs."""
    took: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    costs: defaultdict[tuple[str, int], list[Mapping[str, float]]] = defaultdict(list)
    for _ in range(rounds + _NOT_COUNTED):
        for size, by_name in random.sample(list(steps.items()), len(steps)):
            for name, step in by_name.items():
                before, moved = Counts.read(environment.cql), environment.bytes_moved()
                began = time.perf_counter()
                step()
                took[name, size].append((time.perf_counter() - began) * 1000)
                cost = Counts.read(environment.cql).since(before)
                costs[name, size].append(cost | {"bytes": environment.bytes_moved() - moved})
    for name in next(iter(steps.values())):
        for size, figures in compared({size: took[name, size][_NOT_COUNTED:] for size in steps}):
            figures["ms"] = figures.pop("p50_ms")
            medians = _medians(costs[name, size][_NOT_COUNTED:])
            show(kind=kind, step=name, size=size, **figures, **medians)


def compete(environment: Environment, readers: int, batches: int = 200) -> dict[str, float]:
    """Let readers of one group share a queue, in batches of a tenth of the usual messages."""
    limit = BATCH // 10
    first = new(environment, f"readers{readers}")
    first.fill(batches * limit)
    done: list[int] = []

    def work(used: Used) -> None:
        while count := used.consume(limit):
            done.append(count)
        used.reader.stop()

    shared = [Used(environment, first.queue) for _ in range(readers)]
    for used in shared:
        used.reader  # noqa: B018 (made before anything is timed)
    before, began = Counts.read(environment.cql), time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(work, shared))
    seconds = time.perf_counter() - began
    cost = Counts.read(environment.cql).since(before, per=len(done))
    return {
        "ms_per_batch": round(seconds * 1000 / len(done), 2),
        "messages": sum(done),
        **{name: round(value, 2) for name, value in cost.items()},
    }


def _medians(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in costs), 2) for name in costs[0]}


if __name__ == "__main__":
    main()
