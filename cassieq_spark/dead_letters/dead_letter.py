"""Dead-letters messages: copies them to the dead-letter queue, and then settles them (I9).

The copy is published once, under a name made of queue, group, messages and the time of their first
delivery. So two readers that dead-letter the same messages make one copy, and so does a reader
that completes the work of a reader that died. Messages that die again after a seek are copied
again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pyarrow as pa

from cassieq_spark.arguments import RESERVED
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.dead_letters.copies import (
    check_same_kind,
    destination,
    letter_of_bytes,
    with_headers,
)
from cassieq_spark.dead_letters.letters import FIRST_POSITION, UNREADABLE, first_position_text
from cassieq_spark.display import on_one_line
from cassieq_spark.errors import CassieqError, ContentionError, InvariantError, QueueStateError
from cassieq_spark.fetch.find import Piece, find_pieces
from cassieq_spark.fetch.read import Damage, Decoder, read_pieces
from cassieq_spark.groups.deliveries import too_often
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import DEAD_LETTER_LIFETIME, Once, read_mark
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, to_millis
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import read_queue, read_record
from cassieq_spark.queues.record import active
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages went to the dead-letter queue.
DEAD_LETTERED = "dead.lettered"
#: Messages were dropped, because their queue has no dead-letter queue.
DROPPED = "dead.dropped"

#: Dead messages could not be copied or settled; they stay, and a later attempt takes them.
DEAD_LETTERING_FAILED = "dead.failed"
RETRY_AFTER = timedelta(minutes=1)

#: Headers that not every death has. A letter that dies again must not keep earlier ones.
_OF_SOME = frozenset(
    RESERVED + each for each in ("origin-partition", "first-delivered-at", "last-delivered-at")
)
#: Maximum number of bytes of an unreadable chunk in its dead letter.
UNREADABLE_BYTES = 1 << 20


def dead_letter_messages(
    store: Store, queue: QueueDefinition, group: ConsumerGroup, dead: Sequence[Waiting]
) -> int:
    """Dead-letter messages that were delivered too often, or rejected.

    Two LWTs and a few reads per waiting row, and a third LWT for messages that are not marked
    dead: otherwise a reader with a higher limit, from before an alter, could get them while they
    are copied. An error is logged, not raised, because the group must get its other messages: the
    dead messages stay in the queue, and are tried again a minute later. If the group changes too
    fast for a removal, the rest is left, and is due as before.

    Returns:
        How many messages were dead-lettered.
    """
    count = 0
    for row in dead:
        each, is_copied = row, False
        try:
            if each.reason is None:
                marked = group.mark_dead(each)
                if marked is None:
                    continue
                each = marked
            source = _definition_now(store, queue)
            if source.dead_letter_queue is not None:
                # The dead-letter queue gets new columns before the queue does: read it second.
                target = read_queue(store, source.dead_letter_queue)
                _publish_copies(store, source, target, group, each)
            is_copied = True
            if group.remove_dead(each):
                count += each.monotons.count
                _log_done(source, group, each)
        except CassieqError as error:
            _log_failure(group, each, error)
            if is_copied and isinstance(error, ContentionError):
                # To defer it, or to remove the next one, must win the same races.
                break
            with suppress(CassieqError):
                group.defer_dead(each, by=RETRY_AFTER)
    return count


def _definition_now(store: Store, queue: QueueDefinition) -> QueueDefinition:
    """The present definition of the queue: its columns and dead-letter queue. One serial read.

    A reader from before an alter must neither leave out a column nor drop messages that have a
    dead-letter queue by now.
    """
    found = active(queue.name, read_record(store, queue.name, serial=True)).definition
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
    # The waiting row first, then the name: if the row was settled long ago, the target may have
    # forgotten the name.
    ledger = Ledger(store, target.queue_id)
    if not group.has_waiting(dead) or read_mark(ledger, once) is not None:
        return
    copies = _Copies(store, queue, target, group, dead)
    # With the new headers, a message may exceed the limit.
    options = SinkOptions(queue=target.name, max_message_bytes=sys.maxsize)
    written = write_block(store, target, copies, options, takes_reserved=True)
    if copies.copied == dead.monotons.count:
        publish(ledger, [written], batch=once)
    elif read_mark(ledger, once) is None:
        raise InvariantError(
            f"queue {queue.queue_id}: of the dead messages {dead.monotons.short} only "
            f"{copies.copied} are in the store; none was settled; the repair's "
            "audit shows which are lost"
        )


def _once_of(queue: QueueDefinition, group: ConsumerGroup, dead: Waiting) -> Once:
    """The name for exactly these messages and this death.

    After a seek, the same messages may die again, or others with the same first one, when the
    first copy is already gone. So the name has the time of the first delivery, which changes
    neither when messages are marked dead nor when dead-lettering fails.
    """
    first = "" if dead.first_at is None else to_millis(dead.first_at)
    digest = sha256(f"{dead.monotons}@{first}".encode()).hexdigest()[:16]
    name = f"dead:{queue.queue_id}:{group.name}:{dead.monotons.start}:{digest}"
    return Once(name, DEAD_LETTER_LIFETIME)


@dataclass(slots=True)
class _Copies:
    """The dead messages as they were, with headers that name their origin and reason.

    Messages of a chunk that can't be read become one dead letter with the bytes of that chunk.

    Attributes:
        copied: How many messages the copies represent so far.
    """

    store: Store
    queue: QueueDefinition
    target: QueueDefinition
    group: ConsumerGroup
    dead: Waiting
    copied: int = 0
    _headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        queue, dead = self.queue, self.dead
        check_same_kind(queue, self.target)
        headers = {
            "origin-queue": queue.name,
            "origin-group": self.group.name,
            "deliveries": str(dead.deliveries),
            "reason": reason_of(dead),
            "dead-lettered-at": _show(datetime.now(UTC)),
        }
        times = {"first-delivered-at": dead.first_at, "last-delivered-at": dead.last_at}
        headers |= {name: _show(instant) for name, instant in times.items() if instant is not None}
        if queue.partition is not None:
            headers["origin-partition"] = str(queue.partition)
        self._headers = {RESERVED + name: value for name, value in headers.items()}

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        queue, dead = self.queue, self.dead
        no_column = (
            f"their dead-letter queue has no such column: add it (cassieq queue alter "
            f"{self.target.name} --schema), and drop it again later"
        )
        into = destination(queue, self.target, no_column=no_column)
        decoder = Decoder(self.store, queue, whole=True, into=into)
        pieces = find_pieces(
            Ledger(self.store, queue.queue_id), dead.monotons, deliveries=dead.deliveries
        )
        for piece, messages in read_pieces(decoder, pieces):
            for offsets, found in messages:
                monotons = piece.monotons_at(offsets)
                if monotons and isinstance(found, Damage):
                    yield self._unreadable(piece, monotons.start, len(monotons), found)
                elif monotons and isinstance(found, pa.RecordBatch):
                    yield self._copy(piece, monotons.start, found)
                self.copied += len(monotons)

    def _copy(self, piece: Piece, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = form_of(self.queue).names
        headers = [
            list((self._first(monoton) | _own(given) | self._about(piece, monoton)).items())
            for monoton, given in enumerate(batch.column(names.headers).to_pylist(), first)
        ]
        return with_headers(batch, headers)

    def _unreadable(self, piece: Piece, first: int, count: int, damage: Damage) -> pa.RecordBatch:
        data = damage.chunk.data
        headers = self._about(piece, first) | {
            RESERVED + "reason": damage.reason,
            UNREADABLE: f"{first}-{first + count}",
            RESERVED + "chunk": f"{piece.block}/{damage.chunk.bucket}/{damage.chunk.start}",
            RESERVED + "chunk-bytes": str(len(data)),
        }
        return letter_of_bytes(data[:UNREADABLE_BYTES], headers, self.target)

    def _first(self, monoton: int) -> dict[str, str]:
        return {FIRST_POSITION: first_position_text(self.queue.queue_id, monoton)}

    def _about(self, piece: Piece, monoton: int) -> dict[str, str]:
        own = {"origin-monoton": str(monoton), "published-at": _show(piece.published_at)}
        return self._headers | {RESERVED + name: value for name, value in own.items()}


def _own(given: Sequence[tuple[str, str | None]] | None) -> dict[str, str | None]:
    return {name: value for name, value in given or () if name not in _OF_SOME}


def _log_done(queue: QueueDefinition, group: ConsumerGroup, dead: Waiting) -> None:
    target, text = queue.dead_letter_queue, "%s: messages %s are dead (%s): %s"
    if target is None:
        level, action = logging.ERROR, DROPPED
        where = "dropped, as the queue has no dead-letter queue"
    else:
        level, action, where = logging.WARNING, DEAD_LETTERED, f"moved to queue {target!r}"
    extra = _extra(action, group, dead)
    # The reader that rejects a message chooses the reason, which may have line breaks.
    why = on_one_line(reason_of(dead))
    logger.log(level, text, group, dead.monotons.short, why, where, extra=extra)


def _log_failure(group: ConsumerGroup, dead: Waiting, error: CassieqError) -> None:
    text = "%s: could not dead-letter messages %s, trying again later: %s"
    extra = _extra(DEAD_LETTERING_FAILED, group, dead)
    logger.error(text, group, dead.monotons.short, error, extra=extra)


def _extra(action: str, group: ConsumerGroup, dead: Waiting) -> dict[str, object]:
    return {"action": action, "count": dead.monotons.count, **group.log_fields}


def reason_of(dead: Waiting) -> str:
    """The reason why messages are dead."""
    return dead.reason or too_often(dead.deliveries)


def _show(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")
