from __future__ import annotations

import subprocess
import sys

import pytest

from cassieq_spark.store.cassandra.schema import schema_statements
from cassieq_spark.store.tables import SHAPES, Table

ONE_NODE = {"class": "SimpleStrategy", "replication_factor": 1}


@pytest.mark.parametrize(
    ("server_version", "strategy"),
    [
        ("4.1.9", "SizeTieredCompactionStrategy"),
        ("5.0.8", "UnifiedCompactionStrategy"),
        ("6.0-alpha2", "UnifiedCompactionStrategy"),
    ],
)
def test_tables_are_compacted_with_what_the_server_has(server_version: str, strategy: str):
    keyspace, *tables = schema_statements("ks", ONE_NODE, server_version)

    assert "{'class': 'SimpleStrategy', 'replication_factor': '1'}" in keyspace
    assert len(tables) == len(Table)
    assert all(f"compaction = {{'class': '{strategy}'}}" in table for table in tables)


def test_every_table_keeps_the_marks_of_deletions_for_as_long_as_the_code_says():
    _, *tables = schema_statements("ks", ONE_NODE, "5.0.8")

    for table, text in zip(Table, tables, strict=True):
        assert text.endswith(f"AND gc_grace_seconds = {SHAPES[table].gc_grace_seconds}")


def test_importing_the_store_package_does_not_import_the_driver():
    program = (
        "import sys, cassieq_spark.store.memory, cassieq_spark.testing.stores;"
        "sys.exit(any(name.split('.')[0] == 'cassandra' for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
