"""What is beyond the pointer: messages to lease, to let wait, to pass over. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cassieq_spark.groups.state import Waiting
from cassieq_spark.model import LedgerBlock, Range, Ranges, to_millis


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a walk from the pointer on found.

    Attributes:
        leased: To be handed out.
        waiting: Delayed, to be stepped over until they are due.
        skipped: Too old; they count as settled.
        pointer: Where the walk ended.
    """

    leased: Ranges
    waiting: tuple[Waiting, ...]
    skipped: int
    pointer: int


def walk(  # noqa: PLR0913 (each is a bound of its own, by name)
    blocks: Sequence[LedgerBlock],
    fresh: Range,
    *,
    limit: int | None,
    max_bytes: int | None,
    not_before: datetime | None,
    now: datetime,
) -> Ahead:
    """Walk over the blocks from the pointer on, as far as the limits allow.

    Args:
        blocks: Those that hold the first messages of ``fresh``, in order.
        fresh: What may be offered.
        limit: Most messages to lease; None for no limit. With 0, what comes before the first
            message that could be leased is still stepped over.
        max_bytes: How many bytes to lease, about, but a message at least; None for no limit.
        not_before: Messages visible since before this are skipped; None: never.
        now: By the server's clock.
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
        elif not_before is not None and block.young_since < not_before:
            skipped += len(part)
        else:
            taken = len(part) if limit is None else min(limit, len(part))
            if bytes_left is not None:
                most = bytes_left * len(block.monotons) // max(1, block.size)
                taken = min(taken, max(most, 0 if leased else 1))
                bytes_left -= taken * block.size // len(block.monotons)
            limit = None if limit is None else limit - taken
            leased.append(Range(part.start, part.start + taken))
            at = part.start + taken
            if taken < len(part):
                break
        at = max(at, part.stop)
    waiting = tuple(Waiting(due, Ranges.of(*parts), 0) for due, parts in sorted(delayed.items()))
    return Ahead(Ranges.of(*leased), waiting, skipped, at)
