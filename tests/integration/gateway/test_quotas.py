"""What one account may take of what all share, and how the others fare meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles

import pytest

from tests.support.gateway import ADMIN, HTTP, PATIENCE, Account, RunningGateway, running_on_memory
from tests.support.sockets import answer_of, connect, connected, head_of

MIB = 1 << 20


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose quotas are soon used up."""
    settings = (
        "requests=60",
        "account_requests=20",
        "key_requests=16",
        "polls=40",
        "account_polls=12",
        "key_polls=8",
        f"held_bytes={64 * MIB}",
        f"account_bytes={16 * MIB}",
        f"key_bytes={8 * MIB}",
        "account_queues=4",
        "queue_groups=3",
        "account_schedules=2",
        "account_messages=20",
        "head_time=3",
    )
    with running_on_memory(tmp_path_factory.mktemp("gateway") / "log", *settings) as gateway:
        yield gateway
        assert gateway.stop() == 0


def second_key(account: Account) -> Account:
    url = f"{account.url}/admin/api/v1/accounts/{account.name}/keys"
    made = HTTP.post(url, headers=ADMIN, json={"keyName": "other"})
    return Account(account.url, account.name, made.json()["key"])


def under_way(gateway: RunningGateway, figure: str) -> int:
    lines = HTTP.get(f"{gateway.url}/metrics").text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith(f"{figure} "))


def until(gateway: RunningGateway, figure: str, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while under_way(gateway, figure) != count:
        assert time.monotonic() < end, under_way(gateway, figure)


def refused(gateway: RunningGateway, quota: str, of: str) -> int:
    begin = f'cassieq_gateway_refused_total{{of="{of}",quota="{quota}"}}'
    lines = HTTP.get(f"{gateway.url}/metrics").text.splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith(begin))


def test_the_groups_of_a_queue_have_a_quota(gateway: RunningGateway):
    account = gateway.account()
    for queue in ("orders", "others"):
        account.ask("POST", json={"queueName": queue, "dropDead": True})
    for group in ("a", "b", "c"):
        assert account.ask("PUT", f"/orders/groups/{group}", json={}).status_code == 201

    beyond = account.ask("PUT", "/orders/groups/d", json={})
    again = account.ask("PUT", "/orders/groups/c", json={})
    elsewhere = account.ask("PUT", "/others/groups/d", json={})
    account.ask("DELETE", "/orders/groups/a")
    instead = account.ask("PUT", "/orders/groups/d", json={})

    assert beyond.status_code == 429
    assert "3 consumer groups; the limit is 3" in beyond.json()["message"]
    assert [again.status_code, elsewhere.status_code, instead.status_code] == [409, 201, 201]
    assert refused(gateway, "groups", "queue") == 1


def test_long_polls_have_a_quota_of_the_key_and_one_of_the_account(gateway: RunningGateway):
    account = gateway.account()
    other_key = second_key(account)
    account.ask("POST", json={"queueName": "orders"})
    poll = head_of(account, "GET", "/orders/messages/next?wait=30")
    with connected(gateway, 8) as connections, connected(gateway, 4) as others:
        for connection in connections:
            connection.sendall(poll)
        until(gateway, "cassieq_gateway_long_polls", 8)
        by_key = account.ask("GET", "/orders/messages/next", params={"wait": 1})
        for connection in others:
            connection.sendall(head_of(other_key, "GET", "/orders/messages/next?wait=30"))
        until(gateway, "cassieq_gateway_long_polls", 12)
        by_account = other_key.ask("GET", "/orders/messages/next", params={"wait": 1})
        without_waiting = account.ask("GET", "/orders/messages/next")
        put = account.ask("POST", "/orders/messages", content="x")
    until(gateway, "cassieq_gateway_long_polls", 0)

    assert by_key.status_code == by_account.status_code == 429
    assert by_key.headers["retry-after"] == by_account.headers["retry-after"] == "1"
    assert by_key.json()["quota"] == {"what": "longPolls", "of": "key", "limit": 8}
    assert (
        f"key 'primary' of account '{account.name}' has 8 requests that wait"
        in by_key.json()["message"]
    )
    assert by_account.json()["quota"] == {"what": "longPolls", "of": "account", "limit": 12}
    assert (without_waiting.status_code, put.status_code) == (204, 201)
    assert refused(gateway, "longPolls", "key") >= 1
    assert refused(gateway, "longPolls", "account") >= 1


