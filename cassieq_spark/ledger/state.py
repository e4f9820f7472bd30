"""The rows of a ledger as values, and the operations that write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from cassieq_spark.errors import NEW_CHECKPOINT, InvariantError, NotFoundError, QueueStateError
from cassieq_spark.model import (
    Kept,
    LedgerBlock,
    PendingBlock,
    QueueId,
    Range,
    Ranges,
    SinkBatch,
    block_time,
    validate_name,
)
from cassieq_spark.store.decoded import decoded, demand, demand_counts
from cassieq_spark.store.protocol import (
    CLOCKS_APART,
    Insert,
    Op,
    Row,
    RowKey,
    ServerNow,
    Update,
    Value,
    Values,
    When,
)

HEAD: RowKey = ("head", 0, "")
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The fence of a new ledger.
_NEVER = _EPOCH


class LedgerStatus(StrEnum):
    """The states in which a ledger takes messages or refuses them."""

    #: A purge is copying groups and sinks from the version before.
    PREPARED = "prepared"
    OPEN = "open"
    #: Closed for ever: the queue continues with a later version.
    PURGED = "purged"
    #: Closed for ever: the queue was deleted.
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """The row on which every publish, registration and finalisation is conditioned.

    Attributes:
        next: The monoton that the next published message gets.
        finalised: All messages below this monoton are settled for every group.
        fence: No block that was begun at or before this instant can be published any more.
        groups_version: Grows when a group is registered or removed, or a seek pin is placed.
        delayed_stop: No message from this monoton on is delayed.
        status: The status, which decides whether messages come in and go out.
        paused: True if readers may not lease messages.
        bucket_size: Messages per bucket, of a closed ledger: its queue may have another size by
            now.
        trimmed: Rows of blocks that begin below this monoton are deleted. Reads of blocks begin
            here, so that they cross no tombstones.
        unfenced_until: The highest fence that was lowered: blocks that were begun until then may
            have been deleted before. None: no fence was lowered.
        size: Bytes of all blocks that were ever published, as stored, without those of earlier
            releases.
        last_ids: The position of the last row of unique ids; None if there is no such row.
        ids_from: Rows of unique ids below this position are deleted; reads of them begin here.
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
    size: int = 0
    last_ids: int | None = None
    ids_from: int = 0

    @property
    def is_closed(self) -> bool:
        """True if the ledger is closed for ever."""
        return self.status in {LedgerStatus.PURGED, LedgerStatus.DELETED}

    def offered_below(self, stop: int | None = None) -> int:
        """The monoton from which on nothing is offered, at most ``stop``; 0 while paused."""
        if self.paused:
            return 0
        return self.next if stop is None else min(self.next, stop)


class UniqueRow(NamedTuple):
    """The unique ids of a publish.

    Attributes:
        position: The monoton of the first message of the publish.
        ids: A digest for each message of the publish, as `ledger.unique` has them.
        published_at: When the publish happened, by the coordinator's clock.
        begun_at: When the first block was begun, by its writer's clock.
        before: The position of the row before this one; None if there is none.
    """

    position: int
    ids: bytes
    published_at: datetime
    begun_at: datetime
    before: int | None

    def known_since(self, now: datetime) -> datetime:
        """The time from which on the ids are known, whichever of the two clocks was wrong."""
        earlier, later = sorted((self.published_at, self.begun_at))
        return later if later <= now + CLOCKS_APART else min(earlier, now)


class Stored(NamedTuple):
    """The messages that a ledger, or a queue, stores.

    Attributes:
        messages: How many messages.
        bytes: How many bytes they take in the store, without replicas.
    """

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Group:
    """The registration of a consumer group.

    Attributes:
        name: Name of the group.
        starts_at: The first monoton that the group is owed.
        registered_as: The groups version of the registration; no other registration has it.
    """

    name: str
    starts_at: int
    registered_as: int


