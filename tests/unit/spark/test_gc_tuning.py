from __future__ import annotations

import gc
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from cassieq_spark.spark.gc_tuning import freeze_survivors, tune_if_of_spark

MANY = 20_000


@pytest.fixture(autouse=True)
def _nothing_stays_as_it_is_made_here():
    gc.unfreeze()
    yield
    gc.unfreeze()
    if freeze_survivors in gc.callbacks:
        gc.callbacks.remove(freeze_survivors)


def run_as(module: str | None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None) if module else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def collect_in(module: ModuleType) -> None:
    """Collect as a line of this module does."""
    exec("import gc; gc.collect()", vars(module))


def walked_over_all(objects: list[list[int]]) -> bool:
    """Whether the collector looks at each of these; how many there are, other threads change."""
    return set(map(id, gc.get_objects())).issuperset(map(id, objects))


def walked_over_none(objects: list[list[int]]) -> bool:
    return set(map(id, gc.get_objects())).isdisjoint(map(id, objects))


def test_a_worker_of_spark_walks_over_its_modules_once(monkeypatch: pytest.MonkeyPatch):
    daemon = run_as("pyspark.daemon", monkeypatch)
    tune_if_of_spark()
    tune_if_of_spark()
    imported_later = [[each] for each in range(MANY)]

    collect_in(daemon)

    assert walked_over_none(imported_later)
    assert gc.callbacks.count(freeze_survivors) == 1


def test_the_process_of_a_source_passes_over_what_spark_has_imported(
    monkeypatch: pytest.MonkeyPatch,
):
    run_as("pyspark.sql.streaming.python_streaming_source_runner", monkeypatch)

    tune_if_of_spark()

    assert gc.get_freeze_count() > MANY
    assert freeze_survivors not in gc.callbacks


def test_what_a_call_leaves_behind_is_collected_after_the_next(monkeypatch: pytest.MonkeyPatch):
    daemon = run_as("pyspark.daemon", monkeypatch)
    tune_if_of_spark()
    collect_in(daemon)
    left = [[each] for each in range(100)]

    collect_in(daemon)

    assert walked_over_all(left)


def test_what_is_alive_in_the_middle_of_a_call_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    run_as("pyspark.daemon", monkeypatch)
    tune_if_of_spark()
    alive = [[each] for each in range(MANY)]

    gc.collect()

    assert walked_over_all(alive)


@pytest.mark.parametrize(
    ("started_as", "imported", "is_tuned"),
    [
        ("pyspark.daemon", "cassieq_spark", False),
        ("pyspark.daemon", "cassieq_spark.spark.source.offsets", True),
        ("pyspark.sql.worker.plan_data_source_read", "cassieq_spark.spark.datasource", True),
        ("a_program", "cassieq_spark.spark.datasource", False),
    ],
)
def test_only_a_process_of_spark_that_loads_its_part_is_tuned(
    started_as: str, imported: str, *, is_tuned: bool
):
    program = f"""
import gc, importlib, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec({started_as!r}, None)
importlib.import_module({imported!r})
print(gc.get_freeze_count() > {MANY // 10}, len(gc.callbacks))
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    callbacks = int(is_tuned and started_as == "pyspark.daemon")
    assert done.stdout.decode().split() == [str(is_tuned), str(callbacks)]


@pytest.mark.parametrize("module", ["pytest", None])
def test_other_processes_are_left_alone(module: str | None, monkeypatch: pytest.MonkeyPatch):
    main = run_as(module, monkeypatch)
    tune_if_of_spark()

    collect_in(main)

    assert freeze_survivors not in gc.callbacks
    assert gc.get_freeze_count() < 1000
