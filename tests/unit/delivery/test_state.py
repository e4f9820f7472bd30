from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cassieq_spark.delivery.state import GroupState, Head, Slot, Waiting
from cassieq_spark.model import Range

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OURS, THEIRS = UUID(int=1), UUID(int=2)


def test_the_floor_is_the_lowest_message_owed():
    slots = (Slot(0, Range(0, 0), OURS, NOW, 1), Slot(1, Range(7, 9), OURS, NOW, 1))
    waiting = (Waiting(5, Range(4, 6), 1),)

    assert GroupState(Head(20, 0, 0), slots[:1], (), NOW).floor == 20
    assert GroupState(Head(20, 0, 0), slots, (), NOW).floor == 7
    assert GroupState(Head(20, 0, 0), slots, waiting, NOW).floor == 4


def test_an_emptied_slot_is_held_by_nobody():
    slots = (
        Slot(0, Range(0, 0), OURS, NOW, 1),
        Slot(1, Range(7, 9), OURS, NOW, 1),
        Slot(2, Range(9, 11), THEIRS, NOW, 1),
    )
    state = GroupState(Head(20, 0, 0), slots, (), NOW)

    assert state.held_by(OURS) == slots[1:2]
    assert state.held_by(None) == ()
