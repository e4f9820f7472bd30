"""The programs of the documents, and the examples, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.docs.pages import ROOT, blocks_of, pages
from tests.support.cassandra_node import CassandraNode
from tests.support.spark_session import WARM_PLANNERS

KEYSPACE = "cassieq_pages"
PAGES = (
    "docs/index.md",
    "docs/quickstart.md",
    "docs/source.md",
    "docs/sink.md",
    "docs/typed.md",
    "docs/consumer-groups.md",
    "docs/migrating.md",
    "docs/dead-letters.md",
    "docs/monitoring.md",
    "docs/repair.md",
    "docs/security.md",
    "docs/recipes.md",
    "docs/schedules.md",
)
EXAMPLES = tuple(
    str(program.relative_to(ROOT))
    for folder in ("examples", "examples/tables")
    for program in sorted((ROOT / folder).glob("*.py"))
    # delta.py needs Delta's own format, which there is for Spark 4.2 only; flights.py is the
    # program of README, and runs in its test.
    if program.name not in {"delta.py", "flights.py"}
)
#: Run by a test of their own.
ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/client.md": "test_client_page.py",
    "docs/faq.md": "test_faq_page.py",
    "docs/gateway.md": "test_gateway_page.py",
    "docs/notebooks.md": "test_notebook.py",
    "docs/pipelines.md": "test_connect_page.py",
    "docs/settling.md": "test_settling.py",
    "docs/spark-connect.md": "test_connect_page.py",
    "docs/sqs.md": "test_sqs_page.py",
}
#: What some of them print.
SAYS = {
    "docs/index.md": "batch 0: 1800 dear rides",
    "docs/quickstart.md": "batch 2: 2000 messages of 24 hours",
    "docs/consumer-groups.md": "audit [1, 2]",
    "examples/publish_files.py": "3 files, 300 lines published",
    "examples/exactly_once_parquet.py": "1,000 messages in, 1,000 rows out",
    "examples/tables/delta_rs.py": "batch 1 is in the table\n1,000 messages in, 1,000 rows out",
    "examples/tables/iceberg.py": "1,000 messages in, 1,000 rows out",
    "examples/competing_consumers.py": "1,000 messages, each processed once",
    "examples/dead_letters.py": "10 dead, 10 redriven, 100 processed",
    "examples/plain_producer.py": "100 put, 100 counted",
    "examples/http_and_spark.py": "100 orders put by HTTP, 2935.25 invoiced by Spark, 0 left",
}


#: A queue that a program or a command of a page creates.
_CREATES = re.compile(r'\bcreate_queue\(f?["\'](\w+)|^cassieq queue create (\S+)', re.MULTILINE)
#: What a laptop needs no more of; the programs say nothing of it.
SPARK = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 "
    "--conf spark.python.unix.domain.socket.enabled=true pyspark-shell"
)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_pages_and_examples_run_as_they_stand(cassandra_node: CassandraNode, tmp_path: Path):
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    apply_schema(ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE))
    program = ROOT / "tests" / "docs" / "programs" / "run_pages.py"

    done = subprocess.run(
        [sys.executable, str(program), host, KEYSPACE, *PAGES, *EXAMPLES],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(map(str, (WARM_PLANNERS, ROOT))),
            "PYSPARK_SUBMIT_ARGS": SPARK,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    said = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", done.stdout, re.DOTALL | re.MULTILINE))
    assert list(said) == [*PAGES, *EXAMPLES]
    for name, text in SAYS.items():
        assert text in said[name], said[name]


def test_pages_that_run_in_one_keyspace_create_different_queues():
    created = Counter(
        by_program or by_command
        for page in PAGES
        for block in blocks_of(page)
        if block.language in {"python", "sh"}
        for by_program, by_command in _CREATES.findall(block.text)
    )

    # One by a program, one by a command.
    assert created["tours"] == created["visits"] == 1
    assert [name for name, times in created.items() if times > 1] == []


def test_every_page_with_a_program_is_run_by_some_test():
    with_programs = {
        page for page in pages() if "\n```python\n" in (ROOT / page).read_text(encoding="utf-8")
    }

    assert with_programs == {*PAGES, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / "tests" / "docs" / test).read_text(encoding="utf-8")


def test_every_example_says_what_it_did():
    assert set(EXAMPLES) == {name for name in SAYS if name.startswith("examples/")}
