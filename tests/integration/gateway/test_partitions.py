"""Queues with several partitions by HTTP."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import timedelta

import pytest

from cassieq_spark import Message
from cassieq_spark.model import Positions, Range
from cassieq_spark.producer.partitioner import partition_of_key
from tests.support.gateway import Account

PARTITIONS = 4
SECOND = timedelta(seconds=1)
KEYS = [str(key) for key in range(6)]


def lines(rounds: int) -> bytes:
    """Messages of each key, numbered by key, as JSON lines."""
    every = [{"message": f"{key}:{n}", "key": key} for n in range(rounds) for key in KEYS]
    return "".join(json.dumps(each) + "\n" for each in every).encode()


def by_key(messages: list[Message]) -> dict[str, list[bytes]]:
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for message in messages:
        found[(message.key or b"").decode()].append(message.value)
    return dict(found)


@pytest.mark.parametrize("order", ["none", "key"])
def test_messages_of_a_key_come_in_order_and_each_says_where_it_is(account: Account, order: str):
    with account.queue("orders", order=order, partitions=PARTITIONS) as orders:
        put = account.ask(
            "POST",
            "/orders/messages/batch",
            content=lines(3),
            headers={"Content-Type": "application/x-ndjson"},
        )
        got: list[Message] = []
        while found := orders.receive(max=2, wait=SECOND):
            got += found
            assert orders.ack(*found) == []

        told = orders.stats()

    assert put.status_code == 201
    counts = {at: each["stop"] for at, each in put.json()["partitions"].items()}
    assert sum(counts.values()) == 18
    assert (put.json()["start"], put.json()["stop"]) == (None, None)
    assert by_key(got) == {key: [f"{key}:{n}".encode() for n in range(3)] for key in KEYS}
    for message in got:
        assert message.partition == partition_of_key(message.key or b"", PARTITIONS)
    assert [each.depth for each in told.groups] == [0]
    assert (told.next, len(told.partitions)) == (18, PARTITIONS)


def test_a_key_waits_for_its_message_before_while_others_are_served(account: Account):
    with account.queue("orders", order="key", partitions=PARTITIONS) as orders:
        account.ask(
            "POST",
            "/orders/messages/batch",
            content=lines(2),
            headers={"Content-Type": "application/x-ndjson"},
        )
        (held,) = orders.receive()
        others: list[Message] = []
        while found := orders.receive(max=100, wait=SECOND):
            others += found
            orders.ack(*found)

        assert orders.ack(held) == []
        rest = orders.receive(max=100, wait=5 * SECOND)

    key = (held.key or b"").decode()
    assert set(by_key(others)) == set(KEYS) - {key}
    assert by_key(rest) == {key: [f"{key}:1".encode()]}
    assert len(others) + len(rest) + 1 == 12


def test_a_client_tells_by_partition_where_a_batch_is(account: Account):
    with account.queue("orders", partitions=PARTITIONS) as orders:
        put = orders.put_many(["a", "b", "c"])
        monoton = orders.put("d", key="k")

    assert isinstance(put, Positions)
    assert [*put.by_partition.values()] == [Range(0, 3)]
    assert monoton in {0, 3}


def test_what_no_queue_can_be_is_refused(account: Account):
    for options in ({"partitions": 65}, {"partitions": 0}, {"order": "keys"}):
        answer = account.ask("POST", json={"queueName": "orders", **options})
        assert answer.status_code in {400, 422}
    answer = account.ask("POST", json={"queueName": "o", "order": "strict", "partitions": 2})
    assert answer.status_code in {400, 422}
    assert "give order 'key'" in answer.json()["message"]
