from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cassieq_spark.errors import NotAppliedError
from cassieq_spark.model import QueueId
from cassieq_spark.monitoring.board import BoardLine, Rates, lines, rates
from cassieq_spark.monitoring.snapshot import QueueSnapshot, Snapshot
from cassieq_spark.queues.stats import GroupStats, QueueStats


def make_group_stats(group: str, depth: int) -> GroupStats:
    return GroupStats(group, depth, 0, 0, 0, 0, None, 0, 0)


def make_figures(
    at: float, published: int, depths: Mapping[str, int], *, queue_id: str = "q@1"
) -> QueueSnapshot:
    groups = tuple(make_group_stats(group, depth) for group, depth in depths.items())
    stats = QueueStats(QueueId(queue_id), 0, published, groups)
    return QueueSnapshot(name="q", stats=stats, leases={"g": 2}, read_at=at)


def make_snapshot(*queues: QueueSnapshot, **errors: str) -> Snapshot:
    return Snapshot(
        begun_at=datetime(2026, 11, 20, tzinfo=UTC),
        took=timedelta(0),
        queues=queues,
        errors={name: NotAppliedError(text) for name, text in errors.items()},
    )


def test_rates_are_differences_over_the_time_between_the_readings():
    before, now = make_figures(10, 100, {"g": 50}), make_figures(12, 300, {"g": 240})

    assert rates(before, now) == Rates(published=100, settled={"g": 5})


def test_nothing_is_said_of_a_queue_that_was_not_there_or_was_purged():
    now = make_figures(12, 300, {"g": 1})

    assert rates(None, now) is None
    assert rates(make_figures(10, 900, {"g": 1}, queue_id="q@0"), now) is None


def test_nothing_is_said_of_two_readings_of_one_moment():
    now = make_figures(12, 300, {"g": 1})

    assert rates(now, now) is None


def test_nothing_is_said_of_a_group_that_is_new_or_was_moved_back():
    before, now = make_figures(0, 100, {"g": 50}), make_figures(1, 100, {"g": 90, "new": 100})

    assert rates(before, now) == Rates(published=0, settled={"g": None, "new": None})


def test_a_line_for_each_group_and_for_a_queue_without_one_or_with_an_error():
    before = make_snapshot(make_figures(0, 100, {"g": 50}))
    busy = make_figures(1, 110, {"g": 30, "a": 110})
    bare = QueueSnapshot(name="bare", stats=QueueStats(QueueId("bare@1"), 0, 0, ()), paused=True)

    found = lines(before, make_snapshot(busy, bare, broken="too few replicas"))

    assert found == [
        BoardLine(queue="bare", paused=True),
        BoardLine(queue="broken", error="too few replicas"),
        BoardLine(queue="q", published=10, group=make_group_stats("a", 110)),
        BoardLine(queue="q", published=10, group=make_group_stats("g", 30), settled=30, readers=2),
    ]
