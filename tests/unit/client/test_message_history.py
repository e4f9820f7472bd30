"""The history of messages: who did what with them, and when."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cassieq_spark import Client
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.errors import NotAppliedError, OptionError
from cassieq_spark.groups import history
from cassieq_spark.groups.history import (
    SPAN,
    HistoryEvent,
    HistoryWriter,
    event_of_plain,
    flush_history,
    plain_event,
    read_history,
    stream_span,
    writer_of,
)
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.state import Did
from cassieq_spark.model import Ranges
from cassieq_spark.queues import read_queue
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store

PATIENCE = timedelta(seconds=30)
DAY = timedelta(days=1)
Story = list[tuple[str, str | None, int | None]]


class Scene:
    """A queue with ten messages that keeps its history, and two clients."""

    def __init__(self, **settings: Any) -> None:
        memory, self.clock = make_clocked_store()
        self.store = CountingStore(memory)
        self.ann = Client.from_store(self.store, name="ann")
        self.bob = Client.from_store(self.store, name="bob")
        self.ann.create_queue("q", **({"history": DAY} | settings))
        self.ann.create_group("q", "g")
        self.ann.put_many("q", map(str, range(10)))

    def story(self, monoton: int) -> Story:
        flush_history(self.store, PATIENCE)
        return [
            (str(each.did), each.by, each.deliveries) for each in self.ann.history("q", monoton)
        ]


def test_the_history_says_who_did_what_with_a_message():
    scene = Scene()
    scene.ann.release(*scene.ann.receive("q", "g", max=2))
    held = scene.bob.receive("q", "g", max=2)
    scene.bob.extend(held[0], by=timedelta(minutes=5))
    scene.bob.ack(held[0])
    scene.bob.reject(held[1], reason="no address")

    assert scene.story(0) == [
        ("leased", "ann", 1),
        ("released", "ann", None),
        ("leased", "bob", 2),
        ("extended", "bob", None),
        ("acked", "bob", None),
    ]
    (*_, last) = scene.ann.history("q", 1)
    assert (last.did, last.by, last.detail, last.group) == ("rejected", "bob", "no address", "g")
    assert scene.story(5) == []


def test_a_queue_that_keeps_no_history_pays_nothing():
    scene, without = Scene(), Scene(history=None)
    costs = []
    for each in (scene, without):
        each.store.reset()
        each.ann.ack(*each.ann.receive("q", "g", max=2))
        costs.append((each.store.cas_count, each.store.read_count))
        flush_history(each.store, PATIENCE)

    assert costs[0] == costs[1]
    assert without.story(0) == []
    assert writer_of(without.store).written == 0
    # One write for the lease, one for the acks, however many messages there are.
    assert writer_of(scene.store).written == 2


def test_stale_receipts_are_in_no_history():
    scene = Scene()
    (message,) = scene.ann.receive("q", "g")
    scene.ann.ack(message)

    scene.bob.ack(message)

    assert scene.story(0) == [("leased", "ann", 1), ("acked", "ann", None)]


def test_an_exchange_acks_and_leases_in_the_history():
    scene = Scene()
    exchange = scene.ann.exchange("q", "g")
    first = exchange.round([], LeaseRequest(max_messages=1)).messages

    receipts = [Receipt.parse(each.receipt) for each in first]
    exchange.round(receipts, LeaseRequest(max_messages=1, by="key third"))

    assert scene.story(0) == [("leased", "ann", 1), ("acked", "ann", 1)]
    assert scene.story(1) == [("leased", "key third", 1)]


def test_a_message_that_was_delivered_too_often_dies_in_the_history():
    scene = Scene(max_deliveries=1)
    scene.ann.receive("q", "g")
    scene.clock.advance(timedelta(hours=1))

    scene.bob.receive("q", "g")

    assert scene.story(0) == [("leased", "ann", 1), ("dead", "bob", 1)]
    assert scene.ann.history("q", 0)[-1].detail


def test_a_receive_that_is_repeated_is_a_replay():
    scene = Scene()
    scene.ann.receive("q", "g", attempt="one")

    scene.bob.receive("q", "g", attempt="one")

    assert scene.story(0) == [("leased", "ann", 1), ("replayed", "bob", 1)]


def test_of_several_partitions_one_is_named():
    scene = Scene(partitions=3)
    (message,) = scene.ann.receive("q", "g")

    with pytest.raises(OptionError, match="say in which partition"):
        scene.ann.history("q", message.monoton)
    flush_history(scene.store, PATIENCE)

    (event,) = scene.ann.history("q", message.monoton, partition=message.partition)
    assert (event.did, event.by) == (Did.LEASED, "ann")


def test_a_year_is_the_longest_history():
    with pytest.raises(OptionError, match="history must be at most 365 days"):
        Scene(history=366 * DAY)


# -- the writer -----------------------------------------------------------------------------------


class Gate(MemoryStore):
    """A store whose plain writes wait, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.fails = False

    def write_row(self, *args: Any, **named: Any) -> None:
        assert self.is_open.wait(PATIENCE.total_seconds())
        if self.fails:
            raise NotAppliedError("overloaded")
        super().write_row(*args, **named)


