"""The gateway on a real Cassandra: by its commands, and when one of two is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from cassieq_spark import Client
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.http.client import HttpError, HttpQueue
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.command_line import cassieq
from tests.support.gateway import HTTP, SECRET, Account, RunningGateway, running
from tests.support.proxy import Proxy

CLIENTS = 64
TURNS = 400
ROUNDS = 6
LEASE = timedelta(seconds=3)
HOUR = timedelta(hours=1)
PATIENCE = timedelta(seconds=60)
LONG_SECONDS = 200


@pytest.fixture
def reach(connection: ConnectionOptions) -> list[str]:
    host, port = connection.endpoints[0]
    at = ["--contact-points", f"{host}:{port}", "--port", str(port)]
    return [*at, "--keyspace", connection.keyspace]


@pytest.fixture
def gateways(reach: list[str], tmp_path: Path) -> Iterator[list[RunningGateway]]:
    quiet = [*reach, "--no-access-log"]
    with running(tmp_path / "one", *quiet) as one, running(tmp_path / "two", *quiet) as two:
        yield [one, two]


def test_accounts_are_made_by_command_and_queues_are_those_of_everybody(
    reach: list[str],
    tmp_path: Path,
    cassandra_store: Store,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    with running(tmp_path / "log", *reach) as gateway:
        assert HTTP.get(f"{gateway.url}/ready").status_code == 200
        made = cassieq("gateway", "account", "shop", "--secret", "env:GATEWAY_SECRET", *reach)
        again = cassieq("gateway", "account", "shop", "--secret", "env:GATEWAY_SECRET", *reach)
        assert (made.code, made.err) == (0, "")
        assert (again.code, again.out) == (1, "")
        assert "account 'shop' exists already" in again.err
        keys = dict(line.split() for line in made.out.splitlines())
        account = Account(gateway.url, "shop", keys["secondary"])

        with account.queue("orders") as orders, Client.from_store(cassandra_store) as client:
            assert orders.put("by http", key="k", headers={"h": "1"}) == 0
            (message,) = client.receive("shop:orders", "default")
            assert (message.value, message.key, message.headers) == (b"by http", b"k", {"h": "1"})
            client.ack(message)
            client.put("shop:orders", "by the client")
            (got,) = orders.receive(wait=PATIENCE)
            assert got.value == b"by the client"
            assert orders.reject(got, reason="bad") == []
            (group,) = client.dead_letters("shop:orders").groups
            assert group.reason == "bad"
        assert gateway.stop() == 0


def test_while_cassandra_is_away_it_says_so_and_then_goes_on(
    through_proxy: ConnectionOptions, proxy: Proxy, tmp_path: Path
):
    host, port = through_proxy.endpoints[0]
    at = ["--contact-points", f"{host}:{port}", "--port", str(port)]
    reach = [*at, "--keyspace", through_proxy.keyspace]
    with running(tmp_path / "log", *reach) as gateway:
        account = gateway.account()
        account.queue("orders").close()
        assert account.ask("POST", "/orders/messages", content="before").status_code == 201

        proxy.lose_answers()
        ready = HTTP.get(f"{gateway.url}/ready")
        put = account.ask("POST", "/orders/messages", content="lost")
        alive = HTTP.get(f"{gateway.url}/health")
        proxy.restore()
        until_ready(gateway)
        after = account.ask("POST", "/orders/messages", content="after")

    assert (ready.status_code, alive.status_code) == (503, 200)
    assert put.status_code in {503, 504}
    assert put.headers["retry-after"] == "1"
    assert after.status_code == 201


def until_ready(gateway: RunningGateway) -> None:
    end = time.monotonic() + PATIENCE.total_seconds()
    while HTTP.get(f"{gateway.url}/ready").status_code != 200:
        assert time.monotonic() < end


class Books:
    """What clients were told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.accepted: set[str] = set()
        self.acked: Counter[str] = Counter()
        self.unsure: set[str] = set()
        self.enough = threading.Event()

    def accept(self, value: str) -> None:
        with self._lock:
            self.accepted.add(value)
            if len(self.accepted) >= CLIENTS:
                self.enough.set()

    def ack(self, value: str, *, is_sure: bool) -> None:
        with self._lock:
            if is_sure:
                self.acked[value] += 1
            else:
                self.unsure.add(value)


def test_one_of_two_gateways_is_killed_under_64_clients(gateways: list[RunningGateway]):
    one, two = gateways
    account = one.account()
    with account.queue("orders", max_deliveries=0) as at_one:
        at_one.put("moved")
        (moved,) = at_one.receive(lease=HOUR)
        at_one.put_many([f"held {number}" for number in range(10)])
        held = at_one.receive(max=10, lease=LEASE)
    books = Books()
    books.accepted |= {message.value.decode() for message in held}

    with ThreadPoolExecutor(CLIENTS) as threads:
        ends = [
            threads.submit(work, account.at(gateways[number % 2]), account.at(two), number, books)
            for number in range(CLIENTS)
        ]
        assert books.enough.wait(LONG_SECONDS)
        one.kill()
        for each in ends:
            each.result(LONG_SECONDS)

    with account.at(two).queue() as orders:
        assert orders.ack(moved.receipt) == [], "a receipt of one gateway is good at the other"
        left: list[str] = []
        while messages := orders.receive(max=1000, wait=2 * LEASE, lease=HOUR):
            left += [message.value.decode() for message in messages]
            assert orders.ack(*messages) == []
        assert [group.depth for group in orders.stats().groups] == [0]
    assert two.stop() == 0
    done = books.acked.keys() | books.unsure | set(left)
    assert books.accepted - done == set(), "nothing that was accepted is lost"
    assert {message.value.decode() for message in held} <= done, "what was leased comes back"
    assert max(books.acked.values()) == 1, "nothing is done twice"


def test_behind_a_balancer_a_group_has_few_slots_however_many_turns_there_are(
    gateways: list[RunningGateway], cassandra_store: Store
):
    # One slot for each turn, if the gateway that acks could not free what the other one leased.
    account = gateways[0].account()
    with account.queue("orders") as one, account.at(gateways[1]).queue("orders") as two:
        one.put_many([str(number) for number in range(TURNS)])
        received = []
        for number in range(TURNS):
            gets, acks = (one, two) if number % 2 else (two, one)
            (message,) = gets.receive(lease=HOUR)
            received.append(message.value)
            assert acks.ack(message) == []
    queue_id = read_queue(cassandra_store, f"{account.name}:orders").queue_id

    state = ConsumerGroup(Ledger(cassandra_store, queue_id), "default").read()

    assert sorted(map(int, received)) == [*range(TURNS)]
    assert len(state.slots) <= 5
    assert not any(slot.monotons for slot in state.slots)


def work(here: Account, there: Account, number: int, books: Books) -> None:
    """Put, get and ack; where the gateway is gone, go on at the other one."""
    queue = HttpQueue(here.url, here.name, "orders", key=here.key)
    for turn in range(ROUNDS):
        value = f"{number}:{turn}"
        try:
            queue.put(value)
            books.accept(value)
            for message in queue.receive(lease=LEASE):
                got = message.value.decode()
                try:
                    stale = queue.ack(message)
                except HttpError:
                    books.ack(got, is_sure=False)
                    raise
                if not stale:
                    books.ack(got, is_sure=True)
        except HttpError as error:
            if error.status:
                raise
            queue.close()
            queue = HttpQueue(there.url, there.name, "orders", key=there.key)
    queue.close()
