"""Metrics of a run for Spark's progress, from what was read to lease its batches."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta

from cassieq_spark.groups.lease import Lease
from cassieq_spark.groups.state import Slot, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import LedgerBlock

#: Time between two reads of the ledger for the age of the oldest message.
AGE_PAUSE = timedelta(seconds=5)

_VERSION = 1
_MILLISECOND = timedelta(milliseconds=1)

#: The metrics of a run without a share of the queue partitions.
NO_METRICS = {
    "backlog": 0,
    "dead": 0,
    "leased": 0,
    "lost_leases": 0,
    "next": 0,
    "oldest_age_ms": 0,
    "pointer": 0,
    "skipped": 0,
    "v": _VERSION,
    "waiting": 0,
}


def count_metrics(lease: Lease, end: int) -> dict[str, int]:
    """The group's figures after a batch was leased; ``end`` is the ledger's ``next``.

    A reader reads a hundred waiting rows; messages in further rows are not counted.
    """
    state, others = lease.state, _not_acked(lease)
    waiting = [*state.waiting, *(it for it in lease.left if isinstance(it, Waiting))]
    again = sum(slot.monotons.count for slot in others)
    again += sum(each.monotons.count for each in waiting)
    return {
        "backlog": max(0, end - state.head.pointer) + again - lease.count,
        "leased": lease.count + sum(it.monotons.count for it in others if it.due_at >= state.now),
        "next": end,
        "pointer": lease.pointer,
        "waiting": sum(it.monotons.count for it in waiting if it.due > state.now_ms),
    }


def lowest_owed(lease: Lease, end: int) -> int | None:
    """The lowest monoton that the group is owed, this batch included; None if none is owed."""
    owed = [slot.monotons.start for slot in _not_acked(lease)]
    owed += [waiting.monotons.start for waiting in lease.state.waiting]
    owed += [each.monotons.start for each in lease.left]
    owed += [each.monotons.start for each in lease.leased]
    if lease.pointer < end:
        owed.append(lease.pointer)
    return min(owed, default=None)


def _not_acked(lease: Lease) -> list[Slot]:
    slots = [slot for slot in lease.state.slots if slot.lease != lease.request.held]
    slots += [each for each in lease.left if isinstance(each, Slot)]
    return [slot for slot in slots if slot.monotons]


class SourceMetrics:
    """The figures of one run, after its last batch.

    Args:
        ledger: The ledger of the queue or the queue partition.

    Attributes:
        lost: Messages whose lease ran out in this run, and which other readers got.
        dead: Messages that this run has dead-lettered, or dropped.
        skipped: Messages that were too old to be delivered.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lease: Lease | None = None
        self._end = 0
        self.lost = 0
        self.dead = 0
        self.skipped = 0
        self._oldest: LedgerBlock | None = None
        self._asked_at = -math.inf

    def observe(self, lease: Lease, end: int) -> None:
        """Record what the latest poll has read and leased, and the ledger's ``next``."""
        self._lease, self._end = lease, end

    @property
    def is_to_read(self) -> bool:
        """True if `read_oldest` is due. Never while the reader is idle."""
        lease = self._lease
        if lease is None or not lease.leased:
            return False
        return self._is_outdated(lowest_owed(lease, self._end))

    def read_oldest(self) -> None:
        """Read when the oldest message owed was published. One read; see `is_to_read`."""
        lease = self._lease
        monoton = None if lease is None else lowest_owed(lease, self._end)
        self._asked_at, self._oldest = time.monotonic(), None
        if monoton is not None:
            self._oldest = self._ledger.read_block_of(monoton)

    def report(self, *, is_own: bool = True) -> dict[str, int] | None:
        """The metrics, keys in order; None before the first call of `observe`. No read.

        For `AGE_PAUSE` after `read_oldest`, ``oldest_age_ms`` may be the age of the message that
        was the oldest at that read. It is left out if it is unknown.

        Args:
            is_own: True if the partition is in the share of the run. If not, another run reports
                its figures, and this one reports only what it has done in the partition.
        """
        lease = self._lease
        if lease is None:
            return None
        metrics = {
            "dead": self.dead,
            "lost_leases": self.lost,
            "skipped": self.skipped,
            "v": _VERSION,
        }
        if not is_own:
            return metrics
        metrics |= count_metrics(lease, self._end)
        since = self._oldest_since(lease)
        if since is not None:
            age = max(timedelta(0), lease.state.now - since)
            metrics["oldest_age_ms"] = age // _MILLISECOND
        return dict(sorted(metrics.items()))

    def _oldest_since(self, lease: Lease) -> datetime | None:
        """When the oldest message owed was published; now, if none is owed."""
        monoton = lowest_owed(lease, self._end)
        if monoton is None:
            return lease.state.now
        if self._oldest is None or self._is_outdated(monoton):
            return None
        return self._oldest.published_at

    def _is_outdated(self, monoton: int | None) -> bool:
        """True if the last read was not of this message, and is too long ago."""
        if monoton is None or (self._oldest is not None and monoton in self._oldest.monotons):
            return False
        return time.monotonic() >= self._asked_at + AGE_PAUSE.total_seconds()
