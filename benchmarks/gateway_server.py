"""The gateway, with its LWTs and reads counted: asked by SIGUSR1, it prints them as JSON."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import closing
from datetime import timedelta

from cassieq_spark.client import AsyncClient
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits, Serving, serve
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.testing.stores import CountingStore

THREADS = 32


def main(host: str, secret: str, linger_ms: str) -> None:
    """Serve until SIGTERM."""
    with closing(open_store(ConnectionOptions(contact_points=(host,)))) as opened:
        store = CountingStore(opened)

        def tell(*_: object) -> None:
            reads = store.read_count + store.serial_read_count
            print(json.dumps({"lwts": store.cas_count, "reads": reads}), flush=True)

        signal.signal(signal.SIGUSR1, tell)
        serving = Serving(
            port=0,
            limits=Limits(linger=timedelta(milliseconds=float(linger_ms))),
            on_start=lambda url: print(url, flush=True),
        )
        accounts = Accounts(store, Secrets((secret,)))
        serve(AsyncClient.from_store(store, threads=THREADS), accounts, serving)


if __name__ == "__main__":
    main(*sys.argv[1:])
