"""The actions of the repair: each says what it is about to do, does it, and counts what it did.

Each action is safe if it is applied late, twice or in part: it is conditioned on the state that it
was planned from, or deletes what nobody can need again. `Expire` and `DeadLetterMessages` are in
`expire` and `redeliver`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueId, Range, block_time
from cassieq_spark.queues import QueueRecord, close_versions, mark_retired
from cassieq_spark.repair.report import Counts
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages that nobody had consumed in time count as settled.
EXPIRED = "repair.expired"


class RepairAction(Protocol):
    """One change of a version of a queue. Its text says what the action is about to do."""

    @property
    def queue_id(self) -> QueueId:
        """The version of the queue that the action changes."""

    def apply(self, store: Store) -> Counts | None:
        """Apply the action, and count what was done; None if it was refused, as others interfered.

        Raises:
            ContentionError: Other processes were faster in every attempt.
            OutcomeUnknownError: The action may have been applied.
        """


@dataclass(frozen=True, slots=True)
class Finalise:
    """Raise ``finalised`` of this head to the floor. One LWT; the actions after it depend on it.

    ``unconsumed``: there is no group, and the messages are too old.
    """

    queue_id: QueueId
    head: LedgerHead
    floor: int
    unconsumed: bool = False

    def __str__(self) -> str:
        why = ", which are too old and have no group" if self.unconsumed else ""
        return f"finalise monotons {Range(self.head.finalised, self.floor)}{why}"

    def apply(self, store: Store) -> Counts | None:
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
        is_applied = Ledger(store, self.queue_id).trim(finalised=self.finalised, below=self.below)
        return Counts(trimmed_blocks=self.count) if is_applied else None


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Forbid the publication of blocks begun at or before ``fence``. One LWT."""

    queue_id: QueueId
    head: LedgerHead
    fence: datetime

    def __str__(self) -> str:
        return f"raise the fence to {self.fence.isoformat()}"

    def apply(self, store: Store) -> Counts | None:
        is_applied = Ledger(store, self.queue_id).raise_fence(self.head, self.fence)
        return Counts(fences_raised=1) if is_applied else None


@dataclass(frozen=True, slots=True)
class DeleteUnpublished:
    """Delete a block that can never be published."""

    queue_id: QueueId
    block: UUID
    buckets: tuple[int, ...]

    def __str__(self) -> str:
        begun = block_time(self.block).isoformat()
        count = len(self.buckets)
        return f"delete {count} bucket(s) of unpublished block {self.block}, begun {begun}"

    def apply(self, store: Store) -> Counts:
        store.delete_buckets(self.queue_id, [(self.block, bucket) for bucket in self.buckets])
        return Counts(unpublished_blocks=1, unpublished_buckets=len(self.buckets))


@dataclass(frozen=True, slots=True)
class CloseVersions:
    """Close the versions that a deletion has left open."""

    queue_id: QueueId
    record: QueueRecord

    def __str__(self) -> str:
        return "close the versions of the deleted queue, if any are open"

    def apply(self, store: Store) -> Counts:
        close_versions(store, self.record)
        return Counts()


@dataclass(frozen=True, slots=True)
class EmptyLedger:
    """Delete all rows of a closed ledger except its head. One LWT."""

    queue_id: QueueId
    end: int

    def __str__(self) -> str:
        return f"empty the ledger of {self.queue_id}"

    def apply(self, store: Store) -> Counts | None:
        return Counts() if Ledger(store, self.queue_id).empty(end=self.end) else None


@dataclass(frozen=True, slots=True)
class MarkRetired:
    """Record that a version is deleted except for the heads of its ledgers. One LWT."""

    queue_id: QueueId
    name: str
    version: int

    def __str__(self) -> str:
        return f"retire {self.queue_id}"

    def apply(self, store: Store) -> Counts:
        mark_retired(store, self.name, self.version)
        return Counts(retired_versions=1)
