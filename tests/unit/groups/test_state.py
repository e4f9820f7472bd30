from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from cassieq_spark.groups.state import GroupState, Head, Slot, Waiting
from cassieq_spark.model import Ranges

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OURS, THEIRS = UUID(int=1), UUID(int=2)


def test_the_floor_is_the_lowest_message_owed():
    slots = (Slot(0, Ranges(), OURS, NOW, 1), Slot(1, Ranges.parse("7-9"), OURS, NOW, 1))
    waiting = (Waiting(5, Ranges.parse("4-6"), 1),)

    assert GroupState(Head(20, 0, 0), slots[:1], (), NOW).floor == 20
    assert GroupState(Head(20, 0, 0), slots, (), NOW).floor == 7
    assert GroupState(Head(20, 0, 0), slots, waiting, NOW).floor == 4


def test_a_token_holds_its_slots_also_one_emptied_message_by_message():
    slots = (
        Slot(0, Ranges(), OURS, NOW, 1),
        Slot(1, Ranges.parse("7-9"), OURS, NOW, 1),
        Slot(2, Ranges.parse("9-11"), THEIRS, NOW, 1),
    )
    state = GroupState(Head(20, 0, 0), slots, (), NOW)

    assert state.held_by(OURS) == slots[:2]
    assert state.held_by(THEIRS) == slots[2:]
    assert state.held_by(None) == ()
