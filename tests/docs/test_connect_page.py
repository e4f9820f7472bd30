"""The program of docs/spark-connect.md runs against a server of Spark Connect, as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
#: A stream from one queue into another, and an error that says what to do.
MORE = """
copy = spark.readStream.format("cassieq").option("queue", "visits").option("group", "copy").load()
copy = copy.select("value").writeStream.format("cassieq").option("queue", "copies")
copy = copy.option("checkpointLocation", "checkpoints/copy").trigger(availableNow=True).start()
copy.awaitTermination()
try:
    spark.read.format("cassieq").option("queue", "nowhere").load().count()
except Exception as exc:
    print(exc)
spark.stop()
"""


@pytest.mark.spark
def test_a_client_without_java_and_without_this_package_does_it_all(
    cassandra_node: CassandraNode, tmp_path: Path
):
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    connection = ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE)
    apply_schema(connection)
    store = open_store(connection)
    for name in ("visits", "copies"):
        create_queue(store, name)
    first, second = (
        block.text for block in blocks_of("docs/spark-connect.md") if block.language == "python"
    )
    program = connect(
        WITHOUT_OURS + first + WITH_OURS + second + MORE, host=host, keyspace=KEYSPACE
    )

    with connect_server(tmp_path) as remote:
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
    assert queue_stats(Ledger(store, read_queue(store, "copies").queue_id)).next == 100
