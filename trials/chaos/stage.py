"""All that is on stage in a chaos run: nodes, a Spark cluster, applications and repair runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.node import Cluster
from cassieq_spark.queues import create_queue, fix_clocks, read_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store
from trials.chaos.clocks import NodeClocks, skewed_python
from trials.chaos.faults import Striker
from trials.chaos.records import CALM, STOP, Notebook
from trials.chaos.spark_cluster import ARCHIVE, SparkCluster, ship, submit
from trials.chaos.supervision import Application

QUEUE, DEAD, GROUP = "chaos", "chaos.dead", "billing"
#: The relay's group, and the queue that it publishes to.
ONWARD, RELAYED = "onward", "chaos.relayed"
PRODUCERS = ("tick", "tock")
CONSUMERS = ("left", "right")
RELAYS = ("onward",)
REPAIRS = ("repair-1", "repair-2")
#: Folders of the programs, by their role.
_PRODUCERS, _CONSUMERS, _RELAYS = "producers", "consumers", "relays"
#: Short, so that pauses break some leases, and what a killed consumer held comes back soon.
LEASE = timedelta(seconds=10)
#: As `cassieq queue create` has it.
MAX_DELIVERIES = 5
WRITE_TIMEOUT_SECONDS = 90
#: No lease is longer; what is to wait for longer was handed out by a clock that was ahead.
_LONGEST = 10 * LEASE
_NODE_HEAP_MB = 384
_MOST_SKEW_SECONDS = 20.0
#: The repair whose clock is plainly wrong: it goes by the servers' clocks, or by its own if that
#: is the earlier one.
_WRONG = REPAIRS[-1]
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
        producers, consumers, relays, repairs: Those that work.
        striker: Who strikes them.
        tell: Tells what happens.
    """

    folder: Path
    hosts: tuple[str, ...]
    store: Store
    producers: Sequence[Application]
    consumers: Sequence[Application]
    relays: Sequence[Application]
    repairs: Sequence[Application]
    striker: Striker
    tell: Callable[[str], None]

    @property
    def everybody(self) -> list[Application]:
        """All that is supervised."""
        return [*self.producers, *self.receivers, *self.repairs]

    @property
    def receivers(self) -> list[Application]:
        """All that messages are handed out to."""
        return [*self.consumers, *self.relays]

    @property
    def sent_by(self) -> list[Notebook]:
        """What the producers have left on disk."""
        return [Notebook(self.folder / _PRODUCERS / each.name) for each in self.producers]

    @property
    def stored_by(self) -> list[Notebook]:
        """What the consumers have left on disk."""
        return [Notebook(self.folder / _CONSUMERS / each.name) for each in self.consumers]

    @property
    def relayed_by(self) -> list[Notebook]:
        """What the relays have left on disk."""
        return [Notebook(self.folder / _RELAYS / each.name) for each in self.relays]

    def calm_down(self) -> None:
        """Let all queries run undisturbed: each stop makes the batches that come again smaller."""
        (self.folder / CALM).touch()

    def end_producers(self) -> None:
        """Ask all producers to end in good order."""
        (self.folder / _PRODUCERS / STOP).touch()

    def end_receivers(self) -> None:
        """Ask all consumers and relays to end in good order."""
        for kind in (_CONSUMERS, _RELAYS):
            (self.folder / kind / STOP).touch()

    def fix_clocks(self) -> None:
        """Undo what a node's clock has done, as operators are to do when it is right again."""
        for queue in (QUEUE, RELAYED):
            fix_clocks(self.store, queue, longest=_LONGEST)

    def packages_not_shipped(self) -> list[str]:
        """Where executors had another package than the one they were given."""
        told = [
            event["package"]
            for each in (*self.sent_by, *self.stored_by, *self.relayed_by)
            for event in each.events()
            if event["event"] == "started"
        ]
        return [f"executors had {package}" for package in told if ARCHIVE not in package]


