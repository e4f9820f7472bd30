"""Answers have a bound in bytes: fewer messages rather than more bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.gateway import Account, RunningGateway, running_on_memory

KIB = 1 << 10
LIMIT = 64 * KIB
COUNT = 40


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with running_on_memory(folder / "log", f"answer_bytes={LIMIT}") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def orders(gateway: RunningGateway) -> Account:
    """A queue of messages that are small as stored."""
    account = gateway.account()
    account.ask("POST", json={"queueName": "orders", "maxDeliveryCount": 1})
    lines = json.dumps({"message": "\0" * (10 * KIB)}) + "\n"
    answer = account.ask("POST", "/orders/messages/batch", content=lines * COUNT)
    assert answer.status_code == 201, answer.text
    return account


def test_a_look_has_as_many_as_fit(orders: Account):
    answer = orders.ask("GET", "/orders/messages", params={"max": 100})

    assert len(answer.json()) == 6
    assert len(answer.content) < 2 * LIMIT


def test_a_get_has_as_many_as_fit_and_the_others_come_later_and_for_the_first_time(
    orders: Account,
):
    received = []
    while True:
        answer = orders.ask("POST", "/orders/messages/receive", params={"max": 100})
        if answer.status_code == 204:
            break
        assert len(answer.content) < 2 * LIMIT
        received += [json.loads(line) for line in answer.text.splitlines()]

    assert [each["monoton"] for each in received] == [*range(COUNT)]
    assert {each["deliveryCount"] for each in received} == {1}
    receipts = [each["popReceipt"] for each in received]
    acked = orders.ask("POST", "/orders/messages/ack", json={"popReceipts": receipts})
    assert acked.json() == {"stale": []}


def test_a_message_that_is_larger_than_the_bound_arrives(orders: Account):
    orders.ask("POST", json={"queueName": "large"})
    value = "x" * (5 * LIMIT)
    orders.ask("POST", "/large/messages", content=value)

    assert orders.ask("GET", "/large/messages/next").json()["message"] == value
