"""What a run needs: a Cassandra, a Kafka and a Spark, side by side on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from cassandra.cluster import Session
from pyspark.sql import SparkSession

from benchmarks.bench.jars import CASSANDRA_CONNECTOR, KAFKA_CONNECTOR, resolve
from benchmarks.bench.kafka import Broker, Topics
from cassieq_spark.node import Cluster
from cassieq_spark.queues import create_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store
from trials.spark import stop_spark

#: As much for Cassandra as bin/kafka-server-start.sh gives a broker.
HEAP_MB = 1024
KEYSPACE = "cassieq"
CORES = 2

_RECOMMENDED = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
_LONGEST_SETTLE_SECONDS = 20.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything that runs.

    Attributes:
        spark: One session for all systems.
        host: Cassandra, as ``host:port``.
        connection: The same, for a store.
        store: The queue's tables.
        cql: A session of the bare driver.
        broker: Kafka, as ``host:port``.
        topics: Makes and deletes topics.
        folder: For checkpoints and payloads.
        cassandra_pid: Process of the node.
    """

    spark: SparkSession
    host: str
    connection: ConnectionOptions
    store: Store
    cql: Session
    broker: str
    topics: Topics
    folder: Path
    cassandra_pid: int

    def new_queue(self) -> str:
        """A queue that nobody has used."""
        return create_queue(self.store, f"q-{uuid4().hex[:12]}").name

    def new_folder(self) -> str:
        """A folder that is not there yet."""
        return str(self.folder / uuid4().hex[:12])

    def clear(self) -> None:
        """Forget all messages; for between contests, so that files do not pile up."""
        for table in ("cassieq.chunk", "bench.rows"):
            self.cql.execute(f"TRUNCATE {table}", timeout=60)

    def settle(self) -> None:
        """Wait until Cassandra has nothing to do that a trial before has left behind."""
        deadline = time.monotonic() + _LONGEST_SETTLE_SECONDS
        while time.monotonic() < deadline:
            if not list(self.cql.execute("SELECT keyspace_name FROM system_views.sstable_tasks")):
                return
            time.sleep(_LOOK_SECONDS)


@contextmanager
def open_lab() -> Iterator[Lab]:
    """Start everything; all of it ends with the block, and its files are removed."""
    with ExitStack() as held:
        folder = Path(tempfile.mkdtemp(prefix="cassieq-bench-"))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("cassandra", "kafka", "spark"):
            (folder / name).mkdir()
        # With a folder of its own, the node syncs its log to disk, as in production.
        cluster = held.enter_context(
            Cluster(nodes=1, heap_mb=HEAP_MB, data_dir=folder / "cassandra")
        )
        broker = held.enter_context(Broker(folder / "kafka"))
        host = f"{cluster.contact_points[0]}:{cluster.port}"
        connection = ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE)
        apply_schema(connection)
        store = open_store(connection)
        held.callback(store.close)
        driver, cql = connect(connection)
        held.callback(driver.shutdown)
        _make_rows_table(cql)
        spark = start_spark(folder / "spark", host)
        held.callback(stop_spark, spark)
        topics = Topics(spark._jvm, broker.address)  # noqa: SLF001 (no other way to its client)
        held.callback(topics.close)
        yield Lab(
            spark,
            host,
            connection,
            store,
            cql,
            broker.address,
            topics,
            folder,
            cluster.pid(0),
        )


def start_spark(scratch: Path, host: str) -> SparkSession:
    """Spark as recommended in conf/spark-defaults.conf, with both peers' connectors."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers import what they unpickle, whatever folder they are started in.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    name, _, port = host.partition(":")
    jars = [*resolve(KAFKA_CONNECTOR), *resolve(CASSANDRA_CONNECTOR)]
    settings: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.jars": ",".join(map(str, jars)),
        "spark.cassandra.connection.host": name,
        "spark.cassandra.connection.port": port,
        "spark.cassandra.output.batch.size.bytes": "65536",
        "spark.cassandra.output.concurrent.writes": "8",
        "spark.local.dir": scratch,
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": scratch / "warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    settings |= recommended_settings()
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("cassieq-spark bench")
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def recommended_settings() -> dict[str, str]:
    """What conf/spark-defaults.conf says."""
    lines = [line.split("#")[0].split() for line in _RECOMMENDED.read_text().splitlines()]
    return dict(line for line in lines if line)


def _make_rows_table(cql: Session) -> None:
    """Where the Spark Cassandra Connector appends to: as many rows to a partition as a chunk has.

    Its batches are those of one partition, so this is how it is fast.
    """
    cql.execute(
        "CREATE KEYSPACE bench WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    cql.execute(
        "CREATE TABLE bench.rows (part bigint, seq bigint, value blob, PRIMARY KEY (part, seq)) "
        "WITH compression = {'enabled': 'false'}"
    )
