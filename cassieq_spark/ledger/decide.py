"""Decides how a publish, or a change of the groups, changes the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

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
)
from cassieq_spark.model import PendingBlock, Range, SinkBatch, block_time
from cassieq_spark.store.protocol import CLOCKS_APART, Delete, Insert, Op


@dataclass(frozen=True, slots=True)
class Publication:
    """A decision to publish: operations that make blocks visible, and their monotons."""

    monotons: Range
    ops: tuple[Op, ...]


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

    Before that, the repair may have deleted the blocks.
    """

    begun_at: datetime
    now: datetime


def decide_publish(
    head: LedgerHead,
    pending: Sequence[PendingBlock],
    *,
    batch: SinkBatch | None,
    last: SinkBatch | None,
    now: datetime,
) -> Publication | AlreadyPublished | Fenced | FromTheFuture:
    """Decide how to give all blocks their monotons at once.

    Args:
        head: The ledger's head, read after the blocks were written.
        pending: At least one block and none empty, in the order that their messages are to have.
        batch: Sink and batch id; None for a write without.
        last: The batch in the sink's row; None if there is no such row.
        now: When the head was read, by the server's clock; see `Rows.sure_now`.
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
    blocks = _block_rows(head, pending)
    size = head.size + sum(each.size for each in pending)
    stop = head.next + sum(each.count for each in pending)
    delayed = any(each.visible is not None for each in pending)
    advance = advance_next(head, stop, size=size, delayed=delayed, oldest=oldest)
    claim = [] if batch is None else [claim_batch(batch, last)]
    return Publication(Range(head.next, stop), (advance, *claim, *blocks))


def register_group(head: LedgerHead, group: str, starts_at: int) -> tuple[Op, ...]:
    """Register a group that is owed all messages from ``starts_at`` on.

    I7: conditioned on ``finalised`` and the groups version of ``head``, so that no repair moves
    ``finalised`` without knowing the group.
    """
    values = group_values(starts_at, head.groups_version + 1)
    return (Insert(group_key(group), values, if_absent=True), advance_groups_version(head))


def remove_group(head: LedgerHead, group: Group, pins: Iterable[SeekPin]) -> tuple[Op, ...]:
    """Remove a registration and its seek pins, all as read after ``head``."""
    of_pins = [Delete(seek_pin_key(pin.number, pin.group)) for pin in pins]
    return (Delete(group_key(group.name)), *of_pins, advance_groups_version(head))


def place_seek_pin(head: LedgerHead, group: Group, position: int) -> tuple[Op, ...]:
    """Place a seek pin at ``position``, which ``finalised`` has not passed in ``head``."""
    key = seek_pin_key(head.groups_version + 1, group.name)
    pin = Insert(key, seek_pin_values(position), if_absent=True)
    return (keep_group(group), pin, advance_groups_version(head))


def _block_rows(head: LedgerHead, pending: Sequence[PendingBlock]) -> list[Op]:
    rows: list[Op] = []
    first, size = head.next, head.size
    for block in pending:
        stop = first + block.count
        rows.append(Insert(block_key(first), block_values(block, stop, size)))
        first, size = stop, size + block.size
    return rows
