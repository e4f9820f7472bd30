"""The gateway over HTTP: put, get with ack, and both at once, with 1, 8, 32 and 128 clients.

Starts Cassandra, a gateway and a process with all clients, on this machine. Each client has one
connection and sends its next request as soon as it has its answer. Prints a line of JSON for each
measurement: messages per second, seconds of a request, LWTs and reads per message. ``batch`` is a
hundred messages in one request.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from benchmarks.gateway_load import BODY, BatchGetter, BatchPutter, Client, Getter, Putter, load
from benchmarks.lines import show
from cassieq_spark.client import AsyncClient
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.client import HttpQueue
from cassieq_spark.http.gateway import Limits, Serving, serve
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.testing.stores import CountingStore
from trials.environment import Cassandra, cassandra

ACCOUNT = "bench"
THREADS = 32
WARM_UP_SECONDS = 3.0
#: Messages that the getters find, per second: more than they can get.
BACKLOG_PER_SECOND = 12_000
BACKLOG_BATCH = 100
_KINDS: dict[str, list[Callable[[], Client]]] = {
    "put": [Putter],
    "get": [Getter],
    "both": [Putter, Getter],
}


@dataclass(frozen=True)
class Measured:
    url: str
    key: str
    process: subprocess.Popen[str]

    def counts(self) -> dict[str, int]:
        """LWTs and reads of rows of the gateway until now."""
        self.process.send_signal(signal.SIGUSR1)
        assert self.process.stdout is not None  # noqa: S101 (a pipe)
        told: dict[str, int] = json.loads(self.process.stdout.readline())
        return told

    def queue(self, name: str) -> HttpQueue:
        """Create a queue of the account."""
        queue = HttpQueue(self.url, ACCOUNT, name, key=self.key)
        queue.create(max_deliveries=0)
        return queue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="1,8,32,128")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--linger-ms", type=float, default=2.0)
    parser.add_argument("--only", default="put,get,both,batch")
    given = parser.parse_args()
    counts = [int(each) for each in given.clients.split(",")]
    only = given.only.split(",")
    with cassandra(nodes=1) as nodes, _gateway(nodes, given.linger_ms) as gateway:
        warm = gateway.queue("warm")
        warm.put_many([BODY] * 1000)
        _measure(gateway, "warm", [Putter, Getter] * 8, WARM_UP_SECONDS)
        for number, clients in enumerate(counts):
            for what, kinds in _KINDS.items():
                if what not in only:
                    continue
                name = f"{what}-{number}"
                _fill(gateway, name, given.seconds if what == "get" else 0.0)
                each = kinds * max(1, clients // len(kinds))
                told = _measure(gateway, name, each, given.seconds)
                show(what=what, clients=len(each), **told)
        if "batch" in only:
            _fill(gateway, "batches", 0.0)
            for what, kind in (("batch put", BatchPutter), ("batch get", BatchGetter)):
                show(
                    what=what, clients=8, **_measure(gateway, "batches", [kind] * 8, given.seconds)
                )


def _measure(
    gateway: Measured, name: str, clients: list[Callable[[], Client]], seconds: float
) -> dict[str, Any]:
    before = gateway.counts()
    path = f"/api/v1/accounts/{ACCOUNT}/queues/{name}"
    told, elapsed = load(gateway.url, path, gateway.key, clients, seconds)
    after = gateway.counts()
    through = max(1, told.messages)
    return {
        **told.summary(elapsed),
        "lwts_per_message": round((after["lwts"] - before["lwts"]) / through, 3),
        "reads_per_message": round((after["reads"] - before["reads"]) / through, 3),
    }


def _fill(gateway: Measured, name: str, seconds: float) -> None:
    with gateway.queue(name) as queue:
        for _ in range(int(seconds * BACKLOG_PER_SECOND / BACKLOG_BATCH)):
            queue.put_many([BODY] * BACKLOG_BATCH)


@contextmanager
def _gateway(nodes: Cassandra, linger_ms: float) -> Iterator[Measured]:
    secret = secrets.token_urlsafe(48)
    keys = Accounts(nodes.store, Secrets((secret,))).create(ACCOUNT).keys
    module = [sys.executable, "-m", "benchmarks.gateway"]
    command = [*module, "serve", nodes.hosts, secret, str(linger_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None  # noqa: S101 (a pipe)
    try:
        url = process.stdout.readline().strip()
        httpx.get(f"{url}/ready").raise_for_status()
        yield Measured(url, str(keys[0].key), process)
    finally:
        process.terminate()
        process.wait()


def _serve(host: str, secret: str, linger_ms: str) -> None:
    """Serve until SIGTERM; on each SIGUSR1, print the LWTs and reads until then, as JSON."""
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
    if sys.argv[1:2] == ["serve"]:
        _serve(*sys.argv[2:])
    else:
        main()
