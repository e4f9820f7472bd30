"""Attacks by many requests that are allowed, or that look so: does the victim wait for them?"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from uuid import uuid4

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