@contextmanager
def stage(folder: Path, seed: int, console: Console) -> Iterator[Scene]:
    """Set the scene, and clear it, whatever happens."""
    # A node that is killed must know what it has acknowledged: with one replica cut off and
    # another one forgetful, a quorum of three is none.
    clocks = NodeClocks(folder / "clocks")
    nodes = Cluster(nodes=3, heap_mb=_NODE_HEAP_MB, write_through=True, prefix=clocks.prefix)
    with nodes, SparkCluster(folder) as spark:
        hosts = tuple(f"{address}:{nodes.port}" for address in nodes.contact_points)
        connection = ConnectionOptions(contact_points=hosts)
        apply_schema(connection)
        store = open_store(connection)
        create_queue(
            store, QUEUE, lease=LEASE, max_deliveries=MAX_DELIVERIES, dead_letter_queue=DEAD
        )
        create_queue(store, RELAYED)
        for group in (GROUP, ONWARD):
            ensure_group(store, read_queue(store, QUEUE).queue_id, group, starting="earliest")
        pythons = skewed_pythons(folder, seed, console)
        cluster = {"spark.cassandra.connection.host": ",".join(hosts), "queue": QUEUE}
        archive = ship(folder)
        producers = [
            submit(
                spark,
                "producer.py",
                folder=folder / _PRODUCERS / name,
                archive=archive,
                python=pythons[name],
                cores=1,
                options=cluster,
                arguments=("--rows-per-batch", str(ROWS_PER_BATCH)),
            )
            for name in PRODUCERS
        ]
        reading = {
            "maxMessagesPerTrigger": _MESSAGES_PER_TRIGGER,
            "messagesPerTask": _MESSAGES_PER_TASK,
        }
        consumers = [
            submit(
                spark,
                "consumer.py",
                folder=folder / _CONSUMERS / name,
                archive=archive,
                python=pythons[name],
                cores=2,
                options=cluster | reading | {"group": GROUP},
            )
            for name in CONSUMERS
        ]
        relays = [
            submit(
                spark,
                "relay.py",
                folder=folder / _RELAYS / name,
                archive=archive,
                python=pythons[name],
                cores=1,
                options=cluster | reading | {"group": ONWARD},
                arguments=("--onward", RELAYED),
            )
            for name in RELAYS
        ]
        repairing = ["--every", "5s", "--write-timeout", f"{WRITE_TIMEOUT_SECONDS}s"]
        repairs = [
            Application(
                name,
                [*repair_command(pythons[name], hosts), *repairing],
                log=folder / f"{name}.log",
            )
            for name in REPAIRS
        ]
        began = time.monotonic()

        def tell(what: str) -> None:
            console.print(f"{time.monotonic() - began:6.1f} s  {what}", soft_wrap=True)

        applications = [*producers, *consumers, *relays]
        striker = Striker(nodes, clocks, applications, spark.workers, repairs, tell)
        scene = Scene(folder, hosts, store, producers, consumers, relays, repairs, striker, tell)
        try:
            yield scene
        finally:
            for each in scene.everybody:
                each.kill()
            store.close()


def skewed_pythons(folder: Path, seed: int, console: Console) -> dict[str, Path]:
    """A Python for everybody, with a wall clock of their own."""
    chance = random.Random(f"{seed}/clocks")
    pythons = {}
    for name in (*PRODUCERS, *CONSUMERS, *RELAYS, *REPAIRS):
        skew = timedelta(seconds=chance.uniform(-_MOST_SKEW_SECONDS, _MOST_SKEW_SECONDS))
        if name == _WRONG:
            skew += chance.choice([_WRONG_BY, -_WRONG_BY])
        pythons[name] = skewed_python(folder / f"python-of-{name}", skew)
        console.print(f"  the clock of {name} is {skew.total_seconds():+.1f} s off")
    return pythons


def repair_command(python: Path, hosts: Sequence[str]) -> list[str]:
    """The repair without Spark."""
    return [
        str(python),
        *("-m", "cassieq_spark.cli", "repair", "run", "--contact-points", ",".join(hosts)),
    ]
