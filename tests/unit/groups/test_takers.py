"""Who gets what of several rows."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cassieq_spark.groups.lanes import ByLane
from cassieq_spark.groups.state import LONG_AGO, Slot, Waiting
from cassieq_spark.groups.takers import Rules, Taker, hand_out
from cassieq_spark.model import Ranges

LANE = 7
FIRST_AT = datetime(2026, 11, 28, tzinfo=UTC)


def one_lane(row: Slot | Waiting) -> ByLane:
    return {LANE: row.monotons}


def test_messages_that_failed_go_before_later_ones_of_their_lane_that_nobody_has_had():
    parked = Slot(0, Ranges.parse("5-8"), UUID(int=1), LONG_AGO, 0)
    failed = Waiting(0, Ranges.parse("2-4"), 1, FIRST_AT)
    taker = Taker(10)

    hand_out([taker], [parked, failed], [], {}, Rules(one_lane, max_deliveries=0))

    assert taker.taken == {failed: failed.monotons}


def test_who_wants_nothing_gets_nothing_and_who_is_served_no_more():
    lanes = {number: Ranges.parse(f"{number}-{number + 1}") for number in range(4)}
    takers = [Taker(0), Taker(1), Taker(2)]

    hand_out(takers, [], [], lanes, Rules(one_lane, max_deliveries=0))

    assert [str(taker.monotons) for taker in takers] == ["", "0-1", "1-3"]
