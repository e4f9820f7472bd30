"""The scheduler of the interleavings: is it every order, and does it find what depends on one?"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import pytest

from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, Update, When, partition_of_queue
from tests.property.interleavings.schedule import Choice, orders, read
from tests.property.interleavings.stage import Stage
from tests.support.faults import FakeClock
from tests.support.turns import Crash, Turns

QUEUE = partition_of_queue("q")
ALL = 99


def count_carelessly(turns: Sequence[str], *, counted: list[int]) -> Sequence[Choice]:
    """Two add one to what they have read, on no condition that matters."""
    memory = MemoryStore(FakeClock())
    memory.cas(QUEUE, [Insert((), {"version": 0}, if_absent=True)])
    stage = Stage(FakeClock())
    for name in "ab":
        store = stage.process(name).store_around(memory)

        def add(store: object = store) -> None:
            version = store.read_rows(QUEUE).rows[0]["version"]
            store.cas(QUEUE, [Update((), {"version": version + 1}, (When("version", ">=", 0),))])

        stage.let(name, add)
    play = stage.play(None, lambda: None)
    play.run(turns)
    counted.append(memory.read_rows(QUEUE).rows[0]["version"])
    return play.choices


def test_every_order_is_run_once():
    every = list(orders(lambda turns: count_carelessly(turns, counted=[]), ALL, events=""))

    # Four turns each: up to the read, up to the write, up to its answer, and to the end.
    assert len(every) == len(set(every)) == comb(8, 4)


@pytest.mark.parametrize(("preemptions", "expected"), [(0, {2}), (1, {1, 2})])
def test_what_depends_on_the_order_is_found_with_as_many_preemptions_as_it_takes(
    preemptions: int, expected: set[int]
):
    counted: list[int] = []

    list(orders(lambda turns: count_carelessly(turns, counted=counted), preemptions, events=""))

    assert set(counted) == expected


def test_an_order_that_is_written_down_leads_to_the_same_again():
    counted: list[int] = []

    for _ in range(3):
        count_carelessly(read("a2 b2 a1"), counted=counted)

    assert counted == [1, 1, 1]


def test_who_is_killed_does_nothing_more():
    done: list[str] = []
    turns = Turns(lambda: (turns.stop_here(), done.append("it")))
    turns.step()

    turns.crash()

    assert (turns.ended, done) == (True, [])


def test_what_goes_wrong_is_raised_by_the_one_who_steps():
    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        Turns(fail).step()


def test_a_crash_is_no_error_that_code_could_catch():
    assert not issubclass(Crash, Exception)
