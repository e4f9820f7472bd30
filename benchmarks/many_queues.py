"""Ten thousand queues, of which a thousand are busy: the time to use, list, show and repair them.

Starts a Cassandra, creates the queues, and puts messages into some of them, of which a group acks
one. Then threads put, receive and ack in a hundred queues in turn, and in all that are used, while
the figures of all queues are read again and again, as the exporter does. Last, it runs an
operator's commands, each as a process; those that change nothing, several times. Prints JSON
lines: each step, and its seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

from benchmarks.lines import show, timed
from cassieq_spark import Client
from cassieq_spark.monitoring.readings import Readings
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from trials.environment import cassandra

_REPAIR = str(Path(__file__).parents[1] / "jobs" / "repair.py")
_GROUP = "workers"
_STEPS = "redeliver,expire,finalise"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument(
        "--used", type=int, default=1_000, help="queues with a message and a group"
    )
    parser.add_argument("--partitions", type=int, default=1, help="of the queues that are used")
    parser.add_argument("--rounds", type=int, default=5, help="of each number of busy queues")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3, help="of the commands that change nothing")
    given = parser.parse_args()
    with cassandra(nodes=1) as environment:
        host = environment.hosts
        with (
            Client(contact_points=host) as client,
            ThreadPoolExecutor(given.threads, thread_name_prefix="queues") as pool,
        ):
            names = [f"q{number:05}" for number in range(given.queues)]
            with timed("create", queues=given.queues):
                used, others = names[: given.used], names[given.used :]
                make = partial(client.create_queue, drop_dead=True)
                list(pool.map(partial(make, partitions=given.partitions), used))
                list(pool.map(make, others))
            with timed("put and receive", queues=given.used):
                list(pool.map(partial(use, client), used))
        for busy in (100, given.used) * given.rounds:
            be_busy(environment.store, used[:busy], given)
        cassieq = [sys.executable, "-m", "cassieq_spark.cli"]
        where = ["--contact-points", host]
        repair = [sys.executable, _REPAIR, "--scan", "driver", *where]
        run(f"repair --steps {_STEPS}", [*repair, "--steps", _STEPS])
        for _ in range(given.runs):
            run("queue list", [*cassieq, "queue", "list", "--json", *where])
            run("queue stats", [*cassieq, "queue", "stats", names[0], "--json", *where])
            run(f"repair --steps {_STEPS}, again", [*repair, "--steps", _STEPS])
            run("repair, every step", repair)


def be_busy(store: Store, queues: Sequence[str], given: argparse.Namespace) -> None:
    """Put, receive and ack as often in some queues as in all that are used."""
    counted = CountingStore(store)
    times = given.used // len(queues)
    over = Event()
    with (
        Client.from_store(counted) as client,
        ThreadPoolExecutor(given.threads, thread_name_prefix="busy") as pool,
    ):
        watching = pool.submit(watch, store, over)
        began = time.monotonic()
        list(pool.map(partial(use, client), [*queues] * times))
        seconds = time.monotonic() - began
        over.set()
    done = len(queues) * times
    figures = {
        "ms": seconds * 1000 * given.threads / done,
        "lwts": counted.cas_count / done,
        "reads": (counted.read_count + counted.serial_read_count) / done,
        "reading_seconds": statistics.median(watching.result()),
    }
    show(
        what="put two, receive, ack one",
        busy=len(queues),
        **{name: round(figure, 2) for name, figure in figures.items()},
    )


def watch(store: Store, over: Event) -> list[float]:
    """Read the figures of all queues until it is over; return the seconds of each reading."""
    readings = Readings(store)
    took: list[float] = []
    while not took or not over.is_set():
        began = time.monotonic()
        readings.read()
        took.append(time.monotonic() - began)
    return took


def use(client: Client, queue: str) -> None:
    client.put_many(queue, ["done", "owed"])
    client.ack(*client.receive(queue, _GROUP))


def run(name: str, command: list[str]) -> None:
    """Run a command and show its seconds, with the start of Python."""
    with timed(name):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
