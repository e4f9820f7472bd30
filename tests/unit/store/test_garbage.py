from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from cassieq_spark.store.cassandra.garbage import freeze_in_worker


@pytest.fixture(autouse=True)
def _nothing_stays_frozen():
    gc.unfreeze()
    yield
    gc.unfreeze()


def run_as(module: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None) if module else None
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_worker_of_spark_does_not_walk_over_its_modules_after_each_task(
    monkeypatch: pytest.MonkeyPatch,
):
    run_as("pyspark.daemon", monkeypatch)

    assert freeze_in_worker()
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("module", ["pytest", None])
def test_other_processes_are_left_alone(module: str | None, monkeypatch: pytest.MonkeyPatch):
    run_as(module, monkeypatch)

    assert not freeze_in_worker()
    assert gc.get_freeze_count() < 1000
