"""Settling messages by their lease, with all that follows: burials, replacements."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace as changed
from datetime import timedelta
from functools import partial
from uuid import UUID

import pyarrow as pa

from cassieq_spark.arrow.chunks import check_messages
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.dead_letters.burial import bury
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import check_delayable
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: A replacement was published, but others have got the message that it replaces.
REPLACED_TWICE = "replace.lease_lost"

#: Messages can't be read, and go to the dead-letter queue.
UNREADABLE = "read.unreadable"

#: How long messages are held at least while their replacements are being published.
_HOLD = timedelta(seconds=60)


def settle(  # noqa: PLR0913 (whose messages, what for, and when)
    store: Store,
    queue: QueueDefinition,
    group: str,
    lease: UUID,
    settlement: Settlement,
    *,
    deliveries: int | None = None,
    with_batch: bool = False,
) -> Settled:
    """Settle messages of a lease. One LWT and two reads; a few more for what is rejected.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        group: Which group.
        lease: The token that holds the messages.
        settlement: What is to become of which.
        deliveries: Which delivery under that lease; see `Receipt`.
        with_batch: Let the ack of the batch in hand carry it out, not this call.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    delivery = ConsumerGroup(store, queue.queue_id, group)
    settled = delivery.settle(lease, settlement, deliveries=deliveries, with_batch=with_batch)
    bury(store, queue, delivery, settled.dead)
    return settled


def reject_unreadable(
    store: Store,
    queue: QueueDefinition,
    receipt: Receipt,
    found: Mapping[str, Ranges],
    *,
    with_batch: bool,
) -> None:
    """Let messages of a lease go to the dead-letter queue that can't be read. See `settle`.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        receipt: Of any message under that lease.
        found: Which, by reason; nothing is done if there are none.
        with_batch: As for `settle`.
    """
    if not found:
        return
    monotons = Ranges.of(*(part for each in found.values() for part in each))
    logger.error(
        "queue %s, group %s: messages %s can't be read, and are rejected: %s",
        queue.queue_id,
        receipt.group,
        monotons,
        "; ".join(found),
        extra={
            "action": UNREADABLE,
            "queue": queue.queue_id,
            "group": receipt.group,
            "count": monotons.count,
        },
    )
    settle(
        store,
        queue,
        receipt.group,
        receipt.lease,
        Settlement(rejected=found),
        deliveries=receipt.deliveries,
        with_batch=with_batch,
    )


def replace(  # noqa: PLR0913 (whose messages, and what for)
    store: Store,
    queue: QueueDefinition,
    group: str,
    lease: UUID,
    replacements: pa.RecordBatch,
    *,
    deliveries: int | None = None,
    delay: timedelta = timedelta(0),
    with_batch: bool = False,
) -> Settled:
    """Publish messages instead of others, which are acked. Three LWTs and some reads.

    The new ones are messages like any other: at the end of the queue, for every group, their
    deliveries counted anew. First the old ones are held on, so that none is replaced that others
    have got; then the new ones are published; then the old ones are acked. A crash before that
    leaves both: the old ones are delivered again when their lease runs out. So does a batch that
    is replayed, if the old ones are to be acked with it.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        group: Which group.
        lease: The token that holds the old messages.
        replacements: Columns ``monoton`` (of the old message) and ``value``; optionally ``key``
            and ``headers``.
        deliveries: Which delivery under that lease; see `Receipt`.
        delay: How much later the new ones are delivered, at the earliest.
        with_batch: Let the ack of the batch in hand ack the old ones, not this call.

    Returns:
        How many were replaced, and which are stale.

    Raises:
        MessageError: A new message that the queue does not take; nothing has changed then.
        OptionError: A delay in a strictly ordered queue; nothing has changed then.
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    if delay:
        check_delayable(queue)
    new = replacements.drop_columns(["monoton"])
    options = SinkOptions(queue=queue.name)
    check_messages(new, options.max_message_bytes, first_row=0)
    monotons = replacements.column("monoton").to_pylist()
    delivery = ConsumerGroup(store, queue.queue_id, group)
    hold = {max(_HOLD, queue.lease): Ranges.of(*(Range(at, at + 1) for at in monotons))}
    settle_ours = partial(delivery.settle, lease, deliveries=deliveries, with_batch=with_batch)
    held = settle_ours(Settlement(extended=hold))
    live = [at not in held.stale for at in monotons]
    taken = Ranges.of(*(Range(at, at + 1) for at, ok in zip(monotons, live, strict=True) if ok))
    if not taken:
        return held
    written = write_block(store, queue, [new.filter(pa.array(live))], options)
    publish(store, queue.queue_id, [changed(written, visible=delay or None)])
    acked = settle_ours(Settlement(acked=taken))
    if acked.stale:
        logger.warning(
            "%s: messages %s are replaced, but their lease ran out before, so others have got "
            "them as well",
            delivery,
            acked.stale,
            extra={
                "action": REPLACED_TWICE,
                "queue": queue.queue_id,
                "group": group,
                "count": acked.stale.count,
            },
        )
    return held
