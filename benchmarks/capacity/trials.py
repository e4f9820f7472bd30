"""The trials that coefficients are fitted on: the bare store, a Spark, LWTs, old files."""

from __future__ import annotations

import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from benchmarks.capacity.fit import Trial
from benchmarks.capacity.place import CASSANDRA, COMPACTION, FLUSH, LOG, SPARK, Place
from benchmarks.growth import Environment
from cassieq_spark.arrow.rows import PlainRows
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.partitions import create_groups
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, SinkBatch
from cassieq_spark.planning.costs import Work
from cassieq_spark.producer.blocks import new_block_id, write_block
from cassieq_spark.producer.publisher import publish_written, write_partition
from cassieq_spark.queues import ledgers_of, read_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader

_GROUP = "g"
_LOOK_SECONDS = 0.2
_LONGEST_SECONDS = 240.0
_TASK = 1_000_000
_KEYS, _KEY_BYTES = 1000, 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Batches of a trial: bytes of a message, messages of a batch, tasks or blocks, batches."""

    size: int
    messages: int
    tasks: int
    batches: int

    def work(self, stored: float | None = None) -> Work:
        """All batches together."""
        messages, blocks = self.messages * self.batches, self.tasks * self.batches
        return Work(
            message=messages,
            raw=messages * self.size,
            stored=messages * self.size if stored is None else stored,
            task=blocks,
            block=blocks,
            batch=self.batches,
            lwt=self.batches,
        )


#: What is written and read without Spark, which tells what Cassandra does.
STORE = (
    Shape(100, 60_000, 1, 8),
    Shape(1000, 15_000, 1, 8),
    Shape(10_000, 1500, 1, 8),
    Shape(100, 10, 1, 150),
    Shape(100, 1000, 40, 10),
)
#: What warms Cassandra up: its code for LWTs takes longest to be compiled.
WARM_UP = (Shape(100, 60_000, 1, 8), Shape(1000, 15_000, 1, 8), Shape(100, 10, 1, 600))
#: The same with Spark.
STREAMS = (
    Shape(100, 100_000, 2, 5),
    Shape(1000, 40_000, 2, 5),
    Shape(10_000, 4000, 2, 5),
    Shape(1000, 100, 1, 15),
    Shape(1000, 4000, 8, 6),
)


def random_messages(shape: Shape) -> pa.RecordBatch:
    """Messages of a task that cannot be compressed."""
    count = shape.messages // shape.tasks
    data = os.urandom(count * shape.size)
    values = [data[at : at + shape.size] for at in range(0, len(data), shape.size)]
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def keyed_messages(shape: Shape) -> pa.RecordBatch:
    """The same with keys, whose bytes are of those of a message: each partition has some."""
    plain = random_messages(replace(shape, size=shape.size - _KEY_BYTES))
    keys = [b"%0*d" % (_KEY_BYTES, number % _KEYS) for number in range(plain.num_rows)]
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": plain["value"]})


class StoreTrial:
    """Publishes and reads batches of one shape, as tasks and drivers do, but without Spark."""

    def __init__(self, place: Place, shape: Shape) -> None:
        self._place, self._shape = place, shape
        self._queue = place.new_queue()
        self._messages = random_messages(shape)
        self._wire = Environment(place.store, place.cql, self._messages)  # type: ignore[arg-type]
        self._stored = 0.0

    def publish(self) -> Trial:
        """Publish all batches."""
        place = self._place
        place.clear()
        with measured(place, self._wire) as found:
            for number in range(self._shape.batches):
                batch = SinkBatch("query:capacity", number)
                queue = read_queue(place.store, self._queue.name)
                written = [
                    write_partition(place.store, queue, [self._messages], batch)
                    for _ in range(self._shape.tasks)
                ]
                self._stored += sum(block.size for each in written for block in each.blocks)
                publish_written(place.store, written)
        found["disk"] = place.stored()
        return Trial("publish", self._shape.work(self._stored), place.replicas, found)

    def read(self) -> Trial:
        """Read and ack all of them."""
        place, shape = self._place, self._shape
        create_groups(ledgers_of(place.store, self._queue), _GROUP, "earliest")
        request = LeaseRequest(lease=self._queue.lease)
        with measured(place, self._wire, flush=False) as found:
            reader = QueueReader(
                place.store, self._queue, _GROUP, starting="earliest", request=request
            )
            count = 0
            end: Mapping[str, Any] = initial_offset(self._queue.name, _GROUP)
            while count < shape.messages * shape.batches:
                end = reader.next_batch(end, limit=shape.messages)
                for (part,) in reader.tasks(end, messages_per_task=_TASK):
                    as_rows = PlainRows(self._queue.name, include_headers=False)
                    rows = fetch(place.store, part.queue, part.pieces, as_rows)
                    count += sum(each.num_rows for each in rows)
            reader.next_batch(end, limit=shape.messages)
            reader.stop()
        # The last batch is acked by an LWT of its own.
        work = replace(shape.work(self._stored), lwt=shape.batches + 1)
        return Trial("read", work, place.replicas, found)

    def repair(self) -> tuple[Trial, Trial]:
        """Delete what is settled, and scan; the same messages again are published first."""
        place, work = self._place, self._shape.work(self._stored)
        trials = []
        for operation, steps in (("scan", [Step.AUDIT]), ("delete", [Step.FINALISE])):
            with measured(place, self._wire, flush=operation == "delete") as found:
                report = run_once(place.store, scan=DriverScan(place.store), steps=steps)
            failed = [each.error for each in report.queues.values() if each.error]
            if failed:
                raise AssertionError(f"the repair failed: {failed}")
            trials.append(Trial(operation, work, place.replicas, found))
        scan, delete = trials
        return scan, delete


@contextmanager
def measured(place: Place, wire: Environment, *, flush: bool = True) -> Iterator[dict[str, float]]:
    """The cost of the block for each figure; it is filled in when the block ends."""
    found: dict[str, float] = {}
    place.settle()
    asked, moved = place.requests(), wire.bytes_moved()
    before = place.read()
    yield found
    used, moved = place.read() - before, wire.bytes_moved() - moved
    asked = place.requests() - asked
    if flush:
        place.flush()
    # Memtables are written out later, and by threads that are told apart.
    later = place.read() - before
    found |= {**used.cpu, "wall": used.wall, LOG: used.written[LOG], "wire": moved}
    found |= {FLUSH: later.cpu[FLUSH], f"{FLUSH} bytes": later.written[FLUSH]}
    found |= {"lwts": asked.lwts, "reads": asked.reads, "between": asked.between}


def store_trials(place: Place, rounds: int, tell: Callable[[str], None]) -> list[Trial]:
    """All shapes, and on one node their repair; the first round warms Cassandra up."""
    found: list[Trial] = []
    for number in range(rounds + 1):
        for shape in random.sample(STORE, len(STORE)) if number else WARM_UP:
            trial = StoreTrial(place, shape)
            new = [trial.publish(), trial.read()]
            if place.replicas == 1 and number and shape in STORE[:3]:
                new += trial.repair()
            tell(f"{'' if number else 'warm-up, '}{len(place.nodes)} node(s), {shape}")
            found += new if number else []
    return found


def idle_cores(place: Place, seconds: float = 5.0) -> float:
    """Cores of a node that has nothing to do."""
    place.settle()
    before = place.read()
    time.sleep(seconds)
    used = place.read() - before
    return used.cpu[CASSANDRA] / used.wall / len(place.nodes)


def lwt_trial(place: Place, times: int = 400, partitions: int = 24) -> dict[str, float]:
    """Publishes of empty blocks: to one partition, and to many at the same time."""
    queues = [place.new_queue() for _ in range(partitions)]

    def work(queue: QueueDefinition, count: int) -> None:
        for _ in range(count):
            publish(Ledger(place.store, queue.queue_id), [PendingBlock(new_block_id(), 1, 1)])

    work(queues[0], times // 2)
    before = place.read()
    work(queues[0], times)
    one = place.read() - before
    before = place.read()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda queue: work(queue, 2 * times // partitions), queues))
    many = place.read() - before
    each = many.cpu[CASSANDRA] / (2 * times // partitions * partitions)
    return {
        "lwt.partition": times / one.wall,
        "lwt.cassandra": one.cpu[CASSANDRA] / times,
        "lwt.core": 1 / each,
    }


class StreamTrial:
    """Streams of one shape: each begins with a batch that does not count."""

    def __init__(self, place: Place, shape: Shape) -> None:
        self._place, self._shape = place, shape

    def publish(self) -> Trial:
        """A stream of files into a queue."""
        shape, place = self._shape, self._place
        files = Files(place, random_messages(shape))
        files.add(shape.tasks)
        frame = files.frame(place, shape.tasks)
        query = start(place, frame, "cassieq", {"queue": place.new_queue().name})
        work = self._run(query, lambda: files.add(shape.tasks * shape.batches))
        return self._end(query, "publish", work)

    def read(self) -> Trial:
        """A stream of a queue into nothing; all but the first batch are published by one LWT."""
        shape, place = self._shape, self._place
        queue = place.new_queue()
        messages = random_messages(shape)
        blocks = [
            write_block(place.store, queue, [messages], SinkOptions(queue=queue.name))
            for _ in range(shape.tasks * (shape.batches + 1))
        ]
        ledger = Ledger(place.store, queue.queue_id)
        publish(ledger, blocks[: shape.tasks])
        per_task = shape.messages // shape.tasks
        query = start(place, read_frame(place, queue, shape.messages, per_task), "noop", {})
        work = self._run(query, lambda: publish(ledger, blocks[shape.tasks :]))
        return self._end(query, "read", work)

    def idle(self, seconds: float = 6.0) -> float:
        """Cores of a query to which nothing comes."""
        place = self._place
        query = start(place, read_frame(place, place.new_queue(), 100, 100), "noop", {})
        time.sleep(seconds)
        before = place.read()
        time.sleep(seconds)
        used = place.read() - before
        query.stop()
        return used.cpu[SPARK] / used.wall

    def _run(self, query: StreamingQuery, release: Callable[[], object]) -> Mapping[str, float]:
        shape = self._shape
        wait_for(query, shape.messages)
        before = self._place.read()
        release()
        wait_for(query, shape.messages * (shape.batches + 1))
        return (self._place.read() - before).cpu

    def _end(self, query: StreamingQuery, operation: str, used: Mapping[str, float]) -> Trial:
        batches = len([each for each in query.recentProgress if each.numInputRows]) - 1
        query.stop()
        shape = self._shape
        work = replace(shape.work(), batch=batches, lwt=batches)
        return Trial(operation, work, self._place.replicas, used)


class Files:
    """A folder of files of messages, each a task of a micro-batch, which grows."""

    def __init__(self, place: Place, messages: pa.RecordBatch) -> None:
        self.folder = place.new_folder()
        self.folder.mkdir()
        self._first = place.folder / f"{self.folder.name}.parquet"
        pq.write_table(pa.table(messages), self._first, compression="none", use_dictionary=False)
        self._schema = ", ".join(f"{name} binary" for name in messages.schema.names)
        self._count = 0

    def add(self, count: int) -> None:
        """Add so many files."""
        for _ in range(count):
            self._count += 1
            os.link(self._first, self.folder / f"{self._count:06}.parquet")

    def frame(self, place: Place, tasks: int) -> DataFrame:
        """A stream of them, so many a micro-batch."""
        assert place.spark is not None  # noqa: S101 (asked for)
        source = place.spark.readStream.schema(self._schema)
        source = source.option("maxFilesPerTrigger", tasks)
        return source.parquet(str(self.folder))


def read_frame(
    place: Place, queue: QueueDefinition, messages: int, per_task: int, *, group: str = _GROUP
) -> DataFrame:
    """A stream of a queue, so many messages a micro-batch, and so many a task."""
    assert place.spark is not None  # noqa: S101 (asked for)
    source = place.spark.readStream.format("cassieq").options(
        queue=queue.name,
        group=group,
        startingPosition="earliest",
        maxMessagesPerTrigger=str(messages),
        messagesPerTask=str(per_task),
        **{"spark.cassandra.connection.host": place.hosts},
    )
    return source.load()


def start(
    place: Place, frame: DataFrame, form: str, options: Mapping[str, str], **trigger: Any
) -> StreamingQuery:
    """Start a query."""
    reach = {"spark.cassandra.connection.host": place.hosts} if form == "cassieq" else {}
    writer = frame.writeStream.format(form).options(**options, **reach)
    writer = writer.option("checkpointLocation", str(place.new_folder()))
    return (writer.trigger(**trigger) if trigger else writer).start()


def rows_of(queries: Iterable[StreamingQuery]) -> int:
    """Messages that queries have processed so far."""
    return sum(each.numInputRows for query in queries for each in query.recentProgress)


def wait_for(query: StreamingQuery, messages: int) -> None:
    """Wait until a query has processed so many messages."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while (rows := rows_of([query])) < messages:
        if time.monotonic() > deadline or query.exception() is not None:
            raise AssertionError(f"{rows} of {messages} messages: {query.exception()}")
        time.sleep(_LOOK_SECONDS)


