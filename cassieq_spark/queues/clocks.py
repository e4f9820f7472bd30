"""Repairs a queue after a server's clock was ahead: its fence, and the state of its groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ClockError, ContentionError, NotFoundError, OptionError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Slot, Waiting, as_read, slot_values
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import HEAD, check_open, head_of, move_fence
from cassieq_spark.model import from_millis
from cassieq_spark.queues.record import ledgers_of, read_queue
from cassieq_spark.store.protocol import CLOCKS_APART, Op, Rows, Slice, Store

_LONGEST = timedelta(days=1)

#: Rows that one compare-and-set changes.
_ROWS_AT_ONCE = 200
#: How many times we read, until a server answers whose clock agrees with the clock here.
_ASKED = 5

_Read = TypeVar("_Read", bound=GroupState | Rows)


@dataclass(frozen=True, slots=True)
class ClockRepair:
    """The changes of `fix_clocks`.

    Attributes:
        fence: The fence (the publish horizon) before and after; of several partitions, the fence
            that was furthest ahead. None: no fence was ahead.
        due: The number of messages made due, by group; groups without any are left out.
    """

    fence: tuple[datetime, datetime] | None
    due: Mapping[str, int]


def fix_clocks(
    store: Store, name: str, *, longest: timedelta | None = None, dry_run: bool = False
) -> ClockRepair:
    """Undo the effects on a queue of a server's clock that was ahead, and is right by now.

    Per partition one read, and one LWT if the fence is ahead; four reads per group, and one LWT
    per 200 rows that wait. Safe to repeat, to break off, and while the queue is in use.

    A fence that is ahead refuses puts until its time comes. The fence is lowered to `CLOCKS_APART`
    from now, and no further (I10): under the old fence, a repair may have deleted unpublished
    blocks of writers that are still running. These blocks were begun before now by the clocks of
    their writers, which may be ahead by `CLOCKS_APART`; the blocks stay refused, and are written
    again. A running repair deletes only blocks that it found before it read the fence; so either
    these blocks were begun before the fence was lowered, or the repair uses the lowered fence.

    Writers whose own clocks were further ahead begin blocks in the future. The head remembers the
    old fence: blocks that were begun before the old fence are refused as long as they are from the
    future (I3). A write that takes longer than its clock was ahead is not recognised, so stop
    these writers first; they write again.

    Args:
        longest: The longest lease or delay of a release that anybody has asked for. Messages that
            were handed out before and wait for longer become due, and longer leases last as long
            from now as their holders have asked for. A message that was never handed out keeps
            its time. None: one day, or ten leases of the queue if these are longer.
        dry_run: Change nothing, only return what would change.

    Raises:
        OptionError: ``longest`` is not above 0.
        ClockError: No server answers whose clock agrees with that of this process.
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
    """
    if longest is not None and longest <= timedelta(0):
        raise OptionError(f"the longest lease or delay must be above 0, not {longest}")
    queue = read_queue(store, name)
    longest = longest or longest_wait(queue.lease)
    fences: list[tuple[datetime, datetime]] = []
    due: Counter[str] = Counter()
    for ledger in ledgers_of(store, queue):
        fence = _lower_fence(ledger, dry_run=dry_run)
        fences += [fence] if fence else []
        for known in ledger.read_groups():
            group = ConsumerGroup(ledger, known.name)
            if known.registered_as in group.read_registrations() and (
                count := make_due(group, longest, queue.lease, dry_run=dry_run)
            ):
                due[group.name] += count
    return ClockRepair(max(fences, default=None), due)


def _lower_fence(ledger: Ledger, *, dry_run: bool) -> tuple[datetime, datetime] | None:
    tried: dict[datetime, datetime] = {}
    for _ in attempts():
        found = read_with_right_clock(partial(ledger.read, Slice(row=HEAD), serial=True))
        if not found.rows or found.now is None:
            raise NotFoundError(f"queue {ledger.queue_id} has no ledger")
        head, now = head_of(found.rows[0]), found.now
        check_open(ledger.queue_id, head)
        if head.fence in tried:
            return tried[head.fence], head.fence
        fence = now + CLOCKS_APART
        if head.fence <= fence:
            return None
        if dry_run:
            return head.fence, fence
        tried[fence] = head.fence
        # I10: by a right clock, no block that was deleted under the old fence was begun after the
        # new one. For wrong clocks the head remembers the old one.
        highest = max(head.fence, head.unfenced_until or head.fence)
        if ledger.try_cas([move_fence(head, fence, unfenced_until=highest)]):
            return head.fence, fence
    raise ContentionError(f"queue {ledger.queue_id}: its fence moved again and again; try again")


# -- groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DueNow:
    """A plan: applying ``ops`` makes ``count`` messages due in time; empty if none is to be."""

    count: int
    ops: tuple[Op, ...]


def longest_wait(lease: timedelta) -> timedelta:
    """The longest lease or wait of messages that were handed out, unless somebody states another.

    >>> str(longest_wait(timedelta(days=3)))
    '30 days, 0:00:00'
    """
    return max(_LONGEST, 10 * lease)


def make_due(
    group: ConsumerGroup, longest: timedelta, lease: timedelta, *, dry_run: bool = False
) -> int:
    """Make messages due whose lease or wait is longer than anybody can have asked for.

    Messages that wait are due at once. A lease lasts as long from now as it was to last, because
    its holder may be alive; see `plan_due_now`.

    Three reads, and one LWT and three reads per 200 rows. A message that was never handed out
    keeps its time. Safe to repeat and to break off.

    Args:
        longest: The longest lease or wait that anybody has asked for.
        lease: How long a lease of the queue lasts.
        dry_run: Change nothing.

    Returns:
        The number of messages made due.

    Raises:
        ClockError: No server answers whose clock agrees with that of this process.
        ContentionError: Lost to readers again and again.
        QueueStateError: The group does not exist.
    """
    total = 0
    while True:
        plan = _make_some_due(group, longest, lease, dry_run=dry_run)
        total += plan.count
        if dry_run or not plan.ops:
            return total


def _make_some_due(
    group: ConsumerGroup, longest: timedelta, lease: timedelta, *, dry_run: bool
) -> DueNow:
    for _ in attempts():
        state = read_with_right_clock(partial(group.read, every_waiting=True))
        plan = plan_due_now(state, longest, lease, at_once=None if dry_run else _ROWS_AT_ONCE)
        if dry_run or not plan.ops or group.try_cas(plan.ops):
            return plan
    raise ContentionError(f"{group}: its readers were faster again and again; try again")


def plan_due_now(
    state: GroupState,
    longest: timedelta,
    lease: timedelta,
    *,
    at_once: int | None = _ROWS_AT_ONCE,
) -> DueNow:
    """Plan which messages to make due, in at most ``at_once`` rows.

    The holder of a lease may be alive, and count the lease by a clock that is right. If the clock
    that was ahead granted the lease, its row shows how long the lease was to last; if that clock
    extended the lease, the reader extends it again within the queue's lease time.
    """
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
            granted = row.last_at if row.last_at and row.last_at > state.now else None
            asked = row.due_at - granted if granted else lease
            due_at = state.now + min(longest, max(lease, asked))
            changes.change_slot(row, slot_values(due_at=due_at), still)
    return DueNow(sum(row.monotons.count for row in rows), changes.ops())


def seems_ahead(state: GroupState, lease: timedelta) -> int:
    """Count the messages that were handed out by a clock that was ahead of this one.

    Args:
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
