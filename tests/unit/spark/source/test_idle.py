"""Sources that have nothing beside one that has much: Spark asks one after the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.groups import presence
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.queues import create_queue
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store, make_pending


class Query:
    """The sources of a query, each a queue of its own, as Spark asks them; nobody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sources: int) -> None:
        memory, self._clock = make_clocked_store()
        self.store = CountingStore(memory)
        self._began = self._clock.now
        self.slept: list[float] = []
        for module in (idle_backoff, queue_reader, presence):
            monkeypatch.setattr(module, "time", self)
        queues = [create_queue(self.store, f"q{number}") for number in range(sources)]
        self.readers = [QueueReader(self.store, it, "g", starting="earliest") for it in queues]
        self._done = [initial_offset(it.name, "g") for it in queues]
        self.ledgers = [Ledger(self.store, it.queue_id) for it in queues]

    def monotonic(self) -> float:
        return (self._clock.now - self._began).total_seconds()

    def time(self) -> float:
        return self._clock.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=seconds))

    def trigger(self, then: float) -> list[bool]:
        """Ask each source; whether it had something. Then Spark takes so many seconds."""
        had = []
        for number, reader in enumerate(self.readers):
            end = reader.next_batch(self._done[number], limit=100)
            had.append(end is not self._done[number])
            self._done[number] = dict(end) if had[-1] else self._done[number]
        self.pass_(then)
        return had


def test_an_idle_source_does_not_hold_up_a_busy_one(monkeypatch: pytest.MonkeyPatch):
    query = Query(monkeypatch, sources=4)
    for _ in range(200):
        query.trigger(then=0.01)
    query.slept.clear()
    query.store.reset()

    for _ in range(20):
        publish(query.ledgers[0], make_pending([50]))
        assert query.trigger(then=0.1)[0]

    assert sum(query.slept) <= 0.4, "before Spark was busy"
    # Three idle queues, each looked at thrice a second, and now and then whole.
    assert query.store.read_count < 20 * 6 + 2 * 3 * 8


def test_an_idle_source_beside_a_busy_one_finds_what_is_published(
    monkeypatch: pytest.MonkeyPatch,
):
    query = Query(monkeypatch, sources=2)
    for _ in range(200):
        query.trigger(then=0.1)
    publish(query.ledgers[1], make_pending([5]))

    found = [query.trigger(then=0.1)[1] for _ in range(5)]

    assert True in found


@pytest.mark.parametrize("sources", [1, 2, 4])
def test_a_query_that_has_nothing_at_all_sleeps(monkeypatch: pytest.MonkeyPatch, sources: int):
    query = Query(monkeypatch, sources)
    for _ in range(200):
        query.trigger(then=0.01)
    began, triggers = query.monotonic(), 0
    query.slept.clear()

    while query.monotonic() < began + 10:
        query.trigger(then=0.01)
        triggers += 1

    assert sum(query.slept) > 9
    assert triggers <= 10 * 10 * sources


def test_with_available_now_a_source_looks_before_it_has_nothing(monkeypatch: pytest.MonkeyPatch):
    """The query ends with the first call in which no source has anything."""
    query = Query(monkeypatch, sources=1)
    (reader,) = query.readers
    for _ in range(50):
        query.trigger(then=0.01)
    publish(query.ledgers[0], make_pending([5]))
    reader.aim()
    query.pass_(0.06)

    assert query.trigger(then=0.0) == [True]
