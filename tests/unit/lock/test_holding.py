from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import timedelta

import pytest

from cassieq_spark.errors import NotAppliedError
from cassieq_spark.lock import bakery as holding_module
from cassieq_spark.lock.bakery import LOCK_LOST, RENEWAL_FAILED, Bakery, holding
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey, Slice, Value, partition_of_lock
from cassieq_spark.testing.stores import WrappedStore

TTL = timedelta(seconds=5)
LOCK = partition_of_lock("job")
NOW = timedelta(0)


class WritesTold(WrappedStore):
    """Tells of each write, and fails those that it is told to."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.written = threading.Semaphore(0)
        self.failures = 0

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        try:
            if self.failures:
                self.failures -= 1
                raise NotAppliedError("no node")
            super().write_row(partition, row, values, timestamp=timestamp, ttl=ttl)
        finally:
            self.written.release()


@pytest.fixture
def store() -> WritesTold:
    return WritesTold()


@pytest.fixture(autouse=True)
def _renew_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding_module, "_RENEWALS", 500)


def enter(store: WritesTold) -> Bakery:
    return Bakery(store, "job", owner="test", ttl=TTL)


def test_a_lock_that_is_held_is_renewed_and_left_in_the_end(store: WritesTold):
    with holding(enter(store), NOW) as held:
        assert held is not None
        for _ in range(2 + 3):
            assert store.written.acquire(timeout=30)
        assert held.confirm()

    assert not held.is_held()
    assert not store.read_rows(LOCK, Slice(kinds=("ticket",))).rows
    assert "cassieq-lock" not in {thread.name for thread in threading.enumerate()}


def test_it_is_left_also_after_an_error(store: WritesTold):
    with pytest.raises(RuntimeError, match="broken"), holding(enter(store), NOW):
        raise RuntimeError("broken")

    with holding(enter(store), NOW) as next_one:
        assert next_one is not None
        assert next_one.epoch == 2


def test_whoever_finds_it_taken_is_told(store: WritesTold):
    with holding(enter(store), NOW), holding(enter(store), NOW) as second:
        assert second is None


def test_a_renewal_that_fails_is_tried_again(store: WritesTold, caplog: pytest.LogCaptureFixture):
    with holding(enter(store), NOW) as held:
        assert held is not None
        store.failures = 2
        for _ in range(2 + 2 + 2):
            assert store.written.acquire(timeout=30)
        assert held.confirm()

    told = [record.action for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [RENEWAL_FAILED] * 2


def test_a_lost_lock_is_told_once(store: WritesTold, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    with holding(enter(store), NOW) as held:
        assert held is not None
        assert store.written.acquire(timeout=30)
        held._own.give_up()
        for thread in threading.enumerate():
            if thread.name == "cassieq-lock":
                thread.join(30)

    assert [record.action for record in caplog.records] == [LOCK_LOST]  # type: ignore[attr-defined]
