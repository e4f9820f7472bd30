"""From trials to coefficients, and from predictions to a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from benchmarks.capacity.check import Checked
from benchmarks.capacity.fit import Trial, coefficients_of, fit
from benchmarks.capacity.report import check_table, coefficients_table
from benchmarks.capacity.trials import STORE, STREAMS
from cassieq_spark.planning import costs
from cassieq_spark.planning.coefficients import MEANINGS, Coefficients
from cassieq_spark.planning.costs import PUBLISH, READ, Work

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