def stream_trials(
    place: Place, rounds: int, tell: Callable[[str], None]
) -> tuple[list[Trial], float]:
    """All shapes, and the cores of a query that waits; the first shapes warm Spark up."""
    found: list[Trial] = []
    for number, shape in enumerate([*STREAMS[:2], *STREAMS * rounds]):
        trial = StreamTrial(place, shape)
        new = [trial.publish(), trial.read()]
        is_warm_up = number < len(STREAMS[:2])
        tell(f"{'warm-up, ' if is_warm_up else ''}Spark, {shape}")
        found += [] if is_warm_up else new
    return found, StreamTrial(place, STREAMS[0]).idle()


def churn_trial(place: Place, memtables_mib: int, kept: int = 64 << 20) -> dict[str, float]:
    """Write messages at one end and delete them at the other, with small memtables.

    How much they are does not matter, only how many files they fill: compaction merges four files
    of about one size, and what is deleted leaves the disk when its file is merged.
    """
    queue, blocks = place.new_queue(), deque[tuple[UUID, int]]()
    messages = random_messages(Shape(1000, 2000, 1, 1))
    stored = 0

    def turn() -> None:
        """Replace all that is kept, three times."""
        nonlocal stored
        written = 0
        while written < 3 * kept:
            block = write_block(place.store, queue, [messages], SinkOptions(queue=queue.name))
            blocks.append((block.block, block.size))
            stored, written = stored + block.size, written + block.size
            while stored > kept:
                oldest, size = blocks.popleft()
                place.store.delete_buckets(queue.queue_id, [(oldest, 0)])
                stored -= size
            place.catch_up()
            files.append(place.files())

    files: list[list[int]] = []
    turn()
    before = place.read()
    files.clear()
    turn()
    place.settle()
    used = place.read() - before
    # The smallest ones are new; a rest that compaction has left may be smaller still.
    sizes = sorted(size for each in files for size in each if size > 1 << 20)
    new = sizes[len(sizes) // 20]
    most = max(map(sum, files)) / kept
    return {
        "disk.garbage": most,
        "disk.flushed": new / (memtables_mib << 20),
        "disk.level": used.written[COMPACTION]
        / used.written[FLUSH]
        / math.log(most * kept / new, 4),
        "compaction.byte": used.cpu[COMPACTION] / used.written[COMPACTION],
    }
