from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import Range, Ranges

MESSAGES = range(24)
PARTS = st.lists(
    st.builds(
        lambda start, count: Range(start, min(24, start + count)),
        st.sampled_from(MESSAGES),
        st.integers(0, 9),
    ),
    max_size=4,
)
RANGES = PARTS.map(lambda parts: Ranges.of(*parts))
SPANS = st.dictionaries(st.integers(0, 4).map(lambda by: timedelta(seconds=by)), RANGES)
SETTLEMENTS = st.builds(
    Settlement, RANGES, st.dictionaries(st.sampled_from("abcd"), RANGES), SPANS, SPANS, RANGES
)
Outcome = tuple[int, object]


def outcomes_of(settlement: Settlement) -> dict[int, list[Outcome]]:
    """All that is said of each message, that which counts first."""
    kinds = [
        {None: settlement.acked},
        settlement.rejected,
        settlement.released,
        settlement.extended,
        {None: settlement.unread},
    ]
    said: dict[int, list[Outcome]] = {}
    for kind, by_key in enumerate(kinds):
        for key in sorted(by_key):  # type: ignore[type-var]  # the keys of a kind are of one type
            for part in by_key[key]:  # type: ignore[index]
                for monoton in range(part.start, part.stop):
                    said.setdefault(monoton, []).append((kind, key))
    return said


@given(SETTLEMENTS, RANGES)
def test_within_a_slot_each_message_has_its_first_outcome(asked: Settlement, slot: Ranges):
    expected = {at: said[:1] for at, said in outcomes_of(asked).items() if at in slot}

    within = asked.within(slot)

    assert outcomes_of(within) == expected
    assert all([*within.rejected.values(), *within.released.values(), *within.extended.values()])
    assert within.named == asked.named & slot


@given(SETTLEMENTS, SETTLEMENTS)
def test_of_two_settlements_the_later_one_counts(first: Settlement, later: Settlement):
    every = Ranges.of(Range(0, 24))
    first, later = first.within(every), later.within(every)

    assert outcomes_of(first.then(later)) == outcomes_of(first) | outcomes_of(later)
