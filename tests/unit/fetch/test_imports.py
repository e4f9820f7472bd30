from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from cassieq_spark.client import Client
from cassieq_spark.fetch.find import bucket_slices, find_pieces
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.memory import MemoryStore

#: What the process beside the driver does before its first batch.
BEGIN = "import cassieq_spark.spark.source.stream, cassieq_spark.spark.source.queue_reader"
#: What a task does with a chunk.
READ = """
import pickle, sys
from datetime import UTC, datetime
from cassieq_spark.arrow.rows import rows_of
from cassieq_spark.fetch.read import Decoder
from cassieq_spark.model import Range
queue, chunk = pickle.load(sys.stdin.buffer)
found = Decoder(None, queue).decode(chunk, Range(0, 3))
rows = rows_of(queue, receipt_prefix="r.").of(
    found, first_monoton=7, published_at=datetime.now(UTC), delivery_count=1
)
assert rows.num_rows == 3
"""


def imported(program: str, given: bytes = b"") -> set[str]:
    """The modules that a process has imported after a program."""
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    ran = subprocess.run(command, input=given, capture_output=True, check=True)
    return set(ran.stdout.decode().split())


def test_a_query_begins_without_what_only_tasks_need():
    found = imported(BEGIN)

    assert "cassieq_spark.consumer.consumer" in found
    late = {"pyarrow.compute", "pyarrow.fs", "cassieq_spark.arrow.chunks", "cassandra", "pandas"}
    assert found.isdisjoint({*late, "cassieq_spark.arrow.rows", "cassieq_spark.queues.clocks"})


def test_the_driver_of_cassandra_comes_without_asyncio_which_only_its_reactor_for_twisted_needs():
    found = imported("import cassieq_spark.store.cassandra.store")

    assert "cassandra.cluster" in found
    assert found.isdisjoint({"asyncio", "deprecated", "wrapt"})


def test_a_program_may_import_the_drivers_reactor_for_twisted_itself():
    program = (
        "import sys, cassieq_spark.store.cassandra\n"
        "assert 'cassandra.io.twistedreactor' not in sys.modules"
    )

    assert "cassandra.cluster" in imported(program)


def test_a_query_is_planned_without_what_leases_or_reads():
    found = imported("import cassieq_spark.spark.source.stream, cassieq_spark.spark.datasource")

    assert "cassieq_spark.spark.source.columns" in found
    late = {"cassieq_spark.arrow.rows", "cassieq_spark.consumer", "cassieq_spark.fetch.read"}
    assert found.isdisjoint({*late, "cassandra", "cassieq_spark.groups"})


def test_spark_is_told_the_columns_of_messages_without_what_makes_rows():
    found = imported("""
from cassieq_spark.model import QueueDefinition
from cassieq_spark.spark.datasource import CassieqDataSource
source = CassieqDataSource({"queue": "q", "group": "g"})
source._definition = QueueDefinition("q", 2)
source.streamReader(source.schema())
""")

    assert "cassieq_spark.spark.source.stream" in found
    assert found.isdisjoint({"cassieq_spark.arrow.framing", "cassieq_spark.arrow.rows"})


def test_a_task_that_reads_imports_nothing_that_leases():
    found = imported("import cassieq_spark.spark.source.stream, cassieq_spark.fetch.read")

    assert "cassieq_spark.queues.record" in found
    assert found.isdisjoint({"cassieq_spark.consumer", "cassieq_spark.groups", "asyncio"})


def test_a_task_that_writes_imports_no_client_no_leases_and_no_files():
    found = imported("import cassieq_spark.spark.sink.message_writer")

    assert "cassieq_spark.producer.partitioned" in found
    late = {"cassieq_spark.client", "pyarrow.parquet", "cassandra", "pandas", "asyncio"}
    assert found.isdisjoint(
        {*late, "cassieq_spark.groups.group", "cassieq_spark.queues.lifecycle"}
    )


@pytest.mark.parametrize("schema", [None, "name string, at timestamp, tags array<string>"])
def test_a_task_reads_without_pandas_which_takes_long_to_import(schema: str | None):
    store = MemoryStore()
    with Client.from_store(store) as client:
        queue = client.create_queue("q", schema=schema)
        rows = [b"a", b"b", b"c"] if schema is None else [{"name": "a", "tags": ["b"]}] * 3
        client.put_many("q", rows)
    pieces = find_pieces(Ledger(store, queue.queue_id), Ranges.of(Range(0, 3)), deliveries=None)
    where = [each for piece in pieces for each in bucket_slices(piece, queue)]
    ((_, chunk),) = store.read_chunks(queue.queue_id, where)

    found = imported(READ, pickle.dumps((queue, chunk)))

    assert "cassieq_spark.fetch.read" in found
    assert "pandas" not in found
