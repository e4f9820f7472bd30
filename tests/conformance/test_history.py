"""The rows of the history of messages, written and read on each store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from cassieq_spark.groups import history
from cassieq_spark.groups.history import SPAN, Did, HistoryEvent, HistoryWriter, stream_span
from cassieq_spark.model import QueueDefinition, Ranges
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store, partition_of_group

GROUP = "g"
LEASE = UUID("0a3c5c1e-8f5f-4a0c-9c39-5d2f7c3a1b11")
LONG, SHORT = timedelta(hours=1), timedelta(seconds=2)
PATIENCE = timedelta(seconds=60)
#: By how many seconds a server may round a time to live down.
SECOND = 1.0


def event(number: int = 1, monotons: str = "0-1") -> HistoryEvent:
    return HistoryEvent(
        did=Did.LEASED, monotons=Ranges.parse(monotons), lease=LEASE, deliveries=number
    )


def record(
    store: Store, queue: QueueDefinition, *events: HistoryEvent, group: str = GROUP
) -> None:
    writer = HistoryWriter(store)
    writer.record(queue, group, events)
    assert writer.flush(PATIENCE)
    assert writer.lost == 0


def numbers(
    store: Store, queue: QueueDefinition, group: str = GROUP, span: int = 0
) -> Sequence[int | None]:
    return [each.deliveries for each in stream_span(store, queue, group, span)]


class HistoryContract:
    """Each store keeps events, in order, until they expire."""

    @pytest.fixture
    def queue(self) -> QueueDefinition:
        return QueueDefinition(f"history-{uuid4()}", version=1, history=LONG)

    def test_an_event_is_read_as_it_was_recorded(
        self, store: Store, queue: QueueDefinition
    ) -> None:
        before = datetime.now(UTC)
        bare = HistoryEvent(did=Did.ACKED, monotons=Ranges.parse("3-5,9-10"), lease=LEASE)
        full = replace(bare, did=Did.DEAD, by="clerk é", deliveries=5, detail="broken\n")

        record(store, queue, bare, full)

        newest, oldest = stream_span(store, queue, GROUP, 0)
        assert oldest == replace(bare, group=GROUP, at=oldest.at)
        assert newest == replace(full, group=GROUP, at=newest.at)
        assert before - timedelta(milliseconds=1) <= oldest.at <= newest.at <= datetime.now(UTC)

    @pytest.mark.parametrize("at_once", [1, 7, 2_000])
    def test_the_newest_come_first_whatever_a_read_has(
        self,
        store: Store,
        queue: QueueDefinition,
        at_once: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(history, "_AT_ONCE", at_once)
        for first in range(0, 60, 20):
            record(store, queue, *map(event, range(first, first + 20)))

        assert numbers(store, queue) == [*reversed(range(60))]

    def test_events_are_in_the_order_of_their_clocks_not_of_their_writes(
        self, store: Store, queue: QueueDefinition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, late in enumerate((0.0, 0.5, 0.3, 0.4)):
            at = time.time() - late
            clock = SimpleNamespace(time=lambda at=at: at, monotonic=time.monotonic)
            monkeypatch.setattr(history, "time", clock)
            record(store, queue, event(number))
        monkeypatch.setattr(history, "time", time)

        assert numbers(store, queue) == [0, 2, 3, 1]

    def test_an_event_is_in_each_of_its_spans_with_its_messages_there(
        self, store: Store, queue: QueueDefinition
    ) -> None:
        record(store, queue, event(monotons=f"5-6,{SPAN - 1}-{SPAN + 2}"))

        found = [
            str(each.monotons)
            for span in range(3)
            for each in stream_span(store, queue, GROUP, span)
        ]

        assert found == [f"5-6,{SPAN - 1}-{SPAN}", f"{SPAN}-{SPAN + 2}"]

    def test_groups_and_partitions_have_histories_of_their_own(
        self, store: Store, queue: QueueDefinition
    ) -> None:
        first, second = replace(queue, partitions=2).by_partition
        record(store, first, event(1))
        record(store, first, event(2), group="other")
        record(store, second, event(3))

        assert numbers(store, first) == [1]
        assert numbers(store, first, "other") == [2]
        assert numbers(store, second) == [3]
        assert numbers(store, second, "other") == []

    def test_no_read_of_a_group_meets_its_history(
        self, store: Store, queue: QueueDefinition
    ) -> None:
        record(store, queue, event())

        assert store.read_rows(partition_of_group(queue.queue_id, GROUP)).rows == []

    def test_an_event_vanishes_when_its_time_is_over_and_others_stay(
        self, store: Store, queue: QueueDefinition
    ) -> None:
        """By itself, not only as a reader leaves out what is too old."""
        began = time.monotonic()
        record(store, replace(queue, history=SHORT), event(1))
        record(store, queue, event(2))
        assert numbers(store, queue) == [2, 1]

        while numbers(store, queue) != [2]:
            assert time.monotonic() - began < PATIENCE.total_seconds()

        assert time.monotonic() - began >= SHORT.total_seconds() - SECOND

    def test_what_is_older_than_the_history_is_left_out(
        self, store: Store, queue: QueueDefinition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record(store, queue, event(1))
        after = SimpleNamespace(time=lambda: time.time() + 2 * LONG.total_seconds())
        monkeypatch.setattr(history, "time", after)

        assert numbers(store, queue) == []


class TestMemory(HistoryContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


@pytest.mark.cassandra
class TestCassandra(HistoryContract):
    @pytest.fixture
    def store(self, cassandra_store: Store) -> Store:
        return cassandra_store
