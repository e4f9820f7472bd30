from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.groups.deliveries import is_dead, most_messages

COUNTS = st.integers(1, 10**7)
MOST = st.integers(1, 40)


@given(count=COUNTS, max_deliveries=st.integers(0, 40))
def test_the_first_delivery_is_of_any_size(count: int, max_deliveries: int):
    assert most_messages(count, delivery=1, max_deliveries=max_deliveries) == count


@given(count=COUNTS, max_deliveries=st.integers(4, 40))
def test_the_second_delivery_is_whole_where_there_is_room_for_it(count: int, max_deliveries: int):
    assert most_messages(count, delivery=2, max_deliveries=max_deliveries) == count


@given(count=COUNTS, max_deliveries=st.integers(2, 40), more=st.integers(0, 3))
def test_one_delivery_before_the_last_and_from_then_on_messages_are_alone(
    count: int, max_deliveries: int, more: int
):
    delivery = max(2, max_deliveries - 1) + more

    assert most_messages(count, delivery=delivery, max_deliveries=max_deliveries) == 1


@given(count=COUNTS, max_deliveries=MOST)
def test_no_delivery_is_empty_or_larger_than_the_one_before(count: int, max_deliveries: int):
    before = count
    for delivery in range(1, max_deliveries + 2):
        after = most_messages(before, delivery=delivery, max_deliveries=max_deliveries)
        assert before >= after >= 1
        before = after


@given(count=st.integers(10, 10**7), max_deliveries=st.integers(5, 10))
def test_it_shrinks_by_about_the_same_factor_each_time(count: int, max_deliveries: int):
    left, factors = count, []
    for delivery in range(3, max_deliveries):
        fewer = most_messages(left, delivery=delivery, max_deliveries=max_deliveries)
        factors.append(left / fewer)
        left = fewer

    assert left == 1
    # Rounding down makes the later ones of few messages differ.
    assert factors[0] <= 2 * count ** (1 / (max_deliveries - 3))


@given(count=COUNTS, delivery=st.integers(1, 10**6))
def test_without_a_limit_of_deliveries_nothing_shrinks(count: int, delivery: int):
    assert most_messages(count, delivery=delivery, max_deliveries=0) == count


@given(deliveries=st.integers(0, 100), max_deliveries=st.integers(0, 100))
def test_messages_are_dead_once_they_had_all_their_deliveries(
    deliveries: int, max_deliveries: int
):
    dead = is_dead(deliveries, max_deliveries)

    assert dead == (max_deliveries != 0 and deliveries >= max_deliveries)
