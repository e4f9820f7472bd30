"""Where the time of a micro-batch that is read goes: by process, and by phase of Spark.

A queue with the columns of flights is read by streams of batches of several sizes, with all
columns and with one, in the tasks that the default makes and in other ones; and so are the same
rows as Avro from Kafka, tuned and with LZ4, in a task for each of its partitions. The streams take
turns, after one round to warm up. The first batches of each stream are not counted. Prints a JSON
line for each stream, and a table of medians: for a row the microseconds of processor time of each
kind of process, and for a batch the milliseconds of each phase.
"""

from __future__ import annotations

import argparse
import statistics
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
from pyspark.sql.types import StructType

from benchmarks.bench.lab import Lab, open_lab
from benchmarks.bench.names import AVRO
from benchmarks.bench.rows import pipelines
from benchmarks.bench.systems import CASSIEQ, cassieq_options
from benchmarks.lines import show
from cassieq_spark.queues import create_queue
from cassieq_spark.schemas.canonical import all_nullable
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.schemas.files import parse_spark_json
from demo.flights import find_data, write_files
from trials.environment import tell

_QUEUE = "flights"
#: Tasks that write the flights once; each makes a block.
_FILES = 4
_ONE_COLUMN = "tailnum"
_LOOK_SECONDS = 0.005
_LONGEST_SECONDS = 600.0
#: Processes by kind, as the table has them; of Java the threads that compile it are apart.
_JAVA, _COMPILER, _DRIVER = "Java", "its compiler", "beside the driver"
_WORKERS, _SERVER = "workers", "server"
_KINDS = (_JAVA, _COMPILER, _DRIVER, _WORKERS, _SERVER)
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
        batch: Rows of a micro-batch; None for no limit.
        is_whole: True if it reads all columns; False: one.
        per_task: The option ``messagesPerTask``; empty: the default.
        system: What it reads.
    """

    batch: int | None
    is_whole: bool
    per_task: str = ""
    system: str = CASSIEQ

    @property
    def options(self) -> dict[str, str]:
        """The options of our source."""
        found = {} if self.batch is None else {"maxMessagesPerTrigger": str(self.batch)}
        if not self.is_whole:
            found["columns"] = _ONE_COLUMN
        if self.per_task:
            found["messagesPerTask"] = self.per_task
        return found

    @property
    def not_counted(self) -> int:
        """Batches at the start of a stream that are not counted."""
        return 0 if self.batch is None else max(1, 200_000 // self.batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=6, help="how often the queue has all flights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="20000,100000,500000,all", help="all: no limit")
    parser.add_argument("--columns", default="19,1", help="19, 1, or both")
    parser.add_argument("--per-task", default=",100000", help="messagesPerTask; empty: default")
    parser.add_argument("--chunk", type=int, help="chunk_size of the queue")
    given = parser.parse_args()
    sizes = [
        (None if batch == "all" else int(batch), columns != "1")
        for batch, columns in product(given.batches.split(","), given.columns.split(","))
    ]
    ours = [Case(*size, each) for size in sizes for each in given.per_task.split(",")]
    cases = ours + [Case(*size, system=AVRO) for size in sizes]
    with open_lab(_NO_END) as lab:
        rows = fill(lab, times=given.times, chunk=given.chunk)
        measure(lab, cases, rows=rows, rounds=given.rounds)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that streams read.

    Attributes:
        schema: Their columns.
        count: How many there are.
        topic: The topic that has them.
    """

    schema: StructType
    count: int
    topic: str


def fill(lab: Lab, *, times: int, chunk: int | None) -> Rows:
    """Write all flights ``times`` times into a queue and a topic."""
    count = write_files(find_data(), lab.folder / "lines", files=_FILES)
    lines = lab.spark.read.json(str(lab.folder / "lines")).drop("id").repartition(_FILES)
    lines.write.parquet(str(lab.folder / "rows"))
    frame = lab.spark.read.parquet(str(lab.folder / "rows"))
    schema = to_ddl(all_nullable(parse_spark_json(frame.schema.jsonValue())))
    sizes: dict[str, Any] = (
        {} if chunk is None else {"chunk_size": chunk, "bucket_size": max(chunk, 16_384)}
    )
    create_queue(lab.store, _QUEUE, schema=schema, **sizes)
    kafka = pipelines(lab)[AVRO]
    topic = kafka.new(frame.schema)
    for _ in range(times):
        write = frame.write.format("cassieq").options(queue=_QUEUE, **cassieq_options(lab))
        write.mode("append").save()
        kafka.write(topic, frame)
    return Rows(frame.schema, count * times, topic)


