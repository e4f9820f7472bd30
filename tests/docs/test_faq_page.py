"""The program of docs/faq.md, by which users try another Cassandra, runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.cassandra_node import CassandraNode

ROOT = Path(__file__).parents[2]


@pytest.mark.cassandra
@pytest.mark.timeout(300)
def test_the_program_tries_a_cluster_as_it_stands(cassandra_node: CassandraNode, tmp_path: Path):
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    # Only where the cluster is differs from what a reader of it would run.
    (host,) = cassandra_node.contact_points
    here = f'contact_points=("{host}",), port={cassandra_node.port}'
    assert program.count('contact_points=("127.0.0.1",)') == 1
    (tmp_path / "test_cluster.py").write_text(
        program.replace('contact_points=("127.0.0.1",)', here), encoding="utf-8"
    )
    reach = ConnectionOptions(contact_points=(host,), port=cassandra_node.port, keyspace="trial")
    apply_schema(reach)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_cluster.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 100
