"""Reading one partition of a queue in a run of a streaming query, without Spark."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.heartbeat import LEASE_LOST, Heartbeat
from cassieq_spark.errors import QueueStateError, StoreError
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest
from cassieq_spark.groups.plan import is_dead
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition, id_of
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.spark.source import idle_backoff
from cassieq_spark.spark.source.metrics import SourceMetrics
from cassieq_spark.spark.source.offsets import Offset, decode, encode
from cassieq_spark.spark.source.tasks import Task, cut_tasks
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

_ALL_THERE_IS = LeaseRequest()

#: A replayed batch has fewer messages than before.
LEFT_OUT = "replay.left_out"
#: Messages were too old to be delivered.
SKIPPED = "read.skipped"
#: What a stopping query held is due for others.
RELEASED = "lease.released"
#: Releasing failed: what the query held is due when its lease runs out.
RELEASE_FAILED = "lease.release_failed"
#: A stopping query has acked its last batch.
ACKED_AT_LAST = "lease.acked_at_last"
#: A stopping query does not know whether its last batch is done.
CHECKPOINT_UNREADABLE = "checkpoint.unreadable"


class Share(NamedTuple):
    """How much a reader leases of one partition; see `LeaseRequest`."""

    max_messages: int | None
    min_messages: int
    max_bytes: int | None


class Reader:
    """Leases, acks and finds the messages of one consumer group for one run of a query.

    Args:
        store: Where the queue is kept.
        queue: Which queue, or which partition of it.
        group: Which group; made if there is none.
        starting: Where a new group starts.
        fail_on_data_loss: Whether a new group may not start where messages are deleted already.
        request: How much it leases at a time, and for how long; by default, all there is.
        max_trigger_delay: Longest time from batch to batch because of ``request.min_messages``.
        with_receipts: Whether outcomes may be recorded for its batches, which it then reads before
            it acks them.
        checkpoint: Where the query's checkpoint is; None: not told.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        queue: QueueDefinition,
        group: str,
        *,
        starting: StartingPosition,
        fail_on_data_loss: bool = True,
        request: LeaseRequest = _ALL_THERE_IS,
        max_trigger_delay: timedelta = timedelta(minutes=15),
        with_receipts: bool = False,
        checkpoint: str | None = None,
    ) -> None:
        self.queue = queue
        # Where there is a limit for all, what others do counts at once; so do outcomes that tasks
        # have recorded.
        is_alone = request.max_in_flight is None and not with_receipts
        self._consumer = Consumer(
            store, queue, group, cache_for=idle_backoff.RECHECK if is_alone else timedelta(0)
        )
        ensure_group(self._consumer.group, starting=starting, fail_on_data_loss=fail_on_data_loss)
        self._request = request
        self._max_trigger_delay = max_trigger_delay
        self._checkpoint = checkpoint
        self._heartbeat = Heartbeat(self._consumer.group, request.lease or queue.lease)
        self._held: UUID | None = None
        self._leased: tuple[LeasedSlot, ...] = ()
        self._target: int | None = None
        self._idle = idle_backoff.IdleBackoff()
        self._pointer: int | None = None
        self._leased_at = -math.inf
        self.metrics = SourceMetrics(self._consumer.group.ledger)

    def aim(self) -> None:
        """Deliver what is there now, and then nothing more (AvailableNow). One read."""
        self._target = self._consumer.group.ledger.read_head().next

    def next_batch(self, done: Mapping[str, Any], *, limit: int | None) -> Mapping[str, Any]:
        """Ack the batch that ended at ``done`` and lease the next. One LWT and a read.

        Two reads more if the last look at the group was long ago, or others read for it too. No
        LWT if there is nothing to ack and nothing to deliver.

        Returns:
            The end of the next batch; ``done`` itself if there is nothing to deliver.
        """
        self._decode(done)
        self._idle.rest()
        head = self.look(done)
        if head is None:
            return done
        share = Share(limit, self._min_messages(), self._request.max_bytes)
        return self.lease(done, head, share)

    @property
    def idle(self) -> idle_backoff.IdleBackoff:
        """When it is to look again."""
        return self._idle

    def look(self, done: Mapping[str, Any]) -> LedgerHead | None:
        """Look whether there may be something to ack or to lease. One read.

        Returns:
            The head of the ledger; None if there is nothing.
        """
        before = self._decode(done)
        self._heartbeat.pause()
        head = self._consumer.read_head()
        held = before.lease if before else None
        return head if self._idle.is_over(held, head.offered_below(self._target)) else None

    def fresh(self, head: LedgerHead) -> int | None:
        """How many messages were never offered to the group; None if that is not known yet."""
        if self._pointer is None:
            return None
        return max(0, head.offered_below(self._target) - self._pointer)

    def lease(self, done: Mapping[str, Any], head: LedgerHead, share: Share) -> Mapping[str, Any]:
        """Ack the batch that ended at ``done``, and lease; see `next_batch`.

        Args:
            done: Where the batch ended.
            head: What `look` has found.
            share: How much to lease.
        """
        before = self._decode(done)
        held = before.lease if before else None
        request = replace(
            self._request,
            held=held,
            held_deliveries=self._deliveries_of(held),
            max_messages=share.max_messages,
            min_messages=share.min_messages,
            max_bytes=share.max_bytes,
            prefer_fresh=before is not None and before.is_redelivery,
        )
        lease = self._consumer.poll(request, head, stop=self._target)
        self._pointer = lease.pointer
        self._report_lost(before, lease.acked_slots)
        self.metrics.observe(lease, head.next)
        self._hold(lease.token if lease.leased else None, lease.leased)
        self.metrics.dead += self._consumer.dead_letter(lease.dead)
        self._report_skipped(lease.skipped)
        if not lease.leased:
            self._idle.go_on(lease)
            return done
        self._idle.end()
        self._leased_at = time.monotonic()
        return encode(
            Offset(
                queue_id=self.queue.queue_id,
                group=self._consumer.group.name,
                lease=lease.token,
                pointer=lease.pointer,
                leased=lease.leased,
            )
        )

    def tasks(
        self, end: Mapping[str, Any], *, messages_per_task: int | None, limit: int | None = None
    ) -> list[Task]:
        """Find the messages of the batch that ends at ``end``. Two reads for each range, or fewer.

        All of them in one task, if ``messages_per_task`` is None.

        A batch that this process has not leased is one that Spark replays: its lease is taken up
        again, by one more LWT, and what others have taken meanwhile is left out.
        """
        offset = self._decode(end)
        if offset is None:
            return []
        if offset.lease != self._held:
            self._take_again(offset, limit)
        pieces = self._consumer.find(self._leased)
        if messages_per_task is None:
            return [tuple(pieces)] if pieces else []
        return cut_tasks(pieces, self.queue, messages_per_task)

    @property
    def receipt_prefix(self) -> str:
        """What the receipts of the batch in hand begin with; empty if there is none."""
        if self._held is None or not self._leased:
            return ""
        # A batch is one slot, so all of it was handed out as often.
        deliveries = self._leased[0].deliveries
        return receipt_prefix(
            self.queue.queue_id, self._consumer.group.name, self._held, deliveries
        )

    def stop(self) -> None:
        """Give up what is held. Two reads and one LWT; never raises.

        A batch that Spark has committed is acked, if the checkpoint tells so; another one is
        released, for any reader. What was handed out as often as may be is not: the next reader
        would dead-letter it, and it may be done. It is this query's until its lease runs out.
        """
        self._heartbeat.stop()
        if self._held is None:
            return
        about = self._consumer.log_fields
        limit = self.queue.max_deliveries
        to_release = [each for each in self._leased if not is_dead(each.deliveries, limit)]
        try:
            if self._is_committed(self._held):
                self._ack_at_last(self._held)
                return
            count = self._consumer.group.release(self._held, to_release)
        except (StoreError, QueueStateError) as error:
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
        from cassieq_spark.spark.source.checkpoint import look_up  # noqa: PLC0415 (only here)

        told = look_up(self._checkpoint, held, id_of(self.queue.name, self.queue.version))
        if told.trouble:
            logger.warning(
                "%s: the checkpoint %s does not say whether the last batch is done, so "
                "its messages are released and delivered again (%s); set the option "
                "checkpointLocation to the checkpoint location of the query, as this "
                "machine reaches it",
                self._consumer.group,
                self._checkpoint,
                told.trouble,
                extra={"action": CHECKPOINT_UNREADABLE, **self._consumer.log_fields},
            )
        return told.is_committed

    def _ack_at_last(self, held: UUID) -> None:
        request = replace(self._request, held=held, held_deliveries=self._deliveries_of(held))
        lease = self._consumer.ack(request)
        logger.info(
            "acked %d messages of the last batch, which Spark has committed",
            lease.acked,
            extra={"action": ACKED_AT_LAST, "count": lease.acked, **self._consumer.log_fields},
        )

    def _deliveries_of(self, held: UUID | None) -> Mapping[int, int] | None:
        """How often the messages of this batch were handed out, by slot; None: not known here."""
        if held is None or held != self._held:
            return None
        return {each.slot: each.deliveries for each in self._leased}

    def _min_messages(self) -> int:
        """How many messages there must be for a batch."""
        since = time.monotonic() - self._leased_at
        overdue = since >= self._max_trigger_delay.total_seconds()
        return 0 if overdue or self._target is not None else self._request.min_messages

    def _decode(self, offset: Mapping[str, Any]) -> Offset | None:
        return decode(offset, queue_id=self.queue.queue_id, group=self._consumer.group.name)

    def _hold(self, lease: UUID | None, leased: tuple[LeasedSlot, ...]) -> None:
        self._held, self._leased = lease, leased
        if lease is not None:
            self._heartbeat.hold(lease, leased)

    def _take_again(self, offset: Offset, limit: int | None) -> None:
        request = replace(self._request, held=offset.lease, max_messages=limit)
        leased = self._consumer.take_again(request)
        self._hold(offset.lease, leased)
        left_out = _count(offset.leased) - _count(leased)
        if left_out:
            logger.warning(
                "%s: a replayed batch leaves out %d messages: others have them, or "
                "they were settled, or the batch has failed too often to be delivered "
                "whole",
                self._consumer.group,
                left_out,
                extra={"action": LEFT_OUT, "count": left_out, **self._consumer.log_fields},
            )

    def _report_lost(self, before: Offset | None, acked_slots: frozenset[int]) -> None:
        if before is None or before.lease != self._held:
            return
        lost = sum(each.monotons.count for each in self._leased if each.slot not in acked_slots)
        if not lost:
            return
        self.metrics.lost += lost
        logger.warning(
            "%s: the lease of %d messages ran out and they went to other readers; their batch was "
            "processed, so they may be duplicates",
            self._consumer.group,
            lost,
            extra={"action": LEASE_LOST, "count": lost, **self._consumer.log_fields},
        )

    def _report_skipped(self, count: int) -> None:
        if not count:
            return
        self.metrics.skipped += count
        logger.warning(
            "%s: skipped %d messages that were too old (option skipOlderThan)",
            self._consumer.group,
            count,
            extra={"action": SKIPPED, "count": count, **self._consumer.log_fields},
        )


def _count(leased: tuple[LeasedSlot, ...]) -> int:
    return sum(each.monotons.count for each in leased)
