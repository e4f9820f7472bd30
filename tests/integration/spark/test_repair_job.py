from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid1, uuid4

import pyspark
import pytest
from pyspark.sql import SparkSession

from cassieq_spark.errors import SetupError, StoreError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Chunk, PendingBlock, QueueDefinition, QueueId, Range
from cassieq_spark.queues import create_queue
from cassieq_spark.repair import scan, spark_scan
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.signals import Stop
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table

ROOT = Path(__file__).parents[3]
JOB = ROOT / "jobs" / "repair.py"
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
BUCKET_SIZE = 40
CHUNK_SIZE = 10


@dataclass(frozen=True)
class RepairedQueue:
    """A queue with small buckets, and what the tests do with it."""

    store: Store
    connection: ConnectionOptions
    definition: QueueDefinition

    def write(self, count: int) -> UUID:
        """Write a block without publishing it."""
        block = uuid1()
        chunks = [
            Chunk(start // BUCKET_SIZE, start, min(count, start + CHUNK_SIZE), b"data")
            for start in range(0, count, CHUNK_SIZE)
        ]
        self.store.write_chunks(self.definition.queue_id, block, chunks)
        return block

    def publish(self, *counts: int) -> list[UUID]:
        blocks = [self.write(count) for count in counts]
        pending = [PendingBlock(*each) for each in zip(blocks, counts, strict=True)]
        publish(Ledger(self.store, self.definition.queue_id), pending)
        return blocks

    def settle(self, name: str, count: int) -> None:
        """Lease so many messages and ack them."""
        queue_id = self.definition.queue_id
        group = ConsumerGroup(Ledger(self.store, queue_id), name)
        ensure_group(group, starting="earliest")
        stop = Ledger(self.store, queue_id).read_head().next
        lease = self.definition.lease
        held = group.lease(LeaseRequest(lease=lease, max_messages=count, stop=stop)).token
        group.lease(LeaseRequest(held=held, lease=lease))

    def buckets(self) -> set[tuple[UUID, int]]:
        rows: Any = self.store.scan(Table.CHUNK)
        queue_id = self.definition.queue_id
        return {(row["block"], row["bucket"]) for row in rows if row["queue_id"] == queue_id}

    def repair(self, *arguments: str, by_spark: bool = True) -> tuple[int, dict[str, Any], str]:
        """Run the job; its exit status, its report, and what it says to people."""
        command: list[str] = [sys.executable]
        if by_spark:
            confs = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
            packages = ["--packages", spark_scan.CONNECTOR]
            command = [str(SPARK_SUBMIT), "--master", "local[2]", *packages, *confs]
        command += [str(JOB), "--contact-points", ",".join(self.connection.contact_points)]
        command += ["--port", str(self.connection.port), "--keyspace", self.connection.keyspace]
        command += ["--queue", self.definition.name, "--json", "-", *arguments]
        done = subprocess.run(
            command,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        lines = done.stdout.splitlines()
        report = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        # spark-submit passes on what its program says to stderr as if it were said to stdout.
        return done.returncode, report, done.stdout + done.stderr


@pytest.fixture
def queue(cassandra_store: Store, connection: ConnectionOptions) -> RepairedQueue:
    definition = create_queue(
        cassandra_store,
        f"repaired-{uuid4().hex[:12]}",
        bucket_size=BUCKET_SIZE,
        chunk_size=CHUNK_SIZE,
    )
    return RepairedQueue(cassandra_store, connection, definition)


def test_the_repair_deletes_exactly_what_is_settled(queue: RepairedQueue):
    _, second = queue.publish(95, 205)
    queue.settle("billing", 200)
    queue.settle("shipping", 180)

    status, report, said = queue.repair()

    assert status == 0, said
    # 85 messages of the second block are settled: buckets 0 and 1, and a part of 2.
    assert queue.buckets() == {(second, bucket) for bucket in (2, 3, 4, 5)}
    assert Ledger(queue.store, queue.definition.queue_id).read_head().finalised == 180
    totals = report["totals"]
    assert (totals["finalised"], totals["settled_buckets"], totals["trimmed_blocks"]) == (
        180,
        5,
        1,
    )
    assert totals["audited_messages"] == 120
    assert report["whole"] is True


def test_unpublished_blocks_are_deleted_behind_the_fence_and_a_removed_bucket_is_noticed(
    queue: RepairedQueue,
):
    first, block = queue.publish(50, 95)
    unpublished = queue.write(95)

    status, early, said = queue.repair("--scan", "driver", "--write-timeout", "1h", by_spark=False)
    assert status == 0, said
    assert early["totals"]["unpublished_blocks"] == 0
    queue.store.delete_buckets(queue.definition.queue_id, [(block, 1)])
    status, report, said = queue.repair("--write-timeout", "0s", "--repair-report")

    assert status == 1, said
    assert report["whole"] is False
    assert unpublished not in {block for block, _ in queue.buckets()}
    assert queue.buckets() == {(first, 0), (first, 1), (block, 0), (block, 2)}
    totals = report["totals"]
    assert (totals["unpublished_blocks"], totals["unpublished_buckets"]) == (1, 3)
    assert report["queues"][queue.definition.name]["findings"] == [
        {"problem": "missing", "start": 90, "stop": 130, "block": str(block)}
    ]
    (diagnosis,) = report["queues"][queue.definition.name]["diagnoses"]
    assert diagnosis["happened"] == "bucket 1 of the block is gone: deleted too early, or by hand"
    assert "messages [90, 130) are missing" in " ".join(said.split())


def test_the_cheap_steps_do_without_spark(queue: RepairedQueue):
    queue.publish(95)
    queue.settle("billing", 95)

    status, report, said = queue.repair("--steps", "finalise,fence", by_spark=False)

    assert status == 0, said
    assert report["totals"]["settled_buckets"] == 3
    assert queue.buckets() == set()


def test_the_driver_can_scan_as_well(queue: RepairedQueue):
    (block,) = queue.publish(95)
    queue.store.delete_buckets(queue.definition.queue_id, [(block, 2)])

    status, report, _ = queue.repair("--scan", "driver", by_spark=False)

    assert status == 1
    (finding,) = report["queues"][queue.definition.name]["findings"]
    assert (finding["start"], finding["stop"]) == (80, 95)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--queue", "nosuch"], "there is no queue 'nosuch'"),
        (["--keyspace", "nosuch"], "nosuch"),
        (["--steps", "repair"], "the steps are redeliver, expire, finalise"),
        (["--write-timeout", "soon"], "must be a duration such as"),
    ],
)
def test_wrong_usage_is_told_apart_from_loss(
    queue: RepairedQueue, arguments: list[str], complaint: str
):
    status, report, said = queue.repair(*arguments, "--scan", "driver", by_spark=False)

    assert (status, report) == (2, {})
    assert complaint in " ".join(said.split())


