"""Where the time of a micro-batch that is read goes: by process, and by phase of Spark.

A queue with the columns of flights is read by streams of batches of several sizes, with all
columns and with one, in the tasks that the default makes and in other ones. The streams take
turns, after one round to warm up. The first batches of each stream are not counted. Prints a JSON
line for each stream, and a table of medians: for a row the microseconds of processor time of each
kind of process, and for a batch the milliseconds of each phase.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.bench.lab import FILE_MANAGER, recommended_settings
from benchmarks.lines import show
from cassieq_spark.queues import create_queue
from cassieq_spark.schemas.canonical import all_nullable
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.files import parse_spark_json
from demo.flights import find_data, write_files
from trials.environment import Cassandra, cassandra, tell
from trials.spark import start_spark, stop_spark

_QUEUE = "flights"
#: Tasks that write the flights once; each makes a block.
_FILES = 4
_ONE_COLUMN = "tailnum"
_LOOK_SECONDS = 0.005
_LONGEST_SECONDS = 600.0
#: Processes by kind, as the table has them; of Java the threads that compile it are apart.
_JAVA, _COMPILER, _DRIVER = "Java", "its compiler", "beside the driver"
_WORKERS, _CASSANDRA = "workers", "Cassandra"
_KINDS = (_JAVA, _COMPILER, _DRIVER, _WORKERS, _CASSANDRA)
#: Names of threads, as the kernel cuts them. They must not end meanwhile.
_COMPILING = {"C1 CompilerThre", "C2 CompilerThre"}
_NO_END = "-XX:-UseDynamicNumberOfCompilerThreads"
_PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch")
_LOGS = ("walCommit", "commitOffsets")

#: Processor seconds by kind of process and process id.
Used = Mapping[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Case:
    """How a stream reads.

    Attributes:
        batch: Rows of a micro-batch.
        is_whole: True if it reads all columns; False: one.
        per_task: The option ``messagesPerTask``; empty: the default.
    """

    batch: int
    is_whole: bool
    per_task: str

    @property
    def options(self) -> dict[str, str]:
        """The options of the source."""
        found = {"maxMessagesPerTrigger": str(self.batch)}
        if not self.is_whole:
            found["columns"] = _ONE_COLUMN
        if self.per_task:
            found["messagesPerTask"] = self.per_task
        return found

    @property
    def not_counted(self) -> int:
        """Batches at the start of a stream that are not counted."""
        return max(1, 200_000 // self.batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=6, help="how often the queue has all flights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="20000,100000,500000,1000000")
    parser.add_argument("--columns", default="19,1", help="19, 1, or both")
    parser.add_argument("--per-task", default=",100000", help="messagesPerTask; empty: default")
    parser.add_argument("--chunk", type=int, help="chunk_size of the queue")
    given = parser.parse_args()
    cases = [
        Case(int(batch), columns != "1", per_task)
        for batch, columns, per_task in product(
            given.batches.split(","), given.columns.split(","), given.per_task.split(",")
        )
    ]
    with (
        tempfile.TemporaryDirectory(prefix="cassieq-batch-time-") as temporary,
        cassandra(nodes=1, heap_mb=1024) as environment,
    ):
        folder = Path(temporary)
        # Not `QUICK_JAVA`: a driver that runs for hours has compiled its hot code.
        java = f"{_NO_END} -Djava.io.tmpdir={folder}"
        settings = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": java}
        settings |= recommended_settings() | FILE_MANAGER
        spark = start_spark("batch time", folder / "spark", log_level="ERROR", settings=settings)
        try:
            rows = fill(spark, environment, folder, times=given.times, chunk=given.chunk)
            measure(spark, environment, folder, cases, rows=rows, rounds=given.rounds)
        finally:
            stop_spark(spark)


def fill(
    spark: SparkSession, environment: Cassandra, folder: Path, *, times: int, chunk: int | None
) -> int:
    """Write all flights ``times`` times, and return the number of rows."""
    count = write_files(find_data(), folder / "lines", files=_FILES)
    spark.read.json(str(folder / "lines")).drop("id").repartition(_FILES).write.parquet(
        str(folder / "rows")
    )
    frame = spark.read.parquet(str(folder / "rows"))
    schema = to_ddl(all_nullable(parse_spark_json(frame.schema.jsonValue())))
    sizes: dict[str, Any] = (
        {} if chunk is None else {"chunk_size": chunk, "bucket_size": max(chunk, 16_384)}
    )
    create_queue(environment.store, _QUEUE, schema=schema, **sizes)
    for _ in range(times):
        write = frame.write.format("cassieq").options(**place_of(environment))
        write.mode("append").save()
    return count * times


def place_of(environment: Cassandra) -> dict[str, str]:
    """The options that name the cluster and the queue."""
    return {"spark.cassandra.connection.host": environment.hosts, "queue": _QUEUE}


def measure(
    spark: SparkSession,
    environment: Cassandra,
    folder: Path,
    cases: list[Case],
    *,
    rows: int,
    rounds: int,
) -> None:
    """Run all rounds, and show the medians; the first round warms up."""
    found: defaultdict[Case, list[dict[str, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for case in cases:
            reader = spark.readStream.format("cassieq").options(**place_of(environment))
            frame = reader.options(group=f"g-{uuid4().hex[:12]}", **case.options).load()
            figures = run(frame, case, rows, folder / uuid4().hex, environment)
            load = psutil.getloadavg()[0]
            tell(f"round {number}, load {load:.1f}: {case} {figures}")
            if number:
                show(**case.options, load=round(load, 1), **figures)
                found[case].append(figures)
    for line in table(found):
        print(line)


def run(
    frame: DataFrame, case: Case, rows: int, checkpoint: Path, environment: Cassandra
) -> dict[str, float]:
    """Read all rows, and drop them."""
    last = -(-rows // case.batch) - 1
    java = java_of(frame.sparkSession)
    node = psutil.Process(environment.cluster.pid(0))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    _wait_for(checkpoint, case.not_counted - 1, query)
    before, began = used(java, node), time.monotonic()
    _wait_for(checkpoint, last, query)
    seconds, now = time.monotonic() - began, used(java, node)
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    counted = batches[case.not_counted :]
    took = sum(each.numInputRows for each in counted)
    processor = since(before, now)
    return {
        "tasks": _tasks(frame.sparkSession, query) / len(batches),
        "us": seconds / took * 1e6,
        **{name: processor[name] / took * 1e6 for name in _KINDS},
        "in all": sum(processor.values()) / took * 1e6,
        **{name: statistics.median(each.durationMs[name] for each in counted) for name in _PHASES},
        "logs": statistics.median(
            sum(each.durationMs.get(name, 0) for name in _LOGS) for each in counted
        ),
    }


def _wait_for(checkpoint: Path, batch: int, query: StreamingQuery) -> None:
    """Wait until Spark has committed a batch, without a call of its Java."""
    committed = checkpoint / "commits" / f"{batch}"
    until = time.monotonic() + _LONGEST_SECONDS
    while not committed.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"no batch {batch}: {query.exception()}")
        time.sleep(_LOOK_SECONDS)


def _tasks(spark: SparkSession, query: StreamingQuery) -> int:
    """How many tasks a query has run."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(each.numCompletedTasks for each in stages if each)