@dataclass(frozen=True, slots=True)
class SeekPin:
    """A pin that keeps ``finalised`` at or below the monoton to which a group is being moved.

    Attributes:
        number: The groups version when the pin was placed; no other pin has it.
        group: Name of the group.
        position: The monoton to which the group is being moved.
    """

    number: int
    group: str
    position: int


def sink_key(sink: str) -> RowKey:
    """The key of the row of a sink."""
    return ("sink", 0, sink)


def group_key(group: str) -> RowKey:
    """The key of the row of a consumer group."""
    return ("group", 0, group)


def seek_pin_key(number: int, group: str) -> RowKey:
    """The key of the row of a seek pin."""
    return ("seek_pin", number, group)


def block_key(first_monoton: int) -> RowKey:
    """The key of the row of the block that begins at this monoton."""
    return ("block", first_monoton, "")


def unique_key(first_monoton: int) -> RowKey:
    """The key of the row of the unique ids of a publish."""
    return ("unique", first_monoton, "")


@decoded
def head_of(row: Row) -> LedgerHead:
    """Decode a head row; a head of an earlier release counts as open, without delays."""
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
        values["size"] or 0,
        values["last_ids"],
        values["ids_from"] or 0,
    )


def create_head(status: LedgerStatus, *, paused: bool) -> Op:
    """Write the head of a new ledger, if there is none."""
    head: Values = {
        "next": 0,
        "finalised": 0,
        "fence": _NEVER,
        "groups_version": 0,
        "delayed_stop": 0,
        "trimmed": 0,
        "size": 0,
        "status": status,
        "paused": paused,
    }
    return Insert(HEAD, head, if_absent=True)


def advance_next(  # noqa: PLR0913 (what a publish changes, by name)
    head: LedgerHead,
    stop: int,
    *,
    size: int,
    delayed: bool,
    oldest: datetime,
    has_ids: bool = False,
    ids_from: int | None = None,
) -> Op:
    """Move ``next``, if nobody else did, no fence reached ``oldest``, and no fence was lowered.

    Args:
        head: The head as read.
        stop: The new ``next``.
        size: Bytes of all messages up to ``stop``.
        delayed: True if a message is delayed.
        oldest: When the oldest block was begun.
        has_ids: True if the publish has a row of unique ids.
        ids_from: Rows of unique ids below this position are deleted; None if no further ones are.
    """
    values: dict[str, int] = {"next": stop, "size": size}
    if delayed:
        values["delayed_stop"] = stop
    if has_ids:
        values["last_ids"] = head.next
    if ids_from is not None:
        values["ids_from"] = ids_from
    unchanged = (
        When("next", "=", head.next),
        When("fence", "<", oldest),
        When("unfenced_until", "=", head.unfenced_until),
    )
    return Update(HEAD, values, when=unchanged)


def advance_groups_version(head: LedgerHead) -> Op:
    """Count a change of the groups, if neither groups nor ``finalised`` have changed."""
    unchanged = (
        When("groups_version", "=", head.groups_version),
        When("finalised", "=", head.finalised),
    )
    return Update(HEAD, {"groups_version": head.groups_version + 1}, when=unchanged)


def advance_finalised(head: LedgerHead, floor: int) -> Op:
    """Move ``finalised``, if neither ``finalised`` nor the groups have changed."""
    unchanged = (
        When("finalised", "=", head.finalised),
        When("groups_version", "=", head.groups_version),
    )
    return Update(HEAD, {"finalised": floor}, when=unchanged)


def advance_trimmed(below: int, *, finalised: int) -> Op:
    """Move ``trimmed``, if ``finalised`` still has this value."""
    return Update(HEAD, {"trimmed": below}, when=(When("finalised", "=", finalised),))


