"""The demo's steps: publish, consume, archive, repair, count."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue, list_queues
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.spark_scan import CONNECTOR
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table
from demo.console import Step
from demo.consumer import PASSWORD, store_messages
from trials.processes import Program
from trials.spark import MASTER, spark_settings

QUEUE = "flights"
GROUP = "delays"
SECOND_GROUP = "archive"

#: This makes about nine batches of all flights.
MESSAGES_PER_BATCH = 40_000

_FILES_PER_BATCH = 4
_LOOK_SECONDS = 0.01
_REPAIR = Path(__file__).parents[1] / "jobs" / "repair.py"


class DemoError(Exception):
    """A program that the demo started has failed; ``log`` is its log file."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class Place:
    """The folder, cluster and queue of a run.

    Attributes:
        folder: For all files of the run.
        connection: The cluster.
        store: A connected store of the cluster.
        queue: The queue that the run created.
    """

    folder: Path
    connection: ConnectionOptions
    store: Store
    queue: QueueDefinition

    def options(self, **more: Any) -> dict[str, str]:
        """Options of ``format("cassieq")``, without the password."""
        connection = self.connection
        options = {
            "spark.cassandra.connection.host": ",".join(connection.contact_points),
            "spark.cassandra.connection.port": connection.port,
            "spark.cassandra.connection.localDC": connection.local_dc,
            "spark.cassandra.auth.username": connection.username,
            "keyspace": connection.keyspace,
            "queue": self.queue.name,
            **more,
        }
        return {name: str(value) for name, value in options.items() if value is not None}

    def all_options(self, **more: Any) -> dict[str, str]:
        """Options of ``format("cassieq")``."""
        password = self.connection.password
        return self.options(**more) | (
            {} if password is None else {"spark.cassandra.auth.password": password}
        )


@dataclass(slots=True)
class Consumption:
    """The runs of the consumer.

    Attributes:
        seconds: The time of its queries, without the start of Spark.
        kills: The number of kills.
        killed_in: The batch in which it was killed.
    """

    seconds: float = 0.0
    kills: int = 0
    killed_in: int | None = None


def make_queue(store: Store) -> QueueDefinition:
    """Create the queue ``flights``, or ``flights-2`` and so on if the name is taken."""
    taken = {queue.name for queue in list_queues(store)}
    names = (QUEUE if number == 1 else f"{QUEUE}-{number}" for number in count(1))
    return create_queue(store, next(name for name in names if name not in taken))


def publish(place: Place, spark: SparkSession, files: Path, step: Step) -> float:
    """Publish each line of the files as a message, with a stream; return the seconds."""
    lines = spark.readStream.option("maxFilesPerTrigger", _FILES_PER_BATCH).text(str(files))
    messages = lines.selectExpr("get_json_object(value, '$.id') as key", "value")
    writer = (
        messages.writeStream.format("cassieq")
        .options(**place.all_options())
        .option("checkpointLocation", str(place.folder / "publisher-checkpoint"))
        .trigger(availableNow=True)
    )
    started = time.monotonic()
    query = writer.start()
    while not query.awaitTermination(1):
        if progress := query.lastProgress:
            step.tell(f"micro-batch {progress.batchId}")
    return time.monotonic() - started


def consume(place: Place, results: Path, step: Step, *, kill_in: int) -> Consumption:
    """Let another process read the queue, kill it in a batch, and start it again.

    Args:
        place: The queue, and a folder for logs.
        results: The folder for the consumer's results.
        step: Shows the progress.
        kill_in: The consumer is killed in this batch or later, after half of the batch's results.
    """
    happened = Consumption()
    _run_consumer(place, results, step, happened, kill_in=kill_in)
    if happened.kills:
        _run_consumer(place, results, step, happened, kill_in=math.inf)
    return happened


def archive(place: Place, spark: SparkSession, results: Path) -> None:
    """Read the whole queue for a second group, in this process, and store its messages."""

    def store(batch: DataFrame, batch_id: int) -> None:
        store_messages(batch, results, batch_id)

    stream = spark.readStream.format("cassieq").options(**place.all_options(group=SECOND_GROUP))
    query = (
        stream.load()
        .writeStream.foreachBatch(store)
        .option("checkpointLocation", str(place.folder / "archive-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def repair(place: Place) -> dict[str, Any]:
    """Run the repair job for the queue, as an operator would, and return its totals."""
    report = place.folder / "repair.json"
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    connection = place.connection
    settings = spark_settings(place.folder / "spark-repair")
    command = [str(submit), "--master", MASTER, "--packages", CONNECTOR]
    command += [part for item in settings.items() for part in ("--conf", "{}={}".format(*item))]
    command += [str(_REPAIR), "--queue", place.queue.name, "--json", str(report)]
    command += ["--contact-points", ",".join(connection.contact_points)]
    command += ["--port", str(connection.port), "--keyspace", connection.keyspace]
    for name in ("local_dc", "username", "password"):
        if (value := getattr(connection, name)) is not None:
            command += [f"--{name.replace('_', '-')}", value]
    with Program("the repair job", command, log=place.folder / "repair.log") as program:
        if code := program.wait():
            raise DemoError(f"{program.name} failed with exit code {code}", program.log)
    totals: dict[str, Any] = json.loads(report.read_text())["totals"]
    return totals


def count_left(place: Place) -> tuple[int, int]:
    """Count the messages that groups have not acked, and the buckets that are still stored."""
    queue_id = place.queue.queue_id
    owed = sum(group.depth for group in queue_stats(Ledger(place.store, queue_id)).groups)
    buckets = {
        (row["block"], row["bucket"])
        for row in place.store.scan(Table.CHUNK)
        if row["queue_id"] == queue_id
    }
    return owed, len(buckets)


def _run_consumer(
    place: Place, results: Path, step: Step, happened: Consumption, *, kill_in: float
) -> None:
    run = happened.kills + 1
    events = place.folder / f"consumer-{run}.events"
    options = place.options(group=GROUP, maxMessagesPerTrigger=MESSAGES_PER_BATCH)
    command = [sys.executable, "-m", "demo.consumer", "--options", json.dumps(options)]
    command += ["--results", str(results), "--events", str(events)]
    command += ["--checkpoint", str(place.folder / "consumer-checkpoint")]
    command += ["--scratch", str(place.folder / f"spark-consumer-{run}")]
    if place.connection.password is not None:
        os.environ[PASSWORD] = place.connection.password
    log = place.folder / f"consumer-{run}.log"
    step.tell(f"run {run} starts")
    with Program("the consumer", command, log=log) as program:
        started = last = time.time()
        for event in _follow(program, events):
            last = event["at"]
            if event["event"] == "started":
                started = last
            elif event["event"] == "batch":
                step.tell(f"run {run}, batch {event['batch']}")
            elif event["event"] == "messages" and event["batch"] >= kill_in:
                program.kill()
                happened.kills += 1
                happened.killed_in = event["batch"]
                last = time.time()
                break
        happened.seconds += last - started


def _follow(program: Program, path: Path) -> Iterator[dict[str, Any]]:
    """The events that a program writes, until it has ended; `DemoError` if it fails."""
    seen = 0
    while True:
        code = program.exit_code
        told = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
        yield from map(json.loads, told[seen:])
        seen = len(told)
        if code:
            raise DemoError(f"{program.name} failed with exit code {code}", program.log)
        if code == 0:
            return
        time.sleep(_LOOK_SECONDS)
