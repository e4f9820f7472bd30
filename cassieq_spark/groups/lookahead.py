"""Looks ahead: which messages beyond the pointer may be leased, or must be stepped over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.state import GroupState, Waiting
from cassieq_spark.model import LedgerBlock, Range, Ranges, to_millis


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Messages beyond the pointer.

    Attributes:
        leased: The messages to lease.
        waiting: Delayed messages, to step over until they are due.
        skipped: How many messages are too old, and count as settled.
        pointer: Where the lookahead ended.
    """

    leased: Ranges
    waiting: tuple[Waiting, ...]
    skipped: int
    pointer: int


def look_ahead(  # noqa: PLR0913 (each is a bound of its own, by name)
    blocks: Sequence[LedgerBlock],
    fresh: Range,
    *,
    limit: int,
    max_bytes: int | None,
    skip_before: datetime | None,
    now: datetime,
) -> Lookahead:
    """Go over the blocks from the pointer on, as far as the limits allow.

    Args:
        blocks: The blocks that hold the first messages of ``fresh``, in order.
        fresh: The messages that may be offered.
        limit: Maximum number of messages to lease. With 0, the lookahead still steps over messages
            before the first one that could be leased.
        max_bytes: About how many bytes to lease, but at least one message; None for no limit.
        skip_before: Messages that have been visible since before this are skipped; None: none are.
        now: The time by the server's clock.
    """
    leased: list[Range] = []
    delayed: dict[int, list[Range]] = {}
    skipped, bytes_left = 0, max_bytes
    at = fresh.start
    for block in blocks:
        part = block.monotons & fresh
        if not part:
            continue
        due = block.visible_at
        if due is not None and due > now:
            delayed.setdefault(to_millis(due), []).append(part)
        elif skip_before is not None and block.young_since < skip_before:
            skipped += len(part)
        else:
            taken = min(limit, len(part))
            if bytes_left is not None:
                most = bytes_left * len(block.monotons) // max(1, block.size)
                taken = min(taken, max(most, 0 if leased else 1))
                bytes_left -= taken * block.size // len(block.monotons)
            limit -= taken
            leased.append(Range(part.start, part.start + taken))
            at = part.start + taken
            if taken < len(part):
                break
        at = max(at, part.stop)
    waiting = tuple(Waiting(due, Ranges.of(*parts), 0) for due, parts in sorted(delayed.items()))
    return Lookahead(Ranges.of(*leased), waiting, skipped, at)


def first_delayed(blocks: Sequence[LedgerBlock], now: datetime, *, otherwise: int) -> int:
    """The first monoton that must not be delivered yet; ``otherwise`` if there is none."""
    delayed = (it for it in blocks if it.visible_at is not None and it.visible_at > now)
    return next((block.monotons.start for block in delayed), otherwise)


def look_ahead_for(
    state: GroupState,
    request: LeaseRequest,
    blocks: Sequence[LedgerBlock],
    *,
    stop: int,
    limit: int,
) -> Lookahead:
    """The lookahead of a lease; it uses the blocks only if `LeaseRequest.needs_blocks`."""
    pointer = state.head.pointer
    if request.strict_fifo:
        # Whatever is behind a delayed message comes after it.
        stop = min(stop, first_delayed(blocks, state.now, otherwise=stop))
    fresh = Range(pointer, max(pointer, stop))
    if not request.needs_blocks(pointer):
        end = min(fresh.stop, pointer + limit)
        return Lookahead(Ranges.of(Range(pointer, end)), (), 0, end)
    skip_older_than = request.skip_older_than
    return look_ahead(
        blocks,
        fresh,
        limit=limit,
        max_bytes=request.max_bytes,
        skip_before=None if skip_older_than is None else state.sure_now - skip_older_than,
        now=state.now,
    )
