"""Runs schedules: looks for ticks that have come, and publishes them.

Any number of runners may run. Whatever their clocks say and whenever they stop, the sink of a
schedule sees to it that each tick is published once, and in order.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from cassieq_spark.errors import CassieqError
from cassieq_spark.model import QueueDefinition, account_of
from cassieq_spark.schedules.changes import list_schedules
from cassieq_spark.schedules.due import due_ticks, published_from
from cassieq_spark.schedules.publish import (
    end_generations_before,
    publish_tick,
    read_progress,
)
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: A tick was published.
PUBLISHED = "schedule.published"
#: A schedule, or the list of all, could not be served; it is tried again.
FAILED = "schedule.failed"
#: How often a runner reads the queues, to learn of new schedules and of those that were changed.
REFRESH = timedelta(seconds=10)
#: The shortest and the longest time that a runner leaves a tick to the one that had the last tick.
POLITENESS = (0.5, 1.5)
#: How long a runner waits at least before it looks again for a tick that it has found not due.
_PACE = timedelta(seconds=1)
#: A schedule that fails is left out of at most so many looks.
_MOST_LEFT_OUT = 60
#: How long a look may last before the next one begins, with what is due by then.
_LOOK = timedelta(seconds=1)


def utc_now() -> datetime:
    """The present, by the clock of this process."""
    return datetime.now(UTC)


class Stop(Protocol):
    """The end of a runner, which it waits for between two looks."""

    def wait(self, at_most: timedelta) -> bool:
        """Wait until the runner must stop; False if the time is over first."""


class _StopEvent:
    """A `Stop` that another thread sets."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, at_most: timedelta) -> bool:
        return self._event.wait(at_most.total_seconds())


@contextmanager
def running(runner: Runner) -> Iterator[None]:
    """Let a runner run in a thread of its own, until the block ends and its last look is over."""
    stop = _StopEvent()
    thread = threading.Thread(target=runner.run, args=(stop,), name="cassieq-schedules")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Published(NamedTuple):
    """A tick that a runner has published.

    Attributes:
        schedule: Its schedule.
        tick: Its instant.
    """

    schedule: Schedule
    tick: datetime


@dataclass(slots=True)
class _Known:
    """What a runner knows of one schedule.

    Attributes:
        last: The last tick that was published, as far as is known.
        passed: The last tick that this runner has decided about; later than ``last`` if ticks were
            left out.
        is_mine: True if this runner has published the last tick.
        failures: How many looks have failed in a row.
        left_out: How many looks are left out yet.
    """

    last: datetime | None = None
    passed: datetime | None = None
    is_mine: bool = False
    failures: int = 0
    left_out: int = 0


