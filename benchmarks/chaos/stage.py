"""All that is on stage in a chaos run: nodes, a Spark cluster, applications and sweeps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from benchmarks.chaos.clocks import skewed_python
from benchmarks.chaos.faults import Striker
from benchmarks.chaos.records import STOP, Notebook
from benchmarks.chaos.spark_cluster import ARCHIVE, SparkCluster, ship, submit
from benchmarks.chaos.supervision import Application
from cassieq_spark.node import Cluster
from cassieq_spark.queues import create_queue
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store

QUEUE, DEAD, GROUP = "chaos", "chaos.dead", "billing"
PRODUCERS = ("tick", "tock")
CONSUMERS = ("left", "right")
SWEEPS = ("sweep-1", "sweep-2")
#: Short, so that pauses break some leases, and what a killed consumer held comes back soon.
LEASE = timedelta(seconds=10)
#: As `cassieq queue create` has it.
MAX_DELIVERIES = 5
WRITE_TIMEOUT_SECONDS = 90
_NODE_HEAP_MB = 384
_MOST_SKEW_SECONDS = 20.0
#: The sweep whose clock is plainly wrong: it goes by the servers' clocks, or by its own if that is
#: the earlier one.
_WRONG = SWEEPS[-1]
_WRONG_BY = timedelta(days=1)
ROWS_PER_BATCH = 200
_MESSAGES_PER_TRIGGER = 1000
_MESSAGES_PER_TASK = 250


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is on stage.

    Attributes:
        folder: Where everybody keeps what they have.
        hosts: The nodes, by address and port.
        store: The harness's own.
        producers, consumers, sweeps: Those that work.
        striker: Who strikes them.
        tell: Tells what happens.
    """

    folder: Path
    hosts: tuple[str, ...]
    store: Store
    producers: Sequence[Application]
    consumers: Sequence[Application]
    sweeps: Sequence[Application]
    striker: Striker
    tell: Callable[[str], None]

    @property
    def everybody(self) -> list[Application]:
        """All that is supervised."""
        return [*self.producers, *self.consumers, *self.sweeps]

    @property
    def sent_by(self) -> list[Notebook]:
        """What the producers have left on disk."""
        return [Notebook(self.folder / "producers" / each.name) for each in self.producers]

    @property
    def stored_by(self) -> list[Notebook]:
        """What the consumers have left on disk."""
        return [Notebook(self.folder / "consumers" / each.name) for each in self.consumers]

    def end(self, applications: Sequence[Application]) -> None:
        """Ask all producers, or all consumers, to end in good order."""
        kind = "producers" if applications is self.producers else "consumers"
        (self.folder / kind / STOP).touch()

    def packages_not_shipped(self) -> list[str]:
        """Where executors had another package than the one they were given."""
        told = [
            event["package"]
            for each in (*self.sent_by, *self.stored_by)
            for event in each.events()
            if event["event"] == "started"
        ]
        return [f"executors had {package}" for package in told if ARCHIVE not in package]


@contextmanager
def stage(folder: Path, seed: int, console: Console) -> Iterator[Scene]:
    """Set the scene, and clear it, whatever happens."""
    # A node that is killed must know what it has acknowledged: with one replica cut off and
    # another one forgetful, a quorum of three is none.
    nodes = Cluster(nodes=3, heap_mb=_NODE_HEAP_MB, write_through=True)
    with nodes, SparkCluster(folder) as spark:
        hosts = tuple(f"{address}:{nodes.port}" for address in nodes.contact_points)
        connection = ConnectionOptions(contact_points=hosts)
        apply_schema(connection)
        store = open_store(connection)
        create_queue(
            store, QUEUE, lease=LEASE, max_deliveries=MAX_DELIVERIES, dead_letter_queue=DEAD
        )
        pythons = skewed_pythons(folder, seed, console)
        cluster = {"spark.cassandra.connection.host": ",".join(hosts), "queue": QUEUE}
        archive = ship(folder)
        producers = [
            submit(
                spark,
                "producer.py",
                folder=folder / "producers" / name,
                archive=archive,
                python=pythons[name],
                cores=1,
                options=cluster,
                arguments=("--rows-per-batch", str(ROWS_PER_BATCH)),
            )
            for name in PRODUCERS
        ]
        reading = {
            "group": GROUP,
            "maxMessagesPerTrigger": _MESSAGES_PER_TRIGGER,
            "messagesPerTask": _MESSAGES_PER_TASK,
        }
        consumers = [
            submit(
                spark,
                "consumer.py",
                folder=folder / "consumers" / name,
                archive=archive,
                python=pythons[name],
                cores=2,
                options=cluster | reading,
            )
            for name in CONSUMERS
        ]
        sweeping = ["--every", "5s", "--write-timeout", f"{WRITE_TIMEOUT_SECONDS}s"]
        sweeps = [
            Application(
                name,
                [*sweep_command(pythons[name], hosts), *sweeping],
                log=folder / f"{name}.log",
            )
            for name in SWEEPS
        ]
        began = time.monotonic()

        def tell(what: str) -> None:
            console.print(f"{time.monotonic() - began:6.1f} s  {what}", soft_wrap=True)

        striker = Striker(nodes, [*producers, *consumers], spark.workers, sweeps, tell)
        scene = Scene(folder, hosts, store, producers, consumers, sweeps, striker, tell)
        try:
            yield scene
        finally:
            for each in scene.everybody:
                each.kill()
            store.close()


def skewed_pythons(folder: Path, seed: int, console: Console) -> dict[str, Path]:
    """A Python for everybody, with a wall clock of their own."""
    chance = random.Random(f"{seed}/clocks")  # noqa: S311 (how far off they are)
    pythons = {}
    for name in (*PRODUCERS, *CONSUMERS, *SWEEPS):
        skew = timedelta(seconds=chance.uniform(-_MOST_SKEW_SECONDS, _MOST_SKEW_SECONDS))
        if name == _WRONG:
            skew += chance.choice([_WRONG_BY, -_WRONG_BY])
        pythons[name] = skewed_python(folder / f"python-of-{name}", skew)
        console.print(f"  the clock of {name} is {skew.total_seconds():+.1f} s off")
    return pythons


def sweep_command(python: Path, hosts: Sequence[str]) -> list[str]:
    """The sweep without Spark."""
    return [
        str(python),
        *("-m", "cassieq_spark.cli", "repair", "run", "--contact-points", ",".join(hosts)),
    ]
