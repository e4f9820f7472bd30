"""A client that settles what it has received needs no more slots than it holds leases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from cassieq_spark import Client, Message
from cassieq_spark.client.finished import Finished
from cassieq_spark.client.settlement import by_lease
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Slice, partition_of_delivery
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore

HOUR = timedelta(hours=1)


def slots(client: Client) -> int:
    partition = partition_of_delivery(client.queue("q").queue_id, "g")
    return len(client._store.read_rows(partition, Slice(kinds=("slot",))).rows)


def monotons(messages: list[Message]) -> list[int]:
    return [message.monoton for message in messages]


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


def test_what_replaces_a_message_leaves_the_slot_of_its_lease_free(client: Client):
    client.put_many("q", ["a", "b"])

    for _ in range(2):
        (message,) = client.receive("q", "g")
        client.replace(message, "other", delay=HOUR)

    # One for the lease, and for each message one in which it is held on while it is replaced.
    assert slots(client) == 3


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


def test_looking_in_vain_costs_no_lwt_and_forgets_no_slot(client: Client, store: CountingStore):
    client.put("q", "a")
    client.ack(*client.receive("q", "g"))
    store.reset()

    assert client.receive("q", "g") == []
    assert store.cas_count == 0

    client.put("q", "b")
    client.receive("q", "g")
    assert slots(client) == 1


def test_a_lost_answer_to_a_receive_that_fills_a_slot_again_is_resolved(
    client: Client, trouble: FaultyStore
):
    client.put_many("q", ["a", "b"])
    client.ack(*client.receive("q", "g"))
    trouble.fault = Fault.ANSWER_LOST

    (message,) = client.receive("q", "g")

    assert message.monoton == 1
    assert client.ack(message) == []
    assert slots(client) == 1


def test_another_client_that_settles_leaves_the_slot_to_the_lease(client: Client):
    client.put_many("q", ["a", "b"])
    messages = client.receive("q", "g")
    other = Client.from_store(client._store)

    assert other.ack(*messages) == []

    assert monotons(client.receive("q", "g")) == [1]
    assert slots(client) == 2


def test_what_is_never_settled_is_forgotten_when_its_lease_has_run_out():
    finished = Finished()
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        client.put_many("q", ["a", "b"])
        first, second = (by_lease(client.receive("q", "g")) for _ in range(2))
        finished.lease(*first.popitem(), 0.0)
        (held,) = second

        finished.lease(*second.popitem(), 60.0)

    assert list(finished._open) == [held]
