"""The programs of docs/spark-connect.md and docs/pipelines.md run on a server of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from cassieq_spark import Client
from cassieq_spark.cli import app
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.docs.pages import ROOT, blocks_of, connect
from tests.support.cassandra_node import CassandraNode
from tests.support.connect_server import connect_server

KEYSPACE = "cassieq_connect"
WITHOUT_OURS = "import sys\n\nsys.modules['cassieq_spark'] = None\n"
WITH_OURS = "del sys.modules['cassieq_spark']\n"
#: A stream from one queue into another, unique ids, and an error that says what to do.
MORE = """
copy = spark.readStream.format("cassieq").option("queue", "visits").option("group", "copy").load()
copy = copy.select("value").writeStream.format("cassieq").option("queue", "copies")
copy = copy.option("checkpointLocation", "checkpoints/copy").trigger(availableNow=True).start()
copy.awaitTermination()
twice = spark.range(8).selectExpr("'message' AS value", "cast(id % 4 AS string) AS unique_id")
twice.write.format("cassieq").option("queue", "once").mode("append").save()
try:
    spark.read.format("cassieq").option("queue", "nowhere").load().count()
except Exception as exc:
    print(exc)
spark.stop()
"""
PIPELINE = blocks_of("docs/pipelines.md")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server, which keeps its tables in memory: its address, and its folder."""
    folder = tmp_path_factory.mktemp("server")
    with connect_server(folder) as remote:
        yield remote, folder


@pytest.mark.spark
def test_a_client_without_java_and_without_this_package_does_it_all(
    cassandra_node: CassandraNode, server: tuple[str, Path]
):
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    connection = ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE)
    apply_schema(connection)
    store = open_store(connection)
    for name in ("visits", "copies"):
        create_queue(store, name)
    create_queue(store, "once", deduplicate=timedelta(minutes=5))
    first, several, second = (
        block.text for block in blocks_of("docs/spark-connect.md") if block.language == "python"
    )
    without_ours = WITHOUT_OURS + first + several
    program = connect(without_ours + WITH_OURS + second + MORE, host=host, keyspace=KEYSPACE)

    remote, _ = server
    done = subprocess.run(
        [sys.executable, "-c", program.replace("sc://localhost", remote)],
        env={"PATH": os.devnull, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "stopped; visits, group daily: backlog 0, in " in done.stdout
    assert "daily 100 0" in done.stdout
    assert "there is no queue 'nowhere'; create it with: cassieq queue create" in done.stdout
    visits = read_queue(store, "visits").queue_id
    waiting = {each.group: each.waiting for each in queue_stats(Ledger(store, visits)).groups}
    assert waiting == {"daily": 10, "copy": 0}
    stored = {"copies": 100, "once": 4, "pages.0": 5, "pages.1": 5}
    for name, count in stored.items():
        assert queue_stats(Ledger(store, read_queue(store, name).queue_id)).next == count


@pytest.mark.spark
def test_a_pipeline_takes_each_message_once_and_puts_each_row_once(
    cassandra_node: CassandraNode, server: tuple[str, Path], tmp_path: Path
):
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    apply_schema(ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE))
    make_queues(host)
    make_pipeline(tmp_path, host)
    remote, server_folder = server

    with Client(contact_points=host, keyspace=KEYSPACE) as client:
        put_orders(client, range(50))
        run_pipeline(tmp_path, remote)
        put_orders(client, range(50, 80))
        forget_commit(tmp_path)
        run_pipeline(tmp_path, remote)

        invoices = [json.loads(each.value)["price"] for each in client.peek("invoices", max=1000)]
        assert sorted(invoices) == list(range(80))
        assert [(each.group, each.depth) for each in client.groups("orders")] == [("table", 0)]
    files = (server_folder / "spark-warehouse" / "orders").glob("*.parquet")
    orders = ds.dataset([str(file) for file in files]).to_table()
    assert sorted(orders["price"].to_pylist()) == list(range(80))


def make_queues(host: str) -> None:
    """Run the commands of the page."""
    for block in PIPELINE:
        for program, *words in block.commands() if block.language == "sh" else ():
            if program == "cassieq":
                given = [*words, "--contact-points", host, "--keyspace", KEYSPACE]
                assert CliRunner().invoke(app, given).exit_code == 0


def make_pipeline(folder: Path, host: str) -> None:
    """Write the files of the page."""
    (spec,) = (block.text for block in PIPELINE if block.language == "yaml")
    (program,) = (block.text for block in PIPELINE if block.language == "python")
    spec = spec.replace("/srv/pipelines/orders", str(folder / "storage"))
    (folder / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    (folder / "transformations").mkdir()
    program = connect(program, host=host, keyspace=KEYSPACE)
    (folder / "transformations" / "orders.py").write_text(program, encoding="utf-8")


def run_pipeline(folder: Path, remote: str) -> None:
    """Run it as `spark-pipelines run` does, which would start a server of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
        cwd=folder,
        env={"PATH": os.devnull, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def put_orders(client: Client, prices: range) -> None:
    client.put_many("orders", [{"customer": f"c{it % 7}", "price": float(it)} for it in prices])


def forget_commit(folder: Path) -> None:
    """Leave the last batch of the sink as a driver leaves it that dies before Spark's commit."""
    (log,) = (folder / "storage" / "_checkpoints").rglob("invoice/0/commits")
    max(log.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
