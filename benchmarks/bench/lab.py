"""The servers and Spark of a benchmark, which run during a ``with`` block."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from cassandra.cluster import Session
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import trials.spark
from benchmarks.bench.jars import AVRO, BROKER, CASSANDRA_CONNECTOR, KAFKA_CONNECTOR, resolve
from benchmarks.bench.processor import Processor
from cassieq_spark.errors import SetupError
from cassieq_spark.node.java import find_java
from cassieq_spark.node.ports import PortClaims
from cassieq_spark.queues import create_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store
from trials.environment import cassandra
from trials.processes import Program
from trials.spark import stop_spark

PARTITIONS = 2

_PORTS = range(19300, 19400)
_START_SECONDS = 60
_READY_SECONDS = 10
_LOOK_SECONDS = 0.1
_ADDRESS = "127.0.0.1"
#: The options of bin/kafka-server-start.sh.
_MACHINE = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{address}:{controller}
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker:
    """A Kafka broker during a ``with`` block, with its data in an existing folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims = PortClaims()
        self._held = ExitStack()
        self.address = ""
        self.pid = 0

    def __enter__(self) -> Self:
        port, controller = (self._claims.claim([_ADDRESS], _PORTS) for _ in range(2))
        self.address = f"{_ADDRESS}:{port}"
        settings = self._folder / "server.properties"
        settings.write_text(
            _PROPERTIES.format(
                address=_ADDRESS,
                port=port,
                controller=controller,
                folder=self._folder,
                partitions=PARTITIONS,
            )
        )
        java = [str(find_java()), "-cp", os.pathsep.join(map(str, resolve(BROKER)))]
        storage = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)]
        subprocess.run([*java, *storage], check=True, capture_output=True)
        command = [java[0], *_MACHINE, *java[1:], "kafka.Kafka", str(settings)]
        with ExitStack() as held:
            program = Program("kafka", command, self._folder / "broker.log")
            self._wait(held.enter_context(program), port)
            self._held = held.pop_all()
        self.pid = program.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._claims.release()

    def _wait(self, program: Program, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((_ADDRESS, port)) == 0:
                    return
            if program.exit_code is not None:
                break
            time.sleep(_LOOK_SECONDS)
        raise SetupError(f"Kafka did not start: {program.log.read_text(errors='replace')[-2000:]}")


class Topics:
    """Creates and deletes topics, by the client in Spark's connector."""

    def __init__(self, jvm: Any, address: str) -> None:
        self._jvm = jvm
        settings = jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", address)
        self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def create(self) -> str:
        """Create a topic with as many partitions as Spark has cores; returns when it is ready."""
        name = f"t-{uuid4().hex[:12]}"
        kafka = self._jvm.org.apache.kafka
        topic = kafka.clients.admin.NewTopic(name, PARTITIONS, 1)
        self._admin.createTopics([topic]).all().get()
        # A producer may hang for two minutes if a partition is not ready.
        ends = self._jvm.java.util.HashMap()
        for partition in range(PARTITIONS):
            which = kafka.common.TopicPartition(name, partition)
            ends.put(which, kafka.clients.admin.OffsetSpec.latest())
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._admin.listOffsets(ends).all().get()
            except Py4JJavaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SECONDS)
            else:
                return name

    def delete(self, name: str) -> None:
        """Delete a topic, to save disk space."""
        self._admin.deleteTopics([name]).all().get()

    def close(self) -> None:
        self._admin.close()


def _cluster_id() -> str:
    # 16 bytes in URL-safe base 64, without its padding.
    return uuid4().hex[:22]


#: For Cassandra as much as bin/kafka-server-start.sh gives a broker.
HEAP_MB = 1024
KEYSPACE = "cassieq"
CORES = 2

