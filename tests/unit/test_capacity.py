"""From trials to coefficients, and from predictions to a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from benchmarks.capacity.check import LOADS, Checked, Streams
from benchmarks.capacity.fit import Trial, coefficients_of, fit
from benchmarks.capacity.report import check_table, coefficients_table
from benchmarks.capacity.trials import STORE, STREAMS, Shape, keyed_messages
from cassieq_spark.model import Order, SinkBatch
from cassieq_spark.planning import costs
from cassieq_spark.planning.coefficients import MEANINGS, Coefficients
from cassieq_spark.planning.costs import PUBLISH, READ, Work
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.queues import create_queue
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store.memory import MemoryStore

TRUTH = Coefficients({name: (number % 7 + 1) * 1e-6 for number, name in enumerate(MEANINGS)}, {})
IDLE = 0.01


def trial(operation: str, work: Work, replicas: int) -> Trial:
    """What it would cost if the model were the truth."""
    files = {"log": costs.log_bytes(work, TRUTH), "disk": costs.disk_bytes(work, TRUTH)}
    repair = {
        part: costs.repair_seconds(
            part,
            work if operation == "delete" else Work(),
            work if operation == "scan" else Work(),
            TRUTH,
        )
        for part in ("cassandra", "client")
    }
    is_repair = operation in {"delete", "scan"}
    requests = 0.0 if is_repair else costs.cassandra_seconds(operation, work, replicas, TRUTH)
    return Trial(
        operation,
        work,
        replicas,
        files
        | {
            "cassandra": (repair["cassandra"] if is_repair else requests) + IDLE * replicas * 8,
            "own": repair["client"],
            "wall": 8.0,
            "spark": 0.0 if is_repair else costs.client_seconds(operation, work, TRUTH),
            "wire": 0.0 if is_repair else costs.wire_bytes(operation, work, TRUTH),
            "between": 0.0 if is_repair else costs.node_bytes(operation, work, replicas, TRUTH),
            "flush": 3e-9 * work.stored,
            "flush bytes": work.stored,
            "lwts": work.lwt,
            "reads": 2 * work.lwt,
        },
    )


def test_the_trials_tell_every_coefficient_apart():
    works = [shape.work() for shape in STORE]
    found = [
        trial(operation, work, replicas)
        for operation in (PUBLISH, READ)
        for replicas in (1, 3)
        for work in works
    ]
    found += [trial(step, work, 1) for step in ("scan", "delete") for work in works[:3]]
    streams = [trial(kind, shape.work(), 1) for kind in (PUBLISH, READ) for shape in STREAMS]

    values = coefficients_of(found, streams, IDLE)

    special = {
        name: value for name, value in values.items() if name.startswith(("flush", "count"))
    }
    assert special["flush.byte"] == pytest.approx(3e-9)
    assert special["count.read.reads"] == pytest.approx(2)
    for name in values.keys() - special.keys():
        assert values[name] == pytest.approx(TRUTH[name], rel=1e-3), name
    given = {"compaction.byte", "disk.garbage", "disk.level", "disk.flushed"}
    given |= {"idle.node", "idle.query", "lwt.cassandra", "lwt.partition", "lwt.core"}
    assert values.keys() | given == set(MEANINGS)


def test_nothing_costs_less_than_zero():
    assert fit([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [3.0, 2.0, 1.0])[1] == 0


def test_a_prediction_that_is_too_far_off_is_called_so():
    table = check_table(
        [
            Checked("1 node(s), 1 replica(s)", "5/s", "LWTs", "", 100, 99),
            Checked("1 node(s), 1 replica(s)", "5/s", "log", "MB", 100, 50),
        ],
        datetime(2026, 1, 2, tzinfo=UTC),
    )

    *_, near, far, _ = table.splitlines()
    assert near == "| 1 node(s), 1 replica(s) | 5/s | LWTs | 100 | 99 | 1.01 | yes |"
    assert far == "| 1 node(s), 1 replica(s) | 5/s | log | 100 MB | 50 MB | 2.00 | **no** |"


def test_a_load_by_key_has_a_block_for_each_task_and_partition_and_each_group_reads_them():
    load = Streams(Shape(500, 20_000, 2, 10), partitions=4, groups=2)

    published, read = load.published(), load.read(batches=21)

    assert (published.task, published.block, published.lwt, published.batch) == (20, 80, 40, 10)
    assert (read.message, read.block) == (2 * 200_000, 2 * 80)
    assert (read.batch, read.task) == (21, 84)
    # With a serial read before each, which is a third of an LWT.
    assert read.lwt == pytest.approx(84 + 28)


def test_the_queue_makes_the_blocks_lwts_and_tasks_that_the_model_counts_by_key():
    store, load = MemoryStore(), Streams(Shape(50, 4000, 2, 1), partitions=4)
    queue = create_queue(store, "q", partitions=load.partitions, order=Order.KEY)
    rows, batch = keyed_messages(load.shape), SinkBatch("query:q", 0)

    of_tasks = [write_messages(store, queue, [rows], batch) for _ in range(load.shape.tasks)]
    published = publish_all(store, [part for parts in of_tasks for part in parts])
    reader = QueueReader(store, queue, "g", starting="earliest")
    end = reader.next_batch(initial_offset(queue.name, "g"), limit=load.shape.messages)
    tasks = reader.tasks(end, messages_per_task=load.shape.messages // load.reader_tasks)
    reader.stop()

    blocks = sum(len(part.blocks) for parts in of_tasks for part in parts)
    assert (blocks, len(published)) == (load.published().block, load.published().lwt)
    assert len(tasks) == load.read(batches=1).task


def test_the_check_has_a_load_of_several_partitions_and_groups():
    assert any(load.partitions > 1 and load.groups > 1 for load in LOADS)


def test_messages_with_keys_have_the_size_of_their_shape_and_go_to_all_partitions():
    messages = keyed_messages(Shape(500, 4000, 2, 10))

    sizes = {len(row["key"]) + len(row["value"]) for row in messages.to_pylist()}
    assert (messages.num_rows, sizes) == (2000, {500})
    keys = messages["key"].to_pylist()
    assert {partition_of_key(key, 4) for key in keys} == {0, 1, 2, 3}


def test_what_compaction_rewrites_in_steps_is_judged_by_the_sum_of_all_loads_which_may_be_off():
    def last(*measured: float) -> list[str]:
        found = [
            Checked(f"{nodes} node(s)", "5/s", "rewritten by compaction", "MB", 100, each)
            for nodes, each in zip((1, 3), measured, strict=True)
        ]
        return check_table(found, datetime(2026, 1, 2, tzinfo=UTC)).splitlines()[-3:]

    assert last(66, 134) == [
        "| 1 node(s) | 5/s | rewritten by compaction | 100 MB | 66 MB | 1.52 | in the sum |",
        "| 3 node(s) | 5/s | rewritten by compaction | 100 MB | 134 MB | 0.75 | in the sum |",
        "| all | all loads | rewritten by compaction | 200 MB | 200 MB | 1.00 | yes |",
    ]
    assert last(66, 80)[-1].endswith("| 200 MB | 146 MB | 1.37 | **no** |")


def test_the_table_of_coefficients_has_all_of_them_with_their_units():
    about = {"machine": "a machine", "date": "2026-01-02", "versions": "v", "command": "c"}

    table = coefficients_table(Coefficients(TRUTH.values, about))

    assert table.startswith("Measured on a machine, 2026-01-02, with v, by `c`.")
    first = next(iter(MEANINGS))
    assert f"| `{first}` | 1 | µs of a core |" in table
    assert table.count("\n| `") == len(MEANINGS)
