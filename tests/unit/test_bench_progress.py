from __future__ import annotations

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.bench.progress import Batch, Phases, as_measures, batches_of, split, steady
from benchmarks.bench.resting import intervals_apart, next_trigger

_BEGAN = 1_700_000_000.0


def progress(rows: int, **took: int) -> StreamingQueryProgress:
    """Spark's progress of one batch."""
    return StreamingQueryProgress.fromJson(
        {
            "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
            "runId": "7c9e6679-7425-40de-944b-e07fc1f90ae8",
            "name": None,
            "timestamp": "2023-11-14T22:13:20.500Z",
            "batchId": 0,
            "batchDuration": 0,
            "durationMs": took,
            "eventTime": {},
            "stateOperators": [],
            "sources": [],
            "sink": {"description": "noop", "numOutputRows": rows},
            "numInputRows": rows,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 0.0,
            "observedMetrics": {},
        }
    )


def batch(number: int, ms: int, *, rows: int = 100, before_ms: int = 0) -> Batch:
    return Batch(_BEGAN + number, rows, ms, before_ms)


def test_a_batch_is_what_spark_reports_and_triggers_without_rows_are_none():
    (found,) = batches_of(
        [
            progress(0, triggerExecution=9),
            progress(
                7,
                triggerExecution=900,
                latestOffset=300,
                queryPlanning=40,
                addBatch=500,
                commitOffsets=20,
            ),
        ]
    )

    assert found == Batch(began=_BEGAN + 0.5, rows=7, ms=900, before_ms=380)


def test_the_start_ends_with_the_tasks_of_the_first_batch():
    first = batch(1, 2_000, before_ms=600)

    assert split([first, *(batch(n, 100) for n in range(2, 9))], _BEGAN).start == 1.6


def test_the_first_batches_are_not_the_steady_state():
    slow = [batch(n, 9_000) for n in range(3)]
    counted = [batch(3, 100, rows=50), batch(4, 300), batch(5, 200), batch(6, 400)]

    found = split([*slow, *counted], _BEGAN)

    assert (found.batch_ms, found.rate) == (250, 350.0)


@pytest.mark.parametrize(("batches", "left"), [(1, 1), (2, 1), (3, 2), (5, 3), (6, 3), (20, 17)])
def test_of_few_batches_half_are_left(batches: int, left: int):
    assert len(steady([batch(n, 100) for n in range(batches)])) == left


def test_what_comes_before_the_tasks_of_an_only_batch_counts_once():
    found = split([batch(0, 1_000, before_ms=500, rows=1_000)], _BEGAN)

    assert found == Phases(start=0.5, batch_ms=500, rate=2_000.0)


def test_what_comes_before_the_tasks_of_a_later_batch_is_part_of_it():
    found = split([batch(n, 200, before_ms=100) for n in range(8)], _BEGAN)

    assert (found.batch_ms, found.rate) == (200, 500.0)


def test_the_rate_is_in_what_is_counted():
    assert as_measures(Phases(0.5, 90, 1e5), "rows/s")["rows/s"] == 1e5


@pytest.mark.parametrize("now_ms", [1_796_000_000_000, 1_796_000_059_999, 1_796_000_119_999])
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_queries_are_triggered_one_after_the_other(now_ms: int, queries: int):
    found = intervals_apart(now_ms, interval_ms=120_000, apart_ms=25_000, queries=queries)

    after = [next_trigger(now_ms, each) - now_ms for each in found]
    wanted = [120_000 - 25_000 * number for number in range(queries)][::-1]
    assert all(abs(one - other) < 1_000 for one, other in zip(after, wanted, strict=True))
    assert all(120_000 <= each < 121_000 for each in found)
    assert len(set(found)) == queries
