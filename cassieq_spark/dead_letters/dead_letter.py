"""Dead-lettering: dead messages are copied to the dead-letter queue, and then settled (I9).

The copy is published once, under a name made of queue, group, messages and the time of their first
delivery. So two readers that dead-letter the same messages make one copy, and so does a reader
that goes on where another one died. Messages that die again after a seek are copied again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pyarrow as pa

from cassieq_spark.arguments import RESERVED
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.dead_letters.copies import check_takes_all, copies_of, letter_of_bytes
from cassieq_spark.errors import CassieqError, InvariantError, QueueStateError
from cassieq_spark.fetch.find import Piece, find_pieces
from cassieq_spark.fetch.read import Damage, Decoder, read_piece
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.plan import too_often
from cassieq_spark.groups.state import Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import DEAD_LETTER_LIFETIME, Once, read_mark
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, to_millis
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages went to the dead-letter queue.
DEAD_LETTERED = "dead.lettered"
#: Messages were dropped, as their queue has no dead-letter queue.
DROPPED = "dead.dropped"

#: Dead messages could not be copied, or not be settled; they stay.
DEAD_LETTERING_FAILED = "dead.failed"

#: When to try again after that.
RETRY_AFTER = timedelta(minutes=1)

#: The most bytes of an unreadable chunk that its dead letter has.
UNREADABLE_BYTES = 1 << 20


def dead_letter_messages(
    store: Store, queue: QueueDefinition, group: ConsumerGroup, dead: Sequence[Waiting]
) -> int:
    """Dead-letter messages that were delivered too often, or rejected.

    Two LWTs and a few reads for each waiting row. An error is logged, not raised, since it must
    not keep the group from its other messages: the messages stay in the queue, and are tried again
    a minute later.

    Args:
        store: Where the queues are kept.
        queue: The queue of these messages.
        group: The group that could not process them.
        dead: The waiting rows that are dead.

    Returns:
        How many messages were dead-lettered.
    """
    count = 0
    for each in dead:
        try:
            if queue.dead_letter_queue is not None:
                # The dead-letter queue is widened first, so what is read later has all columns.
                source = _as_it_is_now(store, queue)
                target = read_queue(store, queue.dead_letter_queue)
                _publish_copies(store, source, target, group, each)
            if group.remove_dead(each):
                count += each.monotons.count
                _log_done(queue, group, each)
        except CassieqError as error:
            _log_failure(queue, group, each, error)
            with suppress(CassieqError):
                group.defer_dead(each, by=RETRY_AFTER)
    return count


def _as_it_is_now(store: Store, queue: QueueDefinition) -> QueueDefinition:
    """The queue with all the columns that its messages may have. One read, if it has a schema."""
    if queue.schema is None:
        return queue
    found = read_queue(store, queue.name)
    if found.version != queue.version:
        raise QueueStateError(f"queue {queue.queue_id} is {found.queue_id} by now")
    return replace(found, partition=queue.partition)


def _publish_copies(
    store: Store,
    queue: QueueDefinition,
    target: QueueDefinition,
    group: ConsumerGroup,
    dead: Waiting,
) -> None:
    once = _once_of(queue, group, dead)
    # The waiting row, and then the name: if others settled the row long ago, the target may have
    # forgotten the name.
    ledger = Ledger(store, target.queue_id)
    if not group.has_waiting(dead) or read_mark(ledger, once) is not None:
        return
    copies = _Copies(store, queue, target, group, dead)
    # The largest message allowed grows by its new headers.
    options = SinkOptions(queue=target.name, max_message_bytes=sys.maxsize)
    written = write_block(store, target, copies, options, takes_reserved=True)
    if copies.copied == dead.monotons.count:
        publish(ledger, [written], batch=once)
    elif read_mark(ledger, once) is None:
        raise InvariantError(
            f"queue {queue.queue_id}: of the dead messages {dead.monotons.short} only "
            f"{copies.copied} are in the store; none was settled; the repair's "
            "audit tells which are lost"
        )


def _once_of(queue: QueueDefinition, group: ConsumerGroup, dead: Waiting) -> Once:
    """The name for exactly these messages, and for this one death of theirs.

    After a seek, other messages may die whose first one is the same. The same messages may die
    again, too, and the first copy may be gone by then: so the name has the time of their first
    delivery, which changes neither when they are marked as dead nor when dead-lettering fails.
    """
    first = "" if dead.first_at is None else to_millis(dead.first_at)
    digest = sha256(f"{dead.monotons}@{first}".encode()).hexdigest()[:16]
    name = f"dead:{queue.queue_id}:{group.name}:{dead.monotons.start}:{digest}"
    return Once(name, DEAD_LETTER_LIFETIME)


class _Copies:
    """The messages as they were, with headers that say where they come from, and why.

    Messages of a chunk that can't be read become one dead letter with the bytes of that chunk.

    Attributes:
        copied: How many messages the copies stand for, so far.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueDefinition,
        target: QueueDefinition,
        group: ConsumerGroup,
        dead: Waiting,
    ) -> None:
        check_takes_all(queue, target)
        self._store = store
        self._queue = queue
        self._target = target
        self._dead = dead
        told = {
            "origin-queue": queue.name,
            "origin-group": group.name,
            "deliveries": str(dead.deliveries),
            "reason": reason_of(dead),
            "dead-lettered-at": _show(datetime.now(UTC)),
        }
        times = {"first-delivered-at": dead.first_at, "last-delivered-at": dead.last_at}
        told |= {name: _show(instant) for name, instant in times.items() if instant is not None}
        if queue.partition is not None:
            told["origin-partition"] = str(queue.partition)
        self._told = {RESERVED + name: value for name, value in told.items()}
        self.copied = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        queue, dead = self._queue, self._dead
        decoder = Decoder(self._store, queue, whole=True)
        pieces = find_pieces(
            Ledger(self._store, queue.queue_id), dead.monotons, deliveries=dead.deliveries
        )
        for piece in pieces:
            for offsets, found in read_piece(decoder, piece):
                first = piece.part(offsets).first_monoton
                if isinstance(found, Damage):
                    yield self._unreadable(piece, first, len(offsets), found)
                else:
                    yield self._copy(piece, first, found)
                self.copied += len(offsets)

    def _copy(self, piece: Piece, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = form_of(self._queue).names
        headers = [
            list((dict(given or ()) | self._about(piece, monoton)).items())
            for monoton, given in enumerate(batch.column(names.headers).to_pylist(), first)
        ]
        return copies_of(batch, headers, self._queue, self._target)

    def _unreadable(self, piece: Piece, first: int, count: int, damage: Damage) -> pa.RecordBatch:
        data = damage.chunk.data
        headers = self._about(piece, first) | {
            RESERVED + "reason": damage.reason,
            RESERVED + "unreadable": f"{first}-{first + count}",
            RESERVED + "chunk": f"{piece.block}/{damage.chunk.bucket}/{damage.chunk.start}",
            RESERVED + "chunk-bytes": str(len(data)),
        }
        return letter_of_bytes(data[:UNREADABLE_BYTES], headers, self._target)

    def _about(self, piece: Piece, monoton: int) -> dict[str, str]:
        of_it = {"origin-monoton": str(monoton), "published-at": _show(piece.published_at)}
        return self._told | {RESERVED + name: value for name, value in of_it.items()}


def _log_done(queue: QueueDefinition, group: ConsumerGroup, dead: Waiting) -> None:
    lost = queue.dead_letter_queue is None
    logger.log(
        logging.ERROR if lost else logging.WARNING,
        "%s: messages %s are dead (%s): %s",
        group,
        dead.monotons.short,
        reason_of(dead),
        "dropped, as the queue has no dead-letter queue"
        if lost
        else f"moved to queue {queue.dead_letter_queue!r}",
        extra={
            "action": DROPPED if lost else DEAD_LETTERED,
            "queue": queue.queue_id,
            "group": group.name,
            "count": dead.monotons.count,
        },
    )


def _log_failure(
    queue: QueueDefinition, group: ConsumerGroup, dead: Waiting, error: CassieqError
) -> None:
    logger.error(
        "%s: could not dead-letter messages %s, trying again later: %s",
        group,
        dead.monotons.short,
        error,
        extra={
            "action": DEAD_LETTERING_FAILED,
            "queue": queue.queue_id,
            "group": group.name,
            "count": dead.monotons.count,
        },
    )


def reason_of(dead: Waiting) -> str:
    """Why messages are dead."""
    return dead.reason or too_often(dead.deliveries)


def _show(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")
