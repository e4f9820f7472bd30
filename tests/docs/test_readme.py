"""What the documents say is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

import cassieq_spark
from cassieq_spark.queues import create_queue
from cassieq_spark.repair.spark_scan import CONNECTOR
from cassieq_spark.stats import queue_stats
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.connection import ConnectionOptions
from tests.support.cassandra_node import CassandraNode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


SETTLING = """
def settle(batch, batch_id):
    batch = batch.selectExpr("*", "503 as status")
{settling}

flights = spark.readStream.format("cassieq").option("queue", "flights").option("group", "retries")
query = (
    flights.option("includeReceipts", True).load()
    .writeStream.foreachBatch(settle)
    .option("checkpointLocation", "checkpoints/retries")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""


@pytest.mark.spark
def test_the_examples_of_the_readme_run_as_they_stand(
    cassandra_node: CassandraNode, tmp_path: Path
):
    example, settling = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    example += SETTLING.format(settling=indent(settling, "    "))
    # Only where the cluster is differs from what a reader of it would run.
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    here = f'.option("queue", "flights").option("spark.cassandra.connection.host", "{host}")'
    assert example.count('.option("queue", "flights")') == 4
    program = tmp_path / "example.py"
    program.write_text(example.replace('.option("queue", "flights")', here))
    connection = ConnectionOptions(contact_points=(host,))
    apply_schema(connection)
    store = open_store(connection)
    queue = create_queue(store, "flights")

    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "0 100000" in done.stdout
    figures = {group.group: group for group in queue_stats(store, queue.queue_id).groups}
    assert figures["delays"].depth == 0
    assert figures["retries"].waiting == 100_000, "released, for five minutes"


def test_the_readme_names_the_connector_that_the_sweep_is_tested_with():
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
