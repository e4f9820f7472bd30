"""All kinds of clients use queues at the same time for minutes, and die now and then.

Producers, writers like Spark's, consumers, streaming readers and repair runs work on six queues of
a Cassandra of their own. Operators alter, pause, purge, delete and create these queues at random.
A real Spark writes two batches. Two gateways share an address, so mostly one of them settles what
the other has handed out. Batches are put again under their keys. Writers return to an older
checkpoint now and then, which must be refused. Each actor may die at any call of the store; then
another one replaces it, which knows only what was on disk. In the end everything is drained,
repaired and accounted for: messages, rows, and space on disk. The last line is a report as JSON.
The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from random import Random

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.queues import list_queues, read_queue
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.steps import Step
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table
from trials.environment import Cassandra, Report, arguments, carry_out, cassandra, depth, tell
from trials.soak.actors import QUEUE_KINDS, Actor, World, alarmed, now
from trials.soak.checker import Journal, Outcome, Put
from trials.soak.consumers import BalancedConsumer, ClientConsumer, QueryReader
from trials.soak.leftovers import ExpiryCount, Sample, report_of, sample
from trials.soak.operators import Operator, Repairer, repair
from trials.soak.producers import ClientProducer, SparkLikeWriter
from trials.spark import start_spark
from trials.stores import Abandoned

#: Short, so that deleted rows leave the disk within the run. Safe with one node.
GRACE_SECONDS = 30
FLUSH_MS = 15_000
#: The lifetime of actors, in calls of the store.
LIFETIME = 150
SAMPLE_SECONDS = 20.0
#: Publishers wait while there is a larger backlog, so that growth on disk means a leak.
MOST_OWED = 10_000
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 60.0
#: Longer than any lease, hold, delay, or pause before dead-lettering is tried again.
_STUCK_SECONDS = 180.0
_REPAIRS = 20


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--spark-jobs", type=int, default=2, help="batch writes of a real Spark")
    given = parser.parse_args()
    tell(f"seed {given.seed}: it repeats the choices, but not the order of threads")
    threading.excepthook = _tell_no_deaths
    logging.getLogger("cassieq_spark").setLevel(logging.CRITICAL)

    def play(folder: Path) -> Report:
        with cassandra(nodes=1) as environment:
            flush_and_forget(environment.connection)
            return soak(environment, folder, given)

    return carry_out("soak", play, fine=itemgetter("fine"))


def flush_and_forget(connection: ConnectionOptions) -> None:
    """Let Cassandra flush the tables regularly, and forget deletions soon."""
    driver, session = connect(connection)
    try:
        for table in Table:
            session.execute(
                f"ALTER TABLE {connection.keyspace}.{table} WITH gc_grace_seconds = "
                f"{GRACE_SECONDS} AND memtable_flush_period_in_ms = {FLUSH_MS}"
            )
    finally:
        driver.shutdown()


def _tell_no_deaths(about: threading.ExceptHookArgs) -> None:
    if about.exc_type is not Abandoned:
        threading.__excepthook__(about)


def soak(environment: Cassandra, folder: Path, given: argparse.Namespace) -> Report:
    world = World(environment.store, Journal(), given.seed)
    for kind in QUEUE_KINDS:
        world.make(world.store, kind)
    actors = make_actors(world)
    began = time.monotonic()
    samples: list[Sample] = []
    drained = False
    with ExpiryCount() as expired:
        for actor in actors:
            actor.thread.start()
        with alarmed(world):
            observe(world, environment, samples, folder, given)
        world.ending.set()
        tell("draining")
        with alarmed(world):
            drained = drain(world)
        world.over.set()
        for actor in actors:
            actor.thread.join()
        with alarmed(world):
            repair_clean(world)
    return report_of(world, samples, expired.counts, drained=drained) | {
        "seed": given.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


def make_actors(world: World) -> list[Actor]:
    """Actors of each kind; some of them die."""
    actors: list[Actor] = [
        ClientProducer(world, "producer-1", LIFETIME),
        ClientProducer(world, "producer-2"),
        SparkLikeWriter(world, "writer-1", LIFETIME),
        SparkLikeWriter(world, "writer-2", LIFETIME // 4),
        ClientConsumer(world, "consumer-1", LIFETIME),
        ClientConsumer(world, "consumer-2", LIFETIME),
        ClientConsumer(world, "consumer-3"),
        BalancedConsumer(world, "balanced-1"),
        BalancedConsumer(world, "balanced-2", LIFETIME),
        Operator(world, "operator-1"),
        Operator(world, "operator-2", LIFETIME // 4),
        Repairer(world, "repairer-1"),
        Repairer(world, "repairer-2", LIFETIME),
    ]
    for kind in QUEUE_KINDS:
        actors.append(QueryReader(world, f"{kind.name}-1", LIFETIME, kind.name))
        if not kind.strict:
            actors.append(QueryReader(world, f"{kind.name}-2", LIFETIME // 2, kind.name))
    actors += [
        QueryReader(
            world, f"several-{number}", lifetime, "steady", "fleeting", "restless", "moody"
        )
        for number, lifetime in enumerate((LIFETIME, LIFETIME // 2), 1)
    ]
    return actors


def observe(
    world: World,
    environment: Cassandra,
    samples: list[Sample],
    folder: Path,
    given: argparse.Namespace,
) -> None:
    """Sample the disk until the time is over; meanwhile, let Spark write."""
    began = time.monotonic()
    end = began + given.minutes * 60
    jobs = [
        began + (end - began) * (n + 1) / (given.spark_jobs + 1) for n in range(given.spark_jobs)
    ]
    told = sampled = began
    while (at := time.monotonic()) < end:
        world.over.wait(_LOOK_SECONDS)
        is_full = backlog(world.store) > MOST_OWED
        (world.full.set if is_full else world.full.clear)()
        if jobs and at > jobs[0]:
            jobs.pop(0)
            write_by_spark(world, environment.hosts, folder)
        if at > sampled + SAMPLE_SECONDS:
            sampled = at
            samples.append(sample(world.store, environment.cluster.folder, at - began))
        if at > told + _TELL_SECONDS:
            told = at
            tell(
                f"{len(world.journal.puts):,} put, {len(world.journal.deliveries):,} delivered, "
                f"{len(world.journal.alarms)} alarms, disk {samples[-1]}"
            )


def write_by_spark(world: World, hosts: str, folder: Path) -> None:
    """Write one batch by a real Spark, twice under one name; it must be published once."""
    values = world.new_values(Random(world.seed), 500)
    queue = read_queue(world.store, "steady")
    begun, outcome = now(), Outcome.UNKNOWN
    options: dict[str, str | int] = {
        "spark.cassandra.connection.host": hosts,
        "queue": queue.name,
        "txnAppId": f"soak-{min(values)}",
        "txnVersion": 1,
    }
    spark = start_spark("cassieq soak", folder / "spark", master="local[1]", log_level="OFF")
    try:
        frame = spark.createDataFrame([(value,) for value in values.values()], "value STRING")
        for _ in range(2):
            frame.write.format("cassieq").options(**options).mode("append").save()
        outcome = Outcome.VISIBLE
        world.note("Spark jobs")
    except Exception as error:  # noqa: BLE001 (no error may occur)
        world.journal.alarms.append(f"Spark: {error}")
    finally:
        spark.stop()
        world.journal.puts += [
            Put(number, outcome, queue.queue_id, None, begun) for number in values
        ]


def drain(world: World) -> bool:
    """Wait until all groups have settled all messages; False if they make no progress."""
    operator = Operator(world, "last operator")
    least, told = backlog(world.store), 0.0
    moved = time.monotonic()
    while time.monotonic() < moved + _STUCK_SECONDS:
        world.over.wait(_LOOK_SECONDS)
        operator.repair()
        owed = backlog(world.store)
        if not owed:
            return True
        if owed < least:
            least, moved = owed, time.monotonic()
        if time.monotonic() > told + _TELL_SECONDS:
            told = time.monotonic()
            tell(f"{owed:,} messages are left")
    return False


def backlog(store: Store) -> int:
    """Messages that groups have not settled, except in queues that are purged meanwhile."""
    owed = 0
    for queue in list_queues(store):
        with suppress(QueueStateError, ContentionError):
            owed += depth(store, queue.queue_id) or 0
    return owed


def repair_clean(world: World) -> None:
    """Run the repair until nothing is left to do; all writers have ended."""
    time.sleep(1.1)  # longer than the write timeout below
    for _ in range(_REPAIRS):
        report = repair(world, world.store, tuple(Step), timedelta(seconds=1))
        totals = asdict(report.totals) | {"audited_messages": 0}
        if totals == asdict(Counts()):
            return
    world.journal.alarms.append(f"the repair finds something to do again and again: {totals}")


if __name__ == "__main__":
    sys.exit(main())
