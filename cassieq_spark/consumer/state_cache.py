"""What a reader remembers of its group from one compare-and-set to the next."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

from cassieq_spark.groups.changes import is_quiet, later
from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import GroupState


class StateCache:
    """A group's state as one of its readers has left it, so that it need not read it again.

    A compare-and-set that goes by it is conditioned on it: if others have changed the group, it
    costs an LWT more, and does no harm. As that LWT is wasted, a reader that has lost such a race
    reads before each batch, until it finds the state that it has left. What others put back is not
    seen before the state is read again. For one thread at a time.

    Args:
        lasting: After so long it is read again, whatever happens; each time, if that is 0.
    """

    def __init__(self, lasting: timedelta) -> None:
        self._lasting = lasting.total_seconds()
        self._left: GroupState | None = None
        # By our own clock: when the state's `now` was certainly over; when it was read.
        self._left_at = 0.0
        self._read_at = 0.0
        self._used_at = 0.0
        self._is_alone = True
        #: Whether the last compare-and-set went by a state that was not so any more.
        self.was_stale = False

    def get(self, *, stop: int, least: int = 1) -> GroupState | None:
        """The state, if it is probably so, and good for a batch that was never handed out.

        Args:
            stop: Monoton from which on nothing is offered.
            least: So many messages must be left below it.

        Returns:
            None if it has to be read.
        """
        now = monotonic()
        if self._left is None or not self._is_alone or now >= self._read_at + self._lasting:
            return None
        state = later(self._left, now - self._left_at)
        if state.head.pointer + least > stop or not is_quiet(state):
            return None
        self._used_at = now
        return state

    def put(self, lease: Lease, known: GroupState | None) -> None:
        """Remember what a compare-and-set has left.

        Args:
            lease: What it came to.
            known: By which state it was to go, as known last; None if it was to be read.
        """
        was_read = lease.state is not known
        self.was_stale = was_read and known is not None
        if was_read:
            self._is_alone = not self.was_stale and _are_same(lease.state, self._left)
            self._read_at = monotonic()
        self._left = lease.after
        self._left_at = self._read_at if was_read else self._used_at

    def clear(self) -> None:
        """Read the state before the next compare-and-set."""
        self._left = None


def _are_same(found: GroupState, left: GroupState | None) -> bool:
    """Whether nobody else has leased or settled anything; so, if nothing is known."""
    if left is None:
        return True
    tokens = [[(slot.number, slot.lease) for slot in each.slots] for each in (found, left)]
    return found.head == left.head and tokens[0] == tokens[1]