def test_requests_have_budgets(gateway: RunningGateway):
    account = gateway.account()
    account.ask("POST", json={"queueName": "orders"})
    half = head_of(account, "POST", "/orders/messages", length=12) + b"half"
    with connected(gateway, 16) as connections:
        for connection in connections:
            connection.sendall(half)
        until(gateway, "cassieq_gateway_requests_under_way", 16)
        refusal = account.ask("GET", "/orders")
        innocent = gateway.account().ask("POST", json={"queueName": "orders"})
        for connection in connections:
            connection.sendall(b"thewhole")
        told = [answer_of(connection) for connection in connections]

    assert refusal.status_code == 429
    assert refusal.json()["quota"] == {"what": "requests", "of": "key", "limit": 16}
    assert innocent.status_code == 201
    assert [each and each.status for each in told] == [201] * 16


def test_bytes_that_are_only_declared_take_no_room(tmp_path: Path):
    with running_on_memory(tmp_path / "log") as gateway:
        attacker, innocent = gateway.account(), gateway.account()
        attacker.ask("POST", json={"queueName": "orders"})
        innocent.ask("POST", json={"queueName": "orders"})
        idle = head_of(attacker, "POST", "/orders/messages/batch", length=32 * MIB)
        with connected(gateway, 8) as connections:
            for connection in connections:
                connection.sendall(idle)
            until(gateway, "cassieq_gateway_requests_under_way", 8)
            held = under_way(gateway, "cassieq_gateway_held_bytes")
            theirs = attacker.ask("POST", "/orders/messages", content=b"x" * MIB)
            put = innocent.ask("POST", "/orders/messages", content=b"x" * MIB)

    assert held == 0
    assert (theirs.status_code, put.status_code) == (201, 201)


def test_bytes_that_have_arrived_have_budgets_and_are_given_back(gateway: RunningGateway):
    account = gateway.account()
    account.ask("POST", json={"queueName": "orders"})
    half = head_of(account, "POST", "/orders/messages/batch", length=20 * MIB) + b"x" * 5 * MIB
    with connect(gateway) as connection:
        connection.sendall(half)
        until(gateway, "cassieq_gateway_held_bytes", 5 * MIB)
        refusal = account.ask("POST", "/orders/messages", content=b"x" * 4 * MIB)
        innocent = gateway.account()
        innocent.ask("POST", json={"queueName": "orders"})
        put = innocent.ask("POST", "/orders/messages", content=b"x" * 4 * MIB)
    until(gateway, "cassieq_gateway_held_bytes", 0)

    assert refusal.status_code == 429
    assert refusal.json()["quota"] == {"what": "bytes", "of": "key", "limit": 8 * MIB}
    assert put.status_code == 201


def test_an_account_that_is_alone_leaves_as_much_as_it_has(tmp_path: Path):
    with running_on_memory(tmp_path / "log", "polls=20") as gateway:
        greedy, innocent = gateway.account(), gateway.account()
        for account in (greedy, innocent):
            account.ask("POST", json={"queueName": "orders"})
        poll = head_of(greedy, "GET", "/orders/messages/next?wait=30")
        with connected(gateway, 10) as connections:
            for connection in connections:
                connection.sendall(poll)
            until(gateway, "cassieq_gateway_long_polls", 10)
            refusal = greedy.ask("GET", "/orders/messages/next", params={"wait": 1})
            polled = innocent.ask("GET", "/orders/messages/next", params={"wait": 0.1})

    assert refusal.status_code == 429
    assert refusal.json()["quota"] == {"what": "longPolls", "of": "share", "limit": 20}
    assert polled.status_code == 204