def test_a_session_without_the_connector_is_told_what_to_do(
    spark: SparkSession, queue: RepairedQueue
):
    with pytest.raises(SetupError, match=f"spark-submit --packages {spark_scan.CONNECTOR}"):
        spark_scan.load_chunks(spark, queue.connection)


def test_a_scan_that_is_told_to_stop_ends_in_the_middle_of_a_job(spark: SparkSession):
    endless = spark.range(1 << 50).selectExpr(
        "'orders@1' as queue_id",
        f"'{uuid1()}' as block",
        "0 as bucket",
        "id as start",
        "id + 1 as stop",
    )
    jobs = spark.sparkContext.statusTracker()
    with closing(Stop()) as stop, ThreadPoolExecutor(1) as pool:

        def stop_it_at_work() -> None:
            # The hang checkpoint of the tests ends it.
            while not jobs.getActiveJobsIds():
                pass
            stop.set()

        stopping = pool.submit(stop_it_at_work)
        found = list(spark_scan.SparkScan(endless, stop)({}))
        stopping.result()

    assert found == []
    assert list(jobs.getActiveJobsIds()) == []


def test_a_scan_that_fails_says_so(spark: SparkSession):
    broken = spark.range(1).selectExpr(
        "'orders@1' as queue_id",
        "raise_error('no replica') as block",
        "0 as bucket",
        "id as start",
        "id + 1 as stop",
    )

    with (
        closing(Stop()) as stop,
        pytest.raises(
            StoreError, match=r"could not read the table of chunks, or is gone: .*no replica"
        ),
    ):
        list(spark_scan.SparkScan(broken, stop)({}))


def test_both_scans_come_to_the_same(spark: SparkSession):
    known, unknown = QueueId("orders@1"), QueueId("gone@1")
    blocks = [uuid1() for _ in range(4)]
    stored = [
        # whole; a gap and an overlap; misplaced and beyond the end of its bucket
        *((known, blocks[0], start // 4, start, start + 2) for start in range(0, 12, 2)),
        *((known, blocks[1], 0, start, stop) for start, stop in [(0, 1), (2, 4), (2, 3), (3, 4)]),
        *((known, blocks[2], bucket, bucket, bucket + 2) for bucket in (0, 1, 2, 3)),
        *((unknown, blocks[0], 7, start, start + 2) for start in (0, 2, 6)),
        # no chunks at all
        *(
            (queue_id, blocks[3], 5, start, stop)
            for queue_id in (known, unknown)
            for start, stop in [(3, None), (-(2**63), 2**63 - 1), (9, 2), (100, 2**63 - 1)]
        ),
    ]
    columns = ["queue_id", "block", "bucket", "start", "stop"]
    schema = "queue_id STRING, block STRING, bucket INT, start BIGINT, stop BIGINT"
    rows = [dict(zip(columns, row, strict=True)) for row in stored]

    chunks = spark.createDataFrame([{**row, "block": str(row["block"])} for row in rows], schema)
    found = spark_scan.runs_of(chunks, {known: 4}).collect()

    expected = list(scan.runs_of(rows, {known: 4}))
    assert len(expected) == 14
    by_place = sorted(map(spark_scan.run_of, found), key=_place)
    assert by_place == sorted(expected, key=_place)


def _place(run: scan.Run) -> tuple[str, UUID, Range]:
    return run.queue_id, run.block, run.covered
