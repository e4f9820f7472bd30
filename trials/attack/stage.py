"""What is attacked: a gateway that runs, with an account of a victim and one of a stranger."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from trials.attack.verdicts import Seen, Watched

_LOOK_SECONDS = 0.1
_NUMBERS = count()
_SERVED_SECONDS = 10.0


@dataclass(frozen=True)
class Account:
    """An account with all rights, or another key of it."""

    url: str
    name: str
    key: str

    @property
    def queues(self) -> str:
        """Where its queues are."""
        return f"{self.url}/api/v1/accounts/{self.name}/queues"

    def ask(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        """Ask with its key."""
        headers = {"Authorization": f"Key {self.key}", **more.pop("headers", {})}
        return httpx.request(method, f"{self.queues}{path}", headers=headers, timeout=60, **more)


@dataclass
class Stage:
    """What is attacked.

    Attributes:
        url: The gateway.
        pid: Its process.
        log: What it writes.
        admin: Headers of an administrator.
        victim, stranger: Accounts that do not know each other.
        hosts: Nodes of Cassandra; empty if there are none.
    """

    url: str
    pid: int
    log: Path
    admin: dict[str, str]
    hosts: tuple[str, ...] = ()
    victim: Account = field(init=False)
    stranger: Account = field(init=False)
    consumer_peak_mb: float = 0.0

    def __post_init__(self) -> None:
        self.victim, self.stranger = self.account(), self.account()

    def account(self) -> Account:
        """A new account."""
        name = f"a{secrets.token_hex(5)}"
        told = httpx.post(
            f"{self.url}/admin/api/v1/accounts", headers=self.admin, content=f'"{name}"'
        ).raise_for_status()
        return Account(self.url, name, told.json()["keys"]["primary"])

    def queue(self, of: Account | None = None, **options: object) -> str:
        """A new queue of the victim, or of another account."""
        name = f"q{next(_NUMBERS)}"
        (of or self.victim).ask("POST", json={"queueName": name, **options}).raise_for_status()
        return name

    def key_with(self, *levels: str, queue: str | None = None, name: str = "other") -> Account:
        """Another key of the victim's, with a few rights."""
        told = httpx.post(
            f"{self.url}/admin/api/v1/accounts/{self.victim.name}/keys",
            headers=self.admin,
            json={"keyName": f"{name}{next(_NUMBERS)}", "levels": levels, "queueName": queue},
        ).raise_for_status()
        return Account(self.url, self.victim.name, told.json()["key"])

    def serves(self, queue: str, of: Account | None = None) -> bool:
        """Whether a message goes through a queue, and comes out within a few seconds."""
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
        """Seconds that the slowest of some puts of the victim took; a minute if one failed."""
        worst = 0.0
        for _ in range(count):
            began = time.monotonic()
            try:
                told = self.victim.ask("POST", f"/{queue}/messages", content="x")
            except httpx.HTTPError:
                return 60.0
            worst = max(worst, time.monotonic() - began if told.is_success else 60.0)
        return worst

    def connect(self) -> socket.socket:
        """A connection of its own."""
        where = urlsplit(self.url)
        return socket.create_connection((where.hostname or "", where.port or 80), timeout=30)

    def speak(self, sent: bytes) -> bytes:
        """Send bytes, and read what comes back until the other side closes, or is silent."""
        with self.connect() as connection:
            connection.settimeout(3)
            told = b""
            try:
                connection.sendall(sent)
                while part := connection.recv(1 << 16):
                    told += part
            except OSError:
                pass
            return told


Attack = Callable[[Stage], Seen]
EVERY: list[Attack] = []
#: Those that need tables to write to.
ON_TABLES: set[str] = set()


def attack(work: Attack) -> Attack:
    """Add an attack to `EVERY`."""
    EVERY.append(work)
    return work


def attack_on_tables(work: Attack) -> Attack:
    """Add an attack that writes into the tables itself."""
    ON_TABLES.add(work.__name__)
    return attack(work)


class Watch:
    """Watches the gateway from beside: its memory, and whether it answers.

    Args:
        stage: What is watched.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._before = self.peak_mb = rss_mb(stage.pid)
        self._stall = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._weigh, self._ask)]

    @property
    def told(self) -> Watched:
        """What was seen so far."""
        alive = rss_mb(self._stage.pid) > 0
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
            self.peak_mb = max(self.peak_mb, rss_mb(self._stage.pid))

    def _ask(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._over.wait(_LOOK_SECONDS):
                began = time.monotonic()
                try:
                    client.get(f"{self._stage.url}/health").raise_for_status()
                except httpx.HTTPError:
                    self._stall = max(self._stall, 30.0)
                self._stall = max(self._stall, time.monotonic() - began)


def rss_mb(pid: int) -> float:
    """Memory of a process; 0 if it is gone."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    sizes = [line.split()[1] for line in told.splitlines() if line.startswith("VmRSS")]
    return int(sizes[0]) / 1024 if sizes else 0.0


@contextmanager
def many(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    """Connections that are closed in the end."""
    try:
        yield connections
    finally:
        for each in connections:
            each.close()


def lines(*messages: object) -> str:
    """A batch as lines of JSON."""
    return "".join(json.dumps(each) + "\n" for each in messages)
