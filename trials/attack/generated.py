"""Attacks that follow from what endpoints declare: a new endpoint is attacked, too.

Each endpoint is flooded with small requests, and with a few of the largest, by a key of a stranger
that has no right but the endpoint's. The victim may not wait for them. And each is asked without a
key, with that of a stranger, and with one that has every right but the endpoint's: all of these
are refused.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import httpx

from cassieq_spark.http.accounts import Right
from cassieq_spark.http.gateway import app  # noqa: F401 (it declares all endpoints)
from cassieq_spark.http.gateway.formats import LINES
from cassieq_spark.http.gateway.requests import ENDPOINTS, QUEUES, Endpoint
from cassieq_spark.http.gateway.schemas import ScheduleChanges, ScheduleOptions
from cassieq_spark.settings.gateway import Limits
from tests.support.gateway import Account, key_with
from trials.attack.target import Target, attack, many
from trials.attack.verdicts import Seen, Verdict, refused_if, served_within

_LINE = b'{"message": "x"}\n'
_FLOOD, _AT_ONCE = 200, 40
_LARGE, _LARGE_AT_ONCE = 16, 8
_TRIES = 20
#: Connections to each endpoint that send their body slowly, and how long they say that it is.
_SLOW, _ANNOUNCED = 4, 1 << 20


def _small(endpoint: Endpoint) -> bytes:
    if isinstance(endpoint.body, tuple):
        return _LINE
    return json.dumps(endpoint.example or {}).encode()


def _large(endpoint: Endpoint) -> bytes:
    limits = Limits()
    most = (limits.batch_bytes if endpoint.is_batch else limits.body_bytes) - 1_000
    if isinstance(endpoint.body, tuple):
        return _LINE * (most // len(_LINE)) if LINES in endpoint.body else b"x" * most
    if endpoint.body is None:
        return b""
    names = list(endpoint.body.names())
    texts = {name: "x" * (most // len(names)) for name in names}
    return json.dumps(texts).encode()


def _flooded(
    target: Target,
    endpoint: Endpoint,
    body: Callable[[Endpoint], bytes],
    count: int,
    at_once: int,
) -> Seen:
    assert endpoint.right is not None  # noqa: S101 (those of administrators are left out)
    queue = target.queue(target.stranger)
    target.stranger.ask("POST", f"/{queue}/messages", content=b"x")
    # That makes the group, too.
    target.stranger.ask("GET", f"/{queue}/messages/next")
    key = key_with(target.gateway, target.stranger, f"only-{queue}", *_rights(endpoint))
    path = _path(endpoint, key.name, queue).removeprefix(QUEUES.format(account=key.name))
    answers: Counter[int] = Counter()
    ask = partial(_ask, key, endpoint, path, body(endpoint), answers)
    slowest = target.slowest_while([ask] * count, at_once)
    # A flood that its key does not allow would show nothing.
    if not answers or answers.keys() & {401, 403}:
        return Seen(Verdict.OPEN, f"the flood did not come through: {dict(answers)}")
    return served_within(slowest, dict(answers))


def _rights(endpoint: Endpoint) -> Iterator[Right]:
    if endpoint.right is not None:
        yield endpoint.right
    if endpoint.body in {ScheduleOptions, ScheduleChanges}:
        # A schedule puts messages.
        yield Right.PUT_MESSAGE


def _path(endpoint: Endpoint, account: str, queue: str) -> str:
    names = {"group": "default", "monoton": "0", "key": "default", "schedule": "default"}
    return endpoint.path.format(account=account, queue=queue, **names)


def _shut_out(target: Target, endpoint: Endpoint) -> Seen:
    """Ask an endpoint with every key that has not its right, and without one."""
    queue, victim = target.queue(), target.victim
    keys = ["", target.stranger.key, target.stranger.key.swapcase()]
    if endpoint.right is None:
        keys.append(victim.key)
    else:
        others = [each for each in Right if each is not endpoint.right]
        keys.append(key_with(target.gateway, victim, f"not-{endpoint.operation}", *others).key)
    url = target.url + _path(endpoint, victim.name, queue)
    answers: Counter[int] = Counter()
    with httpx.Client(timeout=30) as client:
        for key in keys * _TRIES:
            headers = {"Authorization": f"Key {key}"} if key else {}
            content = None if endpoint.body is None else _small(endpoint)
            told = client.request(endpoint.method, url, content=content, headers=headers)
            answers[told.status_code] += 1
    is_refused = answers.keys() <= {401, 403}
    return refused_if(is_refused and target.serves(queue), dict(answers))


def _ask(key: Account, endpoint: Endpoint, path: str, body: bytes, answers: Counter[int]) -> None:
    kind = LINES if isinstance(endpoint.body, tuple) and LINES in endpoint.body else "text/plain"
    content = None if endpoint.body is None else body
    told = key.ask(endpoint.method, path, content=content, headers={"Content-Type": kind})
    answers[told.status_code] += 1


def _declare(endpoint: Endpoint, what: str, carry_out: Callable[[Target, Endpoint], Seen]) -> None:
    def declared(target: Target) -> Seen:
        return carry_out(target, endpoint)

    declared.__name__ = f"{endpoint.operation}_{what}"
    attack(declared)


_often = partial(_flooded, body=_small, count=_FLOOD, at_once=_AT_ONCE)
_largest = partial(_flooded, body=_large, count=_LARGE, at_once=_LARGE_AT_ONCE)

for each in ENDPOINTS:
    _declare(each, "without_its_right", _shut_out)
    if each.right is not None:
        _declare(each, "again_and_again", _often)
        if each.body is not None:
            _declare(each, "with_the_largest_body", _largest)


@attack
def bodies_that_come_slowly(target: Target) -> Seen:
    """At each endpoint, connections that announce a body, and send a byte of it now and then."""
    queue, account = target.queue(target.stranger), target.stranger
    heads = [
        f"{endpoint.method} {_path(endpoint, account.name, queue)} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Key {account.key}\r\nContent-Length: {_ANNOUNCED}\r\n\r\n"
        for endpoint in ENDPOINTS
    ]
    with many([target.connect() for _ in heads * _SLOW]) as connections:
        for connection, head in zip(connections, heads * _SLOW, strict=True):
            connection.sendall(head.encode())
        flood = [partial(_trickle, connection) for connection in connections]
        return served_within(target.slowest_while(flood, len(flood)))


def _trickle(connection: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection.sendall(b"x")
            time.sleep(1)
