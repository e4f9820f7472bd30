from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import count

import pytest

from cassieq_spark.errors import NotAppliedError
from cassieq_spark.lock.bakery import Bakery
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Outcome, Report
from cassieq_spark.repair.runs import HISTORY_FAILED, REPAIR, read_history, rounds, run_alone
from cassieq_spark.signals import Stop, stopped_by_signals
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey, Value
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore

NOW = timedelta(0)
STEPS = ("finalise",)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.close()


def repair(checkpoint: Checkpoint) -> Report:
    assert checkpoint.confirm()
    return Report(STEPS, dry_run=False)


def test_a_repair_has_the_lock_and_is_remembered(store: MemoryStore, stop: Stop):
    report = run_alone(store, repair, steps=STEPS, stop=stop, patience=NOW)

    assert report is not None
    assert report.epoch == 1
    (run,) = read_history(store, 9)
    assert (run.epoch, run.outcome, run.steps) == (1, Outcome.DONE, STEPS)


def test_two_repairs_are_never_at_work_at_once(store: MemoryStore, stop: Stop):
    def meanwhile(checkpoint: Checkpoint) -> Report:
        assert run_alone(store, repair, steps=STEPS, stop=stop, patience=NOW) is None
        assert read_history(store, 9)[0].outcome is Outcome.RUNNING
        return repair(checkpoint)

    assert run_alone(store, meanwhile, steps=STEPS, stop=stop, patience=NOW) is not None
    assert len(read_history(store, 9)) == 1


def test_an_error_ends_the_repair_and_is_remembered(store: MemoryStore, stop: Stop):
    def fails(_: Checkpoint) -> Report:
        raise NotAppliedError("no node")

    with pytest.raises(NotAppliedError):
        run_alone(store, fails, steps=STEPS, stop=stop, patience=NOW)

    (run,) = read_history(store, 9)
    assert (run.outcome, run.problems) == (Outcome.FAILED, ("NotAppliedError: no node",))
    assert run_alone(store, repair, steps=STEPS, stop=stop, patience=NOW) is not None


def test_a_repair_that_cannot_be_remembered_has_repaired_all_the_same(
    store: MemoryStore, stop: Stop, caplog: pytest.LogCaptureFixture
):
    class Forgetful(WrappedStore):
        writes = 0

        def write_row(
            self,
            partition: Partition,
            row: RowKey,
            values: Mapping[str, Value],
            *,
            timestamp: int,
            ttl: timedelta,
        ) -> None:
            self.writes += partition.table is Table.REPAIR
            if partition.table is Table.REPAIR and self.writes > 1:
                raise NotAppliedError("no node")
            super().write_row(partition, row, values, timestamp=timestamp, ttl=ttl)

    report = run_alone(Forgetful(store), repair, steps=STEPS, stop=stop, patience=NOW)

    assert report is not None
    assert [record.action for record in caplog.records] == [HISTORY_FAILED]  # type: ignore[attr-defined]


def test_who_is_to_stop_does_not_wait_for_the_lock(store: MemoryStore, stop: Stop):
    held = Bakery(store, REPAIR, owner="another").enter(NOW)
    assert held is not None
    stop.set()

    waited = run_alone(store, repair, steps=STEPS, stop=stop, patience=timedelta(days=1))

    assert waited is None


def test_who_is_to_stop_is_told_by_the_guard(store: MemoryStore, stop: Stop):
    def is_told(checkpoint: Checkpoint) -> Report:
        assert checkpoint.is_open()
        stop.set()
        assert not checkpoint.is_open()
        assert not checkpoint.confirm()
        return Report(STEPS, dry_run=False, outcome=checkpoint.outcome)

    report = run_alone(store, is_told, steps=STEPS, stop=stop, patience=NOW)

    assert report is not None
    assert report.outcome is Outcome.STOPPED
    assert read_history(store, 1)[0].outcome is Outcome.STOPPED


class Waits(Stop):
    """Remembers how long it was to wait, and ends after some rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.left = rounds
        self.pauses: list[timedelta] = []

    def wait(self, at_most: timedelta) -> bool:
        self.pauses.append(at_most)
        self.left -= 1
        return self.left < 0


def test_rounds_follow_one_another_with_a_jitter_until_the_end():
    stop = Waits(50)

    assert len(list(rounds(timedelta(minutes=5), stop))) == 50

    first, *others = stop.pauses
    assert timedelta(0) <= first <= timedelta(seconds=30)
    assert all(timedelta(seconds=265) < each <= timedelta(seconds=330) for each in others)
    assert len(set(others)) > 1
    stop.close()


def test_a_round_that_takes_longer_delays_the_next_and_no_more():
    stop = Waits(3)
    seconds = count(0, 600)

    list(rounds(timedelta(minutes=5), stop, lambda: next(seconds)))

    assert stop.pauses[1:] == [timedelta(0)] * 3
    stop.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_waits_and_afterwards_means_what_it_did(number: signal.Signals):
    before = signal.getsignal(number)

    with stopped_by_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.wait(timedelta(minutes=5))
        assert stop.is_set()

    assert signal.getsignal(number) is before
