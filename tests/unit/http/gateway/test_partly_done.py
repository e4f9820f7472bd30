"""Requests of which a part is done when Cassandra fails: nobody is told that nothing was done."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cassieq_spark import Client
from cassieq_spark.client import NewMessage
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import InProcess
from tests.support.partly_down import PartlyDownStore

KEYS = {partition_of_key(key, 2): key for key in map(str, range(9))}


@pytest.fixture
def store() -> PartlyDownStore:
    return PartlyDownStore(MemoryStore())


@pytest.fixture
def gateway(store: PartlyDownStore) -> Iterator[InProcess]:
    with InProcess(store, "shop") as gateway:
        assert gateway.ask("POST", json={"queueName": "q", "partitions": 2}).status_code == 201
        with Client.from_store(store) as client:
            client.put_many("shop:q", [NewMessage("0", KEYS[0]), NewMessage("1", KEYS[1])])
        yield gateway


def receipts(gateway: InProcess) -> list[str]:
    lines = gateway.ask("POST", "/q/messages/receive?max=2").text.splitlines()
    found = [json.loads(each)["popReceipt"] for each in lines]
    assert len(found) == 2
    return found


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("ack", {}),
        ("release", {"delaySeconds": 60}),
        ("extend", {"seconds": 60}),
        ("reject", {"reason": "bad"}),
    ],
)
def test_settling_that_fails_in_one_partition_may_be_done_in_part(
    gateway: InProcess, store: PartlyDownStore, what: str, more: dict[str, object]
):
    body = {"popReceipts": receipts(gateway), **more}
    store.down = {("cas", "shop:q@1.0"), ("cas", "shop:q@1.1")}
    nothing = gateway.ask("POST", f"/q/messages/{what}", json=body)
    store.down = {("cas", "shop:q@1.0")}

    partly = gateway.ask("POST", f"/q/messages/{what}", json=body)

    assert (nothing.status_code, partly.status_code) == (503, 504)
    assert "a part of it may have been done" in partly.json()["message"]


@pytest.mark.parametrize("what", ["redrive", "purge"])
def test_dead_letters_that_were_claimed_may_be_gone_when_cassandra_fails(
    gateway: InProcess, store: PartlyDownStore, what: str
):
    body = {"popReceipts": receipts(gateway), "reason": "bad"}
    assert gateway.ask("POST", "/q/messages/reject", json=body).status_code == 200
    store.down = {("cas", "shop:q@1.1" if what == "redrive" else "shop:q.dead@1")}

    answer = gateway.ask("POST", f"/q/dead/{what}", json={})

    assert answer.status_code == 504


def test_a_group_that_is_resumed_in_one_partition_may_be_resumed_in_part(
    gateway: InProcess, store: PartlyDownStore
):
    given = {"queueName": "stops", "partitions": 2, "order": "key", "onDead": "stop"}
    assert gateway.ask("POST", json=given).status_code == 201
    with Client.from_store(store) as client:
        client.put_many("shop:stops", [NewMessage("0", KEYS[0]), NewMessage("1", KEYS[1])])
        client.reject(*client.receive("shop:stops", "default", max=2), reason="bad")
    store.down = {("cas", "shop:stops@1.1")}

    answer = gateway.ask("POST", "/stops/groups/default/resume", json={"how": "retry"})

    assert answer.status_code == 504


def test_a_queue_whose_deletion_breaks_off_may_be_deleted(
    gateway: InProcess, store: PartlyDownStore
):
    store.down = {("cas", "shop:q@1.1")}

    broken_off = gateway.ask("DELETE", "/q")
    again = gateway.ask("DELETE", "/q")

    # A client that took the first for not done, and repeated it, would hear of no such queue.
    assert (broken_off.status_code, again.status_code) == (504, 404)


@pytest.mark.parametrize("down", ["audit", "shop:q@1.1"])
def test_a_group_whose_creation_breaks_off_may_be_created(
    gateway: InProcess, store: PartlyDownStore, down: str
):
    store.down = {("cas", down)}

    broken_off = gateway.ask("PUT", "/q/groups/audit", json={"start": "earliest"})
    store.down = set()
    there = [each["group"] for each in gateway.ask("GET", "/q/groups").json()]

    assert (broken_off.status_code, there) == (504, ["audit"])


def test_a_group_is_not_created_while_cassandra_is_down(
    gateway: InProcess, store: PartlyDownStore
):
    store.down = {("read_rows", "shop:q")}

    answer = gateway.ask("PUT", "/q/groups/audit", json={"start": "earliest"})

    assert answer.status_code == 503


@pytest.mark.parametrize(("must_be_new", "status"), [(True, 504), (False, 503)])
def test_a_queue_that_must_be_new_and_whose_creation_breaks_off_may_be_created(
    gateway: InProcess, store: PartlyDownStore, *, must_be_new: bool, status: int
):
    query = "?errorIfExists=true" if must_be_new else ""
    store.down = {("cas", "shop:new")}

    broken_off = gateway.ask("POST", query, json={"queueName": "new"})

    assert broken_off.status_code == status


def test_a_group_is_not_resumed_while_cassandra_is_down(
    gateway: InProcess, store: PartlyDownStore
):
    store.down = {("read_rows", "shop:q")}

    answer = gateway.ask("POST", "/q/groups/default/resume", json={"how": "retry"})

    assert answer.status_code == 503
