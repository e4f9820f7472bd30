"""One queue partition in a run of a streaming query, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.heartbeat import LEASE_LOST
from cassieq_spark.consumer.idle_backoff import IdleBackoff
from cassieq_spark.errors import CassieqError
from cassieq_spark.groups.deliveries import is_dead
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.state import Waiting
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import OnDead, Ranges, id_of
from cassieq_spark.spark.source.metrics import SourceMetrics
from cassieq_spark.spark.source.offsets import Offset, decode, encode
from cassieq_spark.spark.source.tasks import TaskPart

logger = logging.getLogger(__name__)

#: A replayed batch has fewer messages than before.
LEFT_OUT = "replay.left_out"
#: The group has been given messages that the checkpoint does not know about.
BEHIND_GROUP = "checkpoint.behind_group"
#: Messages were too old to be delivered.
SKIPPED = "read.skipped"
#: The messages that a stopping query held are due for others.
RELEASED = "lease.released"
#: Spark has died: the messages of the running batch stay under their lease.
KEPT = "lease.kept"
#: Releasing failed: the messages of the stopping query are due when its lease runs out.
RELEASE_FAILED = "lease.release_failed"
#: A stopping query has acked its last batch.
ACKED_AT_LAST = "lease.acked_at_last"
#: A stopping query does not know whether its last batch is done.
CHECKPOINT_UNREADABLE = "checkpoint.unreadable"


class PartitionReader:
    """Leases, acks and finds the messages of one partition; `QueueReader` has one per partition.

    Args:
        consumer: The consumer of the partition, or of the queue if it has only one.
        request: The limits and the length of the leases.
        checkpoint: The location of the query's checkpoint; None if unknown.
        begins: Where the group began, if it existed before this run; None if it is new.
    """

    def __init__(
        self,
        consumer: Consumer,
        request: LeaseRequest,
        *,
        checkpoint: str | None,
        begins: int | None = None,
    ) -> None:
        self.queue = consumer.queue
        self.group = consumer.group
        self._consumer = consumer
        self._request = request
        self._checkpoint = checkpoint
        self._heartbeat = consumer.heartbeat(request.lease or self.queue.lease)
        self._held: UUID | None = None
        #: The token under which this process leased, or took up, its last batch, and the messages.
        self._token: UUID | None = None
        self._leased: tuple[LeasedSlot, ...] = ()
        self._target: int | None = None
        self._pointer: int | None = None
        self._begins = begins
        self._goes_past_dead = self.queue.on_dead is not OnDead.STOP
        self.idle = IdleBackoff(stops_on_dead=not self._goes_past_dead)
        self.metrics = SourceMetrics(self.group.ledger)

    def forget_beginning(self) -> None:
        """Do not compare what the group was given with where it began."""
        self._begins = None

    def aim(self) -> None:
        """Deliver only messages that are published by now. One read."""
        self._target = self.group.ledger.read_head().next

    def look(self, done: Mapping[str, Any]) -> LedgerHead | None:
        """Check whether there may be something to ack or to lease. One read.

        Returns:
            The head of the ledger; None if there is nothing.
        """
        before = self._decode(done)
        self._heartbeat.pause()
        head = self._consumer.read_head()
        held = before.lease if before else None
        return head if self.idle.is_over(held, head.offered_below(self._target)) else None

    def fresh(self, head: LedgerHead) -> int | None:
        """How many messages were never offered to the group; None before the first lease."""
        if self._pointer is None:
            return None
        return max(0, head.offered_below(self._target) - self._pointer)

    def lease(
        self, done: Mapping[str, Any], head: LedgerHead, request: LeaseRequest
    ) -> Mapping[str, Any]:
        """Ack the batch that ended at ``done``, and lease the next; see `QueueReader.next_batch`.

        Args:
            done: Where the batch ended.
            head: What `look` has returned.
            request: How much to lease.
        """
        before = self._decode(done)
        request = self._acking(request, before.lease if before else None)
        request = replace(request, prefer_fresh=before is not None and before.is_redelivery)
        lease = self._poll(before, request, head)
        seen = Ranges()
        # A query that is aimed ends if it is given nothing, and what was behind these is left.
        while not lease.leased and self._target is not None and self._goes_past_dead:
            # What failed is only put off, and may be due again at once: it counts once.
            gone = self._gone(each for each in lease.dead if each.monotons - seen)
            if not gone:
                break
            seen = Ranges.union([seen, gone])
            lease = self._poll(before, request, head)
        if not lease.leased:
            return done
        return encode(
            Offset(
                queue_id=self.queue.queue_id,
                group=self.group.name,
                lease=lease.token,
                pointer=lease.pointer,
                leased=lease.leased,
            )
        )

    def _poll(self, before: Offset | None, request: LeaseRequest, head: LedgerHead) -> Lease:
        """Poll once, and dead-letter messages that are found dead.

        Args:
            before: The batch that is acked, if any.
            request: That batch again, and how much to lease.
            head: The head of the ledger.
        """
        lease = self._consumer.poll(request, head, stop=self._target)
        if self._pointer is None:
            self._compare(before, lease)
        known = () if self._pointer is None else lease.state.waiting
        self._pointer = lease.pointer
        self._report_lost(before, lease.acked_slots)
        self.metrics.observe(lease, head.next)
        self._hold(lease.token if lease.leased else None, lease.leased)
        self.metrics.dead += self._consumer.dead_letter(lease.dead, known=known)
        self.metrics.skipped += lease.skipped
        if lease.skipped:
            text = "%s: skipped %d messages that were too old (option skipOlderThan)"
            self._warn(SKIPPED, lease.skipped, text)
        self.idle.record(lease)
        return lease

    def _compare(self, before: Offset | None, lease: Lease) -> None:
        """In the first poll of a run, warn if the group has been given more than the query knows.

        Args:
            before: Where the last batch of the checkpoint ended; None if there is none.
            lease: What the poll has found.
        """
        pointer = lease.state.head.pointer
        begins = self._begins if before is None else before.pointer
        if begins is not None and pointer > begins:
            self._warn(
                BEHIND_GROUP,
                pointer - begins,
                "%s was given %d messages of which the checkpoint of this query knows nothing: by "
                "other queries of the group; or by this one, and the checkpoint is new, or an "
                "older copy. Then a sink that knows batches by their numbers, such as files, "
                "skips or overwrites some: see docs/recipes.md, Begin with a new checkpoint",
            )

    def _gone(self, dead: Iterable[Waiting]) -> Ranges:
        """The messages of these dead rows that no longer wait in their rows. One read per row."""
        return Ranges.union(each.monotons for each in dead if not self._consumer.is_waiting(each))

    def find(self, end: Mapping[str, Any], *, limit: int | None) -> TaskPart | None:
        """Find the messages of the batch that ends at ``end``; see `QueueReader.tasks`.

        Returns:
            All of them; None if there are none.
        """
        offset = self._decode(end)
        if offset is None:
            return None
        if offset.lease != self._held:
            self._take_again(offset, limit)
        # A replay has the rows that the batch had, in every column: Spark's contract. The count
        # that the state has goes on deciding limits.
        planned = {each.slot: each.deliveries for each in offset.leased}
        pieces = self._consumer.find(
            [
                replace(each, deliveries=planned.get(each.slot, each.deliveries))
                for each in self._leased
            ]
        )
        if not pieces:
            return None
        # A batch is one slot, so all of its messages were handed out the same number of times.
        prefix = receipt_prefix(
            self.queue.queue_id, self.group.name, offset.lease, self._leased[0].deliveries
        )
        return TaskPart(self.queue, tuple(pieces), prefix)

    def abandon(self) -> None:
        """Let go of a partition that does not exist any more, or of which nothing is held."""
        self._heartbeat.stop()
        self._held = None

    def stop(self, *, with_release: bool = True) -> None:
        """Give up the batch in hand. Two reads and one LWT; never raises.

        If the checkpoint says that Spark has committed the batch, it is acked. Otherwise it is
        released for any reader, except messages that have reached the limit of deliveries: the
        next reader would dead-letter them although they may be done, so they stay under the lease
        of this query until it runs out.

        Args:
            with_release: False if uncommitted messages stay under the lease until it runs out, as
                if this process had died, too.
        """
        self._heartbeat.stop()
        if self._held is None:
            return
        about = self._consumer.log_fields
        limit = self.queue.max_deliveries
        to_release = [each for each in self._leased if not is_dead(each.deliveries, limit)]
        try:
            if self._is_committed(self._held):
                acked = self._consumer.ack(self._acking(self._request, self._held)).acked
                logger.info(
                    "acked %d messages of the last batch, which Spark has committed",
                    acked,
                    extra={"action": ACKED_AT_LAST, "count": acked, **about},
                )
                return
            if not with_release:
                logger.warning(
                    "Spark has died, so the messages of the running batch are not released: the "
                    "same query, restarted, takes them up, and others get them when the lease "
                    "runs out",
                    extra={"action": KEPT, **about},
                )
                return
            count = self._consumer.release(self._held, to_release)
        except CassieqError as error:
            # An unreadable row, too: the reader may stop because of it.
            logger.warning(
                "could not release the messages of the stopped query; they are due "
                "when their lease runs out: %s",
                error,
                extra={"action": RELEASE_FAILED, **about},
            )
        else:
            logger.info("released %d messages", count, extra={"action": RELEASED, **about})
        finally:
            self._held = None

    def _is_committed(self, held: UUID) -> bool:
        if self._checkpoint is None:
            return False
        from cassieq_spark.spark.checkpoint import look_up  # noqa: PLC0415 (only here)

        told = look_up(self._checkpoint, held, id_of(self.queue.name, self.queue.version))
        if told.trouble:
            logger.warning(
                "%s: the checkpoint %s does not say whether the last batch is done, so "
                "its messages are released and delivered again (%s); set the option "
                "checkpointLocation to the checkpoint location of the query, as this "
                "machine reaches it",
                self.group,
                self._checkpoint,
                told.trouble,
                extra={"action": CHECKPOINT_UNREADABLE, **self._consumer.log_fields},
            )
        return told.is_committed

    def _acking(self, request: LeaseRequest, held: UUID | None) -> LeaseRequest:
        """The request with a batch to ack, and its deliveries if this process has leased it.

        Even if this process no longer holds the batch: Spark repeats an offset until there is a
        next batch, and by then a restarted query may have taken the batch up.
        """
        deliveries = None
        if held is not None and held == self._token:
            deliveries = {each.slot: each.deliveries for each in self._leased}
        return replace(request, held=held, held_deliveries=deliveries)

    def _decode(self, offset: Mapping[str, Any]) -> Offset | None:
        return decode(offset, queue_id=self.queue.queue_id, group=self.group.name)

    def _hold(self, lease: UUID | None, leased: tuple[LeasedSlot, ...]) -> None:
        self._held = lease
        if lease is not None:
            self._token, self._leased = lease, leased
            self._heartbeat.hold(lease, leased)

    def _take_again(self, offset: Offset, limit: int | None) -> None:
        request = replace(self._request, held=offset.lease, max_messages=limit)
        leased = self._consumer.take_again(request)
        self._hold(offset.lease, leased)
        if left_out := _count(offset.leased) - _count(leased):
            self._warn(
                LEFT_OUT,
                left_out,
                "%s: a replayed batch leaves out %d messages: others have them, or they were "
                "settled, or the batch has failed too often to be delivered whole",
            )

    def _report_lost(self, before: Offset | None, acked_slots: frozenset[int]) -> None:
        if before is None or before.lease != self._held:
            return
        if lost := _count([each for each in self._leased if each.slot not in acked_slots]):
            self.metrics.lost += lost
            self._warn(
                LEASE_LOST,
                lost,
                "%s: the lease of %d messages ran out and they went to other readers; their batch "
                "was processed, so they may be duplicates",
            )

    def _warn(self, action: str, count: int, text: str) -> None:
        logger.warning(
            text,
            self.group,
            count,
            extra={"action": action, "count": count, **self._consumer.log_fields},
        )


def _count(leased: Sequence[LeasedSlot]) -> int:
    return sum(each.monotons.count for each in leased)
