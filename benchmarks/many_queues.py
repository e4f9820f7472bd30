"""Ten thousand queues: what it takes to create, list, look at and repair them.

Creates them on a Cassandra of its own, puts a message into some, and lets a group have begun on
those; then runs the commands that an operator would, each as a process of its own, and what
changes nothing several times. Prints JSON lines: what was done, and how many seconds it took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cassieq_spark import Client
from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema

_REPAIR = str(Path(__file__).parents[1] / "jobs" / "repair.py")
_GROUP = "workers"
_STEPS = "redeliver,expire,finalise"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument(
        "--used", type=int, default=1_000, help="queues with a message and a group"
    )
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3, help="of what changes nothing")
    given = parser.parse_args()
    with Cluster(nodes=1) as cluster:
        host = f"{cluster.contact_points[0]}:{cluster.port}"
        apply_schema(ConnectionOptions(contact_points=(host,)))
        with (
            Client(contact_points=host) as client,
            ThreadPoolExecutor(given.threads, thread_name_prefix="queues") as pool,
        ):
            names = [f"q{number:05}" for number in range(given.queues)]
            with timed("create", queues=given.queues):
                list(pool.map(partial(client.create_queue, drop_dead=True), names))
            with timed("put and receive", queues=given.used):
                list(pool.map(partial(use, client), names[: given.used]))
        cassieq = [sys.executable, "-m", "cassieq_spark.cli"]
        where = ["--contact-points", host]
        repair = [sys.executable, _REPAIR, "--scan", "driver", *where]
        run(f"repair --steps {_STEPS}", [*repair, "--steps", _STEPS])
        for _ in range(given.runs):
            run("queue list", [*cassieq, "queue", "list", "--json", *where])
            run("queue stats", [*cassieq, "queue", "stats", names[0], "--json", *where])
            run(f"repair --steps {_STEPS}, again", [*repair, "--steps", _STEPS])
            run("repair, every step", repair)


def use(client: Client, queue: str) -> None:
    """Put two messages, and settle one."""
    client.put_many(queue, ["done", "owed"])
    client.ack(*client.receive(queue, _GROUP))


def run(name: str, command: list[str]) -> None:
    """Run a command, and show what it took, the start of Python included."""
    with timed(name):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def timed(name: str, **figures: int) -> Iterator[None]:
    """Show how long it took."""
    began = time.monotonic()
    yield
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"what": name, **figures, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
