"""What the model predicts, beside what a load of Spark takes: other sizes than were fitted.

A stream of files into a queue and streams of that queue into nothing, one for each group, run at
the same time, at a given rate. Each begins with batches that do not count, and each cluster with a
load that does not: a Java that has just started interprets code that it compiles later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql.streaming import StreamingQuery

from benchmarks.capacity.place import (
    CASSANDRA,
    COMPACTION,
    FLUSH,
    LOG,
    SPARK,
    Place,
    Reading,
    Requests,
    open_place,
)
from benchmarks.capacity.trials import (
    Files,
    Shape,
    StoreTrial,
    keyed_messages,
    random_messages,
    read_frame,
    start,
    store_trials,
    wait_for,
)
from cassieq_spark.model import Order
from cassieq_spark.planning import costs
from cassieq_spark.planning.coefficients import Coefficients
from cassieq_spark.planning.costs import PUBLISH, READ, Work


@dataclass(frozen=True, slots=True)
class Streams:
    """A load: what the writer writes, partitions (in order by key, if several), and groups."""

    shape: Shape
    partitions: int = 1
    groups: int = 1

    @property
    def reader_tasks(self) -> int:
        """Tasks of a micro-batch of a group."""
        return self.shape.tasks if self.partitions == 1 else self.partitions

    def published(self) -> Work:
        """What the writer does: each task makes a block for each partition."""
        work = self.shape.work()
        return replace(work, block=work.block * self.partitions, lwt=work.lwt * self.partitions)

    def read(self, batches: int) -> Work:
        """What all groups do, in so many micro-batches of all of them together.

        A micro-batch has the blocks of all that the writer has published meanwhile.
        """
        lwt = float(batches * self.partitions)
        if self.partitions > 1:
            lwt *= 1 + costs.ordered_reads(_INTERVAL)
        return replace(
            self.published() * self.groups,
            batch=batches,
            lwt=lwt,
            task=batches * self.reader_tasks,
        )


#: Messages and bytes of the fit are 100, 1000 and 10,000, in batches of 100 to 100,000.
LOADS = (
    Streams(Shape(300, 60_000, 2, 10)),
    Streams(Shape(3000, 9000, 3, 10)),
    Streams(Shape(500, 20_000, 2, 10), partitions=4, groups=2),
)
#: The model is to be within this much of what was measured.
WANTED = 0.25
#: Files are merged in steps, of which a load has few on a node. So only their sum is judged.
STEPS = "rewritten by compaction"

_INTERVAL = 2
_WARM_UP = 5
_MEMTABLES_MIB = 16
#: The trial without Spark whose bytes are counted at the client's sockets.
_WIRE_BATCHES = 4
#: What was predicted, its unit, and both figures.
_Row = tuple[str, str, float, float]


@dataclass(frozen=True, slots=True)
class Checked:
    """A prediction.

    Attributes:
        cluster: Nodes and replicas, in words.
        load: Rate and size.
        what: What was predicted.
        unit: Of both figures.
        predicted: By the model.
        measured: What it was.
    """

    cluster: str
    load: str
    what: str
    unit: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """The prediction, for each of what was measured."""
        return self.predicted / self.measured if self.measured else float("inf")

    @property
    def is_near(self) -> bool:
        """Whether it is as near as is wanted."""
        return abs(round(self.ratio, 2) - 1) <= WANTED + 1e-9

    @classmethod
    def sum_of_steps(cls, found: Iterable[Checked]) -> Checked:
        """What compaction has rewritten in all loads, on all nodes."""
        steps = [each for each in found if each.what == STEPS]
        predicted = sum(each.predicted for each in steps)
        measured = sum(each.measured for each in steps)
        return cls("all", "all loads", STEPS, "MB", predicted, measured)


def check(known: Coefficients, tell: Callable[[str], None]) -> Iterator[Checked]:
    """Run all loads, on one node and on three."""
    for nodes in (1, 3):
        with open_place(nodes, with_spark=True, memtables_mib=_MEMTABLES_MIB) as place:
            store_trials(place, 0, tell)
            # One without and one with an order, as serial reads take code of their own.
            for load in (LOADS[0], LOADS[-1]):
                _run(place, load)
                tell("warm-up, streams")
            for load in LOADS:
                for found in _check(place, load, known):
                    tell(f"{found} {found.ratio:.2f}")
                    yield found


@dataclass(frozen=True, slots=True)
class _Ran:
    """A load, what groups read of it, and what it took.

    That is told until it was done, and until memtables were written too.
    ``stored`` are the bytes on the disks of all nodes then.
    """

    load: Streams
    read: Work
    used: Reading
    later: Reading
    asked: Requests
    stored: int


def _check(place: Place, load: Streams, known: Coefficients) -> Iterator[Checked]:
    cluster, shape = f"{len(place.nodes)} node(s), {place.replicas} replica(s)", load.shape
    said = f"{shape.messages // _INTERVAL:,}/s of {shape.size:,} B"
    rows = list(_wire(place, shape, known)) if load.partitions == 1 else []
    if load.partitions > 1:
        said += f", {load.partitions} partitions by key, {load.groups} groups"
    for what, unit, predicted, measured in [*rows, *_compared(place, _run(place, load), known)]:
        yield Checked(cluster, said, what, unit, predicted, measured)


def _run(place: Place, load: Streams) -> _Ran:
    place.clear()
    shape, is_by_key = load.shape, load.partitions > 1
    order = Order.KEY if is_by_key else Order.NONE
    queue = place.new_queue(partitions=load.partitions, order=order)
    files = Files(place, keyed_messages(shape) if is_by_key else random_messages(shape))
    files.add(shape.tasks * _WARM_UP)
    often = {"processingTime": f"{_INTERVAL} seconds"}
    frame = files.frame(place, shape.tasks)
    writer = start(place, frame, "cassieq", {"queue": queue.name}, **often)
    wait_for(writer, shape.messages)
    readers = []
    for group in range(load.groups):
        per_task = shape.messages // load.reader_tasks
        reading = read_frame(place, queue, 10 * shape.messages, per_task, group=f"g{group}")
        readers.append(start(place, reading, "noop", {}, **often))
    for reader in readers:
        wait_for(reader, shape.messages * _WARM_UP)
    place.flush()
    batches, asked, before = sum(map(_batches, readers)), place.requests(), place.read()
    files.add(shape.tasks * shape.batches)
    for reader in readers:
        wait_for(reader, shape.messages * (_WARM_UP + shape.batches))
    # The last batch is acked when the reader looks for the next one.
    time.sleep(_INTERVAL)
    used = place.read() - before
    asked = place.requests() - asked
    # Memtables are written out later, and by threads that are told apart.
    place.flush()
    later = place.read() - before
    batches = sum(map(_batches, readers)) - batches
    for query in (*readers, writer):
        query.stop()
    return _Ran(load, load.read(batches), used, later, asked, place.stored())


def _compared(place: Place, ran: _Ran, known: Coefficients) -> Iterator[_Row]:
    publish, read = ran.load.published(), ran.read
    replicas, nodes = place.replicas, len(place.nodes)
    cpu, later, written = ran.used.cpu, ran.later.cpu, ran.later.written
    new = costs.disk_bytes(publish, known) * replicas
    stored = new * (1 + _WARM_UP / ran.load.shape.batches)
    files = stored / nodes / (known["disk.flushed"] * _MEMTABLES_MIB * 2**20)
    times = costs.rewrites(files, known)
    of_nodes = sum(
        costs.cassandra_seconds(operation, work, replicas, known)
        for operation, work in ((PUBLISH, publish), (READ, read))
    )
    of_nodes += costs.storing_seconds(new, times, known)
    of_nodes += known["idle.node"] * nodes * ran.used.wall
    measured = cpu[CASSANDRA] + later[FLUSH] + later[COMPACTION]
    yield "processor time, Cassandra", "s", of_nodes, measured
    of_spark = costs.client_seconds(PUBLISH, publish, known)
    of_spark += costs.client_seconds(READ, read, known)
    of_spark += (1 + ran.load.groups) * known["idle.query"] * ran.used.wall
    yield "processor time, Spark", "s", of_spark, cpu[SPARK]
    log = costs.log_bytes(publish, known) * replicas
    yield "commit log", "MB", log / 1e6, ran.used.written[LOG] / 1e6
    yield "new files", "MB", new / 1e6, written[FLUSH] / 1e6
    yield STEPS, "MB", new * times / 1e6, written[COMPACTION] / 1e6
    yield "on disk", "MB", stored / 1e6, ran.stored / 1e6
    lwts = known["count.publish.lwts"] * publish.lwt + known["count.read.lwts"] * read.lwt
    yield "LWTs", "", lwts, ran.asked.lwts
    if nodes > 1:
        between = costs.node_bytes(PUBLISH, publish, replicas, known)
        between += costs.node_bytes(READ, read, replicas, known)
        yield "between nodes", "MB", between / 1e6, ran.asked.between / 1e6


def _batches(query: StreamingQuery) -> int:
    return sum(1 for each in query.recentProgress if each.numInputRows)


def _wire(place: Place, shape: Shape, known: Coefficients) -> Iterator[_Row]:
    """Without Spark, whose sockets are not this program's."""
    trial = StoreTrial(place, replace(shape, batches=_WIRE_BATCHES, tasks=1))
    for operation, done in ((PUBLISH, trial.publish()), (READ, trial.read())):
        predicted = costs.wire_bytes(operation, done.work, known)
        what = f"client and Cassandra, {operation}"
        yield what, "MB", predicted / 1e6, done.costs["wire"] / 1e6
