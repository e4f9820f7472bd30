"""Figures of a run for Spark's progress, from what leasing its batches has read anyway."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import Slot, Waiting
from cassieq_spark.ledger.read import read_block_of
from cassieq_spark.model import LedgerBlock, QueueId
from cassieq_spark.store.protocol import Store

#: How often the ledger is asked since when the oldest message waits.
AGE_PAUSE = timedelta(seconds=5)

_VERSION = 1
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one compare-and-set found and did.

    Attributes:
        batch: What it acked and leased, and the group's state before.
        held: Token that it acked, if any.
        next: The ledger's ``next``, read before.
    """

    batch: Lease
    held: UUID | None
    next: int


def count_figures(seen: Seen) -> dict[str, int]:
    """Where the group stands after the batch was leased; pure.

    Waiting messages are counted as far as a reader reads them, so beyond a hundred waiting rows
    there are more.
    """
    batch, state = seen.batch, seen.batch.state
    others = _not_acked(seen)
    waiting = [*state.waiting, *(it for it in batch.left if isinstance(it, Waiting))]
    again = sum(slot.monotons.count for slot in others)
    again += sum(each.monotons.count for each in waiting)
    leased = sum(each.monotons.count for each in batch.leased)
    return {
        "backlog": max(0, seen.next - state.head.pointer) + again - leased,
        "leased": leased + sum(it.monotons.count for it in others if it.due_at >= state.now),
        "next": seen.next,
        "pointer": batch.pointer,
        "waiting": sum(it.monotons.count for it in waiting if it.due > state.now_ms),
    }


def lowest_owed(seen: Seen) -> int | None:
    """Lowest monoton that the group is owed, this batch included; None if none is. Pure."""
    batch = seen.batch
    owed = [slot.monotons.start for slot in _not_acked(seen)]
    owed += [waiting.monotons.start for waiting in batch.state.waiting]
    owed += [each.monotons.start for each in batch.left]
    owed += [leased.monotons.start for leased in batch.leased]
    if batch.pointer < seen.next:
        owed.append(batch.pointer)
    return min(owed, default=None)


def _not_acked(seen: Seen) -> list[Slot]:
    slots = [slot for slot in seen.batch.state.slots if slot.lease != seen.held]
    slots += [each for each in seen.batch.left if isinstance(each, Slot)]
    return [slot for slot in slots if slot.monotons]


class Gauge:
    """What one run has to tell of itself, as of its last batch.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
    """

    def __init__(self, store: Store, queue_id: QueueId) -> None:
        self._store = store
        self._queue_id = queue_id
        self._seen: Seen | None = None
        self._lost = 0
        self._dead = 0
        self._skipped = 0
        self._oldest: LedgerBlock | None = None
        self._asked_at = -math.inf

    def see(self, seen: Seen) -> None:
        """Take note of what the latest call has read and leased."""
        self._seen = seen

    def lose(self, count: int) -> None:
        """Take note of messages that other readers got although this run had them."""
        self._lost += count

    def bury(self, count: int) -> None:
        """Take note of messages that this run has dead-lettered, or dropped."""
        self._dead += count

    def skip(self, count: int) -> None:
        """Take note of messages that were too old to be delivered."""
        self._skipped += count

    def report(self) -> dict[str, int] | None:
        """The figures, keys in order; None before the first call.

        One read at the most, none while idle, and none within `AGE_PAUSE` of the one before:
        until then, ``oldest_age_ms`` may be that of the message that was the oldest at that time.
        It is left out where it is not known.
        """
        if self._seen is None:
            return None
        figures = count_figures(self._seen) | {
            "dead": self._dead,
            "lost_leases": self._lost,
            "skipped": self._skipped,
            "v": _VERSION,
        }
        since = self._oldest_since(self._seen)
        if since is not None:
            age = max(timedelta(0), self._seen.batch.state.now - since)
            figures["oldest_age_ms"] = age // _MILLISECOND
        return dict(sorted(figures.items()))

    def _oldest_since(self, seen: Seen) -> datetime | None:
        """When the oldest message owed was published; now, if none is."""
        monoton = lowest_owed(seen)
        if monoton is None:
            return seen.batch.state.now
        if self._oldest is None or monoton not in self._oldest.monotons:
            asked_lately = time.monotonic() < self._asked_at + AGE_PAUSE.total_seconds()
            if not asked_lately and seen.batch.leased:
                self._asked_at = time.monotonic()
                self._oldest = read_block_of(self._store, self._queue_id, monoton)
            elif not asked_lately:
                self._oldest = None
        return self._oldest.published_at if self._oldest else None
