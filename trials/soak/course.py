"""The course of a soak: everybody works, then all is drained and repaired, and judged."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.ledger.read import stream_blocks
from cassieq_spark.queues import list_queues
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.report import Counts
from cassieq_spark.repair.steps import Step
from cassieq_spark.store.protocol import Store
from trials.soak.actors import NATURES, Actor, World
from trials.soak.checker import Journal
from trials.soak.consumers import BalancedConsumer, ClientConsumer, QueryReader
from trials.soak.disk import Sample
from trials.soak.operators import Operator, Repairer, repair
from trials.soak.publishers import ClientProducer, SparkLikeWriter
from trials.soak.report import report_of
from trials.soak.spark import write_by_spark
from trials.soak.watching import Watch, alarmed, expiry_counted

#: How long actors live, in calls of the store.
LIFETIME = 150
SAMPLE_SECONDS = 20.0
#: Publishers wait while groups are owed more, so that disk use tells of leaks, not of a backlog.
MOST_OWED = 10_000
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 60.0
#: Longer than any lease, hold, delay, or pause before a burial is tried again.
_STUCK_SECONDS = 180.0
_REPAIRS = 20


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
            drained = drain(world, console)
        world.over.set()
        for actor in actors:
            actor.thread.join()
        with alarmed(world):
            repair_clean(world)
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
        BalancedConsumer(world, "balanced-1"),
        BalancedConsumer(world, "balanced-2", LIFETIME),
        Operator(world, "operator-1"),
        Operator(world, "operator-2", LIFETIME // 4),
        Repairer(world, "repairer-1"),
        Repairer(world, "repairer-2", LIFETIME),
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


def drain(world: World, console: Console) -> bool:
    """Wait until no group of any queue is owed anything; False if nothing moves for too long."""
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
            console.print(f"{owed:,} messages are left")
    return False


def backlog(store: Store) -> int:
    """How much all groups are owed; of a queue that is purged or deleted meanwhile, nothing."""
    owed = 0
    for queue in list_queues(store):
        with suppress(QueueStateError, ContentionError):
            owed += sum(group.depth for group in queue_stats(store, queue.queue_id).groups)
    return owed


def repair_clean(world: World) -> None:
    """Run the repair until nothing is left to do; nobody writes any more."""
    time.sleep(1.1)  # older than the write timeout that follows
    for _ in range(_REPAIRS):
        report = repair(world, world.store, tuple(Step), timedelta(seconds=1))
        totals = asdict(report.totals) | {"audited_messages": 0}
        if totals == asdict(Counts()):
            return
    world.journal.alarms.append(f"the repair finds something to do again and again: {totals}")
