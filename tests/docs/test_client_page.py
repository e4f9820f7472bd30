"""The examples of docs/client.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cassieq_spark import Client
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.cassandra_node import CassandraNode

ROOT = Path(__file__).parents[2]


@pytest.mark.cassandra
def test_the_examples_of_the_client_run_as_they_stand(
    cassandra_node: CassandraNode, tmp_path: Path
):
    page = (ROOT / "docs" / "client.md").read_text()
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    # Only where the cluster is differs from what a reader of it would run.
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    program, count = re.subn(r"Client\(\)", f"Client(contact_points={host!r})", program)
    assert count == 2
    apply_schema(ConnectionOptions(contact_points=(host,)))
    with Client(contact_points=host) as client:
        client.create_queue("mail")

        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

        assert done.returncode == 0, done.stderr
        assert "0 b'ada' b'hello' {'lang': 'en'}" in done.stdout
        assert [each.value for each in client.peek("mail.dead")] == [b"bad"]
        assert len(client.stats("mail").groups) == 3
