"""Repairs a queue after a server's clock was ahead."""

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
from cassieq_spark.store.protocol import CLOCKS_APART, Op, Slice, Store, Update, Values, When


@dataclass(frozen=True, slots=True)
class ClockRepair:
    """The changes of `fix_clocks`.

    Attributes:
        fence: The fence before and after; of several partitions, the one that was furthest ahead.
            None: no fence was ahead.
        due: How many messages were made due, by group with any.
    """

    fence: tuple[datetime, datetime] | None
    due: Mapping[str, int]


def fix_clocks(
    store: Store, name: str, *, longest: timedelta | None = None, dry_run: bool = False
) -> ClockRepair:
    """Undo the effects on a queue of a server's clock that was ahead, and is right by now.

    For each partition a read, and one LWT if the fence is ahead; four reads for each group, and an
    LWT for each 200 rows that wait. Safe to repeat, to break off, and while the queue is in use.

    A fence that is ahead refuses puts until its time comes. It is lowered to `CLOCKS_APART` from
    now, and no further (I10): under the old fence, a repair may have deleted unpublished blocks of
    writers that are still running. These blocks were begun before now by the clocks of their
    writers, which may be ahead by so much; they stay refused, and are written again. A running
    repair deletes only blocks that it found before it read the fence; so these were begun before
    the fence was lowered, or it uses the lowered fence.

    Writers whose own clocks were further ahead begin blocks in the future. The head remembers the
    old fence: blocks that were begun up to then are refused as long as they are from the future
    (I3). A write that takes longer than its clock was ahead is not recognised, so stop these
    writers before; they write again.

    Args:
        longest: The longest lease or delay of a release that anybody has asked for: messages that
            were handed out before and wait for longer become due. A message that was never handed
            out keeps its time. None: a day, or ten leases of the queue if that is longer.
        dry_run: Change nothing, only tell what would change.

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
    """Plan to lower a fence that a wrong clock has raised. Pure; one LWT, see `fix_clocks`.

    Args:
        head: Its fence is beyond ``fence``.
        fence: By a right clock, no block that was deleted under the old fence was begun later
            (I10). For wrong clocks the head remembers the old fence.
    """
    highest = max(head.fence, head.unfenced_until or head.fence)
    values: Values = {"fence": fence, "unfenced_until": highest}
    return [Update(HEAD, values, when=(When("fence", "=", head.fence),))]
