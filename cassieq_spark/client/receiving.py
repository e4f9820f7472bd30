"""Receiving: lease what is there, find it, fetch it, and hand it over as messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from cassieq_spark.client.finished import Finished
from cassieq_spark.client.messages import (
    A_MOMENT,
    AT_ONCE,
    Message,
    StoredMessage,
    check_duration,
    rows_of,
    stored_of,
)
from cassieq_spark.dead_letters.burial import bury
from cassieq_spark.delivery.groups import ensure_group
from cassieq_spark.delivery.lease import Batch, Delivery
from cassieq_spark.delivery.wish import Wish
from cassieq_spark.errors import CassieqError, NotFoundError, OptionError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.messages import fetch
from cassieq_spark.ledger.read import find_position, read_group, read_head
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, validate_name
from cassieq_spark.options.position import StartingPosition
from cassieq_spark.queues import read_queue
from cassieq_spark.receipts import Receipt, receipt_prefix
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: What was leased could not be handed over, nor given back; it is due when its lease runs out.
GIVE_BACK_FAILED = "receive.give_back_failed"

#: Seconds between two looks at a queue that has nothing: three reads each.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.75

#: Of each group that a client has received for, whether fresh messages go first next time.
Turns = dict[tuple[QueueId, str], bool]


def check_receive(
    limit: int, wait: timedelta, lease: timedelta | None, max_bytes: int | None
) -> None:
    """Raise `OptionError` if one of them is out of range."""
    if max_bytes is not None and max_bytes < 1:
        raise OptionError(f"max_bytes must be at least 1, not {max_bytes}")
    if limit < 1:
        raise OptionError(f"max must be at least 1 message, not {limit}")
    if wait < AT_ONCE:
        raise OptionError(f"wait must be 0 or longer, not {wait}")
    if lease is not None:
        check_duration("lease", lease, least=A_MOMENT)


def pauses_within(wait: timedelta) -> Iterator[float]:
    """Seconds to pause before each further look, longer each time, until ``wait`` is over."""
    end = time.monotonic() + wait.total_seconds()
    pause = _FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(_LONGEST_PAUSE, pause * 2)


class Receiver:
    """Receives for one group during one call. A read; for a group not met before, two more.

    Args:
        store: Where the queue is kept.
        turns: What the client remembers; a new group is made, and begins at the earliest message.
        finished: The client's leases, this one's to be among them.
        queue: Name of the queue.
        group: Name of the group.
        limit: Most messages.
        lease: How long they are held; None: as long as the queue says.
        make_group: Whether a new group is made.
        max_bytes: About how many bytes of fresh messages, as stored; None: no limit.

    Raises:
        OptionError: The group's name is not valid.
        QueueStateError: There is no such queue.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        turns: Turns,
        finished: Finished,
        queue: str,
        group: str,
        *,
        limit: int,
        lease: timedelta | None,
        make_group: bool = True,
        max_bytes: int | None = None,
    ) -> None:
        validate_name("group", group)
        self._store = store
        self._turns = turns
        self._finished = finished
        self._queue = read_queue(store, queue)
        self._delivery = Delivery(store, self._queue.queue_id, group)
        self._limit = limit
        self._make_group = make_group
        self._max_bytes = max_bytes
        self._length = self._queue.lease if lease is None else lease

    def look(self) -> list[Message]:
        """Lease and fetch what is there. Three reads; if there is something, an LWT and some more.

        What was handed out too often is dead-lettered. A queue that is paused has nothing.

        Raises:
            NotFoundError: There is no such group, and it is not to be made.
            QueueStateError: The queue was purged or deleted, or the group deleted.
            StoreError: Cassandra failed; what was leased is due again, at once if possible.
        """
        key = (self._queue.queue_id, self._delivery.group)
        # Only once: a group that is deleted is not to come back by itself, and with everything.
        if key not in self._turns:
            self._ensure_group()
        head = read_head(self._store, self._queue.queue_id)
        check_open(self._queue.queue_id, head)
        finished = self._finished.take(*key)
        batch = self._delivery.ack_and_lease(
            Wish(
                held=None,
                lease=uuid4(),
                length=self._length,
                limit=self._limit,
                stop=head.offered_stop,
                max_deliveries=self._queue.max_deliveries,
                prefer_fresh=self._turns.get(key, False),
                delayed_stop=head.delayed_stop,
                strict=self._queue.strict_fifo,
                finished=finished,
                max_bytes=self._max_bytes,
            )
        )
        if finished is not None and not batch.leased:
            self._finished.give_back(*key, finished)
        self._turns[key] = any(each.deliveries > 1 for each in batch.leased)
        try:
            messages = self._messages(batch)
            bury(self._store, self._queue, self._delivery, batch.dead)
        except BaseException:
            if batch.leased:
                _give_back(self._delivery, batch.lease)
            raise
        self._finished.lease(messages, self._length.total_seconds())
        return messages

    def give_back(self, messages: Sequence[Message]) -> None:
        """Make messages that nobody got due again at once. One LWT and two reads; never raises."""
        for message in messages[:1]:
            _give_back(self._delivery, Receipt.parse(message.receipt).lease)

    def _ensure_group(self) -> None:
        queue_id, group = self._queue.queue_id, self._delivery.group
        if not self._make_group and read_group(self._store, queue_id, group) is None:
            raise NotFoundError(
                f"queue {queue_id} has no group {group!r}, and it is not to be made here: create "
                "it before"
            )
        ensure_group(self._store, queue_id, group, starting="earliest")

    def _messages(self, batch: Batch) -> list[Message]:
        queue, group = self._queue, self._delivery.group
        pieces = [
            piece
            for each in batch.leased
            for piece in find_pieces(
                self._store, queue.queue_id, each.monotons, deliveries=each.deliveries
            )
        ]
        found = fetch(
            self._store,
            queue,
            pieces,
            include_headers=True,
            receipt_prefix=receipt_prefix(queue.queue_id, group, batch.lease),
        )
        # Read before the LWT, so never later than what the lease counts from.
        until = batch.state.now + self._length
        return [
            Message(
                **stored_of(row),
                group=group,
                delivery_count=row["delivery_count"],
                receipt=row["receipt"],
                lease_until=until,
            )
            for row in rows_of(found)
        ]


def peek_messages(
    store: Store, queue: QueueDefinition, *, limit: int, start: StartingPosition
) -> list[StoredMessage]:
    """Look at messages without leasing them. A few reads.

    Raises:
        OptionError: ``limit`` is below 1.
        QueueStateError: No message has that monoton yet.
    """
    if limit < 1:
        raise OptionError(f"max must be at least 1 message, not {limit}")
    head = read_head(store, queue.queue_id)
    first = max(head.finalised, find_position(store, queue.queue_id, head, start))
    which = Ranges.of(Range(first, max(first, min(head.next, first + limit))))
    pieces = find_pieces(store, queue.queue_id, which, deliveries=None)
    found = fetch(store, queue, pieces, include_headers=True)
    return [StoredMessage(**stored_of(row)) for row in rows_of(found)]


def _give_back(delivery: Delivery, lease: UUID) -> None:
    try:
        delivery.release(lease)
    except CassieqError as error:
        logger.warning(
            "%s: messages were leased that nobody got; they are due when their lease runs out: %s",
            delivery,
            error,
            extra={
                "action": GIVE_BACK_FAILED,
                "queue": delivery.queue_id,
                "group": delivery.group,
            },
        )
