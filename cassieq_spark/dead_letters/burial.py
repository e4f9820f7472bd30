"""Dead letters: what was handed out too often is copied to the dead-letter queue, then let go.

First the copy is published, once, then the original is buried (I9). The sink that publishes it is
named after queue, group and messages: two readers, or one that died in between, make one copy.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import pyarrow as pa

from cassieq_spark.blocks import write_block
from cassieq_spark.chunks import decode
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.state import Slot, Waiting
from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.fetch.pieces import Piece, bucket_slices, pieces_of
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.read import locate, read_last_batch
from cassieq_spark.model import QueueDefinition, SinkBatch
from cassieq_spark.options import SinkOptions
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages went to the dead-letter queue.
DEAD_LETTERED = "dead.lettered"
#: Messages were dropped, as their queue has no dead-letter queue.
DROPPED = "dead.dropped"

#: Dead messages could not be copied, or let go of; they stay.
BURIAL_FAILED = "dead.failed"

#: Header names of a dead letter begin so.
HEADER = "cassieq."
_HEADERS = pa.map_(pa.string(), pa.string())


def bury(
    store: Store, queue: QueueDefinition, delivery: Delivery, dead: Sequence[Slot | Waiting]
) -> None:
    """Dead-letter what was handed out too often. Two LWTs and a few reads for each.

    What can't be copied stays where it is, is told, and is tried again with the next batch: it
    must not keep the group from its other messages.

    Args:
        store: Where the queues are kept.
        queue: The queue of these messages.
        delivery: The group that could not process them.
        dead: As `Delivery.ack_and_lease` found them.
    """
    for each in dead:
        try:
            if queue.dead_letter_queue is not None:
                target = read_queue(store, queue.dead_letter_queue)
                _publish_copies(store, queue, target, delivery, each)
            if delivery.bury(each):
                _tell(queue, delivery, each)
        except CassieqError as error:
            logger.error(  # noqa: TRY400 (the message says it all)
                "%s: could not dead-letter messages %s, trying again later: %s",
                delivery,
                each.monotons,
                error,
                extra={
                    "action": BURIAL_FAILED,
                    "queue": queue.queue_id,
                    "group": delivery.group,
                    "count": each.monotons.count,
                },
            )


def _publish_copies(
    store: Store,
    queue: QueueDefinition,
    target: QueueDefinition,
    delivery: Delivery,
    dead: Slot | Waiting,
) -> None:
    sink = _sink_of(queue, delivery, dead)
    if read_last_batch(store, target.queue_id, sink) is not None:
        return
    copies = _copies(store, queue, delivery, dead)
    # The largest message allowed grows by its new headers.
    options = SinkOptions(queue=target.name, max_message_bytes=sys.maxsize)
    draft = write_block(store, target, copies, options)
    if draft.count == dead.monotons.count:
        publish(store, target.queue_id, [draft], batch=SinkBatch(sink, 0))
    elif read_last_batch(store, target.queue_id, sink) is None:
        raise InvariantError(
            f"queue {queue.queue_id}: of the dead messages {dead.monotons} only {draft.count} are "
            "in the store; nothing was let go of, the audit of the repair job tells what is gone"
        )


def _sink_of(queue: QueueDefinition, delivery: Delivery, dead: Slot | Waiting) -> str:
    """Of exactly these messages: after a seek, others may die that begin with the same one."""
    digest = sha256(str(dead.monotons).encode()).hexdigest()[:16]
    return f"dead:{queue.queue_id}:{delivery.group}:{dead.monotons.start}:{digest}"


def _copies(
    store: Store, queue: QueueDefinition, delivery: Delivery, dead: Slot | Waiting
) -> Iterator[pa.RecordBatch]:
    """The messages as they were, with headers that say where they come from, and why."""
    told = {
        "origin-queue": queue.name,
        "origin-group": delivery.group,
        "deliveries": str(dead.deliveries),
        "reason": f"not settled in {dead.deliveries} deliveries, which is the limit",
        "dead-lettered-at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    blocks = locate(store, queue.queue_id, dead.monotons.hull)
    for piece in pieces_of(blocks, dead.monotons, deliveries=dead.deliveries):
        published = piece.published_at.isoformat(timespec="milliseconds")
        for first, batch in _messages(store, queue, piece):
            headers = [
                dict(given or ())
                | {HEADER + name: value for name, value in told.items()}
                | {HEADER + "origin-monoton": str(monoton), HEADER + "published-at": published}
                for monoton, given in enumerate(batch.column("headers").to_pylist(), first)
            ]
            column = pa.array([list(each.items()) for each in headers], _HEADERS)
            yield batch.set_column(batch.schema.get_field_index("headers"), "headers", column)


def _messages(
    store: Store, queue: QueueDefinition, piece: Piece
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A piece's messages chunk by chunk, each with the monoton of its first."""
    for _, chunk in store.read_chunks(queue.queue_id, bucket_slices(piece, queue)):
        batch = decode(chunk, piece.offsets)
        if batch.num_rows:
            start = max(chunk.start, piece.offsets.start)
            yield piece.first_monoton + start - piece.offsets.start, batch


def _tell(queue: QueueDefinition, delivery: Delivery, dead: Slot | Waiting) -> None:
    lost = queue.dead_letter_queue is None
    logger.log(
        logging.ERROR if lost else logging.WARNING,
        "%s: messages %s were handed out %d times without being settled: %s",
        delivery,
        dead.monotons,
        dead.deliveries,
        "dropped, as the queue has no dead-letter queue"
        if lost
        else f"moved to queue {queue.dead_letter_queue!r}",
        extra={
            "action": DROPPED if lost else DEAD_LETTERED,
            "queue": queue.queue_id,
            "group": delivery.group,
            "count": dead.monotons.count,
        },
    )
