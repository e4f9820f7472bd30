"""All that runs in a chaos run: nodes, a Spark cluster, applications and repair jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from cassieq_spark.groups.partitions import create_groups
from cassieq_spark.model import Order
from cassieq_spark.queues import create_queue, fix_clocks, open_ledgers
from cassieq_spark.schedules import create_schedule
from cassieq_spark.settings.schedule import MOST_CAUGHT_UP
from cassieq_spark.store.protocol import Store
from trials.chaos.checker import ASIDE, QUEUE
from trials.chaos.clocks import NodeClocks, skewed_python
from trials.chaos.faults import Striker
from trials.chaos.records import CALM, STOP, Notebook
from trials.chaos.spark_cluster import ARCHIVE, SparkCluster, ship, submit
from trials.environment import Cassandra, cassandra, tell
from trials.processes import Program

DEAD, GROUP = "chaos.dead", "billing"
#: The relay's group, and the queue that it publishes to.
ONWARD, RELAYED = "onward", "chaos.relayed"
#: Partitions of the queue, if it is ordered by key.
PARTITIONS = 8
#: For how long the queue knows unique ids, if it is ordered by key.
WINDOW = timedelta(minutes=3)
#: For how long the queue keeps the history of its messages, by whichever clock of a node.
HISTORY = timedelta(days=7)
#: The group of the clerks.
COUNTER = "counter"
PRODUCERS = ("tick", "tock")
CONSUMERS = ("left", "right")
RELAYS = ("onward",)
REPAIRS = ("repair-1", "repair-2")
SCRIBES = ("scribe-1", "scribe-2")
CLERKS = ("clerk-1", "clerk-2", "clerk-3")
RUNNERS = ("runner-1", "runner-2", "runner-3")
#: The queue into which the runners put the ticks of a schedule, and the schedule.
TICKS, SCHEDULE = "chaos.ticks", "beat"
_EVERY = timedelta(seconds=3)
#: Short, so that pauses break some leases, and messages of killed consumers are redelivered soon.
LEASE = timedelta(seconds=10)
#: Longer, as a clerk looks at one partition after the other.
CLERKS_LEASE = timedelta(seconds=20)
#: The default of `cassieq queue create`.
MAX_DELIVERIES = 5
WRITE_TIMEOUT_SECONDS = 90
#: No lease is longer, unless a clock that was ahead has made it.
_LONGEST = 10 * LEASE
_NODE_HEAP_MB = 384
_MOST_SKEW_SECONDS = 20.0
#: The repair job whose clock is wrong by a day. A repair uses the earlier of the server's time and
#: its own.
_WRONG = REPAIRS[-1]
_WRONG_BY = timedelta(days=1)
ROWS_PER_BATCH = 200
_MESSAGES_PER_TRIGGER = 1000
_MESSAGES_PER_TASK = 250


@dataclass(frozen=True, slots=True)
class Programs:
    """The applications of one role, in the folder of the role."""

    folder: Path
    applications: Sequence[Program]

    @property
    def notebooks(self) -> list[Notebook]:
        """Their files."""
        return [Notebook(self.folder / each.name) for each in self.applications]

    def end(self) -> None:
        """Tell all of them to end."""
        (self.folder / STOP).touch()


@dataclass(frozen=True, slots=True)
class Environment:
    """All that runs.

    Attributes:
        folder: The folder of all files.
        cassandra: The nodes, and the trial's own store.
        queues: The queues that consumers and relays read.
        producers, consumers, relays: Queries on Spark.
        scribes, clerks: Clients that put and receive; none unless the queue is ordered by key.
        skews: How far the wall clock of each program is ahead.
        repairs: Repair jobs.
        runners: Processes that run schedules.
        striker: Strikes all of these.
    """

    folder: Path
    cassandra: Cassandra
    queues: Sequence[str]
    producers: Programs
    consumers: Programs
    relays: Programs
    scribes: Programs
    clerks: Programs
    repairs: Sequence[Program]
    skews: Mapping[str, timedelta]
    runners: Sequence[Program]
    striker: Striker

    @property
    def store(self) -> Store:
        return self.cassandra.store

    @property
    def everybody(self) -> list[Program]:
        return [*self.senders, *self.receivers, *self.servants]

    @property
    def clients(self) -> list[Program]:
        """All programs beside Spark, but the repair."""
        return [*self.scribes.applications, *self.clerks.applications, *self.runners]

    @property
    def servants(self) -> list[Program]:
        """All programs that have no end of their own."""
        return [*self.repairs, *self.runners]

    @property
    def senders(self) -> list[Program]:
        """All programs that put messages."""
        return [*self.producers.applications, *self.scribes.applications]

    @property
    def receivers(self) -> list[Program]:
        """All programs that get messages."""
        roles = (self.consumers, self.relays, self.clerks)
        return [each for role in roles for each in role.applications]

    @property
    def notebooks(self) -> list[Notebook]:
        """Those of the queries."""
        return [*self.producers.notebooks, *self.consumers.notebooks, *self.relays.notebooks]

    @property
    def puts(self) -> list[dict[str, Any]]:
        """The events of all scribes."""
        return [event for each in self.scribes.notebooks for event in each.events()]

    def calm_down(self) -> None:
        """Let queries run without stops: each stop makes the replayed batches smaller."""
        (self.folder / CALM).touch()

    def fix_clocks(self) -> None:
        """Undo the effects of a node's wrong clock, as operators do when it is right again."""
        for queue in (*self.queues, RELAYED, TICKS):
            fix_clocks(self.store, queue, longest=_LONGEST)

    def packages_not_shipped(self) -> list[str]:
        """Executors that have imported another package than the one that was shipped."""
        told = [
            event["package"]
            for each in self.notebooks
            for event in each.events()
            if event["event"] == "started"
        ]
        return [f"executors had {package}" for package in told if ARCHIVE not in package]

    def troubles_of_clients(self) -> list[str]:
        """Errors that no client may have."""
        return [
            f"{each.name}: {event['error']}"
            for each in (*self.scribes.notebooks, *self.clerks.notebooks)
            for event in each.events()
            if event["event"] == "trouble"
        ]

    def troubles_of_runners(self) -> list[str]:
        """Runners of schedules that an error has ended."""
        logs = {each.name: each.log.read_text(errors="replace") for each in self.runners}
        return [f"{name}: see its log" for name, log in logs.items() if "Traceback" in log]

    def audit(self) -> bool:
        """Run the repair once more; True if its audit finds nothing."""
        run = command(Path(sys.executable), self.cassandra.hosts, "repair", "run")
        with (self.folder / "audit.log").open("wb") as log:
            return subprocess.run(run, stdout=log, stderr=log, check=False).returncode == 0


