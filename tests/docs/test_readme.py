"""What the documents say is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cassieq_spark
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import create_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.repair.spark_scan import CONNECTOR
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.cassandra_node import CassandraNode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
#: What its program prints.
SAYS = "0 48323"


@pytest.mark.spark
def test_the_example_of_the_readme_runs_as_it_stands(
    cassandra_node: CassandraNode, tmp_path: Path
):
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert example.count("\n") < 20
    assert (ROOT / "examples" / "flights.py").read_text() == example
    assert f"python examples/flights.py      # the program above; it prints {SAYS}" in README
    # Only where the cluster is differs from what a reader of it would run.
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    here = f'.option("queue", "flights").option("spark.cassandra.connection.host", "{host}")'
    assert example.count('.option("queue", "flights")') == 2
    program = tmp_path / "example.py"
    program.write_text(example.replace('.option("queue", "flights")', here))
    connection = ConnectionOptions(contact_points=(host,))
    apply_schema(connection)
    store = open_store(connection)
    (schema,) = re.findall(r"^cassieq queue create flights --schema '(.*)'$", README, re.MULTILINE)
    queue = create_queue(store, "flights", schema=schema)

    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    late = sum(number % 60 > 30 for number in range(100_000))
    assert f"0 {late}" == SAYS
    assert SAYS in done.stdout
    (delays,) = queue_stats(Ledger(store, queue.queue_id)).groups
    assert (delays.group, delays.depth) == ("delays", 0)


def test_the_readme_names_the_connector_that_the_repair_is_tested_with():
    assert f"--packages {CONNECTOR} jobs/repair.py" in README


def test_every_link_of_the_readme_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_readme_names_make_targets_that_exist():
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", README, flags=re.MULTILINE):
        assert f"\n{target}:" in targets


def test_every_public_name_is_exported():
    public = {name for name in vars(cassieq_spark) if not name.startswith("_")}
    modules = {name for name in public if (ROOT / "cassieq_spark" / name).exists()}
    modules |= {name for name in public if (ROOT / "cassieq_spark" / f"{name}.py").exists()}

    assert sorted(cassieq_spark.__all__) == cassieq_spark.__all__
    assert public - modules - {"TYPE_CHECKING", "annotations"} <= set(cassieq_spark.__all__)
