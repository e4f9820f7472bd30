"""Attacks that follow from what endpoints declare: a new endpoint is attacked, too.

Each endpoint is flooded with small requests, and with a few of the largest, by a key of a stranger
that has no right but the endpoint's. The victim may not wait for them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial

from cassieq_spark.http.gateway import app  # noqa: F401 (it declares all endpoints)
from cassieq_spark.http.gateway.formats import LINES
from cassieq_spark.http.gateway.requests import ENDPOINTS, QUEUES, Endpoint
from cassieq_spark.settings.gateway import Limits
from tests.support.gateway import Account, key_with
from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, Verdict, served_within

_LINE = b'{"message": "x"}\n'
_FLOOD, _AT_ONCE = 200, 40
_LARGE, _LARGE_AT_ONCE = 16, 8


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
    key = key_with(target.gateway, target.stranger, f"only-{queue}", endpoint.right)
    names = {"account": key.name, "queue": queue, "group": "default", "monoton": "0"}
    path = endpoint.path.format(**names).removeprefix(QUEUES.format(account=key.name))
    answers: Counter[int] = Counter()
    ask = partial(_ask, key, endpoint, path, body(endpoint), answers)
    slowest = target.slowest_while([ask] * count, at_once)
    # A flood that its key does not allow would show nothing.
    if not answers or answers.keys() & {401, 403}:
        return Seen(Verdict.OPEN, f"the flood did not come through: {dict(answers)}")
    return served_within(slowest, dict(answers))


def _ask(key: Account, endpoint: Endpoint, path: str, body: bytes, answers: Counter[int]) -> None:
    kind = LINES if isinstance(endpoint.body, tuple) and LINES in endpoint.body else "text/plain"
    content = None if endpoint.body is None else body
    told = key.ask(endpoint.method, path, content=content, headers={"Content-Type": kind})
    answers[told.status_code] += 1


def _declare(
    endpoint: Endpoint, what: str, body: Callable[[Endpoint], bytes], count: int, at_once: int
) -> None:
    def flood(target: Target) -> Seen:
        return _flooded(target, endpoint, body, count, at_once)

    flood.__name__ = f"{endpoint.operation}_{what}"
    attack(flood)


for each in ENDPOINTS:
    if each.right is not None:
        _declare(each, "again_and_again", _small, _FLOOD, _AT_ONCE)
        if each.body is not None:
            _declare(each, "with_the_largest_body", _large, _LARGE, _LARGE_AT_ONCE)
