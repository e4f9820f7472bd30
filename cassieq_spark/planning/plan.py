"""From a load to machines: queue partitions; nodes, disks and networks; executors of Spark.

Every figure is a line that says what it follows from, and whether it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Final

from cassieq_spark.errors import OptionError
from cassieq_spark.model import Order
from cassieq_spark.planning import costs
from cassieq_spark.planning.coefficients import Coefficients
from cassieq_spark.planning.costs import PUBLISH, READ, Work
from cassieq_spark.planning.units import PERIOD, shown, shown_flow, shown_period, shown_size
from cassieq_spark.settings.queue import MOST_PARTITIONS
from cassieq_spark.settings.reading import MOST_PER_TASK, usual_task
from cassieq_spark.settings.writing import LARGEST_MESSAGE

MEASURED, PAPER = "measured", "paper"

#: Messages per task of the writer.
TASK: Final = 100_000
#: The share of the heap that Cassandra gives to memtables, as a divisor.
_MEMTABLES: Final = 4
#: The share of a disk that compaction needs free.
_FREE: Final = 0.2
#: Bytes of the commit log: Cassandra's default.
_LOG: Final = 8 * 2.0**30
_MOST_NODES: Final = 2000
_DAY: Final = 86_400.0
#: Seconds that a small micro-batch takes: docs/performance.md has 0.065 to read, 0.097 to write.
_MICRO_BATCH: Final = 0.1
#: The range of message sizes to which the coefficients were fitted, in bytes.
_SIZES: Final = (100.0, 10_000.0)
_REPLICAS: Final = (1, 3)
_NODES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, and the machines that it may have.

    Attributes:
        rate: Messages per second, on average.
        size: Bytes per message, with key and headers.
        groups: Consumer groups; each reads all messages.
        keep: How long a message is stored: until all groups have settled it, or longer.
        replicas: How many replicas the keyspace has.
        compression: Bytes before compression per byte as stored.
        interval: Time from one micro-batch to the next.
        batch: Messages per micro-batch at the peak; it replaces ``interval``.
        order: The order of the queue.
        peak: The load in the busiest minutes, as a multiple of the average.
        headroom: Share of cores and network that is free at the peak.
        cores: Cores per node.
        disk: Bytes of the disks of a node.
        network: Bytes per second of the network of a node, in each direction.
        heap: Bytes of Cassandra's heap.
        executor_cores: Cores per executor of Spark.
    """

    rate: float
    size: float
    groups: int = 1
    keep: timedelta = timedelta(days=1)
    replicas: int = 3
    compression: float = 1.0
    interval: timedelta = timedelta(seconds=10)
    batch: int | None = None
    order: Order = Order.NONE
    peak: float = 2.0
    headroom: float = 0.4
    cores: int = 16
    disk: float = 4e12
    network: float = 10e9 / 8
    heap: float = 8 * 2.0**30
    executor_cores: int = 4

    def check(self) -> None:
        """Refuse an impossible load.

        Raises:
            OptionError: Messages are too large.
        """
        if self.size > LARGEST_MESSAGE:
            raise OptionError(
                f"--size {shown_size(self.size)} is larger than the largest message, "
                f"{LARGEST_MESSAGE >> 20} MiB: store large bodies elsewhere, and queue their names"
            )


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A figure of a plan.

    Attributes:
        part: ``load``, ``queue``, ``cassandra``, ``node`` or ``spark``.
        name: What the figure is.
        value: The number; bytes, bytes per second, seconds, or a count.
        text: The number as people read it.
        follows: What the figure follows from, in words.
        basis: `MEASURED` or `PAPER`.
    """

    part: str
    name: str
    value: float
    text: str
    follows: str
    basis: str


@dataclass(frozen=True)
class CapacityPlan:
    """The resources that a load needs.

    Attributes:
        load: The load.
        known: The coefficients.
    """

    load: Load
    known: Coefficients

    @cached_property
    def rate(self) -> float:
        """Messages per second at the peak."""
        return self.load.rate * self.load.peak

    @cached_property
    def seconds(self) -> float:
        """Seconds from one micro-batch to the next."""
        if self.load.batch is not None:
            return self.load.batch / self.rate
        return self.load.interval.total_seconds()

    @cached_property
    def tasks(self) -> int:
        """Tasks of a micro-batch of the writer."""
        return _upwards(self.rate * self.seconds / TASK)

    @cached_property
    def reader_tasks(self) -> int:
        """Tasks of a micro-batch of a group: in order by key, each queue partition is one."""
        if self.load.order is Order.KEY:
            return self.partitions
        return _upwards(self.rate * self.seconds / self._reader_task)

    @cached_property
    def _reader_task(self) -> int:
        """The most messages of a group's task, by default."""
        if self.load.order is Order.STRICT:
            return MOST_PER_TASK
        return usual_task(_upwards(self.rate * self.seconds))

    @cached_property
    def partitions(self) -> int:
        """Queue partitions.

        In order by key, a partition is one task: there are as many as a group needs cores, each of
        which has a task of its own to begin and end. Otherwise one: LWTs of one query do not need
        more, see `_check_interval`.

        Raises:
            OptionError: The number is higher than a queue can have.
        """
        if self.load.order is not Order.KEY:
            return 1
        without_tasks = replace(self._work(1), task=0.0)
        cores = costs.client_seconds(READ, without_tasks, self.known)
        of_each = 1 - self.load.headroom - self.known["read.client.task"] / self.seconds
        if of_each <= 0 or cores > MOST_PARTITIONS * of_each:
            raise OptionError(
                "in order by key a partition is one task of a group, and the tasks of "
                f"{MOST_PARTITIONS} partitions, the most of a queue, do not keep up with this "
                "load: give a longer --interval, a smaller --headroom or a lower --rate, or "
                "divide the load among several queues"
            )
        return _upwards(cores / of_each)

    @cached_property
    def published(self) -> Work:
        """The writer's work per second at the peak.

        Each task writes one block per queue partition: the keys of its messages are in all of
        them.
        """
        return self._work(self.partitions)

    @cached_property
    def read(self) -> Work:
        """The work of each group per second at the peak: it reads the blocks of the writer."""
        lwt = self.published.lwt
        if self.load.order is not Order.NONE:
            lwt *= 1 + costs.ordered_reads(self.seconds)
        return replace(self.published, task=self.reader_tasks / self.seconds, lwt=lwt)

    def _work(self, partitions: int) -> Work:
        return Work(
            message=self.rate,
            raw=self.rate * self.load.size,
            stored=self.rate * self.stored,
            task=self.tasks / self.seconds,
            block=self.tasks * partitions / self.seconds,
            batch=1 / self.seconds,
            lwt=partitions / self.seconds,
        )

    @cached_property
    def stored(self) -> float:
        """Bytes per message as stored."""
        return self.load.size / self.load.compression

    @cached_property
    def kept(self) -> Work:
        """Messages that are stored at one time, at the average rate."""
        messages = self.load.rate * self.load.keep.total_seconds()
        return Work(message=messages, stored=messages * self.stored)

    @cached_property
    def kept_bytes(self) -> float:
        """Bytes of files of all replicas, without deleted data."""
        return costs.disk_bytes(self.kept, self.known) * self.load.replicas

    def disk(self, nodes: int) -> float:
        """Bytes of disk per node."""
        files = self.kept_bytes / nodes * self.known["disk.garbage"]
        return (files + _LOG) / (1 - _FREE)

    def rewrites(self, nodes: int) -> float:
        """How often compaction writes each byte."""
        new = self.load.heap / _MEMTABLES * self.known["disk.flushed"]
        return costs.rewrites(
            self.kept_bytes / nodes * self.known["disk.garbage"] / new, self.known
        )

    @cached_property
    def flushed(self) -> float:
        """Bytes per second of new files, of all replicas."""
        return costs.disk_bytes(self.published, self.known) * self.load.replicas

    @cached_property
    def publish_cores(self) -> float:
        """Cores of Cassandra for requests of writers."""
        return costs.cassandra_seconds(PUBLISH, self.published, self.load.replicas, self.known)

    @cached_property
    def read_cores(self) -> float:
        """Cores of Cassandra for requests of all groups."""
        one = costs.cassandra_seconds(READ, self.read, self.load.replicas, self.known)
        return one * self.load.groups

    @cached_property
    def repair_cores(self) -> float:
        """Cores of Cassandra for the repair, which scans once a day."""
        scanned = self.kept * (1 / _DAY)
        one = costs.repair_seconds("cassandra", self.published, scanned, self.known)
        return one * self.load.replicas

    def storing_cores(self, nodes: int) -> float:
        """Cores for memtables and compaction, of all nodes."""
        return costs.storing_seconds(self.flushed, self.rewrites(nodes), self.known)

    def cores(self, nodes: int) -> float:
        """Cores that are busy at the peak, of all nodes together."""
        requests = self.publish_cores + self.read_cores + self.repair_cores
        return requests + self.storing_cores(nodes) + nodes * self.known["idle.node"]

    def written(self, nodes: int) -> float:
        """Bytes per second that each node writes to its disks."""
        log = costs.log_bytes(self.published, self.known) * self.load.replicas
        return (log + self.flushed * (1 + self.rewrites(nodes))) / nodes

    def network(self, nodes: int) -> float:
        """Bytes per second of each node, in the busier direction."""
        of = partial(costs.node_bytes, replicas=self.load.replicas, known=self.known)
        groups = self.load.groups
        between = of(PUBLISH, self.published) + groups * of(READ, self.read)
        arriving = costs.wire_bytes(PUBLISH, self.published, self.known)
        leaving = costs.wire_bytes(READ, self.read, self.known) * groups
        return (max(arriving, leaving) + between) / nodes

    @cached_property
    def nodes(self) -> int:
        """The smallest number of nodes that have the cores, the disk and the network.

        Raises:
            OptionError: Two thousand nodes do not suffice.
        """
        usable = 1 - self.load.headroom
        for nodes in range(self.load.replicas, _MOST_NODES + 1):
            if (
                self.cores(nodes) <= nodes * self.load.cores * usable
                and self.disk(nodes) <= self.load.disk
                and self.network(nodes) <= self.load.network * usable
            ):
                return nodes
        raise OptionError(
            f"{_MOST_NODES:,} nodes are not enough for this load: give larger nodes "
            "(--disk-per-node, --cores-per-node, --network), a shorter --keep or a lower --rate"
        )

    @cached_property
    def limit(self) -> str:
        """The resource that determines the number of nodes."""
        usable = 1 - self.load.headroom
        busy = {
            "cores": self.cores(self.nodes) / (self.nodes * self.load.cores * usable),
            "disks": self.disk(self.nodes) / self.load.disk,
            "network": self.network(self.nodes) / (self.load.network * usable),
        }
        return "replicas" if self.nodes == self.load.replicas else max(busy, key=busy.__getitem__)

    @cached_property
    def writer_cores(self) -> float:
        """Cores of Spark that the writing query keeps busy."""
        seconds = costs.client_seconds(PUBLISH, self.published, self.known)
        return seconds + self.known["idle.query"]

    @cached_property
    def reader_cores(self) -> float:
        """Cores of Spark that each group's query keeps busy, without its work on the messages."""
        return costs.client_seconds(READ, self.read, self.known) + self.known["idle.query"]

    def executors(self, cores: float) -> int:
        """Executors of a query that keeps this many cores busy."""
        return _upwards(cores / (1 - self.load.headroom) / self.load.executor_cores)

    def lines(self) -> list[PlanLine]:
        """All figures of the plan, in order.

        Raises:
            OptionError: Micro-batches come too fast, or no number of partitions, or of nodes, is
                enough.
        """
        self._check_interval()
        return [*self._of_load(), *self._of_cassandra(), *self._of_node(), *self._of_spark()]

    def _check_interval(self) -> None:
        """Refuse micro-batches that come faster than Spark runs them.

        LWTs limit no plan: one queue partition publishes several times as often, also with three
        replicas, and a query publishes in all of its partitions in parallel.
        """
        if self.seconds >= _MICRO_BATCH - 1e-9:
            return
        least = f"an --interval of at least {PERIOD.show(timedelta(seconds=_MICRO_BATCH))}"
        if self.load.batch is not None:
            least = f"a --batch of at least {_upwards(_MICRO_BATCH * self.rate):,}"
        raise OptionError(
            f"{'--interval' if self.load.batch is None else '--batch'} gives a micro-batch each "
            f"{_shown_seconds(self.seconds)}, but a query runs one after the other, and each "
            f"takes about {_shown_seconds(_MICRO_BATCH)}: give {least}"
        )

    def _basis(self, *, is_paper: bool = False) -> str:
        """The basis of the plan: `MEASURED` if such loads were measured; otherwise `PAPER`."""
        known = _SIZES[0] <= self.load.size <= _SIZES[1] and self.load.replicas in _REPLICAS
        return PAPER if is_paper or not known or self.partitions > 1 else MEASURED

    def _of_load(self) -> Iterator[PlanLine]:
        load, count = self.load, partial(_line, shown, "load")
        yield count("messages/s", self.rate, f"{shown(load.rate)}/s x {shown(load.peak)} (peak)")
        yield _line(
            shown_size,
            "load",
            "stored message",
            self.stored,
            f"{shown_size(load.size)} / {shown(load.compression)} (compression)",
        )
        yield _line(
            _shown_seconds,
            "load",
            "between micro-batches",
            self.seconds,
            "batch / messages/s" if load.batch else "--interval",
        )
        yield count("messages of a micro-batch", self.rate * self.seconds, "messages/s x interval")
        tasks = f"messages of a micro-batch / {TASK:,}, upwards"
        yield count("tasks of a micro-batch, writer", self.tasks, tasks)
        tasks = f"messages of a micro-batch / {self._reader_task:,}, upwards"
        queue = partial(_line, shown, "queue")
        why = "more are for order by key, or for many writers"
        if load.order is Order.STRICT:
            why = "in strict order there is one"
        elif load.order is Order.KEY:
            why = (
                "cores of a group / (1 - headroom), upwards: in order by key a partition is one "
                "task"
            )
            tasks = "partitions: each is one task" + self._unshared()
        yield queue("partitions", self.partitions, why, self._basis())
        yield queue("tasks of a micro-batch, each group", self.reader_tasks, tasks, self._basis())
        yield queue(
            "LWTs/s",
            self.published.lwt * (1 + load.groups),
            "partitions x (1 + groups) / interval, at the least: a group that waits between "
            "micro-batches takes two",
            self._basis(),
        )

    def _unshared(self) -> str:
        """The setting that makes each partition a task; partitions with few messages share one."""
        each = _upwards(self.rate * self.seconds / self.partitions)
        if self.partitions == 1 or 2 * each > self._reader_task:
            return ""
        return f", with messagesPerTask = {each} (else some share one)"

    def _of_cassandra(self) -> Iterator[PlanLine]:
        load, nodes = self.load, self.nodes
        cores = partial(_line, shown, "cassandra")
        basis, further = self._basis(is_paper=nodes > _NODES), load.replicas - 1
        work = "messages, stored bytes, blocks and LWTs a second x their processor time"
        yield cores(
            "cores, publish", self.publish_cores, f"{work}; {further} further replica(s)", basis
        )
        yield cores(
            "cores, read and ack",
            self.read_cores,
            f"{load.groups} group(s) x the same for reads; a quorum of replicas",
            basis,
        )
        yield cores(
            "cores, memtables and compaction",
            self.storing_cores(nodes),
            f"new files/s x (1 write + {shown(self.rewrites(nodes))} rewrites); levels of four "
            "files of a memtable each, up to what a node stores",
            PAPER,
        )
        yield cores(
            "cores, repair", self.repair_cores, "deletion of all messages; one scan a day", PAPER
        )
        yield cores(
            "cores, busy at the peak", self.cores(nodes), "all of these, and idle nodes", PAPER
        )
        yield _line(
            shown_size,
            "cassandra",
            "messages on disk",
            self.kept_bytes,
            f"{shown(load.rate)}/s x {shown_period(load.keep)} x {shown_size(self.stored)} x "
            f"{load.replicas} replicas",
            basis,
        )
        yield cores(
            "nodes",
            nodes,
            f"the fewest with enough cores, disks and network; limited by: {self.limit}",
            PAPER,
        )

    def _of_node(self) -> Iterator[PlanLine]:
        load, nodes = self.load, self.nodes
        node = partial(_line, basis=self._basis(is_paper=nodes > _NODES))
        share = _percent
        yield node(
            share,
            "node",
            "cores busy",
            self.cores(nodes) / nodes / load.cores,
            f"cores busy / {nodes} nodes / {load.cores}; at most 1 - headroom",
        )
        if costs.quorum(load.replicas) == load.replicas:
            yield _line(
                shown,
                "node",
                "nodes that may be down",
                0.0,
                f"a quorum of {load.replicas} replica(s) is all of them: without a node, publishes"
                " and leases of what it stores stop; use --rf 3",
                PAPER,
            )
        else:
            yield _line(
                share,
                "node",
                "cores busy, one node down",
                self.cores(nodes) / (nodes - 1) / load.cores,
                f"cores busy / {nodes - 1} nodes / {load.cores}",
                PAPER,
            )
        garbage = shown(self.known["disk.garbage"])
        yield _line(
            shown_size,
            "node",
            "disk",
            self.disk(nodes),
            f"(messages on disk / {nodes} nodes x {garbage} until compaction drops what is deleted"
            f" + {shown_size(_LOG)} of log) / (1 - {_percent(_FREE)} free for compaction)",
            PAPER,
        )
        yield _line(
            shown_flow,
            "node",
            "disk writes",
            self.written(nodes),
            f"(log + new files x (1 + {shown(self.rewrites(nodes))} rewrites)) / {nodes} nodes",
            PAPER,
        )
        yield node(
            shown_flow,
            "node",
            "network",
            self.network(nodes),
            "(the larger of published and read bytes + bytes to further replicas) / nodes",
        )

    def _of_spark(self) -> Iterator[PlanLine]:
        load, spark = self.load, partial(_line, shown, "spark")
        basis = self._basis()
        yield spark(
            "cores, writer",
            self.writer_cores,
            "messages, bytes, tasks and micro-batches a second x their processor time",
            basis,
        )
        yield spark(
            "cores, each group",
            self.reader_cores,
            "the same for reads; what the query does with the messages comes on top",
            basis,
        )
        why = f"cores / (1 - headroom) / {load.executor_cores}, upwards"
        writers, readers = map(self.executors, (self.writer_cores, self.reader_cores))
        yield spark("executors, writer", writers, why, PAPER)
        if load.order is Order.KEY:
            why += f"; at most one core for each of {self.partitions} partition(s) is busy"
        yield spark("executors, each group", readers, why, PAPER)
        yield spark(
            "cores, all queries",
            (writers + readers * load.groups) * load.executor_cores,
            f"executors of the writer and of {load.groups} group(s) x {load.executor_cores}; "
            "a driver for each query comes on top",
            PAPER,
        )


def _line(  # noqa: PLR0913, PLR0917 (the attributes of a line)
    show: Callable[[float], str],
    part: str,
    name: str,
    value: float,
    follows: str,
    basis: str = MEASURED,
) -> PlanLine:
    return PlanLine(part, name, value, show(value), follows, basis)


def _shown_seconds(value: float) -> str:
    return shown_period(timedelta(seconds=value))


def _percent(value: float) -> str:
    return f"{shown(100 * value)}%"


def _upwards(value: float) -> int:
    return max(1, math.ceil(value - 1e-9))