#: For both sides. On a local disk, Spark's default starts some thirty processes for each batch.
FILE_MANAGER = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    )
}
_RECOMMENDED = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
_LONGEST_SETTLE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Lab:
    """All that runs.

    Attributes:
        spark: The session for all systems.
        host: Cassandra, as ``host:port``.
        connection: The same, for a store.
        store: The queue's store.
        cql: A session of the bare driver.
        broker: Kafka, as ``host:port``.
        topics: Creates and deletes topics.
        folder: For checkpoints and payloads.
        processor: Reads the processor time of each process.
    """

    spark: SparkSession
    host: str
    connection: ConnectionOptions
    store: Store
    cql: Session
    broker: str
    topics: Topics
    folder: Path
    processor: Processor

    def new_queue(self) -> str:
        return create_queue(self.store, f"q-{uuid4().hex[:12]}").name

    def new_folder(self) -> str:
        return str(self.folder / uuid4().hex[:12])

    def clear(self) -> None:
        """Delete all messages between contests, so that files do not accumulate."""
        for table in ("cassieq.chunk", "bench.rows"):
            self.cql.execute(f"TRUNCATE {table}", timeout=60)

    def settle(self) -> None:
        """Wait until Cassandra has finished the background work of the trial before."""
        deadline = time.monotonic() + _LONGEST_SETTLE_SECONDS
        while time.monotonic() < deadline:
            if not list(self.cql.execute("SELECT keyspace_name FROM system_views.sstable_tasks")):
                return
            time.sleep(_LOOK_SECONDS)


@contextmanager
def open_lab(java: str = "") -> Iterator[Lab]:
    """Start everything; at the end of the block, stop it and remove its files.

    Args:
        java: Further options of Spark's Java.
    """
    with ExitStack() as held:
        folder = Path(tempfile.mkdtemp(prefix="cassieq-bench-"))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("cassandra", "kafka", "spark"):
            (folder / name).mkdir()
        # With a data folder, the node syncs its commit log to disk, as in production.
        nodes = held.enter_context(
            cassandra(KEYSPACE, nodes=1, heap_mb=HEAP_MB, data_dir=folder / "cassandra")
        )
        broker = held.enter_context(Broker(folder / "kafka"))
        driver, cql = connect(nodes.connection)
        held.callback(driver.shutdown)
        _make_rows_table(cql)
        spark = start_spark(folder / "spark", nodes.hosts, java)
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (no other way to its Java)
        held.callback(stop_spark, spark)
        topics = Topics(spark._jvm, broker.address)  # noqa: SLF001 (no other way to its client)
        held.callback(topics.close)
        yield Lab(
            spark,
            nodes.hosts,
            nodes.connection,
            nodes.store,
            cql,
            broker.address,
            topics,
            folder,
            Processor(gateway.proc.pid, nodes.cluster.pid(0), broker.pid),
        )


def start_spark(scratch: Path, host: str, java: str = "") -> SparkSession:
    """Start Spark as recommended in conf/spark-defaults.conf, with the peers' connectors."""
    # Workers must import the modules that they unpickle, in any folder.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    name, _, port = host.partition(":")
    packages = (KAFKA_CONNECTOR, AVRO, CASSANDRA_CONNECTOR)
    jars = [jar for package in packages for jar in resolve(package)]
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{java} -Djava.io.tmpdir={scratch}",
        "spark.jars": ",".join(map(str, jars)),
        "spark.cassandra.connection.host": name,
        "spark.cassandra.connection.port": port,
        "spark.cassandra.output.batch.size.bytes": "65536",
        "spark.cassandra.output.concurrent.writes": "8",
    }
    return trials.spark.start_spark(
        "cassieq-spark bench",
        scratch,
        master=f"local[{CORES}]",
        log_level="OFF",
        settings=settings | recommended_settings() | FILE_MANAGER,
        # Its Python workers print a trace when a reader stops early.
        log=scratch / "spark.log",
    )


def recommended_settings() -> dict[str, str]:
    lines = [line.split("#")[0].split() for line in _RECOMMENDED.read_text().splitlines()]
    return dict(line for line in lines if line)


def _make_rows_table(cql: Session) -> None:
    """The table for the Spark Cassandra Connector, with as many rows in a partition as in a chunk.

    The connector writes a batch for each partition, so this makes it fast.
    """
    cql.execute(
        "CREATE KEYSPACE bench WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    cql.execute(
        "CREATE TABLE bench.rows (part bigint, seq bigint, value blob, PRIMARY KEY (part, seq)) "
        "WITH compression = {'enabled': 'false'}"
    )
