"""The measurements: whole writes and reads, latency, idle streams, single puts, bare driver."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Self
from uuid import UUID, uuid4

import pyarrow.parquet as pq
from cassandra import OperationTimedOut, Timeout
from cassandra.cluster import ResponseFuture, Session
from pyspark.sql import DataFrame

from benchmarks.bench.lab import KEYSPACE, Lab
from benchmarks.bench.payloads import BATCHES, FILES_PER_BATCH, Payload
from benchmarks.bench.processor import SERVERS, Snapshot, since
from benchmarks.bench.progress import Batch, Phases, batches_of, split
from benchmarks.bench.systems import CASSIEQ, System
from benchmarks.lwts import count_lwts
from cassieq_spark import Client
from cassieq_spark.arrow.chunks import Cutter, cut
from cassieq_spark.model import DEFAULT_BUCKET_SIZE, DEFAULT_CHUNK_SIZE, Chunk
from cassieq_spark.producer.blocks import new_block_id


@dataclass(frozen=True, slots=True)
class Took:
    """The cost of a whole write or read.

    Attributes:
        messages: The number of messages.
        seconds: From the call to its return, with the start of the query.
        called: The time of the call, in seconds since 1970.
        batches: The micro-batches of a streaming query that had messages.
        cpu: Seconds of processor time, by process, until the servers were idle.
    """

    messages: int
    seconds: float
    called: float = 0.0
    batches: tuple[Batch, ...] = ()
    cpu: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def phases(self) -> Phases:
        return split(self.batches, self.called)

    @property
    def rate_inside(self) -> float:
        return self.messages * 1000 / sum(each.ms for each in self.batches)

    def by_process(self, measure: str, *, per: float, server: str) -> dict[str, float]:
        """Processor time in all and by process, divided by ``per``; of servers only of one.

        >>> took = Took(10, 1.0, cpu={"Python": 3.0, "Cassandra": 1.0, "Kafka": 9.0})
        >>> took.by_process("s", per=1, server="Cassandra")
        {'s': 4.0, 's, Python': 3.0, 's, Cassandra': 1.0}
        """
        ours = {
            f"{measure}, {name}": seconds / per
            for name, seconds in self.cpu.items()
            if name not in SERVERS or name == server
        }
        return {measure: sum(ours.values()), **ours}


def write_batch(lab: Lab, system: System, payload: Payload, place: str) -> Took:
    frame = lab.spark.read.schema("value binary").parquet(payload.files(max(BATCHES)))
    before, began = lab.processor.read(), time.perf_counter()
    frame.write.format(system.form).options(**system.write_options(place)).mode("append").save()
    seconds = time.perf_counter() - began
    return Took(payload.count, seconds, cpu=used(lab, before))


def append_rows(lab: Lab, payload: Payload) -> Took:
    """Write each message as a row with the Spark Cassandra Connector."""
    frame = lab.spark.read.schema("value binary").parquet(payload.files(max(BATCHES)))
    began = time.perf_counter()
    numbered = frame.selectExpr("monotonically_increasing_id() as seq", "value")
    rows = numbered.selectExpr("seq div 512 as part", "seq", "value")
    writer = rows.write.format("org.apache.spark.sql.cassandra")
    writer.options(keyspace="bench", table="rows").mode("append").save()
    return Took(payload.count, time.perf_counter() - began)


def write_stream(
    lab: Lab, system: System, payload: Payload, place: str, *, batch: int, times: int = 1
) -> Took:
    """Write all messages ``times`` times by a streaming query, ``batch`` per micro-batch."""
    source = lab.spark.readStream.schema("value binary")
    source = source.option("maxFilesPerTrigger", FILES_PER_BATCH)
    frame = source.parquet(payload.files(batch) if times == 1 else payload.repeated(batch, times))
    options = system.write_options(place)
    return run_stream(lab, frame, payload.count * times, system.form, options)


def read_stream(lab: Lab, system: System, place: str, *, messages: int, batch: int | None) -> Took:
    """Read all messages with a streaming query that ends, and drop them."""
    frame = load_stream(lab, system, system.read_options(place, batch))
    return run_stream(lab, frame, messages, "noop", {})


def load_stream(lab: Lab, system: System, options: Mapping[str, str]) -> DataFrame:
    return lab.spark.readStream.format(system.form).options(**options).load()


def run_stream(
    lab: Lab, frame: DataFrame, messages: int, form: str, options: dict[str, str]
) -> Took:
    """Run a stream to its end, with AvailableNow."""
    before, called, began = lab.processor.read(), time.time(), time.perf_counter()
    writer = frame.writeStream.format(form).options(**options)
    writer = writer.option("checkpointLocation", lab.new_folder())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    batches = batches_of(query.recentProgress)
    rows = sum(each.rows for each in batches)
    if rows != messages:
        raise AssertionError(f"there were {messages} messages, and {rows} were read")
    return Took(messages, seconds, called, batches, used(lab, before))


def used(lab: Lab, before: Snapshot) -> dict[str, float]:
    """Processor time since a reading, with the background work of the servers."""
    lab.settle()
    return since(before, lab.processor.read())


Send = Callable[[bytes], object]

#: Not counted: the query has just begun.
_FIRST = 3
#: From the arrival of one message to the sending of the next.
_PAUSE_SECONDS = (0.05, 0.35)
_LONGEST_SECONDS = 60.0
_SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"


class Arrivals:
    """The time at which the query's program got each message."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at: dict[int, float] = {}

    def take(self, frame: DataFrame, _: int) -> None:
        numbers = [int(row.value) for row in frame.select("value").collect()]
        with self._changed:
            self._at.update(dict.fromkeys(numbers, time.perf_counter()))
            self._changed.notify_all()

    def wait_for(self, number: int) -> float:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._at, _LONGEST_SECONDS):
                raise AssertionError(f"message {number} did not arrive in {_LONGEST_SECONDS} s")
            return self._at[number]


