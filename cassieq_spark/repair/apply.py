"""Carrying out what was planned, in order, and counting it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from cassieq_spark.errors import ContentionError, OutcomeUnknownError
from cassieq_spark.ledger.finalise import empty, finalise, raise_fence, trim
from cassieq_spark.model import QueueId, Range
from cassieq_spark.queues import close_versions, mark_retired
from cassieq_spark.repair.actions import (
    Action,
    CloseVersions,
    DeadLetter,
    DeleteGarbage,
    DeleteSettled,
    EmptyLedger,
    Expire,
    Finalise,
    MarkRetired,
    RaiseFence,
    Repairing,
    Trim,
    Upkeep,
)
from cassieq_spark.repair.expire import expire, tell_unconsumed
from cassieq_spark.repair.guard import Guard
from cassieq_spark.repair.redeliver import dead_letter
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Another repair run or a new group came between, or an answer was lost; the next run goes on.
POSTPONED = "repair.postponed"


def apply(store: Store, actions: Iterable[Action], guard: Guard) -> Iterator[Counts]:
    """Carry out actions on one queue until one is refused; those that follow depend on it.

    Also until ``guard`` says no; one read more for each action, if it has a lock.

    Yields:
        What each has done, as it is done: should the next one fail, that was done all the same.
    """
    for action in actions:
        if not guard.confirm():
            break
        done = _apply_one(store, action)
        if done is None:
            postpone(action.queue_id, str(action))
            yield Counts(postponed=1)
            return
        yield done


def postpone(queue_id: QueueId, what: str) -> None:
    """Log that something is left to the next run."""
    logger.info(
        "queue %s: left to the next run: %s",
        queue_id,
        what,
        extra={"action": POSTPONED, "queue": queue_id},
    )


def _apply_one(store: Store, action: Action) -> Counts | None:
    """None if it was refused, or may have been. If it is applied late: it is safe at any time."""
    try:
        if isinstance(action, Upkeep):
            return _keep_up(store, action)
        return _counts(action) if _carry_out(store, action) else None
    except (OutcomeUnknownError, ContentionError):
        return None


def _carry_out(store: Store, action: Repairing) -> bool:
    match action:
        case Finalise(queue_id=queue_id, head=head, floor=floor):
            went_in = finalise(store, queue_id, head, floor)
            if went_in and action.unconsumed:
                tell_unconsumed(queue_id, Range(head.finalised, floor))
            return went_in
        case RaiseFence(queue_id=queue_id, head=head, fence=fence):
            return raise_fence(store, queue_id, head, fence)
        case Trim(queue_id=queue_id, finalised=finalised, below=below):
            return trim(store, queue_id, finalised=finalised, below=below)
        case DeleteSettled(queue_id=queue_id, buckets=buckets):
            store.delete_buckets(queue_id, buckets)
        case DeleteGarbage(queue_id=queue_id, block=block, buckets=numbers):
            store.delete_buckets(queue_id, [(block, bucket) for bucket in numbers])
    return True


def _counts(action: Repairing) -> Counts:
    match action:
        case Finalise(head=head, floor=floor, unconsumed=unconsumed):
            count = floor - head.finalised
            return Counts(finalised=count, expired=count if unconsumed else 0)
        case DeleteSettled(buckets=buckets):
            return Counts(settled_buckets=len(buckets))
        case Trim(count=count):
            return Counts(trimmed_blocks=count)
        case RaiseFence():
            return Counts(fences_raised=1)
        case DeleteGarbage(buckets=numbers):
            return Counts(garbage_blocks=1, garbage_buckets=len(numbers))


def _keep_up(store: Store, action: Upkeep) -> Counts | None:
    counts, done = Counts(), True
    match action:
        case DeadLetter(queue=queue, group=group, dead=dead):
            buried = dead_letter(store, queue, group, dead)
            left = dead.monotons.count - buried
            counts = Counts(dead_lettered=buried, not_dead_lettered=left)
        case Expire(queue=queue, group=registered):
            counts = Counts(expired=expire(store, queue, registered))
        case CloseVersions(record=record):
            close_versions(store, record)
        case EmptyLedger(queue_id=queue_id, end=end):
            done = empty(store, queue_id, end=end)
        case MarkRetired(name=name, version=version):
            mark_retired(store, name, version)
            counts = Counts(retired_versions=1)
    return counts if done else None
