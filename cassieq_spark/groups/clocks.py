"""Repairs a group after a clock was ahead: leases and waits that would last for ever."""

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
#: How often we ask for the time, until a server answers whose clock agrees with ours.
_ASKED = 5

_Read = TypeVar("_Read", bound=GroupState | Rows)


@dataclass(frozen=True, slots=True)
class DueNow:
    """Carrying out ``ops`` makes ``count`` messages due at once; nothing, without ops."""

    count: int
    ops: tuple[Op, ...]


def longest_wait(lease: timedelta) -> timedelta:
    """How long messages may be leased or wait after they were handed out, unless somebody asks.

    >>> str(longest_wait(timedelta(days=3)))
    '30 days, 0:00:00'
    """
    return max(_LONGEST, 10 * lease)


def make_due(group: ConsumerGroup, longest: timedelta, *, dry_run: bool = False) -> int:
    """Make messages due at once whose lease or wait is longer than anybody can have asked for.

    Three reads, and an LWT and three reads for each 200 rows. A message that was never handed out
    keeps its time. Safe to repeat and to break off.

    Args:
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
        plan = _make_some_due(group, longest, dry_run=dry_run)
        total += plan.count
        if dry_run or not plan.ops:
            return total


def _make_some_due(group: ConsumerGroup, longest: timedelta, *, dry_run: bool) -> DueNow:
    for _ in attempts():
        state = read_with_right_clock(partial(group.read, every_waiting=True))
        plan = plan_due_now(state, longest, at_once=None if dry_run else _ROWS_AT_ONCE)
        if dry_run or not plan.ops or group.try_cas(plan.ops):
            return plan
    raise ContentionError(f"{group}: its readers were faster again and again; try again")


def plan_due_now(
    state: GroupState, longest: timedelta, *, at_once: int | None = _ROWS_AT_ONCE
) -> DueNow:
    """Plan which messages to make due, of ``at_once`` rows at the most. Pure."""
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
            changes.remove_waiting(row)
            changes.add_waiting(replace(row, due=state.now_ms))
        else:
            # A running reader has extended its lease meanwhile, by a clock that is right.
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


def read_with_right_clock(read: Callable[[], _Read]) -> _Read:
    """Read from a server whose clock agrees with that of this process.

    Raises:
        ClockError: No such server answers.
    """
    for _ in range(_ASKED):
        found = read()
        if found.now is None or not found.ahead:
            return found
        now, ahead = found.now, found.ahead
    raise ClockError(
        f"it is {now.isoformat(timespec='seconds')} by the clock of a server, and "
        f"{(now - ahead).isoformat(timespec='seconds')} by the clock of this machine: correct the "
        "wrong clock (NTP), restart Cassandra if its clock was ahead, and try again"
    )
