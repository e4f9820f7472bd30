"""What the repair does: small values that say what they are about to do, do it and count it.

Each is safe if it is applied late, twice or half: it depends on what it was planned by, or deletes
what nobody can need again. `Expire` and `DeadLetterMessages` are beside what they do, in `expire`
and `redeliver`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cassieq_spark.errors import ContentionError, OutcomeUnknownError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition, QueueId, Range, block_time
from cassieq_spark.queues import QueueRecord, close_versions, mark_retired
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Another repair run or a new group came between, or an answer was lost; the next run goes on.
POSTPONED = "repair.postponed"
#: Messages that nobody had consumed count as settled.
EXPIRED = "repair.expired"


class Action(Protocol):
    """One change. Its text says what it is about to do, for a dry run and for the log."""

    @property
    def queue_id(self) -> QueueId:
        """The queue, or the version of one, that it changes."""

    def apply(self, store: Store) -> Counts | None:
        """Do it, and count what was done; None if it was refused: what it relies on has changed.

        Raises:
            ContentionError: Others were faster again and again.
            OutcomeUnknownError: It may have gone in.
        """


def carry_out(store: Store, actions: Iterable[Action], checkpoint: Checkpoint) -> Iterator[Counts]:
    """Apply the actions on one queue until one is refused; those that follow depend on it.

    Also until ``checkpoint`` says no; one read more for each action, if it has a lock.

    Yields:
        What each has done, as it is done: should the next one fail, that was done all the same.
    """
    for action in actions:
        if not checkpoint.confirm():
            break
        try:
            done = action.apply(store)
        except (OutcomeUnknownError, ContentionError):
            done = None
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


@dataclass(frozen=True, slots=True)
class Finalise:
    """Move ``finalised`` of this head up to the floor. One LWT; what follows depends on it.

    With ``unconsumed``, because all of it is too old and there is no group.
    """

    queue_id: QueueId
    head: LedgerHead
    floor: int
    unconsumed: bool = False

    def __str__(self) -> str:
        why = ", which are too old and have no group" if self.unconsumed else ""
        return f"finalise monotons {Range(self.head.finalised, self.floor)}{why}"

    def apply(self, store: Store) -> Counts | None:
        """See `Action.apply`."""
        if not Ledger(store, self.queue_id).finalise(self.head, self.floor):
            return None
        monotons = Range(self.head.finalised, self.floor)
        if not self.unconsumed:
            return Counts(finalised=len(monotons))
        logger.warning(
            "queue %s: %d messages have expired, as it has no group that could consume them: %s",
            self.queue_id,
            len(monotons),
            monotons,
            extra={"action": EXPIRED, "queue": self.queue_id, "count": len(monotons)},
        )
        return Counts(finalised=len(monotons), expired=len(monotons))


@dataclass(frozen=True, slots=True)
class DeleteSettled:
    """Delete buckets of messages that are settled for every group."""

    queue_id: QueueId
    buckets: tuple[tuple[UUID, int], ...]

    def __str__(self) -> str:
        blocks = {block for block, _ in self.buckets}
        return f"delete {len(self.buckets)} settled bucket(s) of {len(blocks)} block(s)"

    def apply(self, store: Store) -> Counts:
        """See `Action.apply`."""
        store.delete_buckets(self.queue_id, self.buckets)
        return Counts(settled_buckets=len(self.buckets))


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete the ledger's rows of ``count`` blocks, whose buckets are gone. One LWT."""

    queue_id: QueueId
    finalised: int
    below: int
    count: int

    def __str__(self) -> str:
        return f"trim {self.count} block(s) below monoton {self.below} from the ledger"

    def apply(self, store: Store) -> Counts | None:
        """See `Action.apply`."""
        went_in = Ledger(store, self.queue_id).trim(finalised=self.finalised, below=self.below)
        return Counts(trimmed_blocks=self.count) if went_in else None


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Forbid the publication of blocks begun at or before ``fence``. One LWT."""

    queue_id: QueueId
    head: LedgerHead
    fence: datetime

    def __str__(self) -> str:
        return f"raise the fence to {self.fence.isoformat()}"

    def apply(self, store: Store) -> Counts | None:
        """See `Action.apply`."""
        went_in = Ledger(store, self.queue_id).raise_fence(self.head, self.fence)
        return Counts(fences_raised=1) if went_in else None


@dataclass(frozen=True, slots=True)
class DeleteUnpublished:
    """Delete a block that was not published and never will be."""

    queue_id: QueueId
    block: UUID
    buckets: tuple[int, ...]

    def __str__(self) -> str:
        begun = block_time(self.block).isoformat()
        count = len(self.buckets)
        return f"delete {count} bucket(s) of unpublished block {self.block}, begun {begun}"

    def apply(self, store: Store) -> Counts:
        """See `Action.apply`."""
        store.delete_buckets(self.queue_id, [(self.block, bucket) for bucket in self.buckets])
        return Counts(unpublished_blocks=1, unpublished_buckets=len(self.buckets))


@dataclass(frozen=True, slots=True)
class CloseVersions:
    """Close what a deletion has left open."""

    record: QueueRecord

    @property
    def queue_id(self) -> QueueId:
        """The last version of it."""
        return self.record.definition.queue_id

    def __str__(self) -> str:
        return "close what is left of the deleted queue, if anything"

    def apply(self, store: Store) -> Counts:
        """See `Action.apply`."""
        close_versions(store, self.record)
        return Counts()


@dataclass(frozen=True, slots=True)
class EmptyLedger:
    """Delete all rows of a closed ledger but its head. One LWT."""

    queue_id: QueueId
    end: int

    def __str__(self) -> str:
        return f"empty the ledger of {self.queue_id}"

    def apply(self, store: Store) -> Counts | None:
        """See `Action.apply`."""
        return Counts() if Ledger(store, self.queue_id).empty(end=self.end) else None


@dataclass(frozen=True, slots=True)
class MarkRetired:
    """Remember that nothing of a version is left. One LWT."""

    name: str
    version: int

    @property
    def queue_id(self) -> QueueId:
        """The version."""
        return QueueDefinition(self.name, self.version).queue_id

    def __str__(self) -> str:
        return f"retire {self.queue_id}"

    def apply(self, store: Store) -> Counts:
        """See `Action.apply`."""
        mark_retired(store, self.name, self.version)
        return Counts(retired_versions=1)
