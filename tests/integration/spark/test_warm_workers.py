"""Workers of the daemon that imports before it forks, as conf/spark-defaults.conf sets it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cassieq_spark.spark.daemon import MODULES

pytestmark = pytest.mark.spark


@pytest.fixture
def new_daemon(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a daemon that runs no tasks but those of one test."""
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "CASSIEQ_TEST", uuid4().hex)
    return environment


def loaded(spark: SparkSession) -> list[str]:
    """The modules of a worker when its first task begins, and last the name of its program."""

    def names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [*sys.modules, sys.modules["__main__"].__spec__.name]  # type: ignore[union-attr]
        for _ in batches:
            yield pa.record_batch({"name": found})

    one = spark.range(1, numPartitions=1)
    return [row.name for row in one.mapInArrow(names, "name string").collect()]


def test_a_worker_has_imported_what_tasks_need_before_its_first_task(
    spark: SparkSession, new_daemon: dict[str, str]
):
    assert new_daemon["CASSIEQ_TEST"]

    *modules, program = loaded(spark)

    assert set(MODULES) <= set(modules)
    assert program == "pyspark.daemon"


def test_a_worker_that_lacks_a_package_runs_tasks_that_do_not_need_it(
    spark: SparkSession,
    new_daemon: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "mmh3.py").write_text("raise ImportError('no murmur today')")
    path = [str(tmp_path), *filter(None, [new_daemon.get("PYTHONPATH")])]
    monkeypatch.setitem(new_daemon, "PYTHONPATH", os.pathsep.join(path))

    *modules, program = loaded(spark)

    assert "pyarrow.compute" in modules
    assert "mmh3" not in modules
    assert program == "pyspark.daemon"
