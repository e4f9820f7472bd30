"""Mending a queue after a server's clock was ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, NotFoundError, OptionError
from cassieq_spark.groups.clocks import longest_wait, make_due, read_with_right_clock
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import HEAD, LedgerHead, check_open, head_of
from cassieq_spark.queues.record import ledgers_of, read_queue
from cassieq_spark.store.protocol import (
    CLOCKS_APART,
    Op,
    Slice,
    Store,
    Update,
    Values,
    When,
)


@dataclass(frozen=True, slots=True)
class ClockRepair:
    """What a clock that was ahead had left, and is mended.

    Attributes:
        fence: Where the fence stood, and where it stands now; of several partitions, the one that
            was furthest ahead. None: none was ahead.
        due: How many messages are due now that would have waited, by group; only of those with
            any.
    """

    fence: tuple[datetime, datetime] | None
    due: Mapping[str, int]


def fix_clocks(
    store: Store, name: str, *, longest: timedelta | None = None, dry_run: bool = False
) -> ClockRepair:
    """Undo what a server's clock that was ahead has done to a queue, once that clock is right.

    For each partition a read, and one LWT if the fence is ahead; four reads for each group, and an
    LWT for each 200 rows that wait. Safe to repeat, to break off, and while the queue is in use.

    A fence that is ahead refuses puts until its time comes. It is lowered, but not to any earlier
    time than `CLOCKS_APART` from now (I10): under the fence as it stood, a repair may have deleted
    unpublished blocks of writers that are still under way. Those were begun before this moment by
    the clocks of their writers, which may be ahead by so much; they stay refused, and are written
    again. A repair that is at work deletes only what it has found before it reads the fence, thus
    what was begun before it is lowered, or goes by the lowered one.

    Writers whose own clock was ahead, by more than that, begin blocks whose times are yet to come.
    The head remembers where the fence stood: what was begun up to then is refused as long as it
    is from the future (I3). Only a write that takes longer than its clock was ahead is not told
    apart, so these writers are stopped before; they write again.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        longest: The longest lease or delay of a release that anybody has asked for: what was
            handed out before and is to wait for longer is due at once. A message that was never
            handed out keeps its time. None: a day, or ten leases of the queue if that is more.
        dry_run: Change nothing, and tell what would be.

    Raises:
        OptionError: ``longest`` is no time.
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
                count := make_due(group, longest, dry_run=dry_run)
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
        if ledger.try_cas(_lowered_fence(head, fence)):
            return head.fence, fence
    raise ContentionError(f"queue {ledger.queue_id}: its fence moved again and again; try again")


def _lowered_fence(head: LedgerHead, fence: datetime) -> list[Op]:
    """Plan to take back a fence that a wrong clock has raised. Pure; one LWT, see `fix_clocks`.

    Args:
        head: Its fence is beyond ``fence``.
        fence: No block that was deleted under the old one was begun later (I10), by a clock that
            is right; the head remembers for the others where the old one stood.
    """
    highest = max(head.fence, head.unfenced_until or head.fence)
    values: Values = {"fence": fence, "unfenced_until": highest}
    return [Update(HEAD, values, when=(When("fence", "=", head.fence),))]
