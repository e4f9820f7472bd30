"""A lease that names no time lasts as long as the queue says, and the sender may hold messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.http.accounts import Accounts, Right, Secrets
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import SECRET, InProcess

HOUR = timedelta(hours=1)
SOON = timedelta(minutes=1)


def lasts(until: str) -> timedelta:
    return datetime.fromisoformat(until) - datetime.now(UTC)


@pytest.mark.parametrize(
    ("queue", "rights", "lease"),
    [
        (timedelta(minutes=5), set(Right), timedelta(minutes=5)),
        (timedelta(minutes=5), {Right.READ_MESSAGE}, timedelta(minutes=5)),
        (6 * HOUR, set(Right), 6 * HOUR),
        (6 * HOUR, {Right.READ_MESSAGE}, timedelta(minutes=15)),
        (48 * HOUR, set(Right), 12 * HOUR),
    ],
)
def test_the_queue_says_how_long_within_the_limits(
    queue: timedelta, rights: set[Right], lease: timedelta
):
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("acme:orders", lease=queue)
    client.put_many("acme:orders", ["a", "b"])

    with InProcess(store) as gateway:
        key = Accounts(store, Secrets((SECRET,))).add_key("acme", "own", rights=rights).key
        single = gateway.ask("GET", "/orders/messages/next", key=key)
        many = gateway.ask("POST", "/orders/messages/receive", key=key)
        (group,) = gateway.ask("GET", "/orders/groups").json()

    for until in (single.json()["leaseUntil"], json.loads(many.text)["leaseUntil"]):
        assert lease - SOON < lasts(until) <= lease
    assert group["leased"] == 2