@contextmanager
def running(
    folder: Path, seed: int, *, by_key: bool = False, several: bool = False
) -> Iterator[Environment]:
    """Start the nodes and the Spark cluster, and describe all programs; at the end, stop all."""
    # write_through, as a killed node must not lose acknowledged writes: with another replica
    # paused, these could be lost.
    clocks = NodeClocks(folder / "clocks")
    with (
        cassandra(
            nodes=3, heap_mb=_NODE_HEAP_MB, write_through=True, prefix=clocks.prefix
        ) as nodes,
        SparkCluster(folder) as spark,
    ):
        create_queue(
            nodes.store,
            QUEUE,
            order=Order.KEY if by_key else Order.NONE,
            partitions=PARTITIONS if by_key else 1,
            lease=LEASE,
            max_deliveries=MAX_DELIVERIES,
            dead_letter_queue=DEAD,
            deduplicate=WINDOW if by_key else None,
            history=HISTORY,
        )
        create_queue(nodes.store, RELAYED)
        create_queue(nodes.store, TICKS)
        create_schedule(
            nodes.store, TICKS, SCHEDULE, "{{tick}}", every=_EVERY, catch_up=MOST_CAUGHT_UP
        )
        for group in (GROUP, ONWARD, *((COUNTER,) if by_key else ())):
            create_groups(open_ledgers(nodes.store, QUEUE), group, "earliest")
        if several:
            create_queue(
                nodes.store,
                ASIDE,
                order=Order.KEY if by_key else Order.NONE,
                lease=LEASE,
                max_deliveries=MAX_DELIVERIES,
                dead_letter_queue=DEAD,
            )
            for group in (GROUP, ONWARD):
                create_groups(open_ledgers(nodes.store, ASIDE), group, "earliest")
        by_key_only = (*SCRIBES, *CLERKS) if by_key else ()
        names = (*PRODUCERS, *CONSUMERS, *RELAYS, *REPAIRS, *by_key_only, *RUNNERS)
        skews = skews_of(seed, names)
        pythons = skewed_pythons(folder, skews)
        archive = ship(folder)

        def programs(role: str, names: Sequence[str], cores: int, **arguments: object) -> Programs:
            applications = [
                submit(
                    spark,
                    role,
                    folder=folder / role / name,
                    archive=archive,
                    python=pythons[name],
                    cores=cores,
                    arguments=arguments,
                )
                for name in names
            ]
            return Programs(folder / role, applications)

        def clients(role: str, names: Sequence[str]) -> Programs:
            told = ["--hosts", nodes.hosts, "--queue", QUEUE, "--group", COUNTER]
            told += ["--lease", str(CLERKS_LEASE.total_seconds())]
            applications = []
            (folder / role).mkdir()
            for name in names if by_key else ():
                own = folder / role / name
                words = [str(pythons[name]), "-m", "trials.chaos.clients", role, *told]
                applications.append(
                    Program(name, [*words, "--folder", str(own)], log=own.with_suffix(".log"))
                )
            return Programs(folder / role, applications)

        connection = {"spark.cassandra.connection.host": nodes.hosts}
        writing = connection | ({"queueColumn": "to"} if several else {"queue": QUEUE})
        pattern = {"queuePattern": f"{QUEUE}|{ASIDE}".replace(".", r"\.")}
        reading = (
            connection
            | (pattern if several else {"queue": QUEUE})
            | {
                "maxMessagesPerTrigger": _MESSAGES_PER_TRIGGER,
                "messagesPerTask": _MESSAGES_PER_TASK,
            }
        )
        billing, relaying = reading | {"group": GROUP}, reading | {"group": ONWARD}
        onward = connection | {"queue": RELAYED, "exactlyOnce": "batch"}
        producers = programs(
            "producer", PRODUCERS, 1, writing=writing, rows_per_batch=ROWS_PER_BATCH
        )
        consumers = programs("consumer", CONSUMERS, 2, reading=billing)
        relays = programs("relay", RELAYS, 1, reading=relaying, writing=onward)
        scribes, clerks = clients("scribe", SCRIBES), clients("clerk", CLERKS)
        repairing = ["--every", "5s", "--write-timeout", f"{WRITE_TIMEOUT_SECONDS}s"]
        repairs = [
            Program(
                name,
                [*command(pythons[name], nodes.hosts, "repair", "run"), *repairing],
                log=folder / f"{name}.log",
            )
            for name in REPAIRS
        ]
        runners = [
            Program(
                name,
                command(pythons[name], nodes.hosts, "schedule", "run"),
                log=folder / f"{name}.log",
            )
            for name in RUNNERS
        ]
        applications = [
            each for some in (producers, consumers, relays) for each in some.applications
        ]
        by_client = [*scribes.applications, *clerks.applications, *runners]
        striker = Striker(nodes.cluster, clocks, applications, spark.workers, repairs, by_client)
        queues = (QUEUE, ASIDE) if several else (QUEUE,)
        environment = Environment(
            folder,
            nodes,
            queues,
            producers,
            consumers,
            relays,
            scribes,
            clerks,
            repairs,
            skews,
            runners,
            striker,
        )
        try:
            yield environment
        finally:
            for each in environment.everybody:
                each.kill()


def skews_of(seed: int, names: Sequence[str]) -> dict[str, timedelta]:
    """How far the wall clock of each program is to be ahead."""
    chance = Random(f"{seed}/clocks")
    skews = {}
    for name in names:
        skew = timedelta(seconds=chance.uniform(-_MOST_SKEW_SECONDS, _MOST_SKEW_SECONDS))
        if name == _WRONG:
            skew += chance.choice([_WRONG_BY, -_WRONG_BY])
        skews[name] = skew
    return skews


def skewed_pythons(folder: Path, skews: Mapping[str, timedelta]) -> dict[str, Path]:
    """A Python with a wall clock of its own for each program."""
    for name, skew in skews.items():
        tell(f"the clock of {name} is {skew.total_seconds():+.1f} s off")
    return {
        name: skewed_python(folder / f"python-of-{name}", skew) for name, skew in skews.items()
    }


def command(python: Path, hosts: str, *words: str) -> list[str]:
    """A command of cassieq."""
    return [str(python), "-m", "cassieq_spark.cli", *words, "--contact-points", hosts]