def measure_latency(lab: Lab, system: System, *, messages: int, seed: int) -> float:
    """Send messages one by one to a query with the default trigger; returns the median in ms."""
    chance = random.Random(seed)
    place = system.new()
    took = []
    with sender_to(lab, system, place) as send, _running(lab, system, place) as arrivals:
        for number in range(messages + _FIRST):
            began = time.perf_counter()
            send(str(number).encode())
            took.append(arrivals.wait_for(number) - began)
            # Messages must not always come at the same moment of the query's loop.
            time.sleep(chance.uniform(*_PAUSE_SECONDS))
    system.drop(place)
    return statistics.median(took[_FIRST:]) * 1000


def measure_idle(lab: Lab, system: System, *, seconds: float) -> dict[str, float]:
    """The requests of an idle query to Cassandra in a second."""
    place = system.new()
    with sender_to(lab, system, place) as send, _running(lab, system, place) as arrivals:
        send(b"0")
        arrivals.wait_for(0)
        # Until it has acked that message and is idle.
        time.sleep(seconds)
        before, began = Counts.read(lab.cql), time.perf_counter()
        time.sleep(seconds)
        return Counts.read(lab.cql).since(before, per=time.perf_counter() - began)


@contextmanager
def sender_to(lab: Lab, system: System, place: str) -> Iterator[Send]:
    """A function that publishes one message and returns when it is stored."""
    if system.name == CASSIEQ:
        with Client.from_store(lab.store) as client:
            yield lambda value: client.put(place, value)
        return
    jvm: Any = lab.spark._jvm  # noqa: SLF001 (its client is there already)
    settings = jvm.java.util.Properties()
    settings.setProperty("bootstrap.servers", lab.broker)
    for side in ("key", "value"):
        settings.setProperty(f"{side}.serializer", _SERIALIZER)
    clients = jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(settings)
    try:
        yield lambda value: producer.send(clients.ProducerRecord(place, bytearray(value))).get()
    finally:
        producer.close()


@contextmanager
def _running(lab: Lab, system: System, place: str) -> Iterator[Arrivals]:
    arrivals = Arrivals()
    frame = load_stream(lab, system, system.read_options(place, None))
    writer = frame.writeStream.foreachBatch(arrivals.take)
    query = writer.option("checkpointLocation", lab.new_folder()).start()
    try:
        yield arrivals
    finally:
        query.stop()


_VALUE = bytes(range(256)) * 4
_INSERT = "INSERT INTO bench.rows (part, seq, value) VALUES (?, ?, ?)"


def put_through_producer(lab: Lab, *, threads: int, seconds: float) -> float:
    """Messages a second that threads put one by one; each waits until its message is stored."""
    with Client.from_store(lab.store) as client, client.producer(lab.new_queue()) as producer:
        return _repeat(lambda: producer.put(_VALUE).result(), threads=threads, seconds=seconds)


def insert_rows(lab: Lab, *, threads: int, seconds: float) -> float:
    """Rows a second that threads insert one by one with the bare driver."""
    statement = lab.cql.prepare(_INSERT)
    part, numbers = uuid4().int >> 66, count()
    return _repeat(
        lambda: lab.cql.execute(statement, (part, next(numbers), _VALUE)),
        threads=threads,
        seconds=seconds,
    )


def _repeat(call: Callable[[], object], *, threads: int, seconds: float) -> float:

    def repeat(_: int) -> int:
        done = 0
        while time.perf_counter() < until:
            call()
            done += 1
        return done

    call()
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        until = began + seconds
        done = sum(pool.map(repeat, range(threads)))
        return done / (time.perf_counter() - began)


