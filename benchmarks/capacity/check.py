"""What the model predicts, beside what a load of Spark takes: other sizes than were fitted.

A stream of files into a queue and a stream of that queue into nothing run at the same time, at a
given rate. Each begins with batches that do not count, and each cluster with a load that does not:
a Java that has just started interprets code that it compiles later.
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
    random_messages,
    read_frame,
    start,
    store_trials,
    wait_for,
)
from cassieq_spark.planning import costs
from cassieq_spark.planning.coefficients import Coefficients
from cassieq_spark.planning.costs import PUBLISH, READ, Work

#: Messages and bytes of the fit are 100, 1000 and 10,000, in batches of 100 to 100,000.
LOADS = (Shape(300, 60_000, 2, 10), Shape(3000, 9000, 3, 10))
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
            _run(place, LOADS[0])
            tell("warm-up, streams")
            for shape in LOADS:
                for found in _check(place, shape, known):
                    tell(f"{found} {found.ratio:.2f}")
                    yield found


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a load was, and what it took: until it was done, until memtables were written too.

    ``stored`` are the bytes on the disks of all nodes then.
    """

    publish: Work
    read: Work
    used: Reading
    later: Reading
    asked: Requests
    stored: int


def _check(place: Place, shape: Shape, known: Coefficients) -> Iterator[Checked]:
    cluster = f"{len(place.nodes)} node(s), {place.replicas} replica(s)"
    load = f"{shape.messages // _INTERVAL:,}/s of {shape.size:,} B"
    rows = [*_wire(place, shape, known), *_compared(place, _run(place, shape), known)]
    for what, unit, predicted, measured in rows:
        yield Checked(cluster, load, what, unit, predicted, measured)


def _run(place: Place, shape: Shape) -> _Ran:
    place.clear()
    files, queue = Files(place, random_messages(shape)), place.new_queue()
    files.add(shape.tasks * _WARM_UP)
    often = {"processingTime": f"{_INTERVAL} seconds"}
    frame = files.frame(place, shape.tasks)
    writer = start(place, frame, "cassieq", {"queue": queue.name}, **often)
    wait_for(writer, shape.messages)
    reading = read_frame(place, queue, 10 * shape.messages, shape.tasks)
    reader = start(place, reading, "noop", {}, **often)
    wait_for(reader, shape.messages * _WARM_UP)
    place.flush()
    batches, asked, before = _batches(reader), place.requests(), place.read()
    files.add(shape.tasks * shape.batches)
    wait_for(reader, shape.messages * (_WARM_UP + shape.batches))
    # The last batch is acked when the reader looks for the next one.
    time.sleep(_INTERVAL)
    used = place.read() - before
    asked = place.requests() - asked
    # Memtables are written out later, and by threads that are told apart.
    place.flush()
    later = place.read() - before
    batches = _batches(reader) - batches
    for query in (reader, writer):
        query.stop()
    publish = shape.work()
    # A batch of the reader has the blocks of those that the writer has published meanwhile.
    read = replace(publish, batch=batches, lwt=batches, task=batches * shape.tasks)
    return _Ran(publish, read, used, later, asked, place.stored())


def _compared(place: Place, ran: _Ran, known: Coefficients) -> Iterator[_Row]:
    publish, read, replicas, nodes = ran.publish, ran.read, place.replicas, len(place.nodes)
    cpu, later, written = ran.used.cpu, ran.later.cpu, ran.later.written
    new = costs.disk_bytes(publish, known) * replicas
    stored = new * (1 + _WARM_UP / LOADS[0].batches)
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
    of_spark += 2 * known["idle.query"] * ran.used.wall
    yield "processor time, Spark", "s", of_spark, cpu[SPARK]
    log = costs.log_bytes(publish, known) * replicas
    yield "commit log", "MB", log / 1e6, ran.used.written[LOG] / 1e6
    yield "new files", "MB", new / 1e6, written[FLUSH] / 1e6
    yield STEPS, "MB", new * times / 1e6, written[COMPACTION] / 1e6
    yield "on disk", "MB", stored / 1e6, ran.stored / 1e6
    lwts = known["count.publish.lwts"] * publish.batch + known["count.read.lwts"] * read.batch
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
