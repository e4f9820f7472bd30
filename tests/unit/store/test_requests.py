from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import cassandra
import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy

from cassieq_spark import backoff
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra import requests
from cassieq_spark.store.cassandra.mapping import Request
from cassieq_spark.store.cassandra.requests import insist, patience, pause

BUSY = NoHostAvailable("none", {"a": ConnectionBusy("full")})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes only in sleep; remembers the pauses."""
    clock = SimpleNamespace(now=0.0, pauses=[])

    def sleep(seconds: float) -> None:
        clock.pauses.append(seconds)
        clock.now += seconds

    # The names in the modules, not the module `time`: other threads sleep, too.
    fake = SimpleNamespace(sleep=sleep, monotonic=lambda: clock.now)
    monkeypatch.setattr(requests, "time", fake)
    monkeypatch.setattr(backoff, "time", fake)
    return clock


def link(patience: timedelta) -> Any:
    return SimpleNamespace(options=ConnectionOptions(patience=patience))


def failing(*errors: Exception) -> Any:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_pauses_grow_until_the_budget_is_spent(clock: Any):
    pauses = patience(link(timedelta(seconds=30)))

    while pause(pauses):
        pass

    assert sum(clock.pauses) == pytest.approx(30)
    assert clock.pauses[0] <= 0.01
    assert 0.2 <= max(clock.pauses) <= 1


def test_a_budget_of_nothing_allows_no_pause(clock: Any):
    assert not pause(patience(link(timedelta(0))))
    assert clock.pauses == []


def test_the_budget_begins_with_the_first_failure(clock: Any):
    pauses = patience(link(timedelta(seconds=5)))
    clock.now = 100.0

    assert pause(pauses)


def test_what_is_safe_is_repeated_until_it_succeeds(clock: Any):
    errors = [cassandra.ReadTimeout("late"), BUSY, cassandra.OperationTimedOut()]

    assert insist(link(timedelta(seconds=5)), Request.READ, "read", failing(*errors)) == "done"
    assert len(clock.pauses) == 3


def test_a_compare_and_set_is_repeated_only_if_it_was_never_sent(clock: Any):
    some = link(timedelta(seconds=5))

    assert insist(some, Request.CAS, "cas", failing(BUSY, BUSY)) == "done"
    with pytest.raises(OutcomeUnknownError):
        insist(some, Request.CAS, "cas", failing(BUSY, cassandra.OperationTimedOut()))


def test_the_last_error_is_the_cause_when_patience_is_out(clock: Any):
    errors = [BUSY] * 1000

    with pytest.raises(NotAppliedError) as caught:
        insist(link(timedelta(seconds=2)), Request.CAS, "cas on ledger q@1", failing(*errors))

    assert caught.value.__cause__ is BUSY
    assert "cas on ledger q@1" in str(caught.value)


def test_errors_that_are_not_the_drivers_pass_through(clock: Any):
    with pytest.raises(ZeroDivisionError):
        insist(link(timedelta(seconds=2)), Request.READ, "read", failing(ZeroDivisionError()))