class Runner:
    """Publishes the ticks of all schedules. Not thread-safe.

    The schedules of different accounts take turns, tick by tick. So an account whose schedules are
    more than a runner can publish delays its own ticks, and no others by more than a moment.

    A tick takes one LWT, two reads and one write. A look without a tick takes nothing, except that
    the table of queues is read every ten seconds. The runner that has published the last tick of a
    schedule publishes the next one; others wait a second, and look whether it was published.

    Args:
        store: The store.
        prefix: Only schedules of queues whose names begin with it.
        clock: The clock of this process. A tick is published once this clock and that of the
            server say that it has come.
        refresh: How often the table of queues is read.
        politeness: How long this runner leaves a tick to the one that had the last tick; None: a
            time between half a second and one and a half, by chance.
    """

    def __init__(
        self,
        store: Store,
        *,
        prefix: str = "",
        clock: Callable[[], datetime] = utc_now,
        refresh: timedelta = REFRESH,
        politeness: timedelta | None = None,
    ) -> None:
        self._store, self._prefix, self._clock, self._refresh = store, prefix, clock, refresh
        waits = timedelta(seconds=random.uniform(*POLITENESS))  # noqa: S311 (no secret)
        self._politeness = waits if politeness is None else politeness
        self._schedules: dict[str, tuple[Schedule, QueueDefinition]] = {}
        self._known: dict[str, _Known] = {}
        self._read_at: datetime | None = None
        self._is_cut = False

    def run(self, stop: Stop, tell: Callable[[Published], object] = lambda _: None) -> None:
        """Publish ticks until the runner must stop.

        Args:
            stop: Ends the runner.
            tell: Called for each tick that this runner has published.
        """

        def may_continue() -> bool:
            return not stop.wait(timedelta(0))

        while True:
            for each in self._look(may_continue, at_most=_LOOK):
                tell(each)
            if stop.wait(self.pause()):
                return

    def run_once(self, *, may_continue: Callable[[], bool] = lambda: True) -> list[Published]:
        """Publish the ticks that have come, and return them.

        A schedule that fails does not affect the others. Errors are logged, and the schedule is
        tried again later.

        Args:
            may_continue: Called before each tick; once False, the others are left to later looks
                and other runners.
        """
        return self._look(may_continue)

    def _look(
        self, may_continue: Callable[[], bool], *, at_most: timedelta | None = None
    ) -> list[Published]:
        """Publish what has come, or as much of it as takes about so long."""
        published: list[Published] = []
        now = self._clock()
        self._is_cut = False
        try:
            self._learn(now)
        except CassieqError as error:
            logger.warning("the queues could not be read: %s", error, extra={"action": FAILED})
        of_accounts: defaultdict[str | None, list[str]] = defaultdict(list)
        for sink, (schedule, _) in self._schedules.items():
            of_accounts[account_of(schedule.queue)].append(sink)
        turns = deque(self._serve_all(sinks, now) for sinks in of_accounts.values())
        began = self._clock()
        while turns:
            is_over = at_most is not None and not began <= self._clock() < began + at_most
            if is_over or not may_continue():
                self._is_cut = is_over
                break
            each = turns.popleft()
            with suppress(StopIteration):
                published += next(each)
                turns.append(each)
        return published

    def _serve_all(self, sinks: Sequence[str], now: datetime) -> Iterator[list[Published]]:
        """Publish what has come of the schedules of one account; yield after each step.

        Whatever is served goes to the end first, so that a look that is cut short leaves out
        others than the next one.
        """
        for sink in sinks:
            schedule, queue = self._schedules[sink]
            known = self._known.setdefault(sink, _Known())
            if known.left_out:
                known.left_out -= 1
                continue
            if not self._may_be_due(schedule, known, now):
                continue
            self._schedules[sink] = self._schedules.pop(sink)
            try:
                for tick in self._serve(schedule, queue, known, now):
                    yield [tick]
                known.failures = 0
            except Exception as error:  # noqa: BLE001 (one schedule must not stop the others)
                known.failures += 1
                known.left_out = min(2**known.failures, _MOST_LEFT_OUT)
                if known.failures == 1:
                    self._read_at = None  # The queue may have changed.
                _log_failure(schedule, error)
            yield []

    def pause(self) -> timedelta:
        """How long to wait before the next look."""
        if self._is_cut:
            return timedelta(0)
        now = self._clock()
        read_at = now - self._refresh if self._read_at is None else self._read_at
        pauses = [max(_PACE, read_at + self._refresh - now)]
        for sink, (schedule, _) in self._schedules.items():
            at = published_from(schedule, self._known.get(sink, _Known()).passed)
            if at is not None:
                pauses.append(at - now if at > now else _PACE)
        return min(self._refresh, *pauses)

    def _learn(self, now: datetime) -> None:
        """Read the schedules, unless this was done a moment ago."""
        if self._read_at is not None and now < self._read_at:
            # The clock was ahead, and ticks were decided about that have not come yet.
            self._known = {}
        elif self._read_at is not None and now - self._read_at < self._refresh:
            return
        before, found = self._schedules, list_schedules(self._store, self._prefix)
        there = {each.sink: (each, queue) for each, queue in found if not each.paused}
        known = [sink for sink in before if sink in there]
        self._schedules = {sink: there[sink] for sink in [*known, *there]}
        # Not of one that was altered: it may have ticks that were left out.
        self._known = {
            sink: it
            for sink, it in self._known.items()
            if sink in there and there[sink][0].generation == before[sink][0].generation
        }
        self._read_at = now

    def _waits(self, known: _Known) -> timedelta:
        return timedelta(0) if known.is_mine else self._politeness

    def _may_be_due(self, schedule: Schedule, known: _Known, now: datetime) -> bool:
        """True if a tick has come, as far as is known without a read."""
        at = published_from(schedule, known.passed)
        return at is not None and now >= at + self._waits(known)

    def _serve(
        self, schedule: Schedule, queue: QueueDefinition, known: _Known, now: datetime
    ) -> Iterator[Published]:
        """Publish what has come of one schedule; yield each tick once it is published."""
        waits = self._waits(known)
        progress = read_progress(self._store, queue, schedule)
        if progress.generation > schedule.generation:
            self._read_at = None  # It was altered.
            return
        if progress.generation < schedule.generation:
            # The alter broke off. A tick that was published meanwhile must not come again.
            end_generations_before(self._store, queue, schedule)
            progress = read_progress(self._store, queue, schedule)
        known.is_mine &= progress.last == known.last
        known.last = progress.last
        decided = due_ticks(schedule, progress.last, min(now, progress.now) - waits)
        for tick in decided.ticks:
            known.is_mine = publish_tick(self._store, queue, schedule, tick)
            if not known.is_mine:
                return  # Another runner is at it.
            known.last = known.passed = tick.at
            _log_tick(schedule, tick.at)
            yield Published(schedule, tick.at)
        known.passed = decided.passed


def _log_tick(schedule: Schedule, tick: datetime) -> None:
    extra = {"action": PUBLISHED, "queue": schedule.queue, "schedule": schedule.name}
    logger.info("tick %s of schedule %a is published", tick, schedule.name, extra=extra)


def _log_failure(schedule: Schedule, error: Exception) -> None:
    extra = {"action": FAILED, "queue": schedule.queue, "schedule": schedule.name}
    text = "schedule %a of queue %a could not be served: %s"
    # An error that is not ours is a fault of the program, and the traceback says where.
    unknown = None if isinstance(error, CassieqError) else error
    logger.warning(text, schedule.name, schedule.queue, error, extra=extra, exc_info=unknown)
