"""A queue used by everybody at once for minutes, while everybody dies of it now and then.

Producers, writers like Spark's, consumers, streaming readers and sweeps work on six queues of a
Cassandra of its own; operators alter, pause, purge, delete and create them at random; two batch
writes of a real Spark come in between. Whoever works may die at any call of the store, and is
replaced by one that knows what was on disk. In the end everything is drained and swept, and
accounted for: message by message, row by row, and by the space on disk. Prints a report as JSON;
exit code 1 if anything is off.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from benchmarks.soak_actors import MAX_DELIVERIES, NATURES, Actor, World
from benchmarks.soak_checker import Fate, Journal, Letter, Owed, Put, judge
from benchmarks.soak_consumers import ClientConsumer, QueryReader
from benchmarks.soak_disk import Sample, trend_of
from benchmarks.soak_operators import Operator, Sweeper, sweep
from benchmarks.soak_publishers import ClientProducer, SparkLikeWriter
from benchmarks.soak_store import Abandoned
from benchmarks.soak_tables import Tables, find_strays
from cassieq_spark import Client
from cassieq_spark.errors import CassieqError, ContentionError, QueueStateError
from cassieq_spark.ledger.read import read_groups, stream_blocks
from cassieq_spark.node import Cluster
from cassieq_spark.queues import list_queues, list_records, read_queue
from cassieq_spark.repair import expire
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.sweep import Step
from cassieq_spark.stats import queue_stats
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table

#: How long actors live, in calls of the store.
LIFETIME = 150
#: What is deleted is forgotten, and so leaves the disk, within the run. Safe with one node.
GRACE_SECONDS = 30
FLUSH_MS = 15_000
SAMPLE_SECONDS = 20.0
#: Publishers wait while groups are owed more, so that disk use tells of leaks, not of a backlog.
MOST_OWED = 10_000
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 60.0
#: Longer than any lease, hold, delay, or pause before a burial is tried again.
_DRAIN_SECONDS = 300.0
_SWEEPS = 20
_NO_LETTERS = 1_000_000


@dataclass
class Watch:
    """What is seen from outside while it runs."""

    samples: list[Sample] = field(default_factory=list)
    expired: Counter[tuple[str, str]] = field(default_factory=Counter)


def main() -> int:
    """Run it on a Cassandra of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--spark-jobs", type=int, default=2, help="batch writes of a real Spark")
    given = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {given.seed}: the same choices, but threads take their turns anew")
    threading.excepthook = _tell_no_deaths
    logging.getLogger("cassieq_spark").setLevel(logging.CRITICAL)
    with Cluster(nodes=1) as cluster:
        host = f"{cluster.contact_points[0]}:{cluster.port}"
        connection = ConnectionOptions(contact_points=(host,))
        apply_schema(connection)
        flush_and_forget(connection)
        store = open_store(connection)
        try:
            report = soak(store, given, cluster.folder, host, console)
        finally:
            store.close()
    print(json.dumps(report))
    return 0 if report["fine"] else 1


