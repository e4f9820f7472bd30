"""What a clock that was ahead has left in a group: leases and waits that would last for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ClockError, ContentionError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Slot, Waiting, as_read, slot_values
from cassieq_spark.model import from_millis
from cassieq_spark.store.protocol import CLOCKS_APART, Op, Rows

_LONGEST = timedelta(days=1)

#: Rows that one compare-and-set changes.
_ROWS_AT_ONCE = 200
#: How often the servers are asked for one whose clock agrees with ours.
_ASKED = 5

_Told = TypeVar("_Told", bound=GroupState | Rows)


@dataclass(frozen=True, slots=True)
class DueNow:
    """What carrying out ``ops`` at once makes due: ``count`` messages; nothing, without ops."""

    count: int
    ops: tuple[Op, ...]


def longest_wait(lease: timedelta) -> timedelta:
    """For how long what was handed out may be held, or wait, unless somebody says otherwise.

    >>> str(longest_wait(timedelta(days=3)))
    '30 days, 0:00:00'
    """
    return max(_LONGEST, 10 * lease)


def make_due(group: ConsumerGroup, longest: timedelta, *, dry_run: bool = False) -> int:
    """Make due at once what was handed out before and waits for longer than it can have been told.

    Three reads, and an LWT and three reads for each 200 rows. A message that was never handed out
    keeps its time. Safe to repeat and to break off.

    Args:
        group: Which group.
        longest: The longest lease or wait that anybody has asked for.
        dry_run: Change nothing.

    Returns:
        How many messages.

    Raises:
        ClockError: No server answers whose clock agrees with ours.
        ContentionError: Lost to readers again and again.
        QueueStateError: There is no such group.
    """
    total = 0
    while True:
        plan = _try_again_and_again(group, longest, dry_run=dry_run)
        total += plan.count
        if dry_run or not plan.ops:
            return total


def plan_due_now(
    state: GroupState, longest: timedelta, *, at_once: int | None = _ROWS_AT_ONCE
) -> DueNow:
    """Plan what to make due, ``at_once`` rows at the most. Pure; by the clock of the state."""
    late = state.now + longest
    rows: list[Slot | Waiting] = [slot for slot in state.slots if slot.due_at > late]
    rows += [
        each
        for each in state.waiting
        if (each.deliveries or each.reason is not None) and from_millis(each.due) > late
    ]
    rows = rows[:at_once]
    changes = Changes(state)
    for row in rows:
        if isinstance(row, Waiting):
            changes.take_waiting(row)
            changes.wait(replace(row, due=state.now_ms))
        else:
            # A reader that is at work has extended its lease meanwhile, by a clock that is right.
            still = as_read(row, "due_at")
            changes.change_slot(row, slot_values(due_at=state.now), still)
    return DueNow(sum(row.monotons.count for row in rows), changes.ops())


def seems_ahead(state: GroupState, lease: timedelta) -> int:
    """How many messages were handed out by a clock that was ahead of this one. Pure.

    Args:
        state: The group.
        lease: How long a lease lasts.
    """
    soon, late = state.now + CLOCKS_APART, state.now + longest_wait(lease)
    held = [slot for slot in state.slots if slot.due_at > soon]
    waiting = [each for each in state.waiting if from_millis(each.due) > soon]
    rows: list[Slot | Waiting] = [*held, *waiting]
    found = [each for each in rows if each.last_at and each.last_at > soon]
    found += [slot for slot in held if slot.due_at > late and slot not in found]
    return sum(each.monotons.count for each in found)


def read_with_right_clock(read: Callable[[], _Told]) -> _Told:
    """Read from a server whose clock agrees with that of this process.

    Raises:
        ClockError: None of those that answer is such a server.
    """
    for _ in range(_ASKED):
        told = read()
        if told.now is None or not told.ahead:
            return told
        now, ahead = told.now, told.ahead
    raise ClockError(
        f"it is {now.isoformat(timespec='seconds')} by the clock of a server, and "
        f"{(now - ahead).isoformat(timespec='seconds')} by the clock of this machine: correct the "
        "wrong clock (NTP), restart Cassandra if its clock was ahead, and try again"
    )


def _try_again_and_again(group: ConsumerGroup, longest: timedelta, *, dry_run: bool) -> DueNow:
    for _ in attempts():
        state = read_with_right_clock(partial(group.read, every_waiting=True))
        plan = plan_due_now(state, longest, at_once=None if dry_run else _ROWS_AT_ONCE)
        if dry_run or not plan.ops or group.try_cas(plan.ops):
            return plan
    raise ContentionError(f"{group}: its readers were faster again and again; try again")
