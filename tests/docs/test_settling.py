"""The recipe of docs/settling.md does what it says, into files and into a table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cassandra.cluster import Cluster

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.cassandra_node import CassandraNode

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_the_recipe_rejects_releases_and_writes_the_rest_once(
    cassandra_node: CassandraNode, tmp_path: Path
):
    text = (ROOT / "docs" / "settling.md").read_text()
    example = "".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    address, port = cassandra_node.contact_points[0], cassandra_node.port
    host = f"{address}:{port}"
    example = example.replace('Cluster(["127.0.0.1"])', f'Cluster(["{address}"], port={port})')
    shop = Cluster([address], port=port).connect()
    shop.execute(
        "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    shop.execute("CREATE TABLE IF NOT EXISTS shop.orders (id bigint PRIMARY KEY, total double)")
    here = f'.option("queue", "orders").option("spark.cassandra.connection.host", "{host}")'
    program = tmp_path / "example.py"
    program.write_text(example.replace('.option("queue", "orders")', here))
    connection = ConnectionOptions(contact_points=(host,))
    apply_schema(connection)
    store = open_store(connection)
    queue = create_queue(store, "orders", max_deliveries=5, dead_letter_queue="orders.dead")
    values = [f'{{"id": {number}, "total": 1.5}}' for number in range(1, 71)] + ["not JSON"] * 3
    batch = pa.record_batch({"value": pa.array(values)})
    written = write_block(store, queue, [batch], SinkOptions(queue="orders"))
    publish(Ledger(store, queue.queue_id), [written])

    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    billing, table = queue_stats(Ledger(store, queue.queue_id)).groups
    assert (billing.depth, billing.waiting) == (10, 10), "every seventh of seventy"
    files = pq.read_table(tmp_path / "out" / "orders").column("id").to_pylist()
    assert sorted(files) == [number for number in range(1, 71) if number % 7]
    assert (table.depth, len(list(shop.execute("SELECT id FROM shop.orders")))) == (0, 70)
    assert Ledger(store, read_queue(store, "orders.dead").queue_id).read_head().next == 6, (
        "by two groups"
    )
    shop.cluster.shutdown()
