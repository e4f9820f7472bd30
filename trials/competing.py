"""Three queries of one group share a queue while one or the other is killed, hard, now and then.

Each query is a process of its own with a Spark of its own. What a batch had is stored under the
query's name and the batch id, so that a batch that is processed again replaces itself. Prints, as
JSON, what was lost, what was processed by more than one query, and how often messages were
delivered. Exit code 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition
from cassieq_spark.node import Cluster
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store
from trials.competing_consumer import RESULT_SUFFIX
from trials.processes import Child

QUEUE, GROUP = "orders", "billing"
QUERIES = ("a", "b", "c")
#: Short, so that what a killed query held comes back within the run.
LEASE_SECONDS = 8
_BLOCK = 100_000
_LOOK_SECONDS = 0.5


def main() -> int:
    """Run it on a Cassandra of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--every", type=float, default=10, help="seconds between kills")
    parser.add_argument("--limit", type=float, default=1500, help="seconds for all of it")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {given.seed}")
    folder = Path(tempfile.mkdtemp(prefix="cassieq-competing-"))
    try:
        with Cluster(nodes=1) as cluster:
            host = f"{cluster.contact_points[0]}:{cluster.port}"
            connection = ConnectionOptions(contact_points=(host,))
            apply_schema(connection)
            store = open_store(connection)
            queue = create_queue(store, QUEUE)
            fill(store, queue, given.messages)
            report = compete(store, queue, host, folder, given, console)
            store.close()
            report |= count(folder, given.messages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report))
    return 1 if report["lost"] or not report["finished"] else 0


def fill(store: Store, queue: QueueDefinition, messages: int) -> None:
    """Publish numbers as text; each message's number is its monoton."""
    for start in range(0, messages, _BLOCK):
        numbers = range(start, min(messages, start + _BLOCK))
        batch = pa.record_batch({"value": pa.array([str(number) for number in numbers])})
        written = write_block(store, queue, [batch], SinkOptions(queue=QUEUE))
        publish(store, queue.queue_id, [written])


def compete(  # noqa: PLR0913, PLR0917 (a program)
    store: Store,
    queue: QueueDefinition,
    host: str,
    folder: Path,
    given: argparse.Namespace,
    console: Console,
) -> dict[str, object]:
    """Let the queries run, kill them now and then, start them again, until nothing is owed."""
    chance = random.Random(given.seed)
    children = {name: start(name, host, folder) for name in QUERIES}
    began = last_kill = time.monotonic()
    kills = died = 0
    finished = False
    try:
        while not finished and time.monotonic() < began + given.limit:
            time.sleep(_LOOK_SECONDS)
            for name, child in children.items():
                if child.exit_code() is not None:
                    died += 1
                    children[name] = start(name, host, folder)
            groups = queue_stats(store, queue.queue_id).groups
            finished = any(group.depth == 0 for group in groups)
            busy = [name for name in QUERIES if any(folder.glob(f"results/{name}-*"))]
            if busy and kills < given.kills and time.monotonic() > last_kill + given.every:
                name = chance.choice(busy)
                children[name].kill()
                kills += 1
                last_kill = time.monotonic()
                children[name] = start(name, host, folder)
                owed = groups[0].depth if groups else given.messages
                console.print(f"killed {name}, {owed:,} messages to go")
    finally:
        for child in children.values():
            child.kill()
    seconds = round(time.monotonic() - began, 1)
    return {"finished": finished, "kills": kills, "died_otherwise": died, "seconds": seconds}


def start(name: str, host: str, folder: Path) -> Child:
    """Start a query, from where its checkpoint says on."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    arguments = [QUEUE, GROUP, name, host, str(folder), str(LEASE_SECONDS)]
    command = [sys.executable, "-m", "trials.competing_consumer", *arguments]
    return Child(name, command, log=folder / f"{name}.log")


def count(folder: Path, messages: int) -> dict[str, object]:
    """What all the results come to."""
    processed: Counter[int] = Counter()
    share: Counter[str] = Counter()
    deliveries: Counter[int] = Counter()
    for path in (folder / "results").glob(f"*{RESULT_SUFFIX}"):
        result = json.loads(path.read_text())
        processed.update(result["monotons"])
        deliveries.update(result["deliveries"])
        share[path.name.partition("-")[0]] += len(result["monotons"])
    return {
        "messages": messages,
        "processed": len(processed),
        "lost": len(set(range(messages)) - set(processed)),
        "processed_twice": sum(times - 1 for times in processed.values()),
        "by_query": dict(sorted(share.items())),
        "messages_by_delivery_count": dict(sorted(deliveries.items())),
    }


if __name__ == "__main__":
    sys.exit(main())
