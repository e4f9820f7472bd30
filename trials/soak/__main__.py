"""A queue used by everybody at once for minutes, while everybody dies of it now and then.

Producers, writers like Spark's, consumers, streaming readers and repair runs work on six queues
of a Cassandra of its own; operators alter, pause, purge, delete and create them at random; two
batch writes of a real Spark come in between. Two gateways share an address, so that messages are
mostly settled by another one than handed them out; batches are put again under their keys; and
writers go back to an older checkpoint now and then, which must be refused. Each actor may die at
any call of the store; another one that knows what was on disk replaces it. In the end everything
is drained and repaired, and accounted for: message by message, row by row, and by the space on
disk. Prints a report as JSON; exit code 1 if anything is off.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import threading

from rich.console import Console

from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.tables import Table
from trials.soak.course import soak
from trials.soak.store import Abandoned

#: What is deleted is forgotten, and so leaves the disk, within the run. Safe with one node.
GRACE_SECONDS = 30
FLUSH_MS = 15_000


def main() -> int:
    """Run it on a Cassandra of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--spark-jobs", type=int, default=2, help="batch writes of a real Spark")
    given = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {given.seed}: the same choices, but threads take their turns anew")
    threading.excepthook = _tell_no_deaths
    logging.getLogger("cassieq_spark").setLevel(logging.CRITICAL)
    with Cluster(nodes=1) as cluster:
        host = f"{cluster.contact_points[0]}:{cluster.port}"
        connection = ConnectionOptions(contact_points=(host,))
        apply_schema(connection)
        flush_and_forget(connection)
        store = open_store(connection)
        try:
            report = soak(store, given, cluster.folder, host, console)
        finally:
            store.close()
    print(json.dumps(report))
    return 0 if report["fine"] else 1


def flush_and_forget(connection: ConnectionOptions) -> None:
    """Have the tables flushed regularly, and deletions forgotten soon."""
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


if __name__ == "__main__":
    sys.exit(main())
