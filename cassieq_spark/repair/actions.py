"""What the repair does: small values that say it, to be planned, shown and carried out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cassieq_spark.groups.state import Slot, Waiting
from cassieq_spark.ledger.state import Group, LedgerHead
from cassieq_spark.model import QueueDefinition, QueueId, Range, block_time
from cassieq_spark.queues import QueueRecord


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
        why = ", which are too old and which no group is there for" if self.unconsumed else ""
        return f"finalise monotons {Range(self.head.finalised, self.floor)}{why}"


@dataclass(frozen=True, slots=True)
class DeleteSettled:
    """Delete buckets of messages that are settled for every group."""

    queue_id: QueueId
    buckets: tuple[tuple[UUID, int], ...]

    def __str__(self) -> str:
        blocks = {block for block, _ in self.buckets}
        return f"delete {len(self.buckets)} settled bucket(s) of {len(blocks)} block(s)"


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete the ledger's rows of ``count`` blocks, whose buckets are gone. One LWT."""

    queue_id: QueueId
    finalised: int
    below: int
    count: int

    def __str__(self) -> str:
        return f"trim {self.count} block(s) below monoton {self.below} from the ledger"


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Forbid the publication of blocks begun at or before ``fence``. One LWT."""

    queue_id: QueueId
    head: LedgerHead
    fence: datetime

    def __str__(self) -> str:
        return f"raise the fence to {self.fence.isoformat()}"


@dataclass(frozen=True, slots=True)
class DeleteGarbage:
    """Delete a block that was not published and never will be."""

    queue_id: QueueId
    block: UUID
    buckets: tuple[int, ...]

    def __str__(self) -> str:
        begun = block_time(self.block).isoformat()
        count = len(self.buckets)
        return f"delete {count} bucket(s) of unpublished block {self.block}, begun {begun}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter what no reader has: a waiting row, or a slot to be condemned first."""

    queue: QueueDefinition
    group: str
    dead: Slot | Waiting

    @property
    def queue_id(self) -> QueueId:
        """Whose messages these are."""
        return self.queue.queue_id

    def __str__(self) -> str:
        target = self.queue.dead_letter_queue
        fate = "drop" if target is None else f"move to queue {target!r} the"
        return f"{fate} dead messages {self.dead.monotons} of group {self.group!r}"


@dataclass(frozen=True, slots=True)
class Expire:
    """Settle what a group has not consumed after so long as its queue says: ``count`` and more."""

    queue: QueueDefinition
    group: Group
    count: int

    @property
    def queue_id(self) -> QueueId:
        """Whose messages these are."""
        return self.queue.queue_id

    def __str__(self) -> str:
        return f"let {self.count} message(s) of group {self.group.name!r} expire"


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


@dataclass(frozen=True, slots=True)
class EmptyLedger:
    """Delete all rows of a closed ledger but its head. One LWT."""

    queue_id: QueueId
    end: int

    def __str__(self) -> str:
        return f"empty the ledger of {self.queue_id}"


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


#: To groups, and to versions that are over.
Upkeep = DeadLetter | Expire | CloseVersions | EmptyLedger | MarkRetired
#: To ledgers and buckets.
Repairing = Finalise | DeleteSettled | Trim | RaiseFence | DeleteGarbage
Action = Repairing | Upkeep
