"""Where the model is measured: nodes of Cassandra and a Spark, and what they have used so far.

What a Java spends on compiling itself is left out: one that has run for hours compiles no more.
What Cassandra spends on memtables and compaction is told apart, as it comes at its own time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from cassandra.cluster import Session
from pyspark.sql import SparkSession

import trials.spark
from benchmarks.bench.lab import CORES, recommended_settings
from benchmarks.lwts import count_lwts
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store
from trials.environment import cassandra

CASSANDRA, SPARK, OWN = "cassandra", "spark", "own"
LOG, FLUSH, COMPACTION = "log", "flush", "compaction"

#: Names of threads, as the kernel cuts them. Nodes with few cores never drop compiler threads, so
#: that what these have used can be told.
_COMPILING = {"C1 CompilerThre", "C2 CompilerThre"}
_STORING = {
    "PerDiskMemtable": FLUSH,
    "MemtableFlushWr": FLUSH,
    "MemtablePostFlu": FLUSH,
    "CompactionExecu": COMPACTION,
}
#: Several nodes would compile by C1 only, to start sooner; here they do as in production.
_JAVA = "-XX:TieredStopAtLevel=4 -XX:-UseDynamicNumberOfCompilerThreads"
_HEAP_MB = 1024
_COUNTS = "SELECT keyspace_name, table_name, count FROM system_views.{}"
_FLUSH_MILLISECONDS = 500
_LOOK_SECONDS = 0.1
_LONGEST_SECONDS = 60.0
_QUIET_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """What was used until a moment, and ``now - before`` between two.

    Attributes:
        wall: Seconds.
        cpu: Seconds of a core: `CASSANDRA` without `FLUSH` and `COMPACTION`, `SPARK`, `OWN`.
        written: Bytes that Cassandra wrote to disk: `LOG`, `FLUSH`, `COMPACTION`.
    """

    wall: float
    cpu: Mapping[str, float]
    written: Mapping[str, float]

    def __sub__(self, before: Reading) -> Reading:
        def less(now: Mapping[str, float], then: Mapping[str, float]) -> dict[str, float]:
            return {name: value - then.get(name, 0.0) for name, value in now.items()}

        return Reading(
            self.wall - before.wall,
            less(self.cpu, before.cpu),
            less(self.written, before.written),
        )


@dataclass(frozen=True, slots=True)
class Requests:
    """What nodes have been asked so far: LWTs, reads of state, bytes to other nodes."""

    lwts: float
    reads: float
    between: float

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.lwts + other.lwts, self.reads + other.reads, self.between + other.between
        )

    def __sub__(self, before: Requests) -> Requests:
        return Requests(
            self.lwts - before.lwts, self.reads - before.reads, self.between - before.between
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Everything that runs.

    Attributes:
        store: The queue's tables.
        cql: A session of the bare driver.
        hosts: All nodes, as options take them.
        nodes: The process ids of the nodes.
        folder: For checkpoints and payloads; the data of the nodes are below it.
        spark: A session, if one was asked for.
    """

    store: Store
    cql: Session
    hosts: str
    nodes: tuple[int, ...]
    folder: Path
    spark: SparkSession | None

    @property
    def replicas(self) -> int:
        """Of the keyspace."""
        return min(len(self.nodes), 3)

    def new_queue(self, **settings: Any) -> QueueDefinition:
        return create_queue(self.store, f"c-{uuid4().hex[:12]}", **settings)

    def new_folder(self) -> Path:
        return self.folder / uuid4().hex[:12]

    def read(self) -> Reading:
        """What was used until now."""
        cpu: defaultdict[str, float] = defaultdict(float)
        written: defaultdict[str, float] = defaultdict(float)
        for pid in self.nodes:
            cpu[CASSANDRA] += _seconds(psutil.Process(pid))
            written[LOG] += _bytes_written(Path(f"/proc/{pid}"))
            for name, seconds, size in _threads(pid):
                if (does := _STORING.get(name)) is not None:
                    cpu[does] += seconds
                    written[does] += size
                    written[LOG] -= size
                if does is not None or name in _COMPILING:
                    cpu[CASSANDRA] -= seconds
        if self.spark is not None:
            gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001 (no other way)
            java = psutil.Process(gateway.proc.pid)
            for process in (java, *java.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    cpu[SPARK] += _seconds(process)
            cpu[SPARK] -= sum(used for name, used, _ in _threads(java.pid) if name in _COMPILING)
        cpu[OWN] = os.times().user + os.times().system
        return Reading(time.monotonic(), cpu, written)

    def requests(self) -> Requests:
        """What all nodes have been asked until now."""
        found = Requests(count_lwts(self.cql, replicas=self.replicas), 0, 0)
        for host in self.cql.cluster.metadata.all_hosts():
            reads = sum(
                count
                for space, table, count in self._view("coordinator_read_latency", host)
                if space == "cassieq" and table != "chunk"
            )
            sent = self.cql.execute(
                "SELECT sent_bytes FROM system_views.internode_outbound", host=host
            )
            found += Requests(0, reads, sum(row[0] for row in sent))
        return found

    def _view(self, name: str, host: Any) -> Iterator[tuple[str, str, int]]:
        yield from self.cql.execute(_COUNTS.format(name), host=host)

    def flush(self) -> None:
        """Write the messages in memtables out, and wait until no node writes any more."""
        alter = "ALTER TABLE cassieq.chunk WITH memtable_flush_period_in_ms = "
        self.cql.execute(f"{alter}{_FLUSH_MILLISECONDS}", timeout=_LONGEST_SECONDS)
        time.sleep(3 * _FLUSH_MILLISECONDS / 1000)
        self.settle()
        self.cql.execute(f"{alter}0", timeout=_LONGEST_SECONDS)

    def settle(self) -> None:
        """Wait until no node writes files."""
        deadline, quiet, before = time.monotonic() + _LONGEST_SECONDS, 0, -1.0
        while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            written = self.read().written
            now = written[FLUSH] + written[COMPACTION]
            quiet, before = quiet + 1 if now == before else 0, now

    def catch_up(self) -> None:
        """Wait until no node merges files, as on a cluster that is not overloaded."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        query = "SELECT keyspace_name FROM system_views.sstable_tasks"
        while list(self.cql.execute(query)) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 10)

    def clear(self) -> None:
        """Forget all messages, so that files do not pile up."""
        self.cql.execute("TRUNCATE cassieq.chunk", timeout=2 * _LONGEST_SECONDS)

    def files(self) -> list[int]:
        """Sizes of the files of messages, of all nodes."""
        return [size for name, size in self._files() if name.endswith("-Data.db")]

    def stored(self) -> int:
        """Bytes of all files of messages, with their indexes, of all nodes."""
        return sum(size for _, size in self._files())

    def _files(self) -> Iterator[tuple[str, int]]:
        for file in self.folder.glob("cassandra/*/storage/data/*/chunk-*/*-big-*.*"):
            with suppress(FileNotFoundError):  # compaction may have removed it
                yield file.name, file.stat().st_size


@contextmanager
def open_place(
    nodes: int = 1, *, with_spark: bool = False, memtables_mib: int | None = None
) -> Iterator[Place]:
    """Start what is wanted; all of it ends with the block, and its files are removed.

    Args:
        nodes: Nodes of Cassandra; as many replicas.
        with_spark: Whether to start a Spark.
        memtables_mib: Memory of memtables; None for a quarter of the heap of a GiB.
    """
    with tempfile.TemporaryDirectory(
        prefix="cassieq-capacity-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)

        def prefix(address: str) -> tuple[str, ...]:
            script = 'exec env _JAVA_OPTIONS="$0" "$@"'
            if memtables_mib is not None:
                settings = folder / "cassandra" / address / "conf" / "cassandra.yaml"
                script = f'echo "memtable_heap_space: {memtables_mib}MiB" >> {settings}; {script}'
            return ("bash", "-c", script, _JAVA)

        with cassandra(
            nodes=nodes, heap_mb=_HEAP_MB, data_dir=folder / "cassandra", prefix=prefix
        ) as ours:
            driver, cql = connect(ours.connection)
            spark = _start_spark(folder / "spark", ours.hosts) if with_spark else None
            pids = tuple(ours.cluster.pid(number) for number in range(nodes))
            try:
                yield Place(ours.store, cql, ours.hosts, pids, folder, spark)
            finally:
                if spark is not None:
                    trials.spark.stop_spark(spark)
                driver.shutdown()


def _start_spark(scratch: Path, hosts: str) -> SparkSession:
    # Workers import what they unpickle, whatever folder they are started in.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    scratch.mkdir(parents=True)
    return trials.spark.start_spark(
        "cassieq-spark capacity",
        scratch,
        master=f"local[{CORES}]",
        log_level="OFF",
        settings={
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": (
                f"-XX:-UseDynamicNumberOfCompilerThreads -Djava.io.tmpdir={scratch}"
            ),
            # A file is a task, however small it is.
            "spark.sql.files.openCostInBytes": str(1 << 27),
            "spark.cassandra.connection.host": hosts,
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing"
                ".FileSystemBasedCheckpointFileManager"
            ),
            **recommended_settings(),
        },
        log=scratch / "spark.log",
    )


def _seconds(process: psutil.Process) -> float:
    """Seconds of a process, and of what it has started and seen end."""
    used = process.cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


def _threads(pid: int) -> Iterator[tuple[str, float, int]]:
    """Of each thread: its name, the seconds that it has used, the bytes that it has written."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may end meanwhile
            name = (thread / "comm").read_text().strip()
            if name in _COMPILING or name in _STORING:
                used = int((thread / "schedstat").read_text().split()[0]) / 1e9
                yield name, used, _bytes_written(thread)


def _bytes_written(entry: Path) -> int:
    lines = (entry / "io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])
