"""What the sweep does to groups, to versions that are over, and to sinks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cassieq_spark.delivery.state import Slot, Waiting
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.queues import QueueRecord


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
    """Settle what a group has left for longer than its queue keeps it: ``count`` and more."""

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


@dataclass(frozen=True, slots=True)
class StampSinks:
    """Remember when sinks that publish once were first seen: name, last batch. One LWT."""

    queue_id: QueueId
    sinks: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"remember {len(self.sinks)} sink(s) that publish once"


@dataclass(frozen=True, slots=True)
class ForgetSinks:
    """Delete the rows of sinks that nobody needs, and raise the fence. One LWT."""

    queue_id: QueueId
    sinks: tuple[str, ...]
    fence: datetime

    def __str__(self) -> str:
        return f"forget {len(self.sinks)} sink(s) that publish once"


Upkeep = DeadLetter | Expire | CloseVersions | EmptyLedger | MarkRetired | StampSinks | ForgetSinks