def test_an_account_has_so_many_queues_dead_letter_queues_included(gateway: RunningGateway):
    account = gateway.account()

    def made(name: str, **options: object) -> int:
        return account.ask("POST", json={"queueName": name, **options}).status_code

    assert [made("a"), made("b", dropDead=True)] == [201, 201]
    assert [made("c"), made("d", dropDead=True)] == [429, 201]
    assert [made("e", dropDead=True), made("a")] == [429, 200]
    refusal = account.ask("POST", json={"queueName": "e"})
    assert refusal.json()["quota"] == {"what": "queues", "of": "account", "limit": 4}
    assert refusal.headers["retry-after"] == "5"


def test_an_account_stores_so_many_messages(gateway: RunningGateway):
    account = gateway.account()
    account.ask("POST", json={"queueName": "a"})
    account.ask("POST", json={"queueName": "b"})
    lines = '{"message": "x"}\n'

    told = [
        account.ask("POST", f"/{queue}/messages/batch", content=lines * 10).status_code
        for queue in "ab"
    ]
    batch = account.ask("POST", "/a/messages/batch", content=lines)
    single = account.ask("POST", "/a/messages", content="x")
    once = account.ask("POST", "/a/messages", content="x", headers={"Idempotency-Key": "k"})
    got = account.ask("GET", "/a/messages/next")

    # What is put while messages are counted may count twice.
    assert told in ([201, 201], [201, 429])
    assert [each.status_code for each in (batch, single, once)] == [429] * 3
    assert batch.json()["quota"] == {"what": "messages", "of": "account", "limit": 20}
    assert batch.headers["retry-after"] == "30"
    assert got.status_code == 200


def test_an_innocent_account_is_served_while_another_one_asks_for_more_than_it_may(
    gateway: RunningGateway,
):
    innocent, greedy = gateway.account(), gateway.account()
    for account in (innocent, greedy):
        account.ask("POST", json={"queueName": "orders"})

    def rounds(count: int) -> float:
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            assert innocent.ask("GET", "/orders/statistics").status_code == 200
            assert innocent.ask("GET", "/orders/messages/next").status_code == 204
            taken.append(time.perf_counter() - began)
        return quantiles(taken, n=20)[18]

    alone = rounds(40)
    poll = head_of(greedy, "GET", "/orders/messages/next?wait=30")
    with connected(gateway, 50) as connections, ThreadPoolExecutor(1) as threads:
        for connection in connections:
            connection.sendall(poll)
        until(gateway, "cassieq_gateway_long_polls", 8)
        meanwhile = threads.submit(rounds, 40).result(PATIENCE)

    # The machine may be busy with other tests; what counts is not to wait for the polls.
    assert meanwhile < 5 * alone + 1


def test_an_account_has_so_many_schedules_in_all_of_its_queues(gateway: RunningGateway):
    account, other = gateway.account(), gateway.account()
    for each, queue in ((account, "a"), (account, "b"), (other, "a")):
        each.ask("POST", json={"queueName": queue, "dropDead": True})
    beat = {"everySeconds": 60, "message": "x"}

    def made(path: str, by: Account = account) -> int:
        return by.ask("PUT", path, json=beat).status_code

    assert [made("/a/schedules/s"), made("/b/schedules/s")] == [201, 201]
    refusal = account.ask("PUT", "/b/schedules/t", json=beat)

    assert refusal.status_code == 429
    assert refusal.json()["quota"] == {"what": "schedules", "of": "account", "limit": 2}
    assert made("/a/schedules/s", by=other) == 201
    account.ask("DELETE", "/a/schedules/s")
    assert made("/b/schedules/t") == 201
