"""Gateways as processes of their own, and accounts at them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpx

from cassieq_spark.client import AsyncClient
from cassieq_spark.http.accounts import Accounts, Right, Secrets
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.gateway.sqs.door import SqsDoor
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.protocol import Store

SECRET = "the-secret-of-gateways-that-tests-start"
ADMIN = {"Authorization": f"Key {Secrets((SECRET,)).admin_key}"}
_ON_MEMORY = Path(__file__).parents[1] / "integration" / "gateway" / "programs" / "serve_memory.py"
#: Makes and reads the pop receipts of all of them.
RECEIPTS = PopReceipts(Secrets((SECRET,)))
PATIENCE = 60
#: One for all: to make one takes longer than most requests. Its threads keep their connections:
#: httpcore closes surplus ones that another thread may have just picked.
HTTP = httpx.Client(
    timeout=PATIENCE,
    verify=False,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
)


@dataclass(frozen=True)
class RunningGateway:
    """A gateway that runs.

    Attributes:
        url: Where it is.
        process: The process.
        log: What it writes to standard error.
    """

    url: str
    process: subprocess.Popen[str]
    log: Path

    def kill(self) -> None:
        """Let it die at once."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """Ask it to end, and wait for that; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def account(self) -> Account:
        """A new account."""
        name = f"a{uuid4().hex[:10]}"
        answer = HTTP.post(f"{self.url}/admin/api/v1/accounts", headers=ADMIN, content=f'"{name}"')
        assert answer.status_code == 201, answer.text
        return Account(self.url, name, answer.json()["keys"]["primary"])


@dataclass(frozen=True)
class Account:
    """An account, and a gateway at which it is known."""

    url: str
    name: str
    key: str

    @property
    def queues(self) -> str:
        """Where its queues are."""
        return f"{self.url}/api/v1/accounts/{self.name}/queues"

    @property
    def aws(self) -> dict[str, str]:
        """The environment by which programs of Amazon SQS find it, and nothing else of AWS."""
        others = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        return others | {
            "AWS_ENDPOINT_URL_SQS": self.url,
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": self.name,
            "AWS_SECRET_ACCESS_KEY": self.key,
        }

    def at(self, gateway: RunningGateway) -> Account:
        """The same account at another gateway."""
        return Account(gateway.url, self.name, self.key)

    def ask(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        """Ask with its key."""
        headers = {"Authorization": f"Key {self.key}", **more.pop("headers", {})}
        return HTTP.request(method, f"{self.queues}{path}", headers=headers, **more)

    def queue(self, name: str = "orders", **options: Any) -> HttpQueue:
        """A client of one of its queues, which is made if there is none."""
        client = HttpQueue(self.url, self.name, name, key=self.key)
        client.create(**options)
        return client


def key_with(
    gateway: RunningGateway,
    account: Account,
    name: str,
    *levels: Right,
    queue: str | None = None,
) -> Account:
    """The account with another key, which has these rights, on this queue or on all."""
    answer = HTTP.post(
        f"{gateway.url}/admin/api/v1/accounts/{account.name}/keys",
        headers=ADMIN,
        json={
            "keyName": name,
            "levels": [level.title for level in levels],
            "queueName": queue,
        },
    )
    assert answer.status_code == 201, answer.text
    return Account(account.url, account.name, answer.json()["key"])


class InProcess:
    """A gateway in this process, on a store that the test has, too; with the door of SQS.

    Args:
        store: The store.
        account: Name of an account, which it creates.
    """

    def __init__(self, store: Store, account: str = "acme") -> None:
        accounts, limits = Accounts(store, Secrets((SECRET,))), Limits()
        self.key = str(accounts.create(account).keys[0].key)
        self._client = AsyncClient.from_store(store)
        self._parts = (self._client, accounts, limits, ConnectionLimiter(limits))
        self._account = account
        self._url = f"http://gateway/api/v1/accounts/{account}/queues"

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._runner.run(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._end())
        self._runner.close()

    def ask(
        self, method: str, path: str = "", *, key: str | None = "", **more: Any
    ) -> httpx.Response:
        """Send a request with the account's key, another one, or None."""
        headers = {} if key is None else {"Authorization": f"Key {key or self.key}"}
        headers |= more.pop("headers", {})
        return self._runner.run(
            self._http.request(method, f"{self._url}{path}", headers=headers, **more)
        )

    def queue(self, name: str) -> Any:
        """An `HttpQueue` for a queue of the account, through this gateway, without a network."""
        return _InProcessQueue(self._runner, self._http, self._account, name, self.key)

    def administer(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request of an administrator."""
        url = f"http://gateway/admin/api/v1{path}"
        return self._runner.run(self._http.request(method, url, headers=ADMIN, **more))

    def sqs(self, operation: str, **given: Any) -> httpx.Response:
        """Send a request of SQS, which is not signed."""
        headers = {
            "X-Amz-Target": f"AmazonSQS.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        url = "http://localhost/"
        return self._runner.run(self._http.post(url, headers=headers, json=given))

    async def _begin(self) -> None:
        await self._client.__aenter__()
        self._gateway = Gateway(*self._parts)
        plain = make_app(lambda: self._gateway, None)
        self._door = app = SqsDoor(plain, lambda: self._gateway, unsigned=self._account)
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://gateway"
        )

    async def _end(self) -> None:
        await self._door.close()
        await self._gateway.close()
        await self._client.close()


class _InProcessQueue:
    """An `AsyncHttpQueue` whose methods wait for their results."""

    def __init__(
        self, runner: asyncio.Runner, http: httpx.AsyncClient, account: str, name: str, key: str
    ) -> None:
        self._runner = runner
        self._queue = AsyncHttpQueue("http://gateway", account, name, key=key)
        self._runner.run(self._queue.close())
        self._queue._requests.http = http

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._queue, name)
        return lambda *args, **named: self._runner.run(method(*args, **named))


@contextmanager
def running_on_memory(log: Path, *settings: str) -> Iterator[RunningGateway]:
    """A gateway on a store in memory; settings as ``serve_memory.py`` takes them."""
    with _running([sys.executable, str(_ON_MEMORY), SECRET, *settings], log) as gateway:
        yield gateway


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[RunningGateway]:
    """``cassieq gateway serve`` at any port."""
    command = [sys.executable, "-m", "cassieq_spark.cli", "gateway", "serve"]
    words = ["--listen", "127.0.0.1:0", "--secret", "env:GATEWAY_SECRET", *arguments]
    with _running([*command, *words], log) as gateway:
        yield gateway


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[RunningGateway]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"GATEWAY_SECRET": SECRET},
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert "http" in said, log.read_text()
        url = next(word for word in said.split() if word.startswith("http")).rstrip(";")
        yield RunningGateway(url, process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        process.stdout.close()
