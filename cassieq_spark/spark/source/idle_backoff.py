"""The time between batches: when an idle reader looks again, and at how much.

Spark asks an idle query for news up to a hundred times a second. The queue is asked less and less
often, and mostly for its head only: one read tells that nothing was published.
"""

from __future__ import annotations

import time
from datetime import timedelta

from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import GroupState

#: A reader looks again after this part of the time for which it has had nothing: a message that
#: comes soon is found soon, and one that comes late is hardly found later.
PART = 0.2
SHORTEST_PAUSE = timedelta(milliseconds=10)
LONGEST_PAUSE = timedelta(milliseconds=330)
#: How long messages that others give back, by stopping or by releasing, can lie unseen.
RECHECK = timedelta(seconds=1.5)

#: With several partitions, each is looked at less often: ten reads a second, of all together.
_LONGER_PAUSE = 0.375


class IdleBackoff:
    """What a reader that has nothing knows about a partition, and since when.

    Attributes:
        partitions: How many partitions the reader looks at.
    """

    def __init__(self) -> None:
        self.partitions = 1
        self._began: float | None = None
        self._looked_at = 0.0
        self._lease: Lease | None = None
        self._read_at = 0.0

    def end(self) -> None:
        """Take note that there are messages."""
        self._began = self._lease = None

    def go_on(self, lease: Lease) -> None:
        """Take note of a poll that found nothing.

        If it changed something, an ack or a step over delayed messages, the next one is due too.
        """
        self._look()
        self._lease, self._read_at = (None if lease.changed else lease), self._looked_at

    def is_over(self, done: object, stop: int) -> bool:
        """Whether there may be messages, so that a poll is worth its reads.

        Args:
            done: Token of the batch that the reader has finished, if any.
            stop: Monoton from which on nothing is offered now.
        """
        last, elapsed = self._lease, timedelta(seconds=time.monotonic() - self._read_at)
        if last is None or last.request.held != done or elapsed >= RECHECK * self.partitions:
            return True
        if may_have(last.state, last.pointer, stop, elapsed):
            return True
        self._look()
        return False

    @property
    def is_resting(self) -> bool:
        """Whether the last look found nothing."""
        return self._began is not None

    def left(self) -> float:
        """Seconds until it is time to look again; 0 if the last look found messages."""
        if self._began is None:
            return 0.0
        idle = timedelta(seconds=self._looked_at - self._began)
        pause = pause_after(idle, self.partitions).total_seconds()
        return max(0.0, self._looked_at + pause - time.monotonic())

    def rest(self) -> None:
        """Sleep until it is time to look again; not at all if the last look found messages."""
        if self._began is not None:
            time.sleep(self.left())

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        if self._began is None:
            self._began = self._looked_at


def pause_after(idle: timedelta, partitions: int = 1) -> timedelta:
    """How long to wait after so long without messages. Pure.

    >>> pause_after(timedelta(seconds=1)).total_seconds()
    0.2
    """
    longest = LONGEST_PAUSE * max(1, partitions * _LONGER_PAUSE)
    return min(longest, max(SHORTEST_PAUSE, idle * PART))


def may_have(state: GroupState, pointer: int, stop: int, elapsed: timedelta) -> bool:
    """Whether a group that had nothing to hand out may have something now. Pure.

    What others put back since is not seen by this.

    Args:
        state: The group as read when it had nothing.
        pointer: First monoton that it was not offered then.
        stop: Monoton from which on nothing is offered now.
        elapsed: Since it was read.
    """
    now = state.now + elapsed
    if pointer < stop or any(state.now < each.due_at <= now for each in state.slots):
        return True
    passed_ms = state.now_ms + elapsed / timedelta(milliseconds=1)
    return any(state.now_ms < each.due <= passed_ms for each in state.waiting)
