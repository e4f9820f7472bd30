from __future__ import annotations

import threading

import pytest

from cassieq_spark.parallel import AT_ONCE, in_parallel
from tests.support.programs import output_of

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


@pytest.mark.parametrize("startable", [0, 1, 3])
def test_items_for_which_no_thread_can_be_started_are_handled_by_the_others_and_the_caller(
    monkeypatch: pytest.MonkeyPatch, startable: int
):
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if len(started) == startable:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def call(number: int) -> int:
        if number == 1:
            raise ValueError(str(number))
        called.append(number)
        return number

    called: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", start_some)
    with pytest.raises(ValueError, match="1"):
        in_parallel(call, [*range(10)])

    assert sorted(called) == [0, *range(2, 10)]
    assert len(started) == startable
    assert not any(thread.is_alive() for thread in started)


def test_calls_go_on_in_a_thread_that_outlives_the_main_thread():
    program = """
        import threading
        from cassieq_spark.parallel import in_parallel

        def work():
            threading.main_thread().join()
            print(in_parallel(str, [1, 2, 3]))

        threading.Thread(target=work).start()
    """

    assert output_of(program) == "['1', '2', '3']\n"
