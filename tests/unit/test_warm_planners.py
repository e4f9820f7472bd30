"""What Spark's daemon of planning processes imports in tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cassieq_spark.spark.daemon import MODULES
from tests.support.spark_session import WARM_PLANNERS

SHOW = "import sys; print(*sys.modules)"


@pytest.mark.parametrize(("program", "warm"), [("pyspark.daemon", True), ("pyspark.else", False)])
def test_only_the_daemon_of_planners_imports_what_they_need(program: str, warm: bool):
    done = subprocess.run(
        [sys.executable, "-c", SHOW, program, "pyspark.sql.worker.create_data_source"],
        env=os.environ | {"PYTHONPATH": str(WARM_PLANNERS)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (set(MODULES) <= set(done.stdout.split())) == warm
    assert ("cassieq_spark" in done.stdout.split()) == warm
    assert done.stderr == ""
