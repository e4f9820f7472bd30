"""The history of a message, by HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.cli import messages
from cassieq_spark.groups.history import flush_history
from cassieq_spark.http.accounts import Permission, Right, sign_url
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq
from tests.support.gateway import InProcess

ORDERS = "acme:orders"
PATIENCE = timedelta(seconds=30)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(memory: MemoryStore) -> Client:
    """A client beside the gateway that has had one of two messages."""
    client = Client.from_store(memory, name="billing")
    client.create_queue(ORDERS, history=timedelta(days=1))
    client.put_many(ORDERS, ["a", "b"])
    client.reject(*client.receive(ORDERS, "g"), reason="no address")
    flush_history(memory, PATIENCE)
    return client


@pytest.fixture
def queues(memory: MemoryStore, client: Client) -> Iterator[InProcess]:
    with InProcess(memory) as queues:
        yield queues


def test_it_is_what_the_command_prints(
    queues: InProcess, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(messages, "open_store", lambda _: memory)

    told = queues.ask("GET", "/orders/messages/0/history")

    assert told.status_code == 200
    assert told.json() == json.loads(cassieq("history", ORDERS, "0", "--json").out)
    assert [(each["did"], each["by"], each["reason"]) for each in told.json()] == [
        ("leased", "billing", None),
        ("rejected", "billing", "no address"),
    ]
    assert queues.ask("GET", "/orders/messages/1/history").json() == []


def test_it_is_what_the_client_returns(queues: InProcess, client: Client):
    assert queues.queue("orders").history(0) == client.history(ORDERS, 0)


def test_it_outlives_the_setting_and_a_queue_that_never_had_it_has_none(
    queues: InProcess, client: Client
):
    client.alter_queue(ORDERS, history=timedelta(0))
    client.create_queue("acme:plain")
    client.put("acme:plain", "a")
    client.ack(*client.receive("acme:plain", "g"))

    assert client.queue(ORDERS).history is None
    assert len(queues.ask("GET", "/orders/messages/0/history").json()) == 2
    assert queues.ask("GET", "/plain/messages/0/history").json() == []


def test_who_receives_by_the_gateway_has_the_name_of_its_key(
    queues: InProcess, memory: MemoryStore
):
    receipt = queues.ask("GET", "/orders/messages/next").json()["popReceipt"]
    queues.ask("DELETE", f"/orders/messages?popReceipt={receipt}")
    flush_history(memory, PATIENCE)

    found = queues.ask("GET", "/orders/messages/0/history").json()

    by_default = [each for each in found if each["group"] == "default"]
    assert [each["did"] for each in by_default] == ["leased", "acked"]
    assert "primary" in by_default[0]["by"]


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "9" * 5000, "٣"])
def test_what_is_no_position_has_no_history(queues: InProcess, position: str):
    found = queues.ask("GET", f"/orders/messages/{position}/history")

    assert (found.status_code, found.json()["reason"]) == (404, "NotFound")


def test_of_several_partitions_one_is_named(queues: InProcess, client: Client):
    client.create_queue("acme:parts", partitions=3)

    unclear = queues.ask("GET", "/parts/messages/1/history")
    found = queues.ask("GET", "/parts/messages/1/history", params={"partition": 2})

    assert (unclear.status_code, found.status_code) == (400, 200)
    assert "3 partitions" in unclear.json()["message"]


def test_it_takes_the_right_to_see_queues(queues: InProcess):
    def asked(*rights: Right) -> int:
        query = sign_url(queues.key, Permission("acme", frozenset(rights)))
        return queues.ask("GET", f"/orders/messages/0/history?{query}", key=None).status_code

    assert asked(Right.GET_QUEUE_INFORMATION) == 200
    assert asked(*(set(Right) - {Right.GET_QUEUE_INFORMATION})) == 403
