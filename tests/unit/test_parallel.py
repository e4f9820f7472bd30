from __future__ import annotations

import threading

import pytest

from cassieq_spark.parallel import AT_ONCE, in_parallel

PATIENCE = 30


def test_answers_come_in_the_order_of_the_items():
    assert in_parallel(lambda number: number * number, [*range(100)]) == [
        number * number for number in range(100)
    ]
    assert in_parallel(str, []) == []


def test_calls_wait_at_the_same_time():
    all_there = threading.Barrier(AT_ONCE, timeout=PATIENCE)

    in_parallel(lambda _: all_there.wait(), [*range(AT_ONCE)])


def test_a_single_item_needs_no_thread():
    assert in_parallel(lambda _: threading.get_ident(), [1]) == [threading.get_ident()]


def test_the_first_error_is_raised_once_all_calls_have_ended_and_tells_of_the_others():
    ended: list[int] = []
    late = threading.Event()

    def call(number: int) -> None:
        if number == 3:
            late.wait(PATIENCE)
        else:
            late.set()
        ended.append(number)
        if number in {1, 3}:
            raise ValueError(str(number))

    with pytest.raises(ValueError, match="1") as failed:
        in_parallel(call, [0, 1, 2, 3])

    assert sorted(ended) == [0, 1, 2, 3]
    assert failed.value.__notes__ == ["and: ValueError: 3"]
