"""The measures of the BDQS paper, by its own examples and by slower ways to the same."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.bdqs.journal import (
    Received,
    displacement,
    duplication,
    firsts,
    longest_increasing,
    loss,
    out_of_order,
    percentile,
)


@pytest.mark.parametrize(
    ("sequence", "rate", "places"), [([2, 1, 3, 4, 5], 0.2, 0.4), ([2, 3, 4, 5, 1], 0.2, 1.6)]
)
def test_the_examples_of_the_paper_have_its_figures(
    sequence: list[int], rate: float, places: float
):
    assert out_of_order(sequence) == rate
    assert displacement(sequence) == places


@pytest.mark.parametrize("sequence", [[], [7], [1, 2, 3], [0, 10, 100]])
def test_what_is_in_order_has_no_disorder(sequence: list[int]):
    assert (out_of_order(sequence), displacement(sequence)) == (0, 0)


def test_the_reverse_is_as_far_out_of_order_as_can_be():
    assert out_of_order([4, 3, 2, 1]) == 0.75
    assert displacement([4, 3, 2, 1]) == 2


@given(st.lists(st.integers(0, 8), max_size=8))
def test_the_longest_increasing_subsequence_is_as_long_as_the_longest_of_all(numbers: list[int]):
    rising = (
        len(chosen)
        for size in range(len(numbers) + 1)
        for chosen in combinations(numbers, size)
        if all(a < b for a, b in pairwise(chosen))
    )

    assert longest_increasing(numbers) == max(rising)


def test_a_long_sequence_takes_no_long_time():
    falling_pairs = [number ^ 1 for number in range(300_000)]

    assert out_of_order(falling_pairs) == 0.5
    assert displacement(falling_pairs) == 1


def test_gaps_of_lost_messages_put_nothing_out_of_place():
    assert displacement([0, 2, 5, 9]) == 0


def test_damaged_is_as_good_as_lost_unless_it_comes_whole_as_well():
    damaged = [Received(1, intact=False), Received(2, intact=False), Received(2)]

    assert loss([1, 2], damaged) == 0.5


def test_each_arrival_but_the_first_is_a_duplicate_and_has_no_place_in_the_order():
    arrivals = [Received(tag) for tag in (1, 0, 1, 1, 2)]

    assert duplication([0, 1, 2, 3], arrivals) == 0.5
    assert firsts(arrivals) == [1, 0, 2]


def test_nothing_sent_is_nothing_lost():
    assert (loss([], []), duplication([], []), percentile([], 0.95)) == (0, 0, 0)


@given(st.lists(st.floats(0, 1), min_size=1), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_is_the_smallest_that_so_many_do_not_exceed(
    values: list[float], share: float
):
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)