def move_fence(head: LedgerHead, fence: datetime, *, unfenced_until: datetime | None = None) -> Op:
    """Move the fence, if it still is where it was; lowering it leaves ``unfenced_until``."""
    lowered: Values = {} if unfenced_until is None else {"unfenced_until": unfenced_until}
    older = (When("fence", "=", head.fence),)
    return Update(HEAD, {"fence": fence, **lowered}, when=older)


def close_head(head: LedgerHead, status: LedgerStatus, *, fence: datetime, bucket_size: int) -> Op:
    """Close the ledger, unless another such change, or a change of the groups, came first."""
    return _change_head(head, {"status": status, "fence": fence, "bucket_size": bucket_size})


def pause_head(head: LedgerHead, *, paused: bool) -> Op:
    """Pause or resume, unless another such change, or a change of the groups, came first."""
    return _change_head(head, {"paused": paused})


def _change_head(head: LedgerHead, values: Values) -> Op:
    when = [When("groups_version", "=", head.groups_version)]
    if head.status is not LedgerStatus.OPEN:
        # An open ledger only closes by this change, so the version suffices. Earlier releases do
        # not store its status.
        when.append(When("status", "=", head.status))
    changed = {**values, "groups_version": head.groups_version + 1}
    return Update(HEAD, changed, when=tuple(when))


def keep_prepared() -> Op:
    """Leave the ledger prepared, if it is prepared."""
    return _change_prepared({"status": LedgerStatus.PREPARED})


def open_prepared(groups_version: int) -> Op:
    """Open the ledger, if it is prepared."""
    return _change_prepared({"status": LedgerStatus.OPEN, "groups_version": groups_version})


def _change_prepared(values: Values) -> Op:
    return Update(HEAD, values, when=(When("status", "=", LedgerStatus.PREPARED),))


def sink_values(batch: SinkBatch) -> dict[str, Value]:
    """The columns of a sink row once the batch is published.

    The fingerprint names its batch, as an earlier release changes only the batch id.
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


def claim_batch(batch: SinkBatch, last: SinkBatch | None) -> Op:
    """Make a batch the last one of its sink, if ``last`` still is; None if the sink has no row."""
    values = sink_values(batch)
    if last is None:
        return Insert(sink_key(batch.sink), values, if_absent=True)
    return Update(sink_key(batch.sink), values, when=(When("batch_id", "=", last.batch_id),))


@decoded
def group_of(row: Row) -> Group:
    """Decode a group row."""
    values: Any = row
    demand_counts(row, "starts_at", "groups_version")
    # Names stand in commands to copy, and complete those that are being typed.
    name = validate_name("group", values["name"])
    return Group(name, values["starts_at"], values["groups_version"])


def group_values(starts_at: int, registered_as: int) -> Values:
    """The columns of a new group row."""
    return {"starts_at": starts_at, "groups_version": registered_as, "created_at": ServerNow()}


def created_at_of(row: Row) -> datetime | None:
    """When a group row or a seek pin row was written; None if the row does not say when."""
    values: Any = row
    created_at: datetime | None = values["created_at"]
    return created_at


def keep_group(group: Group) -> Op:
    """Leave a group row as it is, if it belongs to the same registration."""
    return Update(
        group_key(group.name),
        {"groups_version": group.registered_as},
        when=(When("groups_version", "=", group.registered_as),),
    )


@decoded
def seek_pin_of(row: Row) -> SeekPin:
    """Decode a seek pin row."""
    values: Any = row
    demand_counts(row, "starts_at")
    return SeekPin(values["position"], validate_name("group", values["name"]), values["starts_at"])


def seek_pin_values(position: int) -> Values:
    """The columns of a seek pin row."""
    return {"starts_at": position, "created_at": ServerNow()}


@decoded
def block_of(row: Row) -> LedgerBlock:
    """Decode a block row; if an earlier release wrote it, the size is 0."""
    values: Any = row
    monotons, block, kept = Range(values["position"], values["stop"]), values["block"], None
    if block is None and values["kept"] is not None:
        block, kept = _parse_kept(values["kept"])
        if kept.offsets.count != len(monotons):
            raise ValueError(f"{kept.offsets.count} messages are kept of {monotons}")
    demand({"block": block, "published_at": values["published_at"]}, "block", "published_at")
    return LedgerBlock(
        monotons,
        block,
        values["published_at"],
        values["visible_at"],
        values["size"] or 0,
        kept=kept,
        lanes=values["lanes"] or "",
    )


def _parse_kept(text: str) -> tuple[UUID, Kept]:
    """Read what `block_values` writes of a block without its repeated messages."""
    block, count, offsets = text.split(" ")
    kept = Kept(Ranges.parse(offsets), int(count))
    if not kept.offsets or kept.offsets.hull.stop > kept.count:
        raise ValueError(f"a block of {count} messages does not have those at {offsets[:60]}")
    return UUID(block), kept


@decoded
def unique_row_of(row: Row) -> UniqueRow:
    """Decode a row of unique ids."""
    values: Any = row
    demand(row, "ids", "published_at", "block")
    ids, begun_at = bytes(values["ids"]), block_time(values["block"])
    position, before = values["position"], values["ids_before"]
    return UniqueRow(position, ids, values["published_at"], begun_at, before)


def unique_values(ids: bytes, block: UUID, before: int | None) -> Values:
    """The columns of a row of unique ids, given the publish's first block; see `UniqueRow`."""
    first: Values = {} if before is None else {"ids_before": before}
    return {"ids": ids, "block": block, "published_at": ServerNow(), **first}


