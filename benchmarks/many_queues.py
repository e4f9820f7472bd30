"""Ten thousand queues: the time to create, list, show and repair them.

Starts a Cassandra, creates the queues, and puts messages into some of them, of which a group acks
one. Then runs an operator's commands, each as a process; those that change nothing, several times.
Prints JSON lines: each step, and its seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.lines import timed
from cassieq_spark import Client
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
    client.put_many(queue, ["done", "owed"])
    client.ack(*client.receive(queue, _GROUP))


def run(name: str, command: list[str]) -> None:
    """Run a command and show its seconds, with the start of Python."""
    with timed(name):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
