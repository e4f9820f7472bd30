"""What becomes of messages that were received: settled by receipts, one LWT for each lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

import pyarrow as pa

from cassieq_spark.arguments import A_MOMENT, AT_ONCE, check_duration, check_text, shown
from cassieq_spark.arrow.receipts import Receipt, receipt_prefix
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.received import Message
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.errors import CassieqError, MessageError, OptionError
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.producer.new_message import (
    CheckedMessage,
    Headers,
    NewMessage,
    batches_of,
    check_message,
    message_limit,
)
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Store

_REASON_LENGTH = 1000
_ADVICE = "give a message that was received, or its receipt (Message.receipt)"


class Settling:
    """The part of `Client` that settles."""

    _store: Store
    _calls: Calls

    def ack(self, *messages: Message | str) -> list[str]:
        """Settle messages: they are done. One LWT for each lease, and a few reads.

        Args:
            messages: Messages or their receipts, of any leases and queues.

        Returns:
            The receipts that were stale: of messages whose lease ran out and that others have or
            are to get, or that were settled before. Nothing happened to those.

        Raises:
            MessageError: One of them is no message and no receipt; nothing is settled.
            QueueStateError: One of their queues or groups does not exist.
            StoreError: Cassandra failed; it does no harm to repeat the call.
        """
        return self._settle(messages, lambda monotons: Settlement(acked=monotons))

    def release(self, *messages: Message | str, delay: timedelta = AT_ONCE) -> list[str]:
        """Give messages back, to be delivered again. One LWT for each lease; see `ack`.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            delay: How much later they are delivered again, at the earliest.

        Raises:
            OptionError: The delay is out of range.
        """
        check_duration("delay", delay)
        return self._settle(messages, lambda monotons: Settlement(released={delay: monotons}))

    def extend(self, *messages: Message | str, by: timedelta) -> list[str]:
        """Hold messages longer: until ``by`` from now on. One LWT for each lease; see `ack`.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            by: How long from now on.

        Raises:
            OptionError: ``by`` is out of range.
        """
        check_duration("by", by, least=A_MOMENT)
        return self._settle(messages, lambda monotons: Settlement(extended={by: monotons}))

    def reject(self, *messages: Message | str, reason: str) -> list[str]:
        """Dead-letter messages, however often they were delivered. Three LWTs for each lease.

        See `ack`. They are dropped if the queue has no dead-letter queue.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            reason: What is wrong with them, for readers of the dead letters; its first
                thousand characters are kept.

        Raises:
            OptionError: The reason is empty.
        """
        reason = check_text("reason", reason)
        if not reason.strip():
            raise OptionError("a message is rejected for a reason: say what is wrong with it")
        reason = reason[:_REASON_LENGTH]
        return self._settle(messages, lambda monotons: Settlement(rejected={reason: monotons}))

    def replace(
        self,
        message: Message | str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
    ) -> list[str]:
        """Put another message, at the end of the queue, and ack this one. Three LWTs; see `ack`.

        Nothing is put for a message that is stale. A crash half way leaves both; so may a lease
        that runs out meanwhile, which is in the log.

        Args:
            message: The message or its receipt.
            value: Body of the new one.
            key: Key of the new one; the old one's is not taken over.
            headers: Headers of the new one; the old one's are not taken over.
            delay: How much later it is delivered, at the earliest.

        Raises:
            MessageError: The queue does not take such a message.
            OptionError: The delay is out of range.
        """
        check_duration("delay", delay)
        leases = by_lease([message])
        (queue,) = (lease.queue for lease in leases)
        new = check_message(NewMessage(value, key, headers), limit=message_limit(queue))
        with self._calls:
            return settle_each(
                self._store, leases, partial(replace_one, self._store, new=new, delay=delay)
            )

    def _settle(
        self,
        messages: Iterable[Message | str],
        settlement_of: Callable[[Ranges], Settlement],
    ) -> list[str]:
        leases = by_lease(messages)
        with self._calls:
            return settle_each(
                self._store, leases, partial(settle_one, self._store, settlement_of)
            )


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """One lease of one group; of a query's batch, one delivery. See `Receipt`."""

    queue_id: QueueId
    group: str
    lease: UUID
    deliveries: int | None = None

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self.queue_id.rpartition("@")[0]

    def receipts(self, monotons: Ranges) -> list[str]:
        """The receipts of these messages, in order."""
        prefix = receipt_prefix(self.queue_id, self.group, self.lease, self.deliveries)
        return [f"{prefix}{each}" for part in monotons for each in range(part.start, part.stop)]


def by_lease(items: Iterable[Message | str]) -> dict[LeaseKey, Ranges]:
    """Group messages, or their receipts, by lease.

    Raises:
        MessageError: One of them is neither.
    """
    ranges: defaultdict[LeaseKey, list[Range]] = defaultdict(list)
    for item in items:
        receipt = Receipt.parse(_receipt_of(item), advice=_ADVICE)
        key = LeaseKey(receipt.queue_id, receipt.group, receipt.lease, receipt.deliveries)
        ranges[key].append(Range(receipt.monoton, receipt.monoton + 1))
    return {key: Ranges.of(*parts) for key, parts in ranges.items()}


def settle_each(
    store: Store,
    leases: Mapping[LeaseKey, Ranges],
    settle: Callable[[QueueDefinition, LeaseKey, Ranges], Settled],
) -> list[str]:
    """Settle lease after lease; what fails for one does not keep the others from it.

    Returns:
        The receipts that were stale: settled before, or not under their lease any more.

    Raises:
        QueueStateError: One of the queues does not exist; before anything is settled. Or one of
            the groups; after all others are.
        StoreError: Cassandra failed for one of them, after the others are settled. It does no
            harm to repeat all of it.
    """
    queues = {name: read_queue(store, name) for name in sorted({key.queue for key in leases})}
    stale: list[str] = []
    errors: list[CassieqError] = []
    for key, monotons in leases.items():
        queue = queues[key.queue]
        if queue.queue_id != key.queue_id:
            # Of a queue that was deleted, and made anew: nobody holds anything of it any more.
            stale += key.receipts(monotons)
            continue
        try:
            stale += key.receipts(settle(queue, key, monotons).stale)
        except CassieqError as error:
            errors.append(error)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and of another lease: {other}")
        raise errors[0]
    return stale


def settle_one(
    store: Store,
    settlement_of: Callable[[Ranges], Settlement],
    queue: QueueDefinition,
    key: LeaseKey,
    monotons: Ranges,
) -> Settled:
    """Settle messages of one lease. One LWT and two reads; a few more for what is rejected."""
    consumer = Consumer(store, queue, key.group)
    return consumer.settle(key.lease, settlement_of(monotons), deliveries=key.deliveries)


def replace_one(  # noqa: PLR0913 (which message, and by what)
    store: Store,
    queue: QueueDefinition,
    key: LeaseKey,
    monotons: Ranges,
    *,
    new: CheckedMessage,
    delay: timedelta,
) -> Settled:
    """Put a message in the place of the one that ``monotons`` has. Three LWTs and some reads."""
    (batch,) = batches_of([new])
    replacement = batch.append_column("monoton", pa.array([monotons.start], pa.int64()))
    consumer = Consumer(store, queue, key.group)
    return consumer.replace(key.lease, replacement, deliveries=key.deliveries, delay=delay)


def _receipt_of(item: object) -> str:
    if isinstance(item, Message):
        return item.receipt
    if isinstance(item, str):
        return item
    raise MessageError(
        f"a message or its receipt is needed, not {shown(item)}; give several as "
        "arguments of their own: client.ack(*messages)"
    )
