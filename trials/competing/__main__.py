"""Three queries of one group share a queue, while one of them is killed now and then.

Each query is a process with a Spark of its own. It stores the rows of a batch under its name and
the batch id, so a batch that is processed again is replaced. Prints, as JSON, how many messages
were lost, how many were processed by more than one query, and how often messages were delivered.
The exit code is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame

from cassieq_spark.queues import create_queue
from trials.environment import (
    Cassandra,
    Report,
    arguments,
    carry_out,
    cassandra,
    depth,
    fill,
    tell,
)
from trials.processes import Program, supervise
from trials.spark import Results, start_spark

QUEUE, GROUP = "orders", "billing"
QUERIES = ("a", "b", "c")
#: Short, so that the messages of a killed query are delivered again within the run.
LEASE_SECONDS = 8
_BATCH = 5000
_LOOK_SECONDS = 0.5


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--every", type=float, default=10, help="seconds between kills")
    parser.add_argument("--limit", type=float, default=1500, help="seconds for all of it")
    given = parser.parse_args()
    tell(f"seed {given.seed}")

    def play(folder: Path) -> Report:
        with cassandra(nodes=1) as environment:
            return compete(environment, folder, given) | count(folder, given.messages)

    return carry_out(
        "competing", play, fine=lambda report: report["finished"] and not report["lost"]
    )


def compete(environment: Cassandra, folder: Path, given: argparse.Namespace) -> Report:
    """Run the queries, kill and restart them, until all messages are settled."""
    chance = Random(given.seed)
    queue = create_queue(environment.store, QUEUE)
    fill(environment.store, queue, given.messages)
    command = [sys.executable, "-m", "trials.competing", "query", environment.hosts]
    queries = [
        Program(name, [*command, str(folder / name)], log=folder / f"{name}.log")
        for name in QUERIES
    ]
    began = last_kill = time.monotonic()
    kills, owed = 0, None
    try:
        while owed != 0 and time.monotonic() < began + given.limit:
            supervise(queries, for_ever=True)
            time.sleep(_LOOK_SECONDS)
            owed = depth(environment.store, queue.queue_id)
            busy = [query for query in queries if Results(folder / query.name).paths()]
            if busy and kills < given.kills and time.monotonic() > last_kill + given.every:
                victim = chance.choice(busy)
                victim.kill()
                kills += 1
                last_kill = time.monotonic()
                left = given.messages if owed is None else owed
                tell(f"killed {victim.name}, {left:,} messages to go")
    finally:
        for query in queries:
            query.kill()
    return {
        "finished": owed == 0,
        "kills": kills,
        "died_otherwise": max(0, sum(query.starts - 1 for query in queries) - kills),
        "seconds": round(time.monotonic() - began, 1),
    }


def count(folder: Path, messages: int) -> Report:
    processed: Counter[int] = Counter()
    share: dict[str, int] = {}
    deliveries: Counter[int] = Counter()
    for name in QUERIES:
        for _, rows in Results(folder / name).tables():
            processed.update(rows.column("monoton").to_pylist())
            deliveries.update(rows.column("delivery_count").to_pylist())
            share[name] = share.get(name, 0) + rows.num_rows
    return {
        "messages": messages,
        "processed": len(processed),
        "lost": len(set(range(messages)) - set(processed)),
        "processed_twice": sum(times - 1 for times in processed.values()),
        "by_query": share,
        "messages_by_delivery_count": dict(sorted(deliveries.items())),
    }


def query(hosts: str, folder: Path) -> None:
    """Read the queue for ever, and store each batch."""
    results = Results(folder)
    spark = start_spark(
        f"cassieq competing {folder.name}", folder / "spark", master="local[1]", log_level="ERROR"
    )

    def store(batch: DataFrame, batch_id: int) -> None:
        results.store(batch_id, batch.select("monoton", "delivery_count").toArrow())

    options: dict[str, str | int] = {
        "spark.cassandra.connection.host": hosts,
        "queue": QUEUE,
        "group": GROUP,
        "maxMessagesPerTrigger": _BATCH,
        "leaseSeconds": LEASE_SECONDS,
    }
    stream = spark.readStream.format("cassieq").options(**options).load()
    writer = stream.writeStream.foreachBatch(store).trigger(processingTime="0 seconds")
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    if sys.argv[1:2] == ["query"]:
        query(sys.argv[2], Path(sys.argv[3]))
    sys.exit(main())
