"""Three runners, clocks that jump, runners that die in any call, and answers that are lost.

Whatever happens, each tick is published at most once, in order, and not before its time. Once
one runner is left alone with a clock that is right, every tick is there that ``catch_up`` allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.schedules import Runner, Schedule, create_schedule
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock

SECOND = timedelta(seconds=1)
RUNNERS = 3


class DiedError(Exception):
    """The process of a runner was killed."""


class OwnClock:
    """The clock of a runner: wrong by as much as it is told."""

    def __init__(self, right: FakeClock) -> None:
        self.right, self.wrong_by = right, timedelta(0)

    def __call__(self) -> datetime:
        return self.right.now + self.wrong_by


@dataclass(frozen=True)
class Step:
    """What happens next.

    Attributes:
        runner: Which runner looks.
        passes: How much time passes before.
        jump: By how much the runner's clock is wrong from now on; None: as before.
        dies_after: The runner dies after so many calls and is started again; None: it does not.
        fault: What happens to its next compare-and-set.
        others: Another runner looks in the middle of this look, after so many calls.
    """

    runner: int
    passes: timedelta
    jump: timedelta | None
    dies_after: int | None
    fault: Fault | None
    others: int | None


STEPS = st.builds(
    Step,
    st.integers(0, RUNNERS - 1),
    st.sampled_from([SECOND * number for number in (0, 1, 2, 20, 59, 60, 300)]),
    st.none() | st.sampled_from([SECOND * number for number in (0, -5, 5, -4000, 4000)]),
    st.none() | st.integers(0, 4),
    st.none() | st.sampled_from(Fault),
    st.none() | st.integers(0, 4),
)
SETTINGS = st.sampled_from(
    [
        {"every": 20 * SECOND},
        {"cron": "*/2 * * * *", "zone": "Asia/Kolkata"},
        {"every": 60 * SECOND, "jitter": 30 * SECOND},
        {"every": 60 * SECOND, "ahead": 90 * SECOND},
        {"every": 30 * SECOND, "count": 15},
    ]
)


class Stage:
    """A queue, its schedule, and three runners."""

    def __init__(self, partitions: int, catch_up: int, settings: dict[str, object]) -> None:
        self.memory, self.right = make_clocked_store()
        self.client = Client.from_store(self.memory)
        self.client.create_queue("q", partitions=partitions)
        self.schedule: Schedule = create_schedule(
            self.memory,
            "q",
            "s",
            "{{tick}}",
            catch_up=catch_up,
            **settings,  # type: ignore[arg-type]
        )
        self.clocks = [OwnClock(self.right) for _ in range(RUNNERS)]
        self.stores = [FaultyStore(self.memory) for _ in range(RUNNERS)]
        self.runners = [self.started(number) for number in range(RUNNERS)]

    def started(self, number: int) -> Runner:
        waits = number * SECOND
        return Runner(self.stores[number], clock=self.clocks[number], politeness=waits)

    def take(self, step: Step) -> None:
        number, store = step.runner, self.stores[step.runner]
        self.right.advance(step.passes)
        if step.jump is not None:
            self.clocks[number].wrong_by = step.jump
        store.fault = step.fault

        def die() -> None:
            raise DiedError

        def let_another_look() -> None:
            self.runners[(number + 1) % RUNNERS].run_once()

        if step.dies_after is not None:
            store.interrupt(die, after=step.dies_after)
        elif step.others is not None:
            store.interrupt(let_another_look, after=step.others)
        try:
            self.runners[number].run_once()
        except DiedError:
            self.runners[number] = self.started(number)
        store.calm()

    def end(self) -> None:
        """Let all late requests arrive, and one new runner look until nothing is left."""
        for store in self.stores:
            while store.late:
                store.arrive()
        last = Runner(self.memory, clock=self.right.here, politeness=timedelta(0))
        assert len(last.run_once()) <= len(self.all_ticks())
        assert last.run_once() == []

    def all_ticks(self) -> list[datetime]:
        it, now = self.schedule, self.right.now
        every = it.ticks_after(it.since)
        return list(takewhile(lambda at: it.due_at(at) - it.ahead <= now, every))


@given(
    st.sampled_from([1, 3]),
    st.sampled_from([0, 1, 1000]),
    SETTINGS,
    st.lists(STEPS, min_size=1, max_size=25),
)
def test_each_tick_is_published_once_and_in_order_whatever_runners_and_clocks_do(
    partitions: int, catch_up: int, settings: dict[str, object], steps: list[Step]
):
    stage = Stage(partitions, catch_up, settings)

    for step in steps:
        stage.take(step)
    stage.end()

    messages = stage.client.peek("q", max=2000)
    ticks = [datetime.fromisoformat(str(each.value, "utf-8")) for each in messages]  # type: ignore[arg-type]
    assert all(before < after for before, after in pairwise(ticks))
    assert set(ticks) <= set(stage.all_ticks())
    for tick, message in zip(ticks, messages, strict=True):
        begins = stage.schedule.due_at(tick) - stage.schedule.ahead
        assert message.published_at >= begins
    if catch_up == 1000:
        assert ticks == stage.all_ticks()
