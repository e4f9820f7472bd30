"""A group has no more slots than leases were held at once, whichever process settles them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from cassieq_spark import Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.store.protocol import Slice, partition_of_group
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore

HOUR = timedelta(hours=1)
ROUNDS = 400


def slots(client: Client) -> int:
    partition = partition_of_group(client.queue("q").queue_id, "g")
    return len(client._store.read_rows(partition, Slice(kinds=("slot",))).rows)


def monotons(messages: list[Message]) -> list[int]:
    return [message.monoton for message in messages]


@pytest.fixture
def other(client: Client) -> Client:
    """A client in another process, as behind a balancer."""
    return Client.from_store(client._store)


SETTLING: dict[str, Callable[[Client, Message], object]] = {
    "ack": lambda client, message: client.ack(message),
    "release": lambda client, message: client.release(message, delay=HOUR),
    "reject": lambda client, message: client.reject(message, reason="bad"),
}


@pytest.mark.parametrize("settle", SETTLING)
def test_message_after_message_goes_through_one_slot(client: Client, settle: str):
    client.put_many("q", [str(number) for number in range(20)])

    received = []
    for _ in range(20):
        (message,) = client.receive("q", "g")
        received.append(message.monoton)
        assert not SETTLING[settle](client, message)

    assert received == [*range(20)]
    assert slots(client) == 1


def test_what_one_client_receives_and_another_one_acks_goes_through_one_slot(
    client: Client, other: Client
):
    client.put_many("q", [str(number) for number in range(ROUNDS)])

    for number in range(ROUNDS):
        (message,) = (client, other)[number % 2].receive("q", "g")
        assert (other, client)[number % 2].ack(message) == []

    assert slots(client) == 1


def test_what_one_exchange_leases_and_another_one_acks_goes_through_few_slots(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
):
    # A second passes from round to round, so no round uses the state that the last one cached.
    monkeypatch.setattr(consumer_module, "monotonic", partial(next, count()))
    client.put_many("q", [str(number) for number in range(ROUNDS)])
    here, there = (each.exchange("q", "g") for each in (client, other))
    held: list[Message] = []

    for _ in range(ROUNDS):
        told = here.round([], LeaseRequest(max_messages=1))
        stale = there.round(
            [Receipt.parse(each.receipt) for each in held], LeaseRequest(max_messages=0)
        ).stale
        assert not stale
        held = told.messages

    # One for what is held, one for what is leased before that is acked.
    assert slots(client) == 2


def test_an_exchange_leases_into_the_slot_that_its_acks_empty(client: Client):
    client.put_many("q", [str(number) for number in range(20)])
    exchange, held = client.exchange("q", "g"), list[Message]()

    for _ in range(20):
        receipts = [Receipt.parse(each.receipt) for each in held]
        held = exchange.round(receipts, LeaseRequest(max_messages=1)).messages

    assert monotons(held) == [19]
    assert slots(client) == 1


def test_what_replaces_a_message_leaves_the_slots_of_its_lease_free(client: Client):
    client.put_many("q", ["a", "b"])

    for _ in range(2):
        (message,) = client.receive("q", "g")
        client.replace(message, "other", delay=HOUR)

    # One for the lease, and one in which the message is held on while it is replaced.
    assert slots(client) == 2


def test_a_slot_is_not_filled_again_before_all_of_its_lease_is_settled(client: Client):
    client.put_many("q", ["a", "b", "c"])
    first, second = client.receive("q", "g", max=2)
    client.ack(first)

    (third,) = client.receive("q", "g")

    assert slots(client) == 2
    assert client.ack(second, third) == []
    assert client.stats("q").groups[0].depth == 0


def test_messages_that_are_held_on_are_not_settled(client: Client):
    client.put_many("q", ["a", "b"])
    (first,) = client.receive("q", "g")
    client.extend(first, by=HOUR)

    (second,) = client.receive("q", "g")

    assert client.ack(first, second) == []
    assert client.stats("q").groups[0].depth == 0


def test_looking_in_vain_costs_no_lwt(client: Client, store: CountingStore):
    client.put("q", "a")
    client.ack(*client.receive("q", "g"))
    store.reset()

    assert client.receive("q", "g") == []
    assert store.cas_count == 0


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("settle", SETTLING)
def test_a_lost_answer_to_what_frees_a_slot_is_resolved(
    client: Client, trouble: FaultyStore, settle: str, fault: Fault
):
    client.put_many("q", ["a", "b"])
    (message,) = client.receive("q", "g")
    trouble.fault = fault

    assert SETTLING[settle](client, message) == []
    trouble.arrive()

    assert slots(client) == 1
    assert monotons(client.receive("q", "g")) == [1]
