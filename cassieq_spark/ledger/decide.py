"""Decides how a publish, or a change of the groups, changes the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cassieq_spark.ledger.identity import Standing, standing_of
from cassieq_spark.ledger.state import (
    Group,
    LedgerHead,
    SeekPin,
    advance_groups_version,
    advance_next,
    block_key,
    block_values,
    claim_batch,
    group_key,
    group_values,
    keep_group,
    seek_pin_key,
    seek_pin_values,
    unique_key,
    unique_values,
)
from cassieq_spark.ledger.unique import Part, Sifted, sift
from cassieq_spark.model import PendingBlock, Range, SinkBatch, block_time
from cassieq_spark.store.protocol import CLOCKS_APART, Delete, DeleteBelow, Insert, Op

#: Most bytes of lanes that a publish tells the ledger, as its whole LWT is one mutation. Messages
#: of further blocks are read for their lanes.
MOST_LANE_BYTES = 256 << 10


class UniqueIds(Protocol):
    """The unique ids that are known for a ledger; see `window.UniqueIds`."""

    @property
    def monotons(self) -> Mapping[bytes, int]:
        """The monoton of the published message that has an id."""

    def forget_below(self) -> int | None:
        """The position below which rows must be deleted; None if nothing must be deleted yet."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A decision to publish.

    Attributes:
        monotons: The monotons of the messages that are published.
        ops: Operations that make them visible.
        sifted: The messages, without those that were published already.
        ids_before: The position of the last row of unique ids before this publish.
        has_deleted: True if expired rows of unique ids are deleted.
    """

    monotons: Range
    ops: tuple[Op, ...]
    sifted: Sifted
    ids_before: int | None = None
    has_deleted: bool = False


@dataclass(frozen=True, slots=True)
class AlreadyPublished:
    """The sink has published a batch of this number, or a later one."""

    last: SinkBatch


@dataclass(frozen=True, slots=True)
class Fenced:
    """The write took too long: its oldest block may be deleted already."""

    oldest: datetime
    fence: datetime


@dataclass(frozen=True, slots=True)
class FromTheFuture:
    """The writer's clock is as far ahead as a fence that was lowered since.

    Before the fence was lowered, the repair may have deleted the blocks.
    """

    begun_at: datetime
    now: datetime


def decide_publish(  # noqa: PLR0913 (what a publish depends on, by name)
    head: LedgerHead,
    pending: Sequence[PendingBlock],
    *,
    batch: SinkBatch | None,
    last: SinkBatch | None,
    now: datetime,
    ids: UniqueIds | None = None,
) -> Publication | AlreadyPublished | Fenced | FromTheFuture:
    """Decide how to give all blocks their monotons at once.

    Args:
        head: The ledger's head, read after the blocks were written.
        pending: At least one block, none of them empty, in the order of publication.
        batch: The sink and batch id; None for a write without a sink.
        last: The batch in the sink's row; None if there is no such row.
        now: When the head was read, by the server's clock; see `Rows.sure_now`.
        ids: The unique ids that are known up to ``head``; None if no message has one.
    """
    if batch and last and standing_of(batch, last) is not Standing.NEW:
        return AlreadyPublished(last)
    begun = [block_time(each.block) for each in pending]
    oldest = min(begun)
    if oldest <= head.fence:
        return Fenced(oldest, head.fence)
    # I10: by a correct clock, no block was begun later than now.
    until = head.unfenced_until or head.fence
    if ahead := [at for at in begun if now + CLOCKS_APART < at <= until]:
        return FromTheFuture(max(ahead), now)
    sifted = sift(pending, head.next, {} if ids is None else ids.monotons)
    parts = sifted.parts
    size = head.size + sum(each.block.size for each in parts)
    stop = head.next + sifted.count
    # With `next`: a publish that misses rows which are deleted now must lose the race.
    below = None if ids is None or not sifted.count else ids.forget_below()
    advance = advance_next(
        head,
        stop,
        size=size,
        delayed=any(each.block.visible is not None for each in parts),
        oldest=oldest,
        has_ids=bool(sifted.ids),
        ids_from=below,
    )
    claim = [] if batch is None else [claim_batch(batch, last)]
    rows = _block_rows(head, parts)
    if sifted.ids:
        values = unique_values(sifted.ids, parts[0].block.block, head.last_ids)
        rows.append(Insert(unique_key(head.next), values))
    if below is not None:
        rows.append(DeleteBelow("unique", below))
    return Publication(
        Range(head.next, stop),
        (advance, *claim, *rows),
        sifted,
        head.last_ids,
        has_deleted=below is not None,
    )


def register_group(head: LedgerHead, group: str, starts_at: int) -> tuple[Op, ...]:
    """Register a group that is owed all messages from ``starts_at`` on.

    I7: conditioned on ``finalised`` and the groups version of ``head``, so that no repair moves
    ``finalised`` without knowing the group.
    """
    values = group_values(starts_at, head.groups_version + 1)
    return (Insert(group_key(group), values, if_absent=True), advance_groups_version(head))


def remove_group(head: LedgerHead, group: Group, pins: Iterable[SeekPin]) -> tuple[Op, ...]:
    """Remove a registration and its seek pins, all read after ``head``."""
    of_pins = [Delete(seek_pin_key(pin.number, pin.group)) for pin in pins]
    return (Delete(group_key(group.name)), *of_pins, advance_groups_version(head))


def place_seek_pin(head: LedgerHead, group: Group, position: int) -> tuple[Op, ...]:
    """Place a seek pin at ``position``, which ``finalised`` has not passed in ``head``."""
    key = seek_pin_key(head.groups_version + 1, group.name)
    pin = Insert(key, seek_pin_values(position), if_absent=True)
    return (keep_group(group), pin, advance_groups_version(head))


def _block_rows(head: LedgerHead, parts: Sequence[Part]) -> list[Op]:
    rows: list[Op] = []
    first, size, left = head.next, head.size, MOST_LANE_BYTES
    for part in parts:
        stop = first + part.count
        left -= len(part.block.lanes)
        values = block_values(part.block, stop, size, part.kept, with_lanes=left >= 0)
        rows.append(Insert(block_key(first), values))
        first, size = stop, size + part.block.size
    return rows
