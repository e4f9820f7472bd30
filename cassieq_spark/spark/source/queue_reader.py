"""All partitions of one queue, or of several, in a run of a streaming query, without Spark."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.errors import InvariantError, QueueStateError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.partitions import ensure_groups
from cassieq_spark.groups.presence import Presence
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition, QueueId, name_of
from cassieq_spark.parallel import in_parallel
from cassieq_spark.queues import ledgers_of, read_queue
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.spark.source.metrics import NO_METRICS, SourceMetrics
from cassieq_spark.spark.source.offsets import (
    initial_offset,
    join_partitions,
    join_queues,
    split_partitions,
    split_queues,
)
from cassieq_spark.spark.source.partition_reader import PartitionReader
from cassieq_spark.spark.source.tasks import TaskPart, plan_tasks
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: A query of several queues reads one more.
QUEUE_FOUND = "read.queue_found"
#: A query of several queues leaves one that was deleted, purged or created anew.
QUEUE_LEFT = "read.queue_left"

#: How long, at least, a reader whose share has nothing waits before it looks at the other
#: partitions; up to half as long again.
LOOK_AT_OTHERS = timedelta(seconds=10)
#: How often a reader of several queues looks which queues there are.
FIND_QUEUES = timedelta(seconds=10)

#: Spark asks an idle query again within some hundredths of a second; longer pauses are work.
_BUSY_SECONDS = 0.05

_NO_LIMITS = LeaseRequest()
#: Figures of which the largest of several partitions counts; all others are added up.
_LARGEST = {"oldest_age_ms", "v"}

_K = TypeVar("_K", int, tuple[str, int])
#: A partition: name of its queue, and its number.
Key = tuple[str, int]


@dataclass(slots=True)
class _Member:
    """A queue that is read.

    Attributes:
        queue: The queue.
        presence: Says which partitions are in the share of the reader.
        is_leaving: True if only its last batch is to be acked.
    """

    queue: QueueDefinition
    presence: Presence
    is_leaving: bool = False

    @property
    def keys(self) -> list[Key]:
        return [(self.queue.name, number) for number in range(self.queue.partitions)]


class QueueReader:
    """Leases, acks and finds the messages of one queue, or of several, for one consumer group.

    The reader sends one LWT per partition that had messages in the batch before or has some in the
    next, all in parallel. A crash between them leaves leases that run out. The readers of a
    group divide the partitions: each leases from its share (see `Presence`). If its share has
    nothing, a reader looks at the other partitions now and then, or at once after `aim`. Not
    thread-safe.

    Several queues are read as if each of their partitions were one of a single queue: limits are
    divided among all of them. Every ten seconds the reader looks which queues there are. A queue
    that is new begins at its earliest message, also if it came while the query did not run. A
    queue that a restarted query selects no more is left when its last batch is acked.

    Args:
        store: Where the queues are kept.
        queue: The queue; None: those that ``select`` returns.
        group: The group; created if it does not exist, see `ensure_groups`.
        starting: Where a new group starts; of several queues, in the first run of the query.
        fail_on_data_loss: True if a new group may not start where messages are deleted already,
            and if a queue of several may not be deleted or purged while it is read.
        request: The limits and the length of the leases; by default, no limits. A limit of
            messages in flight is divided among the partitions.
        max_trigger_delay: Longest time from batch to batch because of ``request.min_messages``.
        with_receipts: True if tasks may record outcomes for the ack of a batch.
        checkpoint: The location of the query's checkpoint; None if unknown.
        select: Returns the queues to read, as they are now.
        check_fits: Refuses a queue whose messages the rows can't show; called before a batch is
            repeated that has messages of a queue that is not selected any more.

    Attributes:
        queue: The queue; None if ``select`` was given.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        queue: QueueDefinition | None,
        group: str,
        *,
        starting: StartingPosition,
        fail_on_data_loss: bool = True,
        request: LeaseRequest = _NO_LIMITS,
        max_trigger_delay: timedelta = timedelta(minutes=15),
        with_receipts: bool = False,
        checkpoint: str | None = None,
        select: Callable[[], Sequence[QueueDefinition]] | None = None,
        check_fits: Callable[[QueueDefinition], None] | None = None,
    ) -> None:
        self.queue = queue
        self._store, self._group = store, group
        self._fails_on_loss = fail_on_data_loss
        self._max_trigger_delay = max_trigger_delay
        self._max_in_flight = request.max_in_flight
        self._request = request
        self._checkpoint = checkpoint
        # A limit of the group depends on what other readers hold, and an ack on the outcomes that
        # tasks have recorded: both need the state as it is now.
        is_alone = request.max_in_flight is None and not with_receipts
        self._cache_for = idle_backoff.RECHECK if is_alone else timedelta(0)
        self._members: dict[str, _Member] = {}
        self._readers: dict[Key, PartitionReader] = {}
        self._select, self._check_fits = select, check_fits
        #: True if the query fails when a queue is deleted or purged.
        self._is_vital = select is None or fail_on_data_loss
        self._starting = starting
        #: The queues that are read once the first offset says where their groups begin.
        self._selected = None if select is None else select()
        if queue is not None:
            self._admit_all([queue], starting)
        self._find_at = time.monotonic() + FIND_QUEUES.total_seconds()
        #: Partitions whose part of the last batch is settled.
        self._settled: set[Key] = set()
        #: The share at the last lease: the figures are of these partitions. None before the first
        #: lease.
        self._own: frozenset[Key] | None = None
        self._others_at = _next_look_at_others()
        self._is_aimed = False
        self._leased_at = -math.inf
        self._returned_at = time.monotonic()

    @property
    def queues(self) -> list[QueueDefinition]:
        """The queues that are read now, by name."""
        return [self._members[name].queue for name in sorted(self._members)]

    def aim(self) -> None:
        """Deliver only messages that are published by now (AvailableNow).

        One read per partition.
        """
        self._is_aimed = True
        in_parallel(PartitionReader.aim, list(self._readers.values()))

    def _begin(self, offset: Mapping[str, Any]) -> None:
        """Read the queues that were selected at the start, unless they are read already.

        Their groups are made only now: a query that has had a batch before is owed all messages of
        a queue that is new to it, and only its offset says so.
        """
        if self._selected is None:
            return
        is_first = not split_queues(offset, self._group)
        self._admit_all(self._selected, self._starting if is_first else "earliest")
        self._selected = None
        if self._is_aimed:
            in_parallel(PartitionReader.aim, list(self._readers.values()))

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
            self._begin(done)
            self._find_queues()
            return self._next_batch(done, limit=limit)
        except QueueStateError:
            if self._is_vital or not self._leave_lost():
                raise
            return self._next_batch(done, limit=limit)
        finally:
            self._returned_at = time.monotonic()

    def _next_batch(self, done: Mapping[str, Any], *, limit: int | None) -> Mapping[str, Any]:
        parts = self._split(done)
        share = self.share()
        held = {key for key, part in parts.items() if "lease" in part} - self._settled
        ends = self._lease(self._wait_until_due(share, held), parts, limit, only_ack=held - share)
        self._settled |= held
        if not ends and self._is_time_for_others():
            # A query that is aimed ends here if it is given nothing, so it leaves none out.
            others = set(parts) - share - (set() if self._is_aimed else held) - self._leaving()
            ends = self._lease(sorted(others), parts, limit)
        self._own = share
        if not ends:
            return done
        self._settled.clear()
        self._leased_at = time.monotonic()
        return self._join(ends)

    def tasks(
        self,
        end: Mapping[str, Any],
        *,
        messages_per_task: int | None = None,
        min_partitions: int | None = None,
        limit: int | None = None,
    ) -> list[tuple[TaskPart, ...]]:
        """Find the messages of the batch that ends at ``end``. At most two reads per range.

        `plan_tasks` cuts them into tasks. In a queue ordered by key, all messages of a partition
        are in one task.

        If this process has not leased the batch, Spark replays it. The reader takes up the batch's
        lease again, by one LWT more per partition, and leaves out what others have taken
        meanwhile.
        """
        self._begin(end)
        parts = self._split(end)
        for member in self._members.values():
            if member.is_leaving and self._check_fits is not None:
                # Before its messages are taken up, which counts as a delivery.
                self._check_fits(member.queue)

        def find(key: Key) -> TaskPart | None:
            return self._readers[key].find(parts[key], limit=limit)

        return plan_tasks(
            [part for part in in_parallel(find, sorted(parts)) if part is not None],
            messages_per_task=messages_per_task,
            min_partitions=min_partitions,
            may_combine=len(self._readers) > 1,
        )

    def report(self) -> dict[str, Any] | None:
        """The metrics of the run, of all partitions together; see `SourceMetrics.report`.

        For partitions outside the share, only what this run has done counts. If a single queue has
        several, ``partitions`` names those of the other figures; without a share, these are 0.
        """
        own = self._own
        if own is None:
            return None
        readers = sorted(self._readers.items())
        # Mostly none: Spark asks for the metrics whenever it has asked for messages.
        to_read = [it.metrics for key, it in readers if key in own and it.metrics.is_to_read]
        in_parallel(SourceMetrics.read_oldest, to_read)
        found = [reader.metrics.report(is_own=key in own) for key, reader in readers]
        reports = [each for each in found if each is not None]
        if not own:
            reports.append(NO_METRICS)
        if not reports:
            return None
        told: dict[str, Any] = sum_of_reports(reports)
        if self.queue is None:
            told["queues"] = sorted(self._members)
        elif len(readers) > 1:
            told["partitions"] = [at for at, each in enumerate(found) if each and "next" in each]
        return dict(sorted(told.items()))

    def stop(self, *, with_release: bool = True) -> None:
        """Give up the batch in hand; never raises. See `PartitionReader.stop`."""
        stop = partial(PartitionReader.stop, with_release=with_release)
        in_parallel(stop, list(self._readers.values()))
        for member in self._members.values():
            member.presence.leave()

    # -- which queues -----------------------------------------------------------------------------

    def _admit_all(self, queues: Iterable[QueueDefinition], starting: StartingPosition) -> None:
        """Read these queues, too; their groups are made first, several at a time."""

        def ensure(queue: QueueDefinition) -> list[int | None] | None:
            try:
                return ensure_groups(
                    ledgers_of(self._store, queue),
                    self._group,
                    make_group=True,
                    starting=starting,
                    fail_on_data_loss=self._fails_on_loss,
                )
            except QueueStateError:
                if self._is_vital or not self._is_lost(queue.name, queue.queue_id):
                    raise
                # It was deleted or purged since it was selected.
                return None

        queues = list(queues)
        for queue, begins in zip(queues, in_parallel(ensure, queues), strict=True):
            if begins is None:
                self._find_at = 0.0
            else:
                self._admit(queue, begins)

    def _admit(
        self, queue: QueueDefinition, begins: Sequence[int | None], *, is_leaving: bool = False
    ) -> None:
        lease = self._request.lease or queue.lease
        presence = Presence(self._store, queue, self._group, lease=lease)
        member = self._members[queue.name] = _Member(queue, presence, is_leaving)
        for key, part, began in zip(member.keys, queue.by_partition, begins, strict=True):
            consumer = Consumer(self._store, part, self._group, cache_for=self._cache_for)
            self._readers[key] = PartitionReader(
                consumer, self._request, checkpoint=self._checkpoint, begins=began
            )

    def _find_queues(self) -> None:
        """Look which queues there are, if it is time, and read those that are new."""
        if self._select is None or self._is_aimed or time.monotonic() < self._find_at:
            return
        self._find_at = time.monotonic() + FIND_QUEUES.total_seconds()
        selected = {queue.name: queue for queue in self._select()}
        for name in sorted(self._members.keys() - selected.keys()):
            # What a query selects does not change while it runs.
            if not self._members[name].is_leaving:
                self._check_still_there(name)
        new = [queue for name, queue in selected.items() if name not in self._members]
        for queue in new:
            self._tell(QUEUE_FOUND, queue.name, "is read from now on")
        self._admit_all(new, "earliest")

    def _check_still_there(self, name: str) -> None:
        """Raise `QueueStateError` if a queue that is read is not there any more."""
        # A row that can't be read now says nothing, and its messages can be read all the same.
        with suppress(InvariantError):
            read_queue(self._store, name)

    def _leave_lost(self) -> bool:
        """Leave the queues that were deleted, purged or made anew; False if there are none."""
        lost = [each for each in self.queues if self._is_lost(each.name, each.queue_id)]
        for queue in lost:
            self._tell(QUEUE_LEFT, queue.name, "was deleted, purged or made anew: it is left")
            self._leave(queue.name)
        # One that was made anew is found again.
        self._find_at = 0.0
        return bool(lost)

    def _is_lost(self, name: str, queue_id: QueueId) -> bool:
        try:
            return read_queue(self._store, name).queue_id != queue_id
        except QueueStateError:
            return True
        except InvariantError:
            return False

    def _leave(self, name: str) -> None:
        member = self._members.pop(name)
        for key in member.keys:
            self._readers.pop(key).abandon()
            self._settled.discard(key)
        member.presence.leave()

    def _leaving(self) -> set[Key]:
        return {key for each in self._members.values() if each.is_leaving for key in each.keys}

    def _tell(self, action: str, queue: str, what: str) -> None:
        about = {"action": action, "queue": queue, "group": self._group}
        logger.warning("group %r: queue %r %s", self._group, queue, what, extra=about)

    # -- offsets ----------------------------------------------------------------------------------

    def _split(self, offset: Mapping[str, Any]) -> Mapping[Key, Mapping[str, Any]]:
        """The offset of each partition; the initial offset where the batch has no messages."""
        if self.queue is not None:
            return self._split_one(self.queue, offset)
        parts: dict[Key, Mapping[str, Any]] = {}
        ends = {
            name_of(queue_id): (queue_id, end)
            for queue_id, end in split_queues(offset, self._group).items()
        }
        # A queue that was made anew is another one than the offset says.
        there = {name for name, (queue_id, _) in ends.items() if self._has(name, queue_id)}
        for name in sorted(there):
            parts |= self._split_one(self._members[name].queue, ends[name][1])
        for name in [name for name in self._members if name not in there]:
            if self._members[name].is_leaving:
                self._leave(name)
                continue
            first = initial_offset(name, self._group)
            parts |= dict.fromkeys(self._members[name].keys, first)
            if ends:
                # The batch says nothing of it: what the group was given before is not missing.
                for key in self._members[name].keys:
                    self._readers[key].forget_beginning()
        return parts

    def _split_one(
        self, queue: QueueDefinition, offset: Mapping[str, Any]
    ) -> dict[Key, Mapping[str, Any]]:
        if queue.partitions == 1:
            return {(queue.name, 0): offset}
        parts = split_partitions(offset, queue, self._group)
        return {(queue.name, number): part for number, part in parts.items()}

    def _has(self, name: str, queue_id: QueueId) -> bool:
        """True if a queue of an offset is read; if it is not selected, its batch is still acked.

        Raises:
            QueueStateError: The queue was deleted, purged or made anew, and that is an error.
        """
        member = self._members.get(name)
        if member is None or member.queue.queue_id != queue_id:
            if not self._fails_on_loss and self._is_lost(name, queue_id):
                return False
            queue = read_queue(self._store, name)
            if member is None:
                self._admit(queue, [None] * queue.partitions, is_leaving=True)
        return True

    def _join(self, ends: Mapping[Key, Mapping[str, Any]]) -> dict[str, Any]:
        by_queue: dict[str, dict[int, Mapping[str, Any]]] = {}
        for (name, number), end in ends.items():
            by_queue.setdefault(name, {})[number] = end
        joined = [self._join_one(self._members[name].queue, it) for name, it in by_queue.items()]
        return joined[0] if self.queue is not None else join_queues(joined, group=self._group)

    def _join_one(
        self, queue: QueueDefinition, ends: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, Any]:
        if queue.partitions == 1:
            return dict(ends[0])
        return join_partitions(ends, queue_id=queue.queue_id, group=self._group)

    # -- leases -----------------------------------------------------------------------------------

    def share(self) -> frozenset[Key]:
        """The partitions that this reader takes; see `Presence.share`."""
        members = [each for each in self._members.values() if not each.is_leaving]
        return frozenset(
            (each.queue.name, number) for each in members for number in each.presence.share()
        )

    def _wait_until_due(self, share: Collection[Key], held: Collection[Key]) -> list[Key]:
        """Sleep until it is time to look at some partitions, and return these."""
        # The partitions of other readers count as one more.
        looked_at = min(len(self._readers), len(share) + 1)
        for key in share:
            self._readers[key].idle.partitions = looked_at
        left = {key: self._readers[key].idle.left() for key in {*share, *held}}
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
        return sorted(key for key, seconds in left.items() if seconds <= shortest)

    def _is_time_for_others(self) -> bool:
        if not self._is_aimed and time.monotonic() < self._others_at:
            return False
        self._others_at = _next_look_at_others()
        return True

    def _lease(
        self,
        keys: Sequence[Key],
        parts: Mapping[Key, Mapping[str, Any]],
        limit: int | None,
        *,
        only_ack: Collection[Key] = (),
    ) -> dict[Key, Mapping[str, Any]]:
        """Ack and lease in these partitions; return the ends of those that have a batch."""

        def look(key: Key) -> LedgerHead | None:
            return self._readers[key].look(parts[key])

        found = zip(keys, in_parallel(look, keys), strict=True)
        heads = {key: head for key, head in found if head is not None}
        shares = self._shares(
            {key: head for key, head in heads.items() if key not in only_ack}, limit
        )
        nothing = replace(self._request, max_messages=0, min_messages=0, max_bytes=None)

        def lease(key: Key) -> Mapping[str, Any]:
            share = shares.get(key, nothing)
            return self._readers[key].lease(parts[key], heads[key], share)

        leased = zip(heads, in_parallel(lease, list(heads)), strict=True)
        return {key: end for key, end in leased if end is not parts[key]}

    def _shares(
        self, heads: Mapping[Key, LedgerHead], limit: int | None
    ) -> dict[Key, LeaseRequest]:
        """How much to lease from each partition that may have messages."""
        since = time.monotonic() - self._leased_at
        is_overdue = self._is_aimed or since >= self._max_trigger_delay.total_seconds()
        least = 0 if is_overdue else self._request.min_messages
        request = replace(self._request, max_messages=limit, min_messages=least)
        if self._max_in_flight is not None:
            share = -(-self._max_in_flight // len(self._readers))
            request = replace(request, max_in_flight=share)
        if len(self._readers) == 1:
            return dict.fromkeys(heads, request)
        fresh = {key: self._readers[key].fresh(head) for key, head in heads.items()}
        if None in fresh.values() or sum(each or 0 for each in fresh.values()) >= least:
            request = replace(request, min_messages=0)
        if request.max_bytes is not None:
            request = replace(request, max_bytes=-(-request.max_bytes // max(1, len(heads))))
        limits = share_out(limit, fresh)
        return {key: replace(request, max_messages=limits[key]) for key in heads}


def _next_look_at_others() -> float:
    # Readers that began together do not all look at the same moment.
    part = random.uniform(1, 1.5)  # noqa: S311 (jitter, not a secret)
    return time.monotonic() + part * LOOK_AT_OTHERS.total_seconds()


def share_out(limit: int | None, wanted: Mapping[_K, int | None]) -> dict[_K, int | None]:
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
    shares: dict[_K, int | None] = {}
    left = limit
    # Partitions that need least come first, so that the others get what these leave.
    in_order = sorted(wanted, key=lambda key: (wanted[key] or limit, key))
    for at, key in enumerate(in_order):
        fair = left // (len(in_order) - at)
        shares[key] = max(1, min(wanted[key] or fair, fair))
        left = max(0, left - (shares[key] or 0))
    return {key: shares[key] for key in wanted}


def sum_of_reports(reports: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The metrics of several partitions together."""
    names = sorted({name for each in reports for name in each})
    return {
        name: (max if name in _LARGEST else sum)(each[name] for each in reports if name in each)
        for name in names
    }
