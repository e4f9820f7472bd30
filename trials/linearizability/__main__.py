"""Gather histories on a node that is paused now and then: python -m trials.linearizability."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.recorded import find_violations
from trials.linearizability.gather import gather

#: Shorter than most pauses, so that clients give up; Cassandra itself gives up at half of it.
REQUEST_TIMEOUT = timedelta(milliseconds=600)
KEYSPACE = "history"


def main(arguments: Sequence[str]) -> int:
    """Go on for a time; 1 if a history has no order."""
    parser = argparse.ArgumentParser(prog="trials.linearizability", description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="how long")
    parser.add_argument("--threads", type=int, default=6, help="how many at once")
    parser.add_argument("--calls", type=int, default=40, help="of each thread, in one history")
    parser.add_argument("--seed", type=int, help="of what is done, and of the pauses")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    chosen = random.Random(seed)
    totals = {"histories": 0, "calls": 0, "unknown": 0, "pauses": 0, "violations": 0, "seed": seed}

    with Cluster() as cluster:

        def pause() -> None:
            time.sleep(chosen.uniform(0.1, 1.0))
            cluster.pause(0)
            try:
                time.sleep(chosen.choice([0.05, 0.3, 0.8, 1.5]))
            finally:
                cluster.resume(0)
            totals["pauses"] += 1

        options = ConnectionOptions(
            contact_points=tuple(cluster.contact_points), port=cluster.port, keyspace=KEYSPACE
        )
        apply_schema(options)
        store = open_store(
            ConnectionOptions(
                contact_points=tuple(cluster.contact_points),
                port=cluster.port,
                keyspace=KEYSPACE,
                request_timeout=REQUEST_TIMEOUT,
            )
        )
        until = time.monotonic() + given.seconds
        while time.monotonic() < until:
            number = totals["histories"]
            recorded = gather(
                store,
                threads=given.threads,
                calls=given.calls,
                seed=seed + 1000 * number,
                meanwhile=pause,
            )
            totals["histories"] += 1
            for history in recorded.histories.values():
                totals["calls"] += len(history)
                totals["unknown"] += sum(call.is_pending for call in history)
            violations = find_violations(recorded.histories)
            totals["violations"] += len(violations)
            for partition, violation in violations.items():
                print(f"{partition}: {violation}", flush=True)
        store.close()
    print(json.dumps(totals), flush=True)
    return int(totals["violations"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
