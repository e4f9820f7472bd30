"""The gateway over HTTP: put, get with ack, and both at once, with 1, 8, 32 and 128 clients.

Starts Cassandra, a gateway and a process with all clients, on this machine. Each client has one
connection and sends its next request as soon as it has its answer. Prints a line of JSON for each
measurement: messages per second, seconds of a request, LWTs and reads per message. ``batch`` is a
hundred messages in one request. ``sqs`` sends one message, or ten, with each request of SQS; all
of these have the same signature.
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
from functools import partial
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from benchmarks.gateway_load import (
    BODY,
    BatchGetter,
    BatchPutter,
    Client,
    Getter,
    Putter,
    SqsPutter,
    load,
    sqs_body,
    with_key,
)
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
    parser.add_argument("--only", default="put,get,both,batch,sqs")
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
            if "sqs" in only:
                _measure_sqs(gateway, f"sqs-{number}", clients, given.seconds)
        if "batch" in only:
            _fill(gateway, "batches", 0.0)
            for what, kind in (("batch put", BatchPutter), ("batch get", BatchGetter)):
                show(
                    what=what, clients=8, **_measure(gateway, "batches", [kind] * 8, given.seconds)
                )


def _measure_sqs(gateway: Measured, name: str, clients: int, seconds: float) -> None:
    """Send by SQS, one message with each request, then ten."""
    _fill(gateway, name, 0.0)
    path = f"/{ACCOUNT}/{name}"
    for count, operation in ((1, "SendMessage"), (10, "SendMessageBatch")):
        headers = _signed(gateway, path, operation, sqs_body(count))
        each: list[Callable[[], Client]] = [partial(SqsPutter, count)] * clients
        told = _measure(gateway, name, each, seconds, path=path, headers=headers)
        show(what=f"sqs put {count}", clients=clients, **told)


def _signed(gateway: Measured, path: str, operation: str, body: bytes) -> bytes:
    """The headers of a request of SQS, signed by AWS's own code; for 15 minutes."""
    headers = {
        "X-Amz-Target": f"AmazonSQS.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
    }
    request = AWSRequest("POST", gateway.url + path, headers, body)
    SigV4Auth(Credentials(ACCOUNT, gateway.key), "sqs", "eu-central-1").add_auth(request)
    return "".join(f"{name}: {value}\r\n" for name, value in request.headers.items()).encode()


def _measure(
    gateway: Measured,
    name: str,
    clients: list[Callable[[], Client]],
    seconds: float,
    *,
    path: str | None = None,
    headers: bytes | None = None,
) -> dict[str, Any]:
    before = gateway.counts()
    path = path or f"/api/v1/accounts/{ACCOUNT}/queues/{name}"
    headers = headers or with_key(gateway.key)
    told, elapsed = load(gateway.url, path, headers, clients, seconds)
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
            sqs=True,
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
