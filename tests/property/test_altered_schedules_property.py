"""Three runners, and a schedule that is altered in the middle of what they do.

Runners die in any call and have clocks that jump; alters break off, and answers of both are lost.
Whatever happens, a tick is published once, and in order. Once an alter has answered, nothing is
published by the settings before it, and no tick of new times is from before the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.client import StoredMessage
from cassieq_spark.errors import OptionError
from cassieq_spark.schedules import (
    Runner,
    Schedule,
    alter_schedule,
    create_schedule,
    read_schedule,
)
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock

SECOND = timedelta(seconds=1)
RUNNERS = 3
#: Changes that leave the times as they are, and changes that do not.
OF_CONTENT: list[dict[str, Any]] = [
    {},
    {"headers": {"lang": "en"}},
    {"jitter": 30 * SECOND},
    {"jitter": None},
    {"ahead": 90 * SECOND},
    {"ahead": None},
]
OF_TIMES: list[dict[str, Any]] = [
    {"every": 20 * SECOND},
    {"every": 7 * SECOND, "ahead": 60 * SECOND},
    {"every": 60 * SECOND},
    {"cron": "* * * * *", "zone": "Asia/Kolkata"},
    {"every": 30 * SECOND, "count": 5},
    {"end": None},
]


class DiedError(Exception):
    """The process of a runner, or of somebody who alters, was killed."""


@dataclass(frozen=True)
class Step:
    """What happens next.

    Attributes:
        runner: Which runner looks.
        passes: How much time passes before.
        jump: By how much the runner's clock is wrong from now on; None: as before.
        fault: What happens to the runner's next compare-and-set.
        changes: What an alter changes, in the middle of the look; None: no alter.
        after: After how many calls of the runner the alter comes, or without one another runner.
        breaks: What happens to a compare-and-set of the alter.
        dies_after: The alter dies after so many calls; None: it does not.
        arrives: True if a request that is late arrives after the look.
    """

    runner: int
    passes: timedelta
    jump: timedelta | None
    fault: Fault | None
    changes: dict[str, Any] | None
    after: int
    breaks: Fault | None
    dies_after: int | None
    arrives: bool


def steps(changes: list[dict[str, Any]]) -> st.SearchStrategy[list[Step]]:
    one = st.builds(
        Step,
        st.integers(0, RUNNERS - 1),
        st.sampled_from([SECOND * number for number in (0, 1, 2, 20, 59, 300)]),
        st.none() | st.sampled_from([SECOND * number for number in (0, -5, 5, 4000)]),
        st.none() | st.sampled_from(Fault),
        st.none() | st.sampled_from(changes),
        st.integers(0, 5),
        st.none() | st.sampled_from(Fault),
        st.none() | st.integers(0, 6),
        st.booleans(),
    )
    return st.lists(one, min_size=1, max_size=20)


#: Somebody alters the times and dies; the request arrives a second later.
ARRIVES_LATE = [
    Step(
        0, 20 * SECOND, None, None, {"every": 7 * SECOND}, 0, Fault.REQUEST_LATE, 3, arrives=False
    ),
    Step(0, SECOND, None, None, None, 0, None, None, arrives=False),
]


class Stage:
    """A queue, its schedule, three runners, and somebody who alters."""

    def __init__(self, partitions: int, catch_up: int) -> None:
        self.memory, self.right = make_clocked_store()
        self.client = Client.from_store(self.memory)
        self.client.create_queue("q", partitions=partitions)
        create_schedule(self.memory, "q", "s", "{{tick}} 0", every=20 * SECOND, catch_up=catch_up)
        self.wrong_by = [timedelta(0)] * RUNNERS
        self.stores = [FaultyStore(self.memory) for _ in range(RUNNERS + 1)]
        self.runners = [self.started(number) for number in range(RUNNERS)]
        #: The schedule after each alter, by the number that its messages name.
        self.rules: dict[int, Schedule] = {}
        #: When each alter began; its request may arrive much later.
        self.began = [self.right.now]
        self.note()
        #: Of each alter that has answered: its number, and how many messages there were then.
        self.answered: list[tuple[int, int]] = []

    def started(self, number: int) -> Runner:
        def clock() -> datetime:
            return self.right.now + self.wrong_by[number]

        return Runner(self.stores[number], clock=clock, politeness=number * SECOND)

    def note(self) -> None:
        found = read_schedule(self.memory, "q", "s")[0]
        self.rules.setdefault(int(found.message.split()[1]), found)

    def messages(self) -> list[StoredMessage]:
        return self.client.peek("q", max=5000)

    def alter(self, step: Step) -> None:
        number, store = len(self.began), self.stores[RUNNERS]
        self.began.append(self.right.now)
        store.fault = step.breaks
        if step.dies_after is not None:
            store.interrupt(die, after=step.dies_after)
        try:
            made = alter_schedule(
                store, "q", "s", message=f"{{{{tick}}}} {number}", **(step.changes or {})
            )
        except DiedError:
            pass
        except OptionError:
            pass  # It would end before it ticks.
        else:
            assert made.message.endswith(f" {number}")
            self.answered.append((number, len(self.messages())))
        store.calm()
        self.note()

    def take(self, step: Step) -> None:
        number, store = step.runner, self.stores[step.runner]
        self.right.advance(step.passes)
        if step.jump is not None:
            self.wrong_by[number] = step.jump
        store.fault = step.fault

        def let_others_act() -> None:
            if step.changes is not None:
                self.alter(step)
            self.runners[(number + 1) % RUNNERS].run_once()

        store.interrupt(let_others_act, after=step.after)
        self.runners[number].run_once()
        store.calm()
        if step.arrives:
            for each in self.stores:
                each.arrive()
            self.note()

    def end(self) -> None:
        """Let all late requests arrive, and new runners look until nothing is left."""
        for store in self.stores:
            while store.late:
                store.arrive()
                self.note()
        for _ in range(2):
            Runner(self.memory, clock=self.right.here, politeness=timedelta(0)).run_once()


def die() -> None:
    raise DiedError


def parts_of(message: StoredMessage) -> tuple[datetime, int]:
    """The tick of a message, and the alter by which it was made."""
    tick, number = str(message.value, "utf-8").split()  # type: ignore[arg-type]
    return datetime.fromisoformat(tick), int(number)


def come(schedule: Schedule, clock: FakeClock) -> list[datetime]:
    ticks = schedule.ticks_after(schedule.since)
    return list(takewhile(lambda at: schedule.due_at(at) - schedule.ahead <= clock.now, ticks))


@given(st.sampled_from([1, 3]), st.sampled_from([0, 1, 1000]), steps(OF_CONTENT + OF_TIMES))
@example(1, 0, ARRIVES_LATE)
def test_a_schedule_that_is_altered_publishes_each_tick_once_by_the_settings_that_hold(
    partitions: int, catch_up: int, taken: list[Step]
):
    stage = Stage(partitions, catch_up)

    for step in taken:
        stage.take(step)
    stage.end()

    found = stage.messages()
    parts = [parts_of(each) for each in found]
    assert all(before[0] < after[0] for before, after in pairwise(parts))
    assert all(before[1] <= after[1] for before, after in pairwise(parts))
    for number, count in stage.answered:
        assert all(rule >= number for _, rule in parts[count:])
    for (tick, rule), message in zip(parts, found, strict=True):
        schedule = stage.rules[rule]
        assert tick in come(schedule, stage.right)
        assert message.published_at >= schedule.due_at(tick) - schedule.ahead
    for before, after in pairwise(sorted(stage.rules)):
        old, new = stage.rules[before], stage.rules[after]
        assert (new.identity, new.generation) == (old.identity, old.generation + 1)
        if old.timing != new.timing:
            assert new.since == stage.began[after]
    if catch_up == 1000:
        last = stage.rules[max(stage.rules)]
        earlier = [tick for tick, rule in parts if rule < max(stage.rules)]
        wanted = [at for at in come(last, stage.right) if not earlier or at > earlier[-1]]
        assert [tick for tick, rule in parts if rule == max(stage.rules)] == wanted


@given(st.sampled_from([1, 3]), steps(OF_CONTENT))
def test_an_alter_that_leaves_the_times_loses_no_tick(partitions: int, taken: list[Step]):
    stage = Stage(partitions, catch_up=1000)

    for step in taken:
        stage.take(step)
    stage.end()

    last = stage.rules[max(stage.rules)]
    ticks = [parts_of(each)[0] for each in stage.messages()]
    # What an alter has taken back from being published ahead, or from no jitter, was published.
    assert ticks[: len(come(last, stage.right))] == come(last, stage.right)
