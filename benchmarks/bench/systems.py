"""How Spark writes to and reads from each system; only the options differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from benchmarks.bench import processor
from benchmarks.bench.lab import KEYSPACE, Lab
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import read_queue

CASSIEQ = "cassieq-spark"
KAFKA = "Kafka"
KAFKA_TUNED = "Kafka tuned"
KAFKA_LZ4 = "Kafka tuned, lz4"
KAFKA_ZSTD = "Kafka tuned, zstd"
APPEND = "Cassandra Connector tuned"

#: Requests of 1 MiB instead of 16 KiB, as of a writer of chunks.
_WRITES_TUNED = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20"}
#: Without it, a fetch that finds nothing waits for half a second.
_READS_TUNED = {"kafka.fetch.max.wait.ms": "10"}


@dataclass(frozen=True, slots=True)
class System:
    """One way to move messages with Spark.

    Attributes:
        name: The name in tables.
        form: Spark's ``format``.
        place: The options that name the queue or topic, of a write and of a read.
        limit: The option that limits a micro-batch.
        server: The server whose processor time counts; see `processor`.
        new: Creates a queue or topic.
        drop: Deletes it.
        writing: Further options of a write.
        reading: Further options of a read, by queue or topic.
    """

    name: str
    form: str
    place: tuple[str, str]
    limit: str
    server: str
    new: Callable[[], str]
    drop: Callable[[str], None]
    writing: Mapping[str, str] = field(default_factory=dict)
    reading: Callable[[str], Mapping[str, str]] = lambda _: {}

    def write_options(self, place: str) -> dict[str, str]:
        return {self.place[0]: place, **self.writing}

    def read_options(self, place: str, limit: int | None) -> dict[str, str]:
        """Options of a stream that reads a queue or topic, ``limit`` messages a batch."""
        limited = {} if limit is None else {self.limit: str(limit)}
        return {self.place[1]: place, **self.reading(place), **limited}


def systems_of(lab: Lab) -> dict[str, System]:
    return {
        CASSIEQ: _cassieq(lab),
        KAFKA: _kafka(lab, KAFKA, {}, {}),
        KAFKA_TUNED: _kafka(lab, KAFKA_TUNED, _WRITES_TUNED, _READS_TUNED),
        **{
            name: _kafka(
                lab, name, {**_WRITES_TUNED, "kafka.compression.type": codec}, _READS_TUNED
            )
            for name, codec in ((KAFKA_LZ4, "lz4"), (KAFKA_ZSTD, "zstd"))
        },
    }


def cassieq_options(lab: Lab) -> dict[str, str]:
    """The options that name the cluster."""
    name, _, port = lab.host.partition(":")
    return {
        "spark.cassandra.connection.host": name,
        "spark.cassandra.connection.port": port,
        "keyspace": KEYSPACE,
    }


def _cassieq(lab: Lab) -> System:
    reach = cassieq_options(lab)
    return System(
        name=CASSIEQ,
        form="cassieq",
        place=("queue", "queue"),
        limit="maxMessagesPerTrigger",
        server=processor.CASSANDRA,
        new=lab.new_queue,
        drop=lambda _: None,
        writing=reach,
        reading=lambda queue: reach | {"group": new_group(lab, queue)},
    )


def new_group(lab: Lab, queue: str) -> str:
    """Create a group, which gets all messages; before the measurement, as it is done once."""
    group = f"g-{uuid4().hex[:12]}"
    queue_id = read_queue(lab.store, queue).queue_id
    ensure_group(ConsumerGroup(Ledger(lab.store, queue_id), group), starting="earliest")
    return group


def _kafka(lab: Lab, name: str, writes: Mapping[str, str], reads: Mapping[str, str]) -> System:
    reach = {"kafka.bootstrap.servers": lab.broker}
    return System(
        name=name,
        form="kafka",
        place=("topic", "subscribe"),
        limit="maxOffsetsPerTrigger",
        server=processor.KAFKA,
        new=lab.topics.create,
        drop=lab.topics.delete,
        writing={**reach, **writes},
        reading=lambda _: {**reach, "startingOffsets": "earliest", **reads},
    )