def event(monotons: str) -> HistoryEvent:
    return HistoryEvent(did=Did.ACKED, monotons=Ranges.parse(monotons), lease=UUID(int=1))


@pytest.fixture
def gate() -> Gate:
    gate = Gate()
    client = Client.from_store(gate)
    client.create_queue("q", history=DAY)
    client.create_group("q", "g")
    return gate


def test_events_that_come_too_fast_are_lost_and_counted(
    gate: Gate, caplog: pytest.LogCaptureFixture
):
    writer = HistoryWriter(gate, most=3)

    writer.record(read_queue(gate, "q"), "g", [event("0-1")] * 20)
    gate.is_open.set()

    assert writer.flush(PATIENCE)
    assert writer.written + writer.lost == 20
    assert 3 <= writer.written <= 4
    assert "were not written" in caplog.text


def test_events_that_cassandra_refuses_are_lost_and_the_next_are_written(gate: Gate):
    writer, queue = HistoryWriter(gate), read_queue(gate, "q")
    gate.is_open.set()
    gate.fails = True
    writer.record(queue, "g", [event("0-1")])
    assert writer.flush(PATIENCE)
    gate.fails = False

    writer.record(queue, "g", [event("0-1")])

    assert writer.flush(PATIENCE)
    assert (writer.written, writer.lost) == (1, 1)


def test_whoever_is_in_a_hurry_does_not_wait_for_the_history(gate: Gate):
    writer = HistoryWriter(gate)
    writer.record(read_queue(gate, "q"), "g", [event("0-1")])

    assert not writer.flush(timedelta(0))
    gate.is_open.set()
    assert writer.flush(PATIENCE)


def test_an_event_of_many_messages_is_found_by_each_of_them(gate: Gate):
    writer = HistoryWriter(gate)
    gate.is_open.set()

    writer.record(read_queue(gate, "q"), "g", [event(f"5-6,{SPAN - 1}-{3 * SPAN}")])
    assert writer.flush(PATIENCE)

    assert writer.written == 3
    client = Client.from_store(gate)
    for monoton in (5, SPAN - 1, SPAN, 3 * SPAN - 1):
        assert len(client.history("q", monoton)) == 1
    assert client.history("q", 6) == []


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_events_are_read_in_pages_and_none_is_left_out_or_repeated(
    gate: Gate, at_once: int, monkeypatch: pytest.MonkeyPatch
):
    """Also those of one millisecond, which are more than a page."""
    gate.is_open.set()
    now = [1_800_000_000.0]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr(history, "time", clock)
    monkeypatch.setattr(history, "_AT_ONCE", at_once)
    writer, queue = HistoryWriter(gate), read_queue(gate, "q")
    for deliveries, step in enumerate((0, 1, 0, 0, 0, 1, 5, 0)):
        now[0] += step / 1000
        writer.record(queue, "g", [replace(event("0-1"), deliveries=deliveries)])
    assert writer.flush(PATIENCE)

    newest_first = [each.deliveries for each in stream_span(gate, queue, "g", 0)]

    assert newest_first == [7, 6, 5, 4, 3, 2, 1, 0]
    assert [each.deliveries for each in read_history(gate, queue, 0)] == newest_first[::-1]


@pytest.mark.parametrize(
    ("others", "found"), [([], [1, 2, 3, 4]), (["h"], [3, 4]), (["h", "i", "j", "k"], [4])]
)
def test_of_too_many_events_the_newest_of_each_group_are_looked_through(
    gate: Gate, others: list[str], found: list[int], monkeypatch: pytest.MonkeyPatch
):
    """Of each group an equal part, so that one request reads no more where there are many."""
    gate.is_open.set()
    monkeypatch.setattr(history, "MOST_READ", 4)
    monkeypatch.setattr(history, "_AT_ONCE", 1)
    writer, queue = HistoryWriter(gate), read_queue(gate, "q")
    for group in others:
        Client.from_store(gate).create_group("q", group)
    for at in range(5):
        for group in ["g", *others]:
            writer.record(queue, group, [replace(event("0-1"), deliveries=at)])
    assert writer.flush(PATIENCE)

    events = read_history(gate, queue, 0)

    for group in ["g", *others]:
        assert [each.deliveries for each in events if each.group == group] == found


def test_an_event_is_read_from_its_plain_values_as_it_was_written():
    scene = Scene()
    held = scene.ann.receive("q", "g", max=2)
    scene.ann.reject(held[0], reason="no address")
    flush_history(scene.store, PATIENCE)
    found = scene.ann.history("q", 0)

    assert [event_of_plain(plain_event(each)) for each in found] == found
    assert [each.did for each in found] == ["leased", "rejected"]
    assert plain_event(found[1]) == {
        "at": found[1].at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "did": "rejected",
        "group": "g",
        "by": "ann",
        "delivery": None,
        "lease": str(found[0].lease),
        "monotons": "0-1",
        "reason": "no address",
    }
