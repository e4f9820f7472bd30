"""One reader: a run of a streaming query, without Spark."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.consumer.state_cache import StateCache
from cassieq_spark.dead_letters.burial import bury
from cassieq_spark.errors import QueueStateError, StoreError
from cassieq_spark.fetch import Finder
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest
from cassieq_spark.groups.plan import is_dead
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.read import read_head
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import QueueDefinition
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.spark.source import lull
from cassieq_spark.spark.source.checkpoint import look_up
from cassieq_spark.spark.source.figures import Gauge, Seen
from cassieq_spark.spark.source.heartbeat import LEASE_LOST, Heartbeat
from cassieq_spark.spark.source.offsets import Offset, decode, encode
from cassieq_spark.spark.source.tasks import Task, cut_tasks
from cassieq_spark.spark.source.terms import Terms
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

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


class Reader:
    """Leases, acks and finds the messages of one consumer group for one run of a query.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        group: Which group; made if there is none.
        starting: Where a new group starts.
        length: How long a lease lasts without a heartbeat.
        fail_on_data_loss: Whether a new group may not start where messages are deleted already.
        terms: How much it takes at a time; by default, all there is.
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
        length: timedelta,
        fail_on_data_loss: bool = True,
        terms: Terms | None = None,
        with_receipts: bool = False,
        checkpoint: str | None = None,
    ) -> None:
        ensure_group(
            store,
            queue.queue_id,
            group,
            starting=starting,
            fail_on_data_loss=fail_on_data_loss,
        )
        self._store = store
        self.queue = queue
        self._delivery = ConsumerGroup(store, queue.queue_id, group)
        self._length = length
        self._checkpoint = checkpoint
        self._terms = terms or Terms()
        self._heartbeat = Heartbeat(self._delivery, length)
        self._held: UUID | None = None
        self._leased: tuple[LeasedSlot, ...] = ()
        self._target: int | None = None
        self._lull = lull.Lull()
        # Where order is strict, or there is a limit for all, what others do counts at once; so do
        # outcomes that tasks have recorded.
        is_alone = not queue.strict_fifo and self._terms.max_in_flight is None
        by_memory = is_alone and not with_receipts
        self._last = StateCache(lull.RECHECK if by_memory else timedelta(0))
        self._finder = Finder(store, queue.queue_id)
        self._leased_at = -math.inf
        self.gauge = Gauge(store, queue.queue_id)

    def aim(self) -> None:
        """Deliver what is there now, and then nothing more (AvailableNow). One read."""
        self._target = read_head(self._store, self.queue.queue_id).next

    def next_batch(self, done: Mapping[str, Any], *, limit: int | None) -> Mapping[str, Any]:
        """Ack the batch that ended at ``done`` and lease the next. One LWT and a read.

        Two reads more if the last look at the group was long ago, or others read for it too. No
        LWT if there is nothing to ack and nothing to deliver.

        Returns:
            The end of the next batch; ``done`` itself if there is nothing to deliver.
        """
        before = self._decode(done)
        self._lull.rest()
        self._heartbeat.let_go()
        head = read_head(self._store, self.queue.queue_id)
        check_open(self.queue.queue_id, head)
        stop = head.offered_stop
        stop = stop if self._target is None else min(stop, self._target)
        held = before.lease if before else None
        if not self._lull.is_over(held, stop):
            return done
        told = self._last.tell(stop=stop)
        batch = self._delivery.lease(
            replace(
                self._wish(held, limit),
                held_deliveries=self._counts_of(held),
                stop=stop,
                delayed_stop=head.delayed_stop,
                min_messages=self._least(),
                prefer_fresh=before is not None and before.is_redelivery,
            ),
            told,
        )
        self._last.keep(batch, told)
        self._report_lost(before, batch.acked_slots)
        seen = Seen(batch, held, head.next)
        self.gauge.see(seen)
        self._hold(batch.token if batch.leased else None, batch.leased)
        self.gauge.bury(bury(self._store, self.queue, self._delivery, batch.dead))
        self._report_skipped(batch.skipped)
        if not batch.leased:
            self._lull.go_on(seen)
            return done
        self._lull.end()
        self._leased_at = time.monotonic()
        return encode(
            Offset(
                queue_id=self.queue.queue_id,
                group=self._delivery.name,
                lease=batch.token,
                pointer=batch.pointer,
                leased=batch.leased,
            )
        )

    def tasks(
        self, end: Mapping[str, Any], *, messages_per_task: int, limit: int | None = None
    ) -> list[Task]:
        """Find the messages of the batch that ends at ``end``. Two reads for each range, or fewer.

        A batch that this process has not leased is one that Spark replays: its lease is taken up
        again, by one more LWT, and what others have taken meanwhile is left out.
        """
        offset = self._decode(end)
        if offset is None:
            return []
        if offset.lease != self._held:
            self._take_again(offset, limit)
        pieces = [
            piece
            for each in self._leased
            for piece in self._finder.pieces(each.monotons, deliveries=each.deliveries)
        ]
        return cut_tasks(pieces, self.queue, messages_per_task)

    @property
    def receipt_prefix(self) -> str:
        """What the receipts of the batch in hand begin with; empty if there is none."""
        if self._held is None or not self._leased:
            return ""
        # A batch is one slot, so all of it was handed out as often.
        deliveries = self._leased[0].deliveries
        return receipt_prefix(self.queue.queue_id, self._delivery.name, self._held, deliveries)

    def stop(self) -> None:
        """Give up what is held. Two reads and one LWT; never raises.

        A batch that Spark has committed is acked, if the checkpoint tells so; another one is
        released, for any reader. What was handed out as often as may be is not: the next reader
        would condemn it, and it may be done. It is this query's until its lease runs out.
        """
        self._heartbeat.stop()
        if self._held is None:
            return
        about = {"queue": self.queue.queue_id, "group": self._delivery.name}
        limit = self.queue.max_deliveries
        to_release = [each for each in self._leased if not is_dead(each.deliveries, limit)]
        try:
            if self._is_committed(self._held):
                self._ack_at_last(self._held)
                return
            count = self._delivery.release(self._held, to_release)
        except (StoreError, QueueStateError) as error:
            logger.warning(
                "could not release the messages of the stopped query, they are due when their "
                "lease runs out: %s",
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
        told = look_up(self._checkpoint, held, self.queue.queue_id)
        if told.trouble:
            logger.warning(
                "%s: the checkpoint %s does not tell whether the last batch is done, which is "
                "released, and delivered again (%s); give the option checkpointLocation the "
                "checkpointLocation of the query, as this machine reaches it",
                self._delivery,
                self._checkpoint,
                told.trouble,
                extra={
                    "action": CHECKPOINT_UNREADABLE,
                    "queue": self.queue.queue_id,
                    "group": self._delivery.name,
                },
            )
        return told.is_committed

    def _ack_at_last(self, held: UUID) -> None:
        wish = replace(self._wish(held, limit=0), held_deliveries=self._counts_of(held))
        batch = self._delivery.lease(wish)
        bury(self._store, self.queue, self._delivery, batch.dead)
        logger.info(
            "acked %d messages of the last batch, which Spark has committed",
            batch.acked,
            extra={
                "action": ACKED_AT_LAST,
                "queue": self.queue.queue_id,
                "group": self._delivery.name,
                "count": batch.acked,
            },
        )

    def _wish(self, held: UUID | None, limit: int | None) -> LeaseRequest:
        return LeaseRequest(
            held=held,
            lease=self._length,
            max_messages=limit,
            max_deliveries=self.queue.max_deliveries,
            max_bytes=self._terms.max_bytes,
            max_in_flight=self._terms.max_in_flight,
            skip_older_than=self._terms.skip_older_than,
            retry_backoff=self._terms.retry_backoff,
            strict_fifo=self.queue.strict_fifo,
        )

    def _counts_of(self, held: UUID | None) -> Mapping[int, int] | None:
        """How often the messages of this batch were handed out, by slot; None: not known here."""
        if held is None or held != self._held:
            return None
        return {each.slot: each.deliveries for each in self._leased}

    def _least(self) -> int:
        """How many messages there must be for a batch."""
        since = time.monotonic() - self._leased_at
        overdue = since >= self._terms.max_trigger_delay.total_seconds()
        return 0 if overdue or self._target is not None else self._terms.min_messages

    def _decode(self, offset: Mapping[str, Any]) -> Offset | None:
        return decode(offset, queue_id=self.queue.queue_id, group=self._delivery.name)

    def _hold(self, lease: UUID | None, leased: tuple[LeasedSlot, ...]) -> None:
        self._held, self._leased = lease, leased
        if lease is not None:
            self._heartbeat.hold(lease, leased)

    def _take_again(self, offset: Offset, limit: int | None) -> None:
        leased = self._delivery.take_again(self._wish(offset.lease, limit))
        self._last.forget()
        self._hold(offset.lease, leased)
        left_out = _count(offset.leased) - _count(leased)
        if left_out:
            logger.warning(
                "%s: a replayed batch leaves out %d messages: others have them, or they were "
                "settled, or the batch has failed too often to be handed out whole",
                self._delivery,
                left_out,
                extra={
                    "action": LEFT_OUT,
                    "queue": self.queue.queue_id,
                    "group": self._delivery.name,
                    "count": left_out,
                },
            )

    def _report_lost(self, before: Offset | None, acked_slots: frozenset[int]) -> None:
        if before is None or before.lease != self._held:
            return
        lost = sum(each.monotons.count for each in self._leased if each.slot not in acked_slots)
        if lost:
            self._warn_lost(lost, "their batch is done all the same, so they may be duplicates")

    def _report_skipped(self, count: int) -> None:
        if not count:
            return
        self.gauge.skip(count)
        logger.warning(
            "%s: skipped %d messages that were too old (option skipOlderThan)",
            self._delivery,
            count,
            extra={
                "action": SKIPPED,
                "queue": self.queue.queue_id,
                "group": self._delivery.name,
                "count": count,
            },
        )

    def _warn_lost(self, count: int, consequence: str) -> None:
        self.gauge.lose(count)
        logger.warning(
            "%s: the lease of %d messages ran out and they went to other readers; %s",
            self._delivery,
            count,
            consequence,
            extra={
                "action": LEASE_LOST,
                "queue": self.queue.queue_id,
                "group": self._delivery.name,
                "count": count,
            },
        )


def _count(leased: tuple[LeasedSlot, ...]) -> int:
    return sum(each.monotons.count for each in leased)
