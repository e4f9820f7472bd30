from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.delivery.isolation import is_dead, most_messages

LIMITS = st.none() | st.integers(1, 10**7)
MOST = st.integers(1, 40)


@given(limit=LIMITS, max_deliveries=st.integers(0, 40))
def test_the_first_delivery_is_of_any_size(limit: int | None, max_deliveries: int):
    assert most_messages(limit, delivery=1, max_deliveries=max_deliveries) == limit


@given(limit=LIMITS, max_deliveries=st.integers(4, 40))
def test_the_second_delivery_is_whole_where_there_is_room_for_it(
    limit: int | None, max_deliveries: int
):
    assert most_messages(limit, delivery=2, max_deliveries=max_deliveries) == limit


@given(limit=LIMITS, max_deliveries=st.integers(2, 40), more=st.integers(0, 3))
def test_one_delivery_before_the_last_and_from_then_on_messages_are_alone(
    limit: int | None, max_deliveries: int, more: int
):
    delivery = max(2, max_deliveries - 1) + more

    assert most_messages(limit, delivery=delivery, max_deliveries=max_deliveries) == 1


@given(limit=LIMITS, max_deliveries=MOST, delivery=MOST)
def test_no_delivery_is_empty_or_larger_than_the_one_before(
    limit: int | None, max_deliveries: int, delivery: int
):
    sizes = [
        most_messages(limit, delivery=each, max_deliveries=max_deliveries)
        for each in (delivery, delivery + 1)
    ]

    before, after = (float("inf") if size is None else size for size in sizes)
    assert before >= after >= 1


@given(limit=LIMITS, delivery=st.integers(1, 10**6))
def test_without_a_limit_of_deliveries_nothing_shrinks(limit: int | None, delivery: int):
    assert most_messages(limit, delivery=delivery, max_deliveries=0) == limit


def test_a_batch_without_a_limit_is_cut_all_the_same():
    sizes = [most_messages(None, delivery=each, max_deliveries=5) for each in (1, 2, 3, 4, 5)]

    assert sizes == [None, None, 1000, 1, 1]


@given(deliveries=st.integers(0, 100), max_deliveries=st.integers(0, 100))
def test_messages_are_dead_once_they_had_all_their_deliveries(
    deliveries: int, max_deliveries: int
):
    dead = is_dead(deliveries, max_deliveries)

    assert dead == (max_deliveries != 0 and deliveries >= max_deliveries)
