"""A queue that holds back all of its messages for a time, and keeps its order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.client import LeaseRequest
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.errors import OptionError
from tests.support.builders import make_clocked_store

DELAY = timedelta(seconds=90)
MOMENT = timedelta(milliseconds=1)
ORDERS = ["none", "key", "strict"]


class Scene:
    """A queue with a delay, and a group."""

    def __init__(self, order: str, **settings: Any) -> None:
        self.memory, self.clock = make_clocked_store()
        self.client = Client.from_store(self.memory)
        self.client.create_queue("q", order=order, delay=DELAY, **settings)
        self.client.create_group("q", "g")
        self.exchange = self.client.exchange("q", "g")

    def receive(self, by: str, most: int = 100) -> list[Message]:
        if by == "client":
            return self.client.receive("q", "g", max=most)
        self.clock.advance(MOMENT)
        return [*self.exchange.round([], LeaseRequest(max_messages=most)).messages]

    def values(self, by: str = "client") -> str:
        """Receive and ack messages, and return their values as one text."""
        found = self.receive(by)
        self.client.ack(*found)
        return "".join(message.value.decode() for message in found)  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("by", ["client", "gateway"])
def test_messages_come_in_order_and_none_is_early(
    order: str, by: str, monkeypatch: pytest.MonkeyPatch
):
    scene = Scene(order)
    for module in (exchange_module, consumer_module):
        monkeypatch.setattr(module, "monotonic", scene.clock.seconds)
    scene.client.put("q", "a", key="k")
    scene.clock.advance(DELAY / 2)
    scene.client.put_many("q", [NewMessage("b", "k"), NewMessage("c", "other")])

    assert scene.values(by) == ""
    scene.clock.advance(DELAY / 2 - 10 * MOMENT)
    assert scene.values(by) == ""
    scene.clock.advance(10 * MOMENT)
    assert scene.values(by) == "a"
    scene.clock.advance(DELAY / 2 - 10 * MOMENT)
    assert scene.values(by) == ""
    scene.clock.advance(10 * MOMENT)
    assert scene.values(by) == "bc"


@pytest.mark.parametrize("order", ["key", "strict"])
def test_a_message_without_a_delay_waits_for_those_before_it(order: str):
    scene = Scene(order)
    scene.client.put("q", "a", key="k")
    scene.client.alter_queue("q", delay=timedelta(0))
    scene.client.put_many("q", [NewMessage("b", "k"), NewMessage("c", "k")])

    assert scene.values() == ""
    scene.clock.advance(DELAY)
    assert scene.values() == "abc"


@pytest.mark.parametrize("partitions", [1, 2])
def test_without_an_order_a_message_may_have_a_time_of_its_own(partitions: int):
    scene = Scene("none", partitions=partitions)
    scene.client.put("q", "a", delay=timedelta(seconds=1), key="k")
    scene.client.put_many("q", [NewMessage("b", "k")], delay=timedelta(seconds=1))
    scene.client.put_many("q", [NewMessage("c", "k")])

    scene.clock.advance(timedelta(seconds=1))

    assert scene.values() == "ab"
    scene.clock.advance(DELAY)
    assert scene.values() == "c"


@pytest.mark.parametrize("order", ["key", "strict"])
def test_with_an_order_no_message_has_a_time_of_its_own(order: str):
    scene = Scene(order)

    with pytest.raises(OptionError, match="let the queue delay all of its messages"):
        scene.client.put("q", "a", delay=timedelta(seconds=1))


@pytest.mark.parametrize("order", ORDERS)
def test_messages_that_are_held_back_count_as_waiting(order: str):
    scene = Scene(order)
    with scene.client.producer("q") as producer:
        producer.put("a")
    scene.receive("client")

    (group,) = scene.client.stats("q").groups
    assert (group.depth, group.waiting, group.oldest_age) == (1, 1, None)
    scene.clock.advance(DELAY)
    (group,) = scene.client.stats("q").groups
    assert (group.depth, group.waiting) == (1, 0 if order != "none" else group.waiting)


@pytest.mark.parametrize("order", ORDERS)
def test_a_message_that_is_given_back_is_not_held_back_again(order: str):
    scene = Scene(order)
    scene.client.put("q", "a", key="k")
    scene.clock.advance(DELAY)

    scene.client.release(*scene.receive("client"))

    assert scene.values() == "a"


def test_a_held_key_does_not_let_others_be_early():
    scene = Scene("key", lease=timedelta(hours=1))
    scene.client.put_many("q", [NewMessage("a", "k"), NewMessage("b", "other")])
    scene.clock.advance(DELAY)
    (held,) = scene.receive("client", 1)
    scene.client.put_many("q", [NewMessage("c", "other"), NewMessage("d", "more")])

    assert held.value == b"a"
    assert scene.values() == "b"
    assert scene.values() == ""
    scene.clock.advance(DELAY)
    assert scene.values() == "cd"
