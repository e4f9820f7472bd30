"""When an idle reader looks again, and whether it then reads more than the head of the ledger.

Spark asks the source of an idle query for messages up to a hundred times a second. The source
reads the queue less and less often, and mostly only its head: one read shows whether anything was
published. A receive that waits at several partitions also reads mostly their heads.
"""

from __future__ import annotations

import time
from datetime import timedelta

from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import GroupState

#: A reader looks again after this part of the time for which it has had nothing. So the shorter
#: the time the queue was empty, the sooner the next message is found.
PART = 0.2
SHORTEST_PAUSE = timedelta(milliseconds=10)
LONGEST_PAUSE = timedelta(milliseconds=330)
#: Messages that others give back, by stopping or by releasing, are found after this time.
RECHECK = timedelta(seconds=1.5)

#: A reader of several partitions looks at each less often: ten reads a second in all.
_LONGER_PAUSE = 0.375


class IdleBackoff:
    """Decides when an idle reader looks at a queue partition again; the last look decides.

    Args:
        stops_on_dead: True if the group is given nothing behind a dead message. Then nothing that
            is published matters while the group stands at a dead message.

    Attributes:
        partitions: How many partitions the reader looks at.
    """

    def __init__(self, *, stops_on_dead: bool = False) -> None:
        self.partitions = 1
        self._stops_on_dead = stops_on_dead
        self._began: float | None = None
        self._looked_at = 0.0
        self._lease: Lease | None = None
        self._read_at = 0.0

    def record(self, lease: Lease) -> None:
        """Record the result of a poll.

        If the poll leased nothing, but has changed something (by an ack, or by stepping over
        delayed messages), or was to lease nothing, the reader polls again at the next look.
        """
        if lease.leased:
            self._began = self._lease = None
            return
        self._look()
        # Dead messages at which the group stops stay where they are.
        changed = bool(lease.ops) if self._stops_on_dead else lease.changed
        tells = not changed and lease.request.max_messages != 0
        self._lease, self._read_at = (lease if tells else None), self._looked_at

    def is_over(self, done: object, stop: int) -> bool:
        """True if there may be messages, so that a poll is worth its reads.

        Args:
            done: Token of the batch that the reader has finished, if any.
            stop: Monoton from which on nothing is offered now.
        """
        last, elapsed = self._lease, timedelta(seconds=time.monotonic() - self._read_at)
        if last is None or last.request.held != done or elapsed >= RECHECK * self.partitions:
            return True
        if self._stops_on_dead and last.dead:
            stop = last.pointer
        if may_have(last.state, last.pointer, stop, elapsed):
            return True
        self._look()
        return False

    def left(self) -> float:
        """Seconds until it is time to look again; 0 if the last look found messages."""
        if self._began is None:
            return 0.0
        idle = timedelta(seconds=self._looked_at - self._began)
        pause = pause_after(idle, self.partitions).total_seconds()
        return max(0.0, self._looked_at + pause - time.monotonic())

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        if self._began is None:
            self._began = self._looked_at


def pause_after(idle: timedelta, partitions: int = 1) -> timedelta:
    """How long to wait after a time without messages.

    >>> pause_after(timedelta(seconds=1)).total_seconds()
    0.2
    """
    longest = LONGEST_PAUSE * max(1, partitions * _LONGER_PAUSE)
    return min(longest, max(SHORTEST_PAUSE, idle * PART))


def may_have(state: GroupState, pointer: int, stop: int, elapsed: timedelta) -> bool:
    """True if a group that had nothing to hand out may have something now.

    Messages that others have given back since are not seen.

    Args:
        state: The group as read when it had nothing.
        pointer: The first monoton that was not offered then.
        stop: The monoton from which on nothing is offered now.
        elapsed: The time since the group was read.
    """
    now = state.now + elapsed
    if pointer < stop or any(state.now < each.due_at <= now for each in state.slots):
        return True
    passed_ms = state.now_ms + elapsed / timedelta(milliseconds=1)
    return any(state.now_ms < each.due <= passed_ms for each in state.waiting)
