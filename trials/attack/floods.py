"""Attacks by many requests that are allowed, or that look so: does the victim wait for them?"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import httpx

from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, served_within

_AT_ONCE = 40


def _contained(target: Target, flood: list[Callable[[], object]], at_once: int = _AT_ONCE) -> Seen:
    return served_within(target.slowest_while(flood, at_once))


def _invented(target: Target, queue: str, count: int, deliveries: str = "") -> list[str]:
    """Receipts of leases that never were, as a gateway would take those that it made itself."""
    name = f"{target.stranger.name}:{queue}@1"
    plain = (f"{name}/default/{uuid4()}{deliveries}/{number}" for number in range(count))
    return [urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in plain]


@attack
def invented_receipts(target: Target) -> Seen:
    """Forty requests that reject 400 messages each, of leases that never were."""
    queue = target.queue(target.stranger)
    body = {"popReceipts": _invented(target, queue, 400), "reason": "x"}
    ask = partial(target.stranger.ask, "POST", f"/{queue}/messages/reject", json=body)
    return _contained(target, [ask] * _AT_ONCE)


@attack
def invented_receipts_of_batches(target: Target) -> Seen:
    """Requests that ack 10,000 messages of batches of queries, which never were."""
    queue = target.queue(target.stranger)
    body = {"popReceipts": _invented(target, queue, 10_000, ".1")}
    ask = partial(target.stranger.ask, "POST", f"/{queue}/messages/ack", json=body)
    return _contained(target, [ask] * 8, 8)


@attack
def statistics_of_large_queues(target: Target) -> Seen:
    """Three hundred requests for the statistics of a queue with 16 partitions and 6 groups."""
    queue = target.queue(target.stranger, partitions=16)
    for number in range(6):
        target.stranger.ask("PUT", f"/{queue}/groups/g{number}", json={}).raise_for_status()
    ask = partial(target.stranger.ask, "GET", f"/{queue}/statistics")
    return _contained(target, [ask] * 300)


@attack
def dead_letters_with_reasons_of_their_own(target: Target) -> Seen:
    """Two hundred lists of 300 dead letters, each with a reason of its own."""
    queue = target.queue(target.stranger)
    lines = b'{"message": "x"}\n' * 300
    target.stranger.ask("POST", f"/{queue}/messages/batch", content=lines).raise_for_status()
    told = target.stranger.ask("POST", f"/{queue}/messages/receive?max=300").text.splitlines()
    for number, line in enumerate(told):
        receipts = [json.loads(line)["popReceipt"]]
        body = {"popReceipts": receipts, "reason": f"{number} " + "x" * 900}
        target.stranger.ask("POST", f"/{queue}/messages/reject", json=body).raise_for_status()
    ask = partial(target.stranger.ask, "GET", f"/{queue}/dead")
    return _contained(target, [ask] * 200)


@attack
def peeks(target: Target) -> Seen:
    """Two hundred peeks at a hundred messages of 100 kB."""
    queue = target.queue(target.stranger)
    for _ in range(100):
        target.stranger.ask("POST", f"/{queue}/messages", content=b"x" * 100_000)
    ask = partial(target.stranger.ask, "GET", f"/{queue}/messages?max=100")
    return _contained(target, [ask] * 200)


@attack
def receives_of_many_groups(target: Target) -> Seen:
    """Receives of eighty groups at once, again and again."""
    queue = target.queue(target.stranger)
    for _ in range(20):
        target.stranger.ask("POST", f"/{queue}/messages", content=b"x" * 10_000)
    for number in range(80):
        target.stranger.ask("PUT", f"/{queue}/groups/g{number}", json={}).raise_for_status()
    flood: list[Callable[[], object]] = [
        partial(target.stranger.ask, "GET", f"/{queue}/messages/next?group=g{number}")
        for number in range(80)
    ]
    return _contained(target, flood * 5, 80)


@attack
def schemas_in_every_list(target: Target) -> Seen:
    """Lists of 60 queues with schemas of 16,000 characters each, half of them deleted."""
    schema = ", ".join(f"{'x' * 75}{number} int" for number in range(190))
    queues = [target.queue(target.stranger, schema=schema) for _ in range(60)]
    for each in queues[::2]:
        target.stranger.ask("DELETE", f"/{each}").raise_for_status()
    return _contained(target, [partial(target.stranger.ask, "GET")] * 200)


@attack
def read_ahead_of_idle_groups(target: Target) -> Seen:
    """One message for each of 24 groups, from eight partitions with 8 MiB that could follow."""
    queue = target.queue(target.stranger, partitions=8, maxDeliveryCount=0)
    lines = json.dumps({"message": "x" * 32_000}).encode() + b"\n"
    for _ in range(3):
        many = lines * 900
        target.stranger.ask("POST", f"/{queue}/messages/batch", content=many).raise_for_status()
    for number in range(24):
        target.stranger.ask("PUT", f"/{queue}/groups/g{number}", json={}).raise_for_status()
    flood: list[Callable[[], object]] = [
        partial(target.stranger.ask, "POST", f"/{queue}/messages/receive?max=8&group=g{number}")
        for number in range(24)
    ]
    return _contained(target, flood * 8, 24)


@attack
def names_of_no_account(target: Target) -> Seen:
    """Paths of 30 kB that name accounts which do not exist, without a key."""

    def ask(number: int) -> None:
        name = f"{number}" + "x" * 30_000
        httpx.get(f"{target.url}/api/v1/accounts/{name}/queues", timeout=30)

    return _contained(target, [partial(ask, number) for number in range(1_000)])


@attack
def accounts_that_do_not_exist(target: Target) -> Seen:
    """Ten thousand names that an account could have, each of which costs a read, without a key."""

    def ask(number: int) -> None:
        with httpx.Client(timeout=30) as client:
            for each in range(50):
                client.get(f"{target.url}/api/v1/accounts/a{number}x{each}/queues")

    return _contained(target, [partial(ask, number) for number in range(200)])


@attack
def health_and_description(target: Target) -> Seen:
    """What strangers may ask for, again and again: health, readiness, figures, description."""

    def ask(path: str) -> None:
        httpx.get(f"{target.url}{path}", timeout=30)

    paths = ("/health", "/ready", "/metrics", "/openapi.json")
    return _contained(target, [partial(ask, path) for path in paths * 100])
