"""The rows of a ledger as values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from cassieq_spark.errors import InvariantError, QueueStateError
from cassieq_spark.model import LedgerBlock, QueueId, Range, SinkBatch
from cassieq_spark.store.decoded import decoded, demand, demand_counts
from cassieq_spark.store.protocol import Row, RowKey, Value

HEAD: RowKey = ("head", 0, "")


class LedgerStatus(StrEnum):
    """Whether a ledger takes messages and gives them out."""

    #: A purge is carrying groups and sinks over from the version before; nobody uses it yet.
    PREPARED = "prepared"
    OPEN = "open"
    #: Closed for ever: the queue goes on with a later version.
    PURGED = "purged"
    #: Closed for ever: the queue was deleted.
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """The row on which every publish, registration and finalisation is conditioned.

    Attributes:
        next: Monoton that the next published message gets.
        finalised: Everything below is settled for every group.
        fence: No block begun at or before this instant may be published any more.
        groups_version: How often a group was registered, removed, or about to be moved.
        delayed_stop: No message from here on is delayed.
        status: Whether messages come in and go out.
        paused: Whether readers are to lease nothing more.
        bucket_size: Messages per bucket, once it is closed: its queue may have another by then.
        trimmed: No row is left of a block that begins below; readers of blocks begin here, as
            deleted rows are waded through until Cassandra compacts them.
        unfenced_until: Where the highest fence stood that was taken back: blocks begun up to then
            may have been deleted, if they were begun before that. None: none was.
    """

    next: int
    finalised: int
    fence: datetime
    groups_version: int
    delayed_stop: int = 0
    status: LedgerStatus = LedgerStatus.OPEN
    paused: bool = False
    bucket_size: int | None = None
    trimmed: int = 0
    unfenced_until: datetime | None = None

    @property
    def is_closed(self) -> bool:
        """Whether this version of the queue is over."""
        return self.status in {LedgerStatus.PURGED, LedgerStatus.DELETED}

    def offered_below(self, stop: int | None = None) -> int:
        """Monoton from which on nothing is offered, ``stop`` at most; 0 while readers pause."""
        if self.paused:
            return 0
        return self.next if stop is None else min(self.next, stop)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as the ledger knows it.

    Attributes:
        name: Its name.
        starts_at: First monoton that it is owed.
        registered_as: The groups version that its registration made; never used twice.
    """

    name: str
    starts_at: int
    registered_as: int


@dataclass(frozen=True, slots=True)
class SeekPin:
    """Keeps ``finalised`` at or below a monoton to which a group is being moved.

    Attributes:
        number: The groups version that it made; never used twice.
        group: Name of the group.
        position: Where the group is to stand.
    """

    number: int
    group: str
    position: int


def sink_key(sink: str) -> RowKey:
    """The row of a sink."""
    return ("sink", 0, sink)


def group_key(group: str) -> RowKey:
    """The row of a consumer group."""
    return ("group", 0, group)


def seek_pin_key(number: int, group: str) -> RowKey:
    """The row of a seek pin."""
    return ("seek_pin", number, group)


def block_key(first_monoton: int) -> RowKey:
    """The row of the block that begins at this monoton."""
    return ("block", first_monoton, "")


@decoded
def head_of(row: Row) -> LedgerHead:
    """Decode a head row; one of an earlier release is open, and knows of no delays."""
    values: Any = row
    demand(row, "fence")
    demand_counts(row, "next", "finalised", "groups_version")
    if values["finalised"] > values["next"] or not 0 <= (values["trimmed"] or 0) <= values["next"]:
        raise ValueError(
            f"finalised is {values['finalised']}, trimmed {values['trimmed']}, next "
            f"{values['next']}"
        )
    if not 0 <= (values["delayed_stop"] or 0) <= values["next"]:
        raise ValueError(f"delayed_stop is {values['delayed_stop']}, next {values['next']}")
    if (values["bucket_size"] or 1) < 1:
        raise ValueError(f"bucket_size is {values['bucket_size']}")
    return LedgerHead(
        values["next"],
        values["finalised"],
        values["fence"],
        values["groups_version"],
        values["delayed_stop"] or 0,
        LedgerStatus(values["status"] or LedgerStatus.OPEN),
        bool(values["paused"]),
        values["bucket_size"],
        values["trimmed"] or 0,
        values["unfenced_until"],
    )


@decoded
def last_batch_of(row: Row) -> int:
    """Decode a sink row: the last batch that the sink has published."""
    values: Any = row
    demand(row, "batch_id")
    batch_id: int = values["batch_id"]
    return batch_id


def sink_values(batch: SinkBatch) -> dict[str, Value]:
    """What a sink row says once the batch is published.

    The fingerprint names its batch: an earlier release moves the batch id and leaves it.
    """
    values: dict[str, Value] = {"batch_id": batch.batch_id}
    if batch.fingerprint is not None:
        values["fingerprint"] = f"{batch.batch_id} {batch.fingerprint}"
    return values


@decoded
def sink_batch_of(row: Row) -> SinkBatch:
    """Decode a sink row: the last batch that the sink has published."""
    values: Any = row
    demand(row, "batch_id")
    of_batch, _, fingerprint = (values["fingerprint"] or "").partition(" ")
    is_known = of_batch == str(values["batch_id"])
    return SinkBatch(values["name"], values["batch_id"], fingerprint if is_known else None)


@decoded
def group_of(row: Row) -> Group:
    """Decode a group row."""
    values: Any = row
    demand_counts(row, "starts_at", "groups_version")
    return Group(values["name"], values["starts_at"], values["groups_version"])


@decoded
def seek_pin_of(row: Row) -> SeekPin:
    """Decode a seek pin row."""
    values: Any = row
    demand_counts(row, "starts_at")
    return SeekPin(values["position"], values["name"], values["starts_at"])


@decoded
def block_of(row: Row) -> LedgerBlock:
    """Decode a block row; of an earlier release, the size is not known."""
    values: Any = row
    demand(row, "block", "published_at")
    return LedgerBlock(
        Range(values["position"], values["stop"]),
        values["block"],
        values["published_at"],
        values["visible_at"],
        values["size"] or 0,
    )


def check_open(queue_id: QueueId, head: LedgerHead) -> None:
    """Check that this version of the queue takes messages, and gives them out.

    Raises:
        QueueStateError: It was purged or deleted.
    """
    if head.status is LedgerStatus.PURGED:
        raise QueueStateError(
            f"queue {queue_id} was purged, and continues as a later version: "
            "restart writers, and restart readers with a new checkpoint location"
        )
    if head.status is LedgerStatus.DELETED:
        raise QueueStateError(
            f"queue {queue_id} was deleted; a queue that is created under its name "
            "is another queue"
        )


def check_tiling(blocks: Sequence[LedgerBlock], monotons: Range) -> None:
    """Check that ``blocks`` cover ``monotons`` without gap or overlap (I1).

    Raises:
        InvariantError: They do not.
    """
    at = min(monotons.start, blocks[0].monotons.start) if blocks else monotons.start
    for block in blocks:
        if block.monotons.start != at:
            raise InvariantError(
                f"ledger rows do not tile {monotons}: expected a block at monoton {at}, "
                f"found one at {block.monotons.start} (I1)"
            )
        at = block.monotons.stop
    if at < monotons.stop:
        raise InvariantError(f"ledger rows do not tile {monotons}: none covers {at} (I1)")
