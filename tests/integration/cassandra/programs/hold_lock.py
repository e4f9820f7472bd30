"""Takes a lock and holds it: for each line it reads, says whether it has it still."""

from __future__ import annotations

import sys
from datetime import timedelta

from cassieq_spark.lock.bakery import Bakery, holding
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store


def main(contact_point: str, port: str, keyspace: str, name: str, seconds: str) -> None:
    store = open_store(
        ConnectionOptions(contact_points=(contact_point,), port=int(port), keyspace=keyspace)
    )
    bakery = Bakery(store, name, owner="program", ttl=timedelta(seconds=int(seconds)))
    with holding(bakery, timedelta(minutes=1)) as held:
        assert held is not None
        print("entered", held.epoch, flush=True)  # noqa: T201 (read by the test)
        for _ in sys.stdin:
            print(held.is_held(), held.confirm(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