def java_of(spark: SparkSession) -> psutil.Process:
    """The process of Spark's driver, which runs the tasks' Java, too."""
    jvm: Any = spark._jvm  # noqa: SLF001 (no other way to its process)
    return psutil.Process(int(jvm.ProcessHandle.current().pid()))


def used(java: psutil.Process, node: psutil.Process) -> Used:
    """Processor seconds of each process until now."""
    found = {}
    for kind, process in _processes(java, node):
        with suppress(psutil.NoSuchProcess):
            found[kind, process.pid] = sum(process.cpu_times()[:2])
    compiling = found[_COMPILER, java.pid] = sum(_compiling(java.pid))
    found[_JAVA, java.pid] -= compiling
    return found


def _compiling(pid: int) -> Iterator[float]:
    """Processor seconds of the threads that compile a Java."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            if (thread / "comm").read_text().strip() in _COMPILING:
                yield int((thread / "schedstat").read_text().split()[0]) / 1e9


def since(before: Used, now: Used) -> dict[str, float]:
    """Processor seconds between two readings, by kind of process."""
    took = dict.fromkeys(_KINDS, 0.0)
    for key, seconds in now.items():
        took[key[0]] += seconds - before.get(key, 0.0)
    return took


def _processes(java: psutil.Process, node: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    yield _JAVA, java
    yield _CASSANDRA, node
    for process in java.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            is_worker = process.cmdline()[-1:] == ["pyspark.worker"]
            yield _WORKERS if is_worker else _DRIVER, process


def table(found: Mapping[Case, list[dict[str, float]]]) -> Iterator[str]:
    """The lines of a table in Markdown, with the medians of all rounds."""
    names = list(next(iter(found.values()))[0])
    head = ["rows a batch", "columns", "messagesPerTask", *names]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for case, rounds in found.items():
        medians = [statistics.median(each[name] for each in rounds) for name in names]
        cells = [f"{case.batch:,}", "19" if case.is_whole else "1", case.per_task or "default"]
        yield f"| {' | '.join(cells + [f'{each:.3g}' for each in medians])} |"


if __name__ == "__main__":
    main()
