"""A receive that is repeated under its name, as its answer was lost."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.client import LeaseRequest
from cassieq_spark.errors import MessageError, OptionError, OutcomeUnknownError
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store

LEASE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Scene:
    """A queue with twenty messages of five keys, and a client."""

    def __init__(self, **settings: Any) -> None:
        self.memory, self.clock = make_clocked_store()
        self.store = CountingStore(self.memory)
        self.client = Client.from_store(self.store)
        self.client.create_queue("q", lease=LEASE, **settings)
        self.client.create_group("q", "g")
        keys = (str(number % 5) for number in range(20))
        self.client.put_many("q", [NewMessage(key, key) for key in keys])

    def receive(self, attempt: str | None, most: int = 3, **more: Any) -> list[Message]:
        return self.client.receive("q", "g", max=most, attempt=attempt, **more)


def at(messages: list[Message]) -> list[tuple[int, int]]:
    return [(each.partition, each.monoton) for each in messages]


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_repeated_receive_gets_the_same_messages(order: str, partitions: int):
    scene = Scene(order=order, partitions=partitions)
    first = scene.receive("one", 12)
    scene.clock.advance(LEASE / 2)

    again, other = scene.receive("one", 12), scene.receive("two", 3)

    assert sorted(at(again)) == sorted(at(first))
    assert not {each.receipt for each in again} & {each.receipt for each in first}
    assert {each.delivery_count for each in again} == {1}
    assert not {*at(other)} & {*at(first)}
    # Leased anew: the first lease would be over.
    scene.clock.advance(LEASE - SECOND)
    assert not {*at(scene.receive(None, 100))} & {*at(first)}
    # What the first receive does late changes nothing.
    assert scene.client.release(*first) == [each.receipt for each in first]
    assert scene.client.ack(*again) == []


def test_another_client_gets_them_too_and_others_do_not():
    scene = Scene()
    first = scene.receive("one")
    other = Client.from_store(scene.memory)

    assert at(other.receive("q", "g", max=9, attempt="one")) == at(first)
    assert not {*at(other.receive("q", "g", max=9))} & {*at(first)}


def test_what_nobody_got_of_a_repeated_receive_stays_with_the_attempt():
    scene = Scene()
    first = scene.receive("one")
    receiver = scene.client.receiver("q", "g")
    again = receiver.look(LeaseRequest(max_messages=3, attempt="one"))

    receiver.give_back(again)

    assert at(scene.receive("one")) == at(first)
    assert not {*at(scene.receive(None, 100))} & {*at(first)}


def test_what_is_settled_is_not_received_again():
    scene = Scene()
    first = scene.receive("one")
    scene.client.ack(first[0])
    scene.client.release(first[1])

    again = scene.receive("one")
    assert at(again) == at(first[2:])
    scene.client.ack(*again)
    fresh = scene.receive("one")
    assert len(fresh) == 3
    assert at(scene.receive("one")) == at(fresh)


def test_when_the_lease_is_over_the_attempt_is_forgotten():
    scene = Scene()
    first = scene.receive("one")
    scene.clock.advance(LEASE + SECOND)

    second = scene.receive("one", 20)

    # I8: they are handed out once more.
    assert (at(second), [each.delivery_count for each in second]) == (at(first), [2, 2, 2])
    assert scene.client.ack(*first) == [each.receipt for each in first]


def test_a_slot_that_has_another_lease_now_is_not_that_of_the_attempt():
    scene = Scene()
    scene.client.ack(*scene.receive("one"))
    other = scene.receive(None)

    assert not {*at(scene.receive("one"))} & {*at(other)}


def test_a_receive_that_is_cancelled_late_takes_nothing_from_its_repetition():
    scene = Scene()
    receiver = scene.client.receiver("q", "g")
    first = receiver.look(LeaseRequest(max_messages=3, attempt="one"))
    again = scene.receive("one")

    receiver.give_back(first)

    assert not {*at(scene.receive(None, 100))} & {*at(again)}
    assert scene.client.ack(*again) == []


@pytest.mark.parametrize("fault", list(Fault))
def test_a_lost_answer_is_asked_for_again(fault: Fault):
    scene = Scene()
    faulty = FaultyStore(scene.memory)
    faulty.fault = fault
    try:
        first = Client.from_store(faulty).receive("q", "g", max=3, attempt="one")
    except OutcomeUnknownError:
        first = []

    again = scene.receive("one")

    assert len(again) == 3
    assert not first or at(first) == at(again)
    rest = scene.receive(None, 100)
    assert sorted(at(again) + at(rest)) == [(0, number) for number in range(20)]


def test_a_receiver_that_does_not_know_the_schema_yet_gets_the_same_messages():
    scene = Scene()
    scene.client.create_queue("typed", schema="a string")
    scene.client.create_group("typed", "g")
    receiver = scene.client.receiver("typed", "g")
    scene.client.alter_queue("typed", schema="a string, b string")
    scene.client.put_many("typed", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}])
    first = Client.from_store(scene.memory).receive("typed", "g", max=1, attempt="one")

    again = receiver.look(LeaseRequest(max_messages=1, attempt="one"))

    assert [(each.monoton, each.value) for each in again] == [(0, {"a": "1", "b": "2"})]
    assert at(again) == at(first)


def test_a_receive_without_a_name_costs_what_it_did():
    scene = Scene()
    scene.receive(None)
    scene.store.reset()

    scene.receive(None)

    assert (scene.store.cas_count, scene.store.read_count) == (1, 6)


@pytest.mark.parametrize(
    ("attempt", "error", "problem"),
    [
        ("", OptionError, "attempt must have 1 to 128 characters, not 0"),
        ("x" * 129, OptionError, "not 129: give each receive a name of its own"),
        (7, (OptionError, MessageError), "attempt"),
    ],
)
def test_a_name_that_is_none_is_refused(attempt: Any, error: Any, problem: str):
    scene = Scene()

    with pytest.raises(error, match=problem):
        scene.receive(attempt)


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_message_says_when_it_was_delivered_first_however_it_comes_again(order: str):
    scene = Scene(order=order)
    first_at = scene.clock.now
    first = scene.receive("one", 9)
    assert {each.first_delivered_at for each in first} == {first_at}

    scene.clock.advance(SECOND)
    repeated = scene.receive("one", 9)
    scene.client.release(*repeated[:2], delay=SECOND)
    scene.clock.advance(2 * LEASE)
    then: list[Message] = []
    while got := scene.receive(None, 20):
        then += got
        # In a queue with an order, others of their keys are next.
        scene.client.ack(*got)

    assert {each.first_delivered_at for each in repeated} == {first_at}
    assert Counter((each.delivery_count, each.first_delivered_at) for each in then) == {
        (2, first_at): 9,
        (1, scene.clock.now): 11,
    }