def size_before_of(row: Row) -> int:
    """Bytes of all messages before a block, from its row; 0 if an earlier release wrote it."""
    values: Any = row
    return values["size_before"] or 0


def block_values(
    block: PendingBlock,
    stop: int,
    size_before: int,
    kept: Kept | None = None,
    *,
    with_lanes: bool = True,
) -> Values:
    """The columns of the row of a block whose messages end at ``stop``.

    A block without some of its messages has its id in another column: earlier releases would
    deliver the wrong messages, and refuse a row without a block id.

    Args:
        block: The block.
        stop: The end of the block's monotons.
        size_before: The size of all messages before the block.
        kept: The messages of the block that are published; None for all.
        with_lanes: False if the row does not tell the lanes of the messages.
    """
    where: dict[str, Value | ServerNow] = {"block": block.block}
    if kept is not None:
        where = {"kept": f"{block.block} {kept.count} {kept.offsets}"}
    values: dict[str, Value | ServerNow] = {
        "stop": stop,
        **where,
        "published_at": ServerNow(),
        "size": block.size,
        "size_before": size_before,
    }
    if with_lanes and block.lanes:
        values["lanes"] = block.lanes
    # Stored as milliseconds, so rounded up: no message is early.
    if isinstance(block.visible, timedelta):
        values["visible_at"] = ServerNow(-(-block.visible // _MILLISECOND) * _MILLISECOND)
    elif block.visible is not None:
        values["visible_at"] = _EPOCH - (_EPOCH - block.visible) // _MILLISECOND * _MILLISECOND
    return values


def check_open(queue_id: QueueId, head: LedgerHead) -> None:
    """Raise an error if this version of the queue was purged or deleted.

    Raises:
        NotFoundError: The queue was deleted.
        QueueStateError: The queue was purged.
    """
    if head.status is LedgerStatus.PURGED:
        raise QueueStateError(
            f"queue {queue_id} was purged, and continues as a later version: "
            f"restart writers, and restart readers with {NEW_CHECKPOINT}"
        )
    if head.status is LedgerStatus.DELETED:
        raise NotFoundError(
            f"queue {queue_id} was deleted; a queue that is created under its name "
            "is another queue"
        )


def check_tiling(blocks: Sequence[LedgerBlock], monotons: Range) -> None:
    """Raise `InvariantError` unless ``blocks`` cover ``monotons`` without gap or overlap (I1)."""
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
