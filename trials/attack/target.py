"""The target of the attacks: a running gateway, with the accounts of a victim and a stranger."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import uvloop

from benchmarks.gateway_load import Client, Getter, Putter, Request, connect, with_key
from tests.support.gateway import ADMIN, Account, RunningGateway
from trials.attack.verdicts import Innocent, Seen, Watched

_LOOK_SECONDS = 0.1
_NUMBERS = count()
_SERVED_SECONDS = 10.0
_FLOOD_SECONDS = 10.0


@dataclass
class Target:
    """The target.

    Attributes:
        gateway: The gateway.
        hosts: Nodes of Cassandra, ``address:port,...``.
        victim, stranger: Accounts that have nothing in common.
        consumer_peak_mb: Most memory that a consumer, a process of its own, has used.
    """

    gateway: RunningGateway
    hosts: str = ""
    victim: Account = field(init=False)
    stranger: Account = field(init=False)
    consumer_peak_mb: float = 0.0

    def __post_init__(self) -> None:
        self.victim, self.stranger = self.gateway.account(), self.gateway.account()

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def pid(self) -> int:
        return self.gateway.process.pid

    def queue(self, of: Account | None = None, **options: object) -> str:
        """A new queue of the victim, or of another account."""
        name = f"q{next(_NUMBERS)}"
        (of or self.victim).ask("POST", json={"queueName": name, **options}).raise_for_status()
        return name

    def key_with(self, *levels: str, queue: str | None = None, name: str = "other") -> Account:
        """Another key of the victim, with a few rights."""
        told = httpx.post(
            f"{self.url}/admin/api/v1/accounts/{self.victim.name}/keys",
            headers=ADMIN,
            json={"keyName": f"{name}{next(_NUMBERS)}", "levels": levels, "queueName": queue},
        ).raise_for_status()
        return Account(self.url, self.victim.name, told.json()["key"])

    def serves(self, queue: str, of: Account | None = None) -> bool:
        """Whether a queue takes a message and delivers it within a few seconds."""
        owner, text = of or self.victim, secrets.token_hex(8)
        if owner.ask("POST", f"/{queue}/messages", content=text).status_code != 201:
            return False
        end = time.monotonic() + _SERVED_SECONDS
        while time.monotonic() < end:
            told = owner.ask("GET", f"/{queue}/messages/next", params={"wait": 1})
            if told.status_code not in {200, 204}:
                return False
            if told.status_code == 200 and told.json()["message"] == text:
                return True
        return False

    def puts_slowly(self, queue: str, count: int = 1) -> float:
        """Seconds of the slowest of some puts of the victim; 60 if one failed."""
        worst = 0.0
        for _ in range(count):
            began = time.monotonic()
            try:
                told = self.victim.ask("POST", f"/{queue}/messages", content="x")
            except httpx.HTTPError:
                return 60.0
            worst = max(worst, time.monotonic() - began if told.is_success else 60.0)
        return worst

    def slowest_while(self, flood: Sequence[Callable[[], object]], at_once: int) -> float:
        """Seconds of the victim's slowest put, receive, ack or list, while others send a flood.

        The flood ends after ten seconds: what has not been sent by then is left out.

        Args:
            flood: What the others send; an error of it is theirs.
            at_once: How many of it at a time.
        """
        queue, worst, end = self.queue(), 0.0, time.monotonic() + _FLOOD_SECONDS
        with ThreadPoolExecutor(at_once) as pool:
            sent = [pool.submit(each) for each in flood]
            while not all(each.done() for each in sent):
                worst = max(worst, *self._used(queue))
                if time.monotonic() > end:
                    pool.shutdown(wait=False, cancel_futures=True)
            return worst

    def _used(self, queue: str) -> Iterator[float]:
        """Seconds of each request of somebody who uses a queue; 60 if one failed."""
        receipt = ""
        for method, path, content in (
            ("POST", f"/{queue}/messages", b"x"),
            ("GET", f"/{queue}/messages/next", None),
            ("DELETE", f"/{queue}/messages?popReceipt=", None),
            ("GET", "", None),
            ("GET", f"/{queue}/statistics", None),
        ):
            began = time.monotonic()
            try:
                told = self.victim.ask(method, path + receipt, content=content)
                told.raise_for_status()
            except httpx.HTTPError:
                yield 60.0
                return
            yield time.monotonic() - began
            receipt = told.json()["popReceipt"] if path.endswith("/next") else ""

    def connect(self) -> socket.socket:
        where = urlsplit(self.url)
        return socket.create_connection((where.hostname or "", where.port or 80), timeout=30)

    def speak(self, sent: bytes) -> bytes:
        """Send bytes, and read the answer until the other side closes or is silent."""
        with self.connect() as connection:
            connection.settimeout(3)
            told = b""
            with suppress(OSError):
                connection.sendall(sent)
                while part := connection.recv(1 << 16):
                    told += part
            return told


Attack = Callable[[Target], Seen]
EVERY: list[Attack] = []


def attack(work: Attack) -> Attack:
    EVERY.append(work)
    return work


class Watch:
    """Watches the gateway during an attack: its memory, and whether it answers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = self.peak_mb = rss_mb(target.pid)
        self._stall = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._weigh, self._ask)]

    @property
    def told(self) -> Watched:
        alive = rss_mb(self._target.pid) > 0
        return Watched(self.peak_mb - self._before, self._stall, alive)

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _weigh(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.peak_mb = max(self.peak_mb, rss_mb(self._target.pid))

    def _ask(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._over.wait(_LOOK_SECONDS):
                began = time.monotonic()
                try:
                    client.get(f"{self._target.url}/health").raise_for_status()
                except httpx.HTTPError:
                    self._stall = max(self._stall, 30.0)
                self._stall = max(self._stall, time.monotonic() - began)


def rss_mb(pid: int) -> float:
    """Memory of a process; 0 if it has ended."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    sizes = [line.split()[1] for line in told.splitlines() if line.startswith("VmRSS")]
    return int(sizes[0]) / 1024 if sizes else 0.0


@contextmanager
def many(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield connections
    finally:
        for each in connections:
            each.close()


class Looker:
    """Asks for statistics, the groups and the dead letters of a queue, in turns."""

    def __init__(self) -> None:
        self._paths = cycle(("/statistics", "/groups", "/dead"))

    def first(self) -> Request:
        return "GET", next(self._paths), b""

    def next(self, status: int, _: bytes) -> tuple[int, Request]:
        return int(status == 200), self.first()


_PAIR: list[Callable[[], Client]] = [Putter, Getter]
_INNOCENT = [*_PAIR * 4, Looker]


@contextmanager
def innocent(target: Target) -> Iterator[Callable[[], Innocent]]:
    """Run clients of a third account in a process.

    Yields a function that returns what they have met since it was called before.
    """
    account = target.gateway.account()
    account.ask("POST", json={"queueName": "mine"}).raise_for_status()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    path = urlsplit(f"{account.queues}/mine").path
    arguments = (theirs, target.url, path, account.key)
    process = context.Process(target=_be_innocent, args=arguments, daemon=True)
    process.start()

    def met() -> Innocent:
        ours.send("tell")
        told: Innocent = ours.recv()
        return told

    try:
        yield met
    finally:
        process.kill()
        process.join()


def _be_innocent(pipe: Connection, url: str, path: str, key: str) -> None:
    uvloop.run(_serve_innocent(pipe, url, path, key))


async def _serve_innocent(pipe: Connection, url: str, path: str, key: str) -> None:
    told, connections = await connect(url, path, with_key(key), _INNOCENT)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if pipe.poll():
            pipe.recv()
            waits = [each.waits for each in connections]
            refused = sum(told.statuses.values()) + told.broken
            pipe.send(Innocent(told.seconds, max(told.seconds + waits), refused))
            told.seconds, told.statuses, told.broken = [], {}, 0
