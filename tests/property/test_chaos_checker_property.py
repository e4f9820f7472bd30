"""Whatever is planted, the judge of a chaos run counts exactly that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trials.chaos.checker import Message, Result, Row, Sent, judge

#: What may become of a message.
ONCE, LOST, BROKEN, AGAIN, DAMAGED, DEAD = range(6)


@given(st.lists(st.sampled_from([ONCE, LOST, BROKEN, AGAIN, DAMAGED, DEAD]), min_size=1))
def test_what_is_planted_is_counted(fates: list[int]):
    first: list[Row] = []
    broken: list[Row] = []
    late: list[Row] = []
    dead: list[Row] = []
    for number, fate in enumerate(fates):
        message = Message("p", number)
        row = Row(message.key, message.body, 1)
        later = Row(message.key, message.body, 2)
        if fate in {ONCE, AGAIN}:
            first.append(row)
        if fate == BROKEN:
            broken.append(row)
        if fate in {BROKEN, AGAIN}:
            late.append(later)
        if fate == DAMAGED:
            first.append(Row(message.key, message.body + "0", 1))
        if fate == DEAD:
            dead.append(row)
    results = [
        Result("a", 0, first, acked=True),
        Result("b", 0, broken, acked=False),
        Result("c", 0, late, acked=True),
    ]

    verdict = judge([Sent("p", len(fates), len(fates))], results, dead)

    assert verdict.published == len(fates)
    assert verdict.lost == fates.count(LOST) + fates.count(DAMAGED)
    assert verdict.damaged == fates.count(DAMAGED)
    assert verdict.duplicated == fates.count(BROKEN) + fates.count(AGAIN)
    assert verdict.duplicated_under_lease == fates.count(AGAIN)
    assert verdict.dead == fates.count(DEAD)
    assert verdict.invented == verdict.reordered == verdict.unacknowledged == 0
    assert verdict.is_fine == {LOST, DAMAGED, AGAIN}.isdisjoint(fates)
