"""Messages with unique ids by HTTP: the ids are those of all clients of the queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.http.client import HttpError
from cassieq_spark.model import Position
from cassieq_spark.store.memory import MemoryStore
from tests.support.arrow_streams import stream_of
from tests.support.gateway import Account, InProcess

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def orders(account: Account) -> Account:
    """An account with a queue ``orders`` that knows unique ids for five minutes."""
    create(account, "orders")
    return account


def create(account: Account, name: str, **settings: Any) -> None:
    body = {"queueName": name, "deduplicateSeconds": 300, **settings}
    assert account.ask("POST", json=body).status_code == 201


def received(account: Account, queue: str = "orders") -> list[str]:
    found: list[str] = []
    while True:
        answer = account.ask("POST", f"/{queue}/messages/receive", params={"max": 100})
        if answer.status_code == 204:
            return found
        found += [json.loads(line)["message"] for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    "again",
    [
        {"uniqueId": "é 1"},
        {"uniqueId": "w6kgMQ==", "uniqueIdEncoding": "base64"},
    ],
)
def test_a_message_that_is_put_again_is_told_where_the_first_one_is(
    orders: Account, again: dict[str, str]
):
    first = orders.ask("POST", "/orders/messages", params={"uniqueId": "é 1"}, content="a")
    second = orders.ask("POST", "/orders/messages", params=again, content="b")

    at = {"monoton": 0, "partition": 0, "version": 1}
    assert (first.status_code, first.json()) == (201, {**at, "repeated": False})
    assert (second.status_code, second.json()) == (200, {**at, "repeated": True})
    assert received(orders) == ["a"]


def test_lines_and_arrow_have_unique_ids(orders: Account):
    lines = [
        {"message": "a", "uniqueId": "1"},
        {"message": "b", "uniqueId": "MQ==", "uniqueIdEncoding": "base64"},
        {"message": "c", "key": "k", "uniqueId": "1"},
        {"message": "d"},
    ]
    table = pa.table({"value": ["e", "f", "g"], "uniqueId": ["1", None, "2"]})

    by_lines = orders.ask(
        "POST", "/orders/messages/batch", content="\n".join(map(json.dumps, lines))
    )
    by_arrow = orders.ask(
        "POST",
        "/orders/messages/batch",
        content=stream_of(table),
        headers={"Content-Type": ARROW},
    )

    assert (by_lines.status_code, by_lines.json()) == (201, {"start": 0, "stop": 3})
    assert (by_arrow.status_code, by_arrow.json()) == (201, {"start": 3, "stop": 5})
    assert received(orders) == ["a", "c", "d", "f", "g"]


def test_rows_have_unique_ids(account: Account):
    create(account, "rows", schema="a int", partitions=3)
    table = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "_unique_id": ["x", "x", "y"]})

    for _ in range(2):
        answer = account.ask(
            "POST",
            "/rows/messages/batch",
            content=stream_of(table),
            headers={"Content-Type": ARROW},
        )
        assert answer.status_code == 201
    put = account.ask("POST", "/rows/messages", params={"uniqueId": "y"}, content='{"a": 4}')

    assert put.json()["repeated"] is True
    assert sorted(received(account, "rows")) == ['{"a":1}', '{"a":3}']


def test_a_client_of_the_gateway_gets_the_same_positions():
    def at(position: Position | None) -> tuple[int, int, int, bool]:
        assert position is not None
        return int(position), position.partition, position.version, position.is_repeat

    store = MemoryStore()
    client = Client.from_store(store)
    with InProcess(store) as gateway:
        client.create_queue("acme:orders", deduplicate=timedelta(minutes=5))
        queue = gateway.queue("orders")
        first = queue.put("a", unique_id="1")
        again = client.put("acme:orders", "a", unique_id=b"1")
        more = queue.put_many([NewMessage("b", unique_id="2"), NewMessage("c", unique_id=b"1")])
        third = queue.put(NewMessage("d", unique_id="2"))
        client.create_queue("acme:plain")
        with pytest.raises(HttpError, match="does not deduplicate"):
            gateway.queue("plain").put("a", unique_id="1")

    assert [at(each) for each in (first, again, third)] == [
        (0, 0, 1, False),
        (0, 0, 1, True),
        (1, 0, 1, True),
    ]
    assert more is not None
    assert len(more) == 1