_QUERY = "SELECT keyspace_name, table_name, count FROM system_views.{}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of requests to Cassandra.

    Attributes:
        lwts: Lightweight transactions; see `count_lwts`.
        reads: Reads of ledgers, group states and queues.
        chunk_writes: Writes of messages.
        chunk_reads: Reads of messages.
    """

    lwts: float
    reads: float
    chunk_writes: float
    chunk_reads: float

    @classmethod
    def read(cls, cql: Session) -> Self:
        """The counts since the start of the node."""
        reads, writes = (_counts(cql, f"coordinator_{kind}_latency") for kind in ("read", "write"))
        ours = {table: count for (space, table), count in reads.items() if space == KEYSPACE}
        chunk_reads = ours.pop("chunk", 0)
        return cls(
            lwts=count_lwts(cql),
            reads=sum(ours.values()),
            chunk_writes=writes.get((KEYSPACE, "chunk"), 0),
            chunk_reads=chunk_reads,
        )

    def since(self, before: Counts, *, per: float = 1) -> dict[str, float]:
        """The difference to earlier counts, divided by ``per``."""
        return {
            each.name: (getattr(self, each.name) - getattr(before, each.name)) / per
            for each in fields(self)
        }


def _counts(cql: Session, view: str) -> dict[tuple[str, str], int]:
    return {(space, table): count for space, table, count in cql.execute(_QUERY.format(view))}


#: The fastest here: more requests overload the driver's one connection.
_WRITES_IN_FLIGHT = 4
_READS_IN_FLIGHT = 3
_CHUNKS_PER_PAGE = 8
_TIMED_OUT = (OperationTimedOut, Timeout)
_PATIENCE_SECONDS = 30

_WRITE = "INSERT INTO cassieq.chunk (queue_id, block, bucket, start, stop, data) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: E501
_READ = (
    "SELECT start, stop, data FROM cassieq.chunk WHERE queue_id = ? AND block = ? AND bucket = ?"
)
_QUEUE = "bench@0"


class Limit:
    """Writes and reads of the bare driver, with the chunks of one payload, cut beforehand."""

    def __init__(self, lab: Lab, payload: Payload) -> None:
        self._cql = lab.cql
        self._write = lab.cql.prepare(_WRITE)
        self._read = lab.cql.prepare(_READ)
        self._read.fetch_size = _CHUNKS_PER_PAGE
        self._count = payload.count
        batches = pq.read_table(payload.files(max(BATCHES))).to_batches()
        self._chunks = list(cut(batches, _default_cutter()))
        self._block: UUID | None = None

    def write(self) -> Took:
        """Write the chunks, a few at a time."""
        self._block = block = new_block_id()
        began = time.perf_counter()
        values = ((_QUEUE, block, *_columns(chunk)) for chunk in self._chunks)
        for _ in self._pipeline(self._write, values, _WRITES_IN_FLIGHT):
            pass
        return Took(self._count, time.perf_counter() - began)

    def read(self) -> Took:
        """Read the chunks, a few buckets at a time, and drop them."""
        if self._block is None:
            self.write()
        buckets = dict.fromkeys(chunk.bucket for chunk in self._chunks)
        began = time.perf_counter()
        wanted = ((_QUEUE, self._block, bucket) for bucket in buckets)
        rows = [
            row for page in self._pipeline(self._read, wanted, _READS_IN_FLIGHT) for row in page
        ]
        seconds = time.perf_counter() - began
        if len(rows) != len(self._chunks):
            raise AssertionError(f"there were {len(self._chunks)} chunks, {len(rows)} were read")
        return Took(self._count, seconds)

    def _pipeline(
        self, statement: Any, values: Iterable[tuple[Any, ...]], in_flight: int
    ) -> Iterator[list[Any]]:
        waiting: deque[tuple[ResponseFuture, tuple[Any, ...]]] = deque()
        for each in values:
            waiting.append((self._cql.execute_async(statement, each), each))
            if len(waiting) >= in_flight:
                yield self._rows(statement, *waiting.popleft())
        while waiting:
            yield self._rows(statement, *waiting.popleft())

    def _rows(self, statement: Any, future: ResponseFuture, values: tuple[Any, ...]) -> list[Any]:
        try:
            return list(future.result())
        except _TIMED_OUT:
            # A node that does not answer for seconds must not end the whole run.
            return list(self._cql.execute(statement, values, timeout=_PATIENCE_SECONDS))


def _columns(chunk: Chunk) -> tuple[Any, ...]:
    return chunk.bucket, chunk.start, chunk.stop, chunk.data


def _default_cutter() -> Cutter:
    return Cutter(
        chunk_size=DEFAULT_CHUNK_SIZE,
        bucket_size=DEFAULT_BUCKET_SIZE,
        chunk_bytes=256 << 10,
        compression="lz4",
        max_message_bytes=8 << 20,
    )
