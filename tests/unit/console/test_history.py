from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid1

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.console.history import KEPT, QueueHistory, Track, edges_until
from cassieq_spark.model import LedgerBlock, QueueId, Range
from cassieq_spark.monitoring.snapshot import QueueSnapshot
from cassieq_spark.queues.stats import GroupStats, QueueStats

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
AT = NOON.timestamp()


def track(*points: tuple[float, int]) -> Track:
    made = Track()
    for at, value in points:
        made.add(at, value)
    return made


def snapshot(next_: int, depth: int = 0, queue_id: str = "q@1") -> QueueSnapshot:
    group = GroupStats("g", depth, 0, 0, 0, 0, None, 0, 0)
    return QueueSnapshot(name="q", stats=QueueStats(QueueId(queue_id), 0, next_, (group,)))


def block(start: int, stop: int, at: datetime) -> LedgerBlock:
    return LedgerBlock(Range(start, stop), uuid1(), at)


def test_a_rate_is_the_difference_over_the_time():
    assert track((0, 0), (10, 50)).rates([0, 10]) == [5.0]
    assert track((0, 0), (10, 50), (20, 50)).rates([0, 5, 20]) == [5.0, 25 / 15]


def test_there_is_no_rate_where_nothing_was_read_or_the_figure_fell():
    assert track((10, 0), (20, 10)).rates([0, 10, 20, 30]) == [None, 1.0, None]
    assert track((0, 10), (10, 0)).rates([0, 10]) == [None]
    assert track((0, 10)).rate() is None
    assert track((0, 10), (10, 0)).rate() is None


def test_the_last_bin_counts_as_far_as_it_is_read():
    assert track((0, 0), (15, 150)).rates([0, 10, 20]) == [10.0, 10.0]
    assert track((0, 0), (15, 150)).levels([0, 10, 20]) == [100.0, 150.0]


def test_the_rate_of_late_is_that_of_a_minute_or_of_two_readings():
    assert track((0, 0), (100, 1000), (130, 1000), (160, 1000)).rate() == 0.0
    assert track((0, 0), (300, 3000)).rate() == 10.0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_equal_figures_cost_nothing_and_change_nothing(steps: Sequence[int]):
    value, points, made = 0, [], Track()
    for number, step in enumerate(steps):
        value += step
        points.append((float(number), value))
        made.add(float(number), value)

    assert [made.at(at) for at, _ in points] == [float(value) for _, value in points]
    assert len(track(*((float(at), 7) for at in range(1000)))) == 2


def test_points_before_what_is_kept_are_dropped_but_for_one():
    made = track(*((float(at), at) for at in range(1000)))

    made.forget(900.0)

    assert made.begins_at == 900.0
    assert made.at(900.5) == 900.5


def test_a_history_is_of_the_last_hours():
    history = QueueHistory(QueueId("q@1"))
    for number in range(2000):
        history.add(AT + 10 * number, snapshot(number, number % 7))

    assert history.published.begins_at is not None
    assert history.published.last == 1999
    earliest = AT + 19_990 - KEPT.total_seconds()
    assert earliest - 1000 < history.published.begins_at <= earliest
    assert len(history.groups["g"].depth) < 1300


def test_a_group_that_is_gone_is_forgotten():
    history = QueueHistory(QueueId("q@1"))
    history.add(AT, snapshot(1))
    gone = QueueSnapshot(name="q", stats=QueueStats(QueueId("q@1"), 0, 1, ()))

    history.add(AT + 5, gone)

    assert history.groups == {}


def test_blocks_tell_what_was_published_before_the_first_reading():
    history = QueueHistory(QueueId("q@1"))
    history.add(AT, snapshot(30))
    blocks = [
        block(0, 10, NOON - timedelta(seconds=25)),
        block(10, 30, NOON - timedelta(seconds=5)),
    ]

    history.add_blocks([(100, blocks)])

    assert history.published.rates([AT - 30, AT - 20, AT - 10, AT]) == [None, 0.0, 2.0]
    assert history.published.at(AT - 25) == 10.0


def test_where_earlier_blocks_may_be_missing_nothing_is_told():
    history = QueueHistory(QueueId("q@1"))
    history.add(AT, snapshot(50))
    one = [block(20, 30, NOON - timedelta(seconds=25))]
    other = [block(0, 20, NOON - timedelta(seconds=5))]

    history.add_blocks([(1, one), (100, other)])

    assert history.published.at(AT - 26) is None
    assert history.published.at(AT - 24) == 30.0
    assert history.published.at(AT - 4) == 50.0


def test_bins_stand_still_while_time_goes_on():
    one = edges_until(NOON, timedelta(minutes=15), 90)
    later = edges_until(NOON + timedelta(seconds=9), timedelta(minutes=15), 90)

    assert one == later
    assert len(one) == 91
    assert one[-1] >= NOON.timestamp()