def read(lab: Lab, case: Case, rows: Rows) -> DataFrame:
    """The stream of a case."""
    if case.system != CASSIEQ:
        columns = rows.schema.names if case.is_whole else [_ONE_COLUMN]
        return pipelines(lab)[case.system].read(rows.topic, rows.schema, columns, case.batch)
    reader = lab.spark.readStream.format("cassieq").options(**cassieq_options(lab))
    return reader.options(queue=_QUEUE, group=f"g-{uuid4().hex[:12]}", **case.options).load()


def measure(lab: Lab, cases: list[Case], *, rows: Rows, rounds: int) -> None:
    """Run all rounds, and show the medians; the first round warms up."""
    found: defaultdict[Case, list[dict[str, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for case in cases:
            lab.settle()
            figures = run(lab, case, rows)
            load = psutil.getloadavg()[0]
            tell(f"round {number}, load {load:.1f}: {case} {figures}")
            if number:
                show(system=case.system, **case.options, load=round(load, 1), **figures)
                found[case].append(figures)
    for line in table(found):
        print(line)


def run(lab: Lab, case: Case, rows: Rows) -> dict[str, float]:
    """Read all rows, and drop them."""
    last = 0 if case.batch is None else -(-rows.count // case.batch) - 1
    frame, checkpoint = read(lab, case, rows), lab.folder / uuid4().hex
    java, pids = psutil.Process(lab.processor.spark), lab.processor
    server = psutil.Process(pids.cassandra if case.system == CASSIEQ else pids.kafka)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    # Without a limit there is one batch, which begins when it is planned.
    first = f"commits/{case.not_counted - 1}" if case.not_counted else "offsets/0"
    _wait_for(checkpoint / first, query)
    before, began = used(java, server), time.monotonic()
    _wait_for(checkpoint / f"commits/{last}", query)
    seconds, now = time.monotonic() - began, used(java, server)
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    # Kafka may leave a few rows for one batch more.
    counted = batches[case.not_counted : last + 1]
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


def _wait_for(file: Path, query: StreamingQuery) -> None:
    """Wait until Spark has planned or committed a batch, without a call of its Java."""
    until = time.monotonic() + _LONGEST_SECONDS
    while not file.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"there is no {file}: {query.exception()}")
        time.sleep(_LOOK_SECONDS)


def _tasks(spark: SparkSession, query: StreamingQuery) -> int:
    """How many tasks a query has run."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(each.numCompletedTasks for each in stages if each)


def used(java: psutil.Process, server: psutil.Process) -> Used:
    """Processor seconds of each process until now."""
    found = {}
    for kind, process in _processes(java, server):
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


def _processes(
    java: psutil.Process, server: psutil.Process
) -> Iterator[tuple[str, psutil.Process]]:
    yield _JAVA, java
    # The broker's parent, and the broker.
    for process in (server, *server.children(recursive=True)):
        yield _SERVER, process
    for process in java.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            is_worker = process.cmdline()[-1:] == ["pyspark.worker"]
            yield _WORKERS if is_worker else _DRIVER, process


def table(found: Mapping[Case, list[dict[str, float]]]) -> Iterator[str]:
    """The lines of a table in Markdown, with the medians of all rounds."""
    names = list(next(iter(found.values()))[0])
    head = ["system", "rows a batch", "columns", "messagesPerTask", *names]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for case, rounds in found.items():
        medians = [statistics.median(each[name] for each in rounds) for name in names]
        tasks = (case.per_task or "default") if case.system == CASSIEQ else ""
        cells = [
            case.system,
            f"{case.batch:,}" if case.batch else "no limit",
            "19" if case.is_whole else "1",
            tasks,
        ]
        yield f"| {' | '.join(cells + [f'{each:.3g}' for each in medians])} |"


if __name__ == "__main__":
    main()