def soak(
    store: Store, given: argparse.Namespace, folder: Path, host: str, console: Console
) -> dict[str, object]:
    """Let everybody work for minutes, then end it and judge."""
    world = World(store, Journal(), given.seed)
    watch = Watch()
    for nature in NATURES:
        world.make(store, nature)
    actors = make_actors(world)
    began = time.monotonic()
    with expiry_counted(watch):
        for actor in actors:
            actor.thread.start()
        drained = False
        with alarmed(world):
            observe(world, watch, given, folder, host, console)
        world.ending.set()
        console.print("draining")
        with alarmed(world):
            drained = drain(world)
        world.over.set()
        for actor in actors:
            actor.thread.join()
        with alarmed(world):
            sweep_clean(world)
    return report_of(world, watch, drained=drained) | {
        "seed": given.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


def make_actors(world: World) -> list[Actor]:
    """Of each kind some that die, and some that do not."""
    actors: list[Actor] = [
        ClientProducer(world, "producer-1", LIFETIME),
        ClientProducer(world, "producer-2"),
        SparkLikeWriter(world, "writer-1", LIFETIME),
        SparkLikeWriter(world, "writer-2", LIFETIME // 4),
        ClientConsumer(world, "consumer-1", LIFETIME),
        ClientConsumer(world, "consumer-2", LIFETIME),
        ClientConsumer(world, "consumer-3"),
        Operator(world, "operator-1"),
        Operator(world, "operator-2", LIFETIME // 4),
        Sweeper(world, "sweeper-1"),
        Sweeper(world, "sweeper-2", LIFETIME),
    ]
    for nature in NATURES:
        actors.append(QueryReader(world, f"{nature.name}-1", LIFETIME, nature.name))
        if not nature.strict:
            actors.append(QueryReader(world, f"{nature.name}-2", LIFETIME // 2, nature.name))
    return actors


def observe(  # noqa: PLR0913, PLR0917 (a program)
    world: World,
    watch: Watch,
    given: argparse.Namespace,
    folder: Path,
    host: str,
    console: Console,
) -> None:
    """Sample the disk until the time is over; let Spark write in between."""
    began = time.monotonic()
    end = began + given.minutes * 60
    jobs = [
        began + (end - began) * (n + 1) / (given.spark_jobs + 1) for n in range(given.spark_jobs)
    ]
    told = sampled = began
    while (now := time.monotonic()) < end:
        world.over.wait(_LOOK_SECONDS)
        is_full = backlog(world.store) > MOST_OWED
        (world.full.set if is_full else world.full.clear)()
        if jobs and now > jobs[0]:
            jobs.pop(0)
            write_by_spark(world, host)
        if now > sampled + SAMPLE_SECONDS:
            sampled = now
            watch.samples.append(sample(world.store, folder, now - began))
        if now > told + _TELL_SECONDS:
            told = now
            console.print(
                f"{(now - began) / 60:.0f} min: {len(world.journal.puts):,} put, "
                f"{len(world.journal.deliveries):,} delivered, "
                f"{len(world.journal.alarms)} alarms, disk {watch.samples[-1]}"
            )


def sample(store: Store, folder: Path, seconds: float) -> Sample:
    """Measure the tables' files, and what of them is published and not settled."""
    disk = 0
    for file in folder.glob("*/storage/data/cassieq/*/**/*"):
        try:
            disk += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # compacted meanwhile
    live = 0
    for queue in list_queues(store):
        try:
            live += sum(block.size for block in stream_blocks(store, queue.queue_id))
        except QueueStateError:
            continue
    return Sample(round(seconds, 1), disk, live)


def flush_and_forget(connection: ConnectionOptions) -> None:
    """Have the tables flushed regularly, and deletions forgotten soon."""
    driver, session = connect(connection)
    try:
        for table in Table:
            session.execute(
                f"ALTER TABLE {connection.keyspace}.{table} WITH gc_grace_seconds = "
                f"{GRACE_SECONDS} AND memtable_flush_period_in_ms = {FLUSH_MS}"
            )
    finally:
        driver.shutdown()


def write_by_spark(world: World, host: str) -> None:
    """One batch write of a real Spark, twice under one name: it is published once."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (only here)

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tempfile.mkdtemp(prefix="cassieq-soak-")
    builder = SparkSession.builder.master("local[1]").appName("cassieq soak")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    values = world.new_values(random.Random(world.seed), 500)  # noqa: S311 (lengths)
    queue = read_queue(world.store, "steady")
    begun = datetime.now(UTC)
    fate = Fate.UNKNOWN
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        frame = spark.createDataFrame([(value,) for value in values.values()], "value STRING")
        for _ in range(2):
            frame.write.format("cassieq").option("queue", queue.name).option(
                "spark.cassandra.connection.host", host
            ).option("txnAppId", f"soak-{min(values)}").option("txnVersion", 1).mode(
                "append"
            ).save()
        fate = Fate.VISIBLE
        world.note("Spark jobs")
    except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
        world.journal.alarms.append(f"Spark: {error}")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
        world.journal.puts += [Put(number, fate, queue.queue_id, None, begun) for number in values]


def drain(world: World) -> bool:
    """Wait until no group of any queue is owed anything; False if that takes too long."""
    operator = Operator(world, "last operator")
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline:
        world.over.wait(_LOOK_SECONDS)
        operator.repair()
        if not backlog(world.store):
            return True
    return False


def backlog(store: Store) -> int:
    """How much all groups are owed; of a queue that is purged or deleted meanwhile, nothing."""
    owed = 0
    for queue in list_queues(store):
        with suppress(QueueStateError, ContentionError):
            owed += sum(group.depth for group in queue_stats(store, queue.queue_id).groups)
    return owed


def debts(store: Store, expired: Counter[tuple[str, str]]) -> list[Owed]:
    """What every group of every living queue was owed, and is."""
    found = []
    for queue in list_queues(store):
        queue_id = queue.queue_id
        starts = {group.name: group.starts_at for group in read_groups(store, queue_id)}
        stats = queue_stats(store, queue_id)
        found += [
            Owed(
                queue_id,
                group.group,
                starts[group.group],
                stats.next,
                group.depth,
                expired[queue_id, group.group],
            )
            for group in stats.groups
        ]
    return found


def sweep_clean(world: World) -> None:
    """Sweep until nothing is left to do; nobody writes any more."""
    time.sleep(1.1)  # older than the write timeout that follows
    for _ in range(_SWEEPS):
        report = sweep(world, world.store, tuple(Step), timedelta(seconds=1))
        totals = asdict(report.totals) | {"audited_messages": 0}
        if totals == asdict(Counts()):
            return
    world.journal.alarms.append(f"the sweep finds something to do again and again: {totals}")


def report_of(world: World, watch: Watch, *, drained: bool) -> dict[str, object]:
    """Judge everything."""
    store, now = world.store, datetime.now(UTC)
    owed: list[Owed] = []
    letters: list[Letter] = []
    with alarmed(world):
        owed = debts(store, watch.expired)
        letters = read_letters(store)
    verdict = judge(world.journal, owed, letters, max_deliveries=MAX_DELIVERIES)
    tables = Tables(
        list_records(store),
        list(store.scan(Table.LEDGER)),
        list(store.scan(Table.DELIVERY)),
        list(store.scan(Table.CHUNK)),
    )
    for stray in find_strays(tables, now=now, write_timeout=timedelta(seconds=1)):
        verdict.accuse("stray", stray)
    trend = trend_of(watch.samples)
    if trend is not None and not trend.is_flat:
        verdict.accuse("disk", trend)
    return verdict.to_json() | {
        "drained": drained,
        "rows_left": {
            "queue": len(tables.queues),
            "ledger": len(tables.ledger),
            "delivery": len(tables.delivery),
            "chunk": len(tables.chunks),
        },
        "disk": None if trend is None else asdict(trend) | {"flat": trend.is_flat},
        "disk_samples": [asdict(each) for each in watch.samples],
        "events": dict(sorted(world.events.items())),
    }


def read_letters(store: Store) -> list[Letter]:
    """All dead letters of all queues."""
    client = Client.from_store(store)
    letters = []
    for nature in NATURES:
        for each in client.peek(f"{nature.name}.dead", max=_NO_LETTERS):
            headers = each.headers
            letters.append(
                Letter(
                    int(each.value.partition(b":")[0]),
                    str(headers["cassieq.origin-queue"]),
                    str(headers["cassieq.origin-group"]),
                    int(headers["cassieq.origin-monoton"] or -1),
                )
            )
    return letters


@contextmanager
def alarmed(world: World) -> Iterator[None]:
    """Note what the package can't do any more: whatever it is, there is something to judge."""
    try:
        yield
    except CassieqError as error:
        world.journal.alarms.append(f"{type(error).__name__}: {error}")


@contextmanager
def expiry_counted(watch: Watch) -> Iterator[None]:
    """Count what the sweep says that it lets expire."""

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told = record.__dict__
            if told.get("action") == expire.EXPIRED:
                watch.expired[told["queue"], told["group"]] += told["count"]

    handler = Counting()
    logger = logging.getLogger(expire.__name__)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _tell_no_deaths(about: threading.ExceptHookArgs) -> None:
    if about.exc_type is not Abandoned:
        threading.__excepthook__(about)


if __name__ == "__main__":
    sys.exit(main())
