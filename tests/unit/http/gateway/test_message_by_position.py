"""One message by its position, by HTTP; and why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.http.accounts import Permission, Right, sign_url
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import InProcess
from tests.support.repair import delete_settled

BYTES = {"Accept": "application/octet-stream"}


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(memory: MemoryStore) -> Client:
    """A client beside the gateway, and a queue."""
    client = Client.from_store(memory)
    client.create_queue("acme:orders")
    return client


@pytest.fixture
def queues(memory: MemoryStore, client: Client) -> Iterator[InProcess]:
    with InProcess(memory) as queues:
        yield queues


def test_a_message_is_shown_as_a_peek_shows_it(queues: InProcess, client: Client):
    client.put_many("acme:orders", ["a", NewMessage(b"\xff\x00", "k", {"lang": "en"}), "c"])

    found = queues.ask("GET", "/orders/messages/1")

    (peeked,) = queues.ask("GET", "/orders/messages?start=1&max=1").json()
    assert found.status_code == 200
    assert found.json() == {**peeked, "value": None}
    assert (peeked["message"], peeked["encoding"], peeked["key"]) == ("/wA=", "base64", "k")
    assert (peeked["headers"], peeked["monoton"]) == ({"lang": "en"}, 1)


def test_a_message_is_sent_byte_by_byte_if_that_is_asked_for(queues: InProcess, client: Client):
    client.put("acme:orders", b"\xff\x00")

    found = queues.ask("GET", "/orders/messages/0", headers=BYTES)

    assert (found.status_code, found.content) == (200, b"\xff\x00")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"


def test_a_large_message_arrives_whole(queues: InProcess, client: Client):
    client.put("acme:orders", b"\xff" * (1 << 20))

    assert queues.ask("GET", "/orders/messages/0", headers=BYTES).content == b"\xff" * (1 << 20)


def test_a_typed_message_has_its_columns_as_an_object(queues: InProcess, client: Client):
    client.create_queue("acme:trips", schema="vendor string, fare decimal(10,2), at timestamp")
    row = {"vendor": "v", "fare": "1.50", "at": "2026-11-20T12:00:00Z"}
    queues.ask("POST", "/trips/messages", json=row)

    found = queues.ask("GET", "/trips/messages/0").json()
    raw = queues.ask("GET", "/trips/messages/0", headers=BYTES)

    assert found["value"] == raw.json()
    assert found["value"]["fare"] == "1.50"
    assert found["message"] == raw.text


def test_what_is_leased_or_settled_is_shown_until_it_is_deleted(
    queues: InProcess, client: Client, memory: MemoryStore
):
    client.put_many("acme:orders", ["a", "b"])
    client.ack(*client.receive("acme:orders", "g"))
    assert queues.ask("GET", "/orders/messages/0").status_code == 200

    delete_settled(memory)
    gone, later, left = (queues.ask("GET", f"/orders/messages/{monoton}") for monoton in (0, 2, 1))

    assert (gone.status_code, gone.json()["reason"]) == (404, "Deleted")
    assert "every group has settled it" in gone.json()["message"]
    assert (later.status_code, later.json()["reason"]) == (404, "NotYet")
    assert "the next one that is put gets position 2" in later.json()["message"]
    assert left.json()["message"] == "b"


def test_a_queue_that_there_is_not_is_another_reason(queues: InProcess):
    absent = queues.ask("GET", "/absent/messages/0")

    assert (absent.status_code, absent.json()["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "9" * 5000, "٣", "{monoton}", "batch"])
def test_what_is_no_position_is_refused(queues: InProcess, position: str):
    found = queues.ask("GET", f"/orders/messages/{position}")

    assert (found.status_code, found.json()["reason"]) == (404, "NotFound")


def test_a_message_of_several_partitions_needs_its_partition(queues: InProcess, client: Client):
    client.create_queue("acme:parts", partitions=3)
    (at,) = client.put_many("acme:parts", ["a", "b"]).by_partition

    found = queues.ask("GET", "/parts/messages/1", params={"partition": at})
    unclear = queues.ask("GET", "/parts/messages/1")
    no_such = queues.ask("GET", "/parts/messages/1", params={"partition": 3})

    assert (found.json()["message"], found.json()["partition"]) == ("b", at)
    assert (unclear.status_code, no_such.status_code) == (400, 400)
    assert "3 partitions" in unclear.json()["message"]


def test_it_takes_the_right_to_read(queues: InProcess, client: Client):
    client.put("acme:orders", "a")

    def asked(*rights: Right) -> int:
        query = sign_url(queues.key, Permission("acme", frozenset(rights)))
        return queues.ask("GET", f"/orders/messages/0?{query}", key=None).status_code

    assert asked(Right.READ_MESSAGE) == 200
    assert asked(*(set(Right) - {Right.READ_MESSAGE})) == 403


def test_another_method_is_refused(queues: InProcess):
    assert queues.ask("DELETE", "/orders/messages/0").status_code == 405
    assert queues.ask("HEAD", "/orders/messages/0").status_code == 405
