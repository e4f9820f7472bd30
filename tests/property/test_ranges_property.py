from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.model import Range, Ranges

PARTS = st.lists(
    st.builds(
        lambda start, count: Range(start, start + count), st.integers(0, 40), st.integers(0, 9)
    )
)
RANGES = PARTS.map(lambda parts: Ranges.of(*parts))


def members(ranges: Ranges) -> set[int]:
    return {at for part in ranges for at in range(part.start, part.stop)}


def is_normal(ranges: Ranges) -> bool:
    """In order, apart, none of them empty: there is one way to write a set."""
    apart = all(one.stop < other.start for one, other in pairwise(ranges.parts))
    return apart and all(ranges.parts)


@given(PARTS)
def test_ranges_have_what_they_are_made_of(parts: list[Range]):
    ranges = Ranges.of(*parts)

    everything = {at for part in parts for at in range(part.start, part.stop)}
    assert is_normal(ranges)
    assert members(ranges) == everything
    assert {at for at in range(60) if at in ranges} == everything
    assert (ranges.count, bool(ranges)) == (len(everything), bool(everything))
    if everything:
        assert ranges.start == min(everything)
        assert ranges.hull == Range(min(everything), max(everything) + 1)


@given(PARTS, st.randoms(use_true_random=False))
def test_a_set_is_written_in_one_way(parts: list[Range], random):
    single = [Range(at, at + 1) for at in members(Ranges.of(*parts))]
    random.shuffle(single)

    assert Ranges.of(*single) == Ranges.of(*parts)


@given(RANGES)
def test_ranges_are_read_as_they_were_written(ranges: Ranges):
    assert Ranges.parse(str(ranges)) == ranges


@given(RANGES, RANGES)
def test_ranges_are_subtracted_and_shared_as_sets_are(one: Ranges, other: Ranges):
    left, shared = one - other, one & other

    assert members(left) == members(one) - members(other)
    assert members(shared) == members(one) & members(other)
    assert is_normal(left)
    assert is_normal(shared)
    assert Ranges.of(*left, *shared) == one


@given(RANGES, st.none() | st.integers(0, 60))
def test_a_split_takes_the_lowest(ranges: Ranges, count: int | None):
    low, rest = ranges.split(count)

    assert sorted(members(ranges))[:count] == sorted(members(low))
    assert members(rest) == members(ranges) - members(low)
    assert is_normal(low)
    assert is_normal(rest)
