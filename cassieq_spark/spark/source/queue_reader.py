"""All partitions of a queue in a run of a streaming query, without Spark."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.partitions import ensure_groups
from cassieq_spark.groups.presence import Presence
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition
from cassieq_spark.parallel import in_parallel
from cassieq_spark.queues import ledgers_of
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.spark.source.metrics import NO_METRICS
from cassieq_spark.spark.source.offsets import join_partitions, split_partitions
from cassieq_spark.spark.source.partition_reader import PartitionReader
from cassieq_spark.spark.source.tasks import TaskPart, pack
from cassieq_spark.store.protocol import Store

#: How long, at least, a reader whose share has nothing waits before it looks at the other
#: partitions; up to half as long again.
LOOK_AT_OTHERS = timedelta(seconds=10)

#: Spark asks an idle query again within some hundredths of a second; longer pauses are work.
_BUSY_SECONDS = 0.05

_NO_LIMITS = LeaseRequest()
#: Figures of which the largest of several partitions counts; all others are added up.
_LARGEST = {"oldest_age_ms", "v"}


class QueueReader:
    """Leases, acks and finds the messages of a queue for one consumer group.

    The reader sends one LWT per partition that had messages in the batch before or has some in the
    next, all in parallel. A crash between them leaves leases that run out. The readers of a
    group divide the partitions: each leases from its share (see `Presence`). If its share has
    nothing, a reader looks at the other partitions now and then, or at once after `aim`. Not
    thread-safe.

    Args:
        store: Where the queue is kept.
        queue: The queue.
        group: The group; created if it does not exist, see `ensure_groups`.
        starting: Where a new group starts.
        fail_on_data_loss: True if a new group may not start where messages are deleted already.
        request: The limits and the length of the leases; by default, no limits. A limit of
            messages in flight is divided among the partitions.
        max_trigger_delay: Longest time from batch to batch because of ``request.min_messages``.
        with_receipts: True if tasks may record outcomes for the ack of a batch.
        checkpoint: The location of the query's checkpoint; None if unknown.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        queue: QueueDefinition,
        group: str,
        *,
        starting: StartingPosition,
        fail_on_data_loss: bool = True,
        request: LeaseRequest = _NO_LIMITS,
        max_trigger_delay: timedelta = timedelta(minutes=15),
        with_receipts: bool = False,
        checkpoint: str | None = None,
    ) -> None:
        begin = ensure_groups(
            ledgers_of(store, queue),
            group,
            make_group=True,
            starting=starting,
            fail_on_data_loss=fail_on_data_loss,
        )
        self.queue = queue
        self._group = group
        self._max_trigger_delay = max_trigger_delay
        if request.max_in_flight is not None:
            share = -(-request.max_in_flight // queue.partitions)
            request = replace(request, max_in_flight=share)
        self._request = request
        # A limit of the group depends on what other readers hold, and an ack on the outcomes that
        # tasks have recorded: both need the state as it is now.
        is_alone = request.max_in_flight is None and not with_receipts
        cache_for = idle_backoff.RECHECK if is_alone else timedelta(0)
        consumers = (
            Consumer(store, each, group, cache_for=cache_for) for each in queue.by_partition
        )
        self._readers = [
            PartitionReader(each, request, checkpoint=checkpoint, begins=begins)
            for each, begins in zip(consumers, begin, strict=True)
        ]
        self._presence = Presence(store, queue, group, lease=request.lease or queue.lease)
        #: Partitions whose part of the last batch is settled.
        self._settled: set[int] = set()
        #: The share at the last lease: the figures are of these partitions. None before the first
        #: lease.
        self._own: frozenset[int] | None = None
        self._others_at = _next_look_at_others()
        self._is_aimed = False
        self._leased_at = -math.inf
        self._returned_at = time.monotonic()

    def aim(self) -> None:
        """Deliver only messages that are published by now (AvailableNow).

        One read per partition.
        """
        self._is_aimed = True
        in_parallel(PartitionReader.aim, self._readers)

    def next_batch(self, done: Mapping[str, Any], *, limit: int | None) -> Mapping[str, Any]:
        """Ack the batch that ended at ``done`` and lease the next. Sleeps first, if it is idle.

        The reader does not sleep if Spark was busy since the last call, for example with a batch
        of another source of the query, which an idle source must not delay. It looks at its queue
        when that is due.

        Per partition one LWT and one read; two reads more if the reader has not read the group
        recently, or others lease there too. No LWT if there is nothing to ack and nothing to
        lease.

        Returns:
            The end of the next batch; ``done`` itself if there is nothing to deliver.
        """
        try:
            return self._next_batch(done, limit=limit)
        finally:
            self._returned_at = time.monotonic()

    def _next_batch(self, done: Mapping[str, Any], *, limit: int | None) -> Mapping[str, Any]:
        parts = self._split(done)
        share = self._presence.share()
        held = {number for number, part in parts.items() if "lease" in part} - self._settled
        ends = self._lease(self._wait_until_due(share, held), parts, limit, only_ack=held - share)
        self._settled |= held
        if not ends and self._is_time_for_others():
            # A query that is aimed ends here if it is given nothing, so it leaves none out.
            others = set(parts) - share - (set() if self._is_aimed else held)
            ends = self._lease(sorted(others), parts, limit)
        self._own = share
        if not ends:
            return done
        self._settled.clear()
        self._leased_at = time.monotonic()
        if self.queue.partitions == 1:
            return ends[0]
        return join_partitions(ends, queue_id=self.queue.queue_id, group=self._group)

    def tasks(
        self, end: Mapping[str, Any], *, messages_per_task: int, limit: int | None = None
    ) -> list[tuple[TaskPart, ...]]:
        """Find the messages of the batch that ends at ``end``. At most two reads per range.

        In a queue ordered by key, all messages of a partition are in one task.

        If this process has not leased the batch, Spark replays it. The reader takes up the batch's
        lease again, by one LWT more per partition, and leaves out what others have taken
        meanwhile.
        """
        parts = self._split(end)

        def find(number: int) -> list[TaskPart]:
            return self._readers[number].tasks(
                parts[number], messages_per_task=messages_per_task, limit=limit
            )

        found = in_parallel(find, sorted(parts))
        return pack(self.queue, chain.from_iterable(found), messages_per_task)

    def report(self) -> dict[str, Any] | None:
        """The metrics of the run, of all partitions together; see `SourceMetrics.report`.

        For partitions outside the share, only what this run has done counts. If there are
        several, ``partitions`` names those of the other figures; without a share, these are 0.
        """
        own = self._own
        if own is None:
            return None

        def report(number: int) -> dict[str, int] | None:
            return self._readers[number].metrics.report(is_own=number in own)

        found = in_parallel(report, range(len(self._readers)))
        reports = [each for each in found if each is not None]
        if not own:
            reports.append(NO_METRICS)
        if not reports:
            return None
        told: dict[str, Any] = sum_of_reports(reports)
        if self.queue.partitions > 1:
            told["partitions"] = [at for at, each in enumerate(found) if each and "next" in each]
        return dict(sorted(told.items()))

    def stop(self, *, with_release: bool = True) -> None:
        """Give up the batch in hand; never raises. See `PartitionReader.stop`."""
        in_parallel(partial(PartitionReader.stop, with_release=with_release), self._readers)
        self._presence.leave()

    def _split(self, offset: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
        if self.queue.partitions == 1:
            return {0: offset}
        return split_partitions(offset, self.queue, self._group)

    def _wait_until_due(self, share: Collection[int], held: Collection[int]) -> list[int]:
        """Sleep until it is time to look at some partitions, and return these."""
        for number in share:
            # The partitions of other readers count as one more.
            self._readers[number].idle.partitions = min(self.queue.partitions, len(share) + 1)
        left = {number: self._readers[number].idle.left() for number in {*share, *held}}
        shortest = min(left.values(), default=idle_backoff.LONGEST_PAUSE.total_seconds())
        if shortest > 0:
            # With `availableNow`, the query would end with a call that does not look.
            if time.monotonic() - self._returned_at > _BUSY_SECONDS and not self._is_aimed:
                return []
            time.sleep(shortest)
        if self._request.min_messages:
            # The messages of all of them count together, and make one batch. Looked at together,
            # they are due together from then on.
            return sorted(left)
        return sorted(number for number, seconds in left.items() if seconds <= shortest)

    def _is_time_for_others(self) -> bool:
        if not self._is_aimed and time.monotonic() < self._others_at:
            return False
        self._others_at = _next_look_at_others()
        return True

    def _lease(
        self,
        numbers: Sequence[int],
        parts: Mapping[int, Mapping[str, Any]],
        limit: int | None,
        *,
        only_ack: Collection[int] = (),
    ) -> dict[int, Mapping[str, Any]]:
        """Ack and lease in these partitions; return the ends of those that have a batch."""

        def look(number: int) -> LedgerHead | None:
            return self._readers[number].look(parts[number])

        found = zip(numbers, in_parallel(look, numbers), strict=True)
        heads = {number: head for number, head in found if head is not None}
        shares = self._shares(
            {number: head for number, head in heads.items() if number not in only_ack}, limit
        )
        nothing = replace(self._request, max_messages=0, min_messages=0, max_bytes=None)

        def lease(number: int) -> Mapping[str, Any]:
            share = shares.get(number, nothing)
            return self._readers[number].lease(parts[number], heads[number], share)

        leased = zip(heads, in_parallel(lease, list(heads)), strict=True)
        return {number: end for number, end in leased if end is not parts[number]}

    def _shares(
        self, heads: Mapping[int, LedgerHead], limit: int | None
    ) -> dict[int, LeaseRequest]:
        """How much to lease from each partition that may have messages."""
        since = time.monotonic() - self._leased_at
        is_overdue = self._is_aimed or since >= self._max_trigger_delay.total_seconds()
        least = 0 if is_overdue else self._request.min_messages
        request = replace(self._request, max_messages=limit, min_messages=least)
        if self.queue.partitions == 1:
            return dict.fromkeys(heads, request)
        fresh = {number: self._readers[number].fresh(head) for number, head in heads.items()}
        if None in fresh.values() or sum(each or 0 for each in fresh.values()) >= least:
            request = replace(request, min_messages=0)
        if request.max_bytes is not None:
            request = replace(request, max_bytes=-(-request.max_bytes // max(1, len(heads))))
        limits = share_out(limit, fresh)
        return {number: replace(request, max_messages=limits[number]) for number in heads}


def _next_look_at_others() -> float:
    # Readers that began together do not all look at the same moment.
    part = random.uniform(1, 1.5)  # noqa: S311 (jitter, not a secret)
    return time.monotonic() + part * LOOK_AT_OTHERS.total_seconds()


def share_out(limit: int | None, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
    """Divide a limit of messages among partitions, by how many messages each has.

    A partition that needs less than its share leaves the rest to the others; each gets at least
    one message. A partition without known fresh messages may have messages that are due again, so
    it gets a full share.

    >>> share_out(100, {0: 10, 1: 500, 2: 500})
    {0: 10, 1: 45, 2: 45}

    Args:
        limit: Maximum number of messages of all partitions together; None for no limit.
        wanted: How many fresh messages each partition has; None, or 0, if unknown.
    """
    if limit is None:
        return dict.fromkeys(wanted)
    shares: dict[int, int | None] = {}
    left = limit
    # Partitions that need least come first, so that the others get what these leave.
    in_order = sorted(wanted, key=lambda number: (wanted[number] or limit, number))
    for at, number in enumerate(in_order):
        fair = left // (len(in_order) - at)
        shares[number] = max(1, min(wanted[number] or fair, fair))
        left = max(0, left - (shares[number] or 0))
    return {number: shares[number] for number in wanted}


def sum_of_reports(reports: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The metrics of several partitions together."""
    names = sorted({name for each in reports for name in each})
    return {
        name: (max if name in _LARGEST else sum)(each[name] for each in reports if name in each)
        for name in names
    }
