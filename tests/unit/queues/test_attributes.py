"""What programs keep with a queue."""

from __future__ import annotations

from typing import Any

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import InvariantError, NotFoundError, OptionError
from cassieq_spark.queues import read_attributes, set_attributes
from cassieq_spark.queues.attributes import MOST_ATTRIBUTES, MOST_BYTES
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_queue
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore

TEAM = {"team": "payments"}


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    Client.from_store(store).create_queue("q")
    return store


def test_attributes_that_are_not_named_stay(store: MemoryStore):
    assert set_attributes(store, "q", TEAM | {"tier": "1"}) == TEAM | {"tier": "1"}
    assert set_attributes(store, "q", {"tier": None, "page": "no"}) == TEAM | {"page": "no"}

    assert read_attributes(store, "q") == TEAM | {"page": "no"}


def test_a_queue_is_read_with_its_attributes_at_once(store: MemoryStore):
    set_attributes(store, "q", TEAM)
    counting = CountingStore(store)

    with Client.from_store(counting) as client:
        assert client.queue_with_attributes("q") == (client.queue("q"), TEAM)

    assert (counting.read_count, counting.serial_read_count) == (2, 0)


def test_to_set_what_is_there_takes_no_lwt(store: MemoryStore):
    counting = CountingStore(store)
    set_attributes(counting, "q", TEAM)
    first = counting.cas_count

    set_attributes(counting, "q", TEAM | {"none": None})

    assert (first, counting.cas_count) == (1, 1)


@pytest.mark.parametrize("fault", list(Fault))
def test_an_answer_that_is_lost_loses_no_attribute(store: MemoryStore, fault: Fault):
    faulty = FaultyStore(store)
    faulty.fault = fault

    assert set_attributes(faulty, "q", TEAM) == TEAM
    set_attributes(store, "q", {"tier": "1"})
    while faulty.late:
        faulty.arrive()

    assert read_attributes(store, "q") == TEAM | {"tier": "1"}


def test_a_purge_and_an_alter_keep_attributes_and_a_deletion_does_not(store: MemoryStore):
    client = Client.from_store(store)
    client.set_attributes("q", TEAM)

    client.purge_queue("q")
    client.alter_queue("q", max_deliveries=3)
    assert client.attributes("q") == TEAM
    client.delete_queue("q")
    with pytest.raises(NotFoundError):
        client.attributes("q")
    client.create_queue("q")

    assert client.attributes("q") == {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"": "x"}, "1 to 200 characters, not 0"),
        ({"x" * 201: "x"}, "1 to 200 characters, not 201"),
        ({1: "x"}, "the name of an attribute must be a str, not 1"),
        ({"x": 1}, "attribute 'x' must be a str, not 1"),
        ({"x": "\ud800"}, "attribute 'x'"),
        ([("x", "y")], "attributes must be a dict such as"),
        ({str(number): "" for number in range(MOST_ATTRIBUTES + 1)}, "would have 201 of 493"),
        ({"x": "é" * (MOST_BYTES // 2)}, "would have 1 of 65537"),
    ],
)
def test_what_is_no_attribute_is_refused(store: MemoryStore, changes: Any, problem: str):
    with pytest.raises(OptionError, match=problem):
        set_attributes(store, "q", changes)

    assert read_attributes(store, "q") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 1}'])
def test_what_another_hand_has_written_is_an_error_that_says_so(store: MemoryStore, text: str):
    by_hand = Update((), {"attributes": text}, when=(When("version", "=", 1),))
    assert store.cas(partition_of_queue("q"), [by_hand])

    with pytest.raises(InvariantError, match="are no JSON object of texts: set the column"):
        read_attributes(store, "q")
