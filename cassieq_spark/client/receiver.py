"""Receiving: lease what is there, find it, fetch it, and hand it over as messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta

from cassieq_spark.arguments import check_flag
from cassieq_spark.arrow.receipts import Receipt, receipt_prefix
from cassieq_spark.client.received import Message, StoredMessage, size_of
from cassieq_spark.client.receiving import Wanted, within
from cassieq_spark.client.shelf import Shelf, read_stored
from cassieq_spark.consumer.settle import reject_unreadable
from cassieq_spark.consumer.state_cache import StateCache
from cassieq_spark.dead_letters.burial import bury
from cassieq_spark.errors import CassieqError, InvariantError, NotFoundError
from cassieq_spark.fetch import OnUnreadable, Unreadable
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.groups.settle import ReceiptAcks
from cassieq_spark.groups.state import Settlement, union
from cassieq_spark.ledger.read import read_group, read_head
from cassieq_spark.ledger.state import LedgerHead, check_open
from cassieq_spark.model import QueueId, Range, Ranges, validate_name
from cassieq_spark.queues import read_queue
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: What was leased could not be handed over, nor given back; it is due when its lease runs out.
GIVE_BACK_FAILED = "receive.give_back_failed"

#: For how long a receiver goes by what it has read of the ledger and the group.
KEPT = timedelta(milliseconds=100)

#: Of each group that a client has received for, whether fresh messages go first next time.
Turns = dict[tuple[QueueId, str], bool]


class Receiver:
    """Receives for one group, by one definition of its queue. A read. For one thread at a time.

    Args:
        store: Where the queue is kept.
        turns: What the client remembers; a new group is made, and begins at the earliest message.
        queue: Name of the queue.
        group: Name of the group.
        make_group: Whether a new group is made.

    Raises:
        OptionError: The group's name is not valid.
        QueueStateError: There is no such queue.
    """

    def __init__(
        self,
        store: Store,
        turns: Turns,
        queue: str,
        group: str,
        *,
        make_group: bool = True,
    ) -> None:
        validate_name("group", group)
        check_flag("make_group", make_group)
        self._store = store
        self._turns = turns
        self.queue = read_queue(store, queue)
        self._delivery = ConsumerGroup(store, self.queue.queue_id, group)
        self._make_group = make_group
        # Where order is strict, what others do counts at once.
        self._last = StateCache(timedelta(0) if self.queue.strict_fifo else KEPT)
        self._head: LedgerHead | None = None
        self._next = 0
        self._given: Lease | None = None

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._delivery.name

    @property
    def was_misled(self) -> bool:
        """Whether the last lease went by a state that was not so any more."""
        return self._last.was_wrong

    def look(self, wanted: Wanted) -> list[Message]:
        """Lease and fetch what is there. Three reads; if there is something, an LWT and some more.

        For a group not met before, two reads more. What was handed out too often is
        dead-lettered. A queue that is paused has nothing.

        Raises:
            NotFoundError: There is no such group, and it is not to be made.
            QueueStateError: The queue was purged or deleted, or the group deleted.
            StoreError: Cassandra failed; what was leased is due again, at once if possible.
        """
        self._last.forget()
        return self.fetch(self.lease(wanted, {}), wanted)

    def lease(self, wanted: Wanted, acks: ReceiptAcks, shelf: Shelf | None = None) -> Lease:
        """Ack what is done and lease what is there, by one LWT; three reads, or none.

        None while the last look was a moment ago, has left enough messages that were never handed
        out, and nothing else is due: the LWT tells if that is not so any more.

        Args:
            wanted: What to lease.
            acks: What is done.
            shelf: Where to see without a read how many messages have ``wanted.max_bytes``.

        Raises:
            NotFoundError: There is no such group, and it is not to be made.
            QueueStateError: The queue was purged or deleted, or the group deleted.
        """
        queue, key = self.queue, (self.queue.queue_id, self.group)
        limit, max_bytes = wanted.limit, wanted.max_bytes
        if queue.strict_fifo and wanted.strict_limit is not None:
            limit = min(limit, wanted.strict_limit)
        # Only once: a group that is deleted is not to come back by itself, and with everything.
        if limit and key not in self._turns:
            self._ensure_group()
        stop = self._head.offered_stop if self._head else 0
        known = self._last.tell(stop=stop, least=limit)
        if known and shelf and max_bytes is not None:
            pointer = known.head.pointer
            try:
                limit = min(limit, shelf.fitting(Range(pointer, pointer + limit), max_bytes))
            except InvariantError:
                # Others have it, settled it, and it is trimmed; or the ledger has a hole.
                known = None
            else:
                max_bytes = None
        if known is None or self._head is None:
            self._head = read_head(self._store, queue.queue_id)
        head = self._head
        check_open(queue.queue_id, head)
        self._next = head.next
        batch = self._delivery.lease(
            LeaseRequest(
                lease=self._length(wanted),
                max_messages=limit,
                stop=head.offered_stop,
                max_deliveries=queue.max_deliveries,
                prefer_fresh=self._turns.get(key, False),
                delayed_stop=head.delayed_stop,
                strict_fifo=queue.strict_fifo,
                by_receipts=True,
                receipt_acks=acks,
                max_bytes=max_bytes,
            ),
            known,
        )
        self._last.keep(batch, known)
        if limit:
            self._turns[key] = any(each.deliveries > 1 for each in batch.leased)
        return batch

    def fetch(self, batch: Lease, wanted: Wanted, shelf: Shelf | None = None) -> list[Message]:
        """Fetch what was leased, and dead-letter what was leased too often.

        Raises:
            StoreError: Cassandra failed; what was leased is due again, at once if possible.
        """
        try:
            unreadable = Unreadable()
            messages = self._messages(batch, wanted, shelf, unreadable)
            self._return_unread(batch, messages, unreadable)
            bury(self._store, self.queue, self._delivery, batch.dead)
        except BaseException:
            if batch.leased:
                _give_back(self._delivery, batch)
            raise
        self._given = batch
        return messages

    def give_back(self, messages: Sequence[Message]) -> None:
        """Make messages due again that were returned last, and that nobody got. Never raises.

        One LWT and two reads; nothing without messages.
        """
        if messages and self._given is not None:
            _give_back(self._delivery, self._given)

    def _length(self, wanted: Wanted) -> timedelta:
        return self.queue.lease if wanted.lease is None else wanted.lease

    def _ensure_group(self) -> None:
        queue_id, group = self.queue.queue_id, self.group
        if not self._make_group and read_group(self._store, queue_id, group) is None:
            raise NotFoundError(
                f"queue {queue_id} has no group {group!r}, and it is not to be made here: create "
                "it before"
            )
        ensure_group(self._store, queue_id, group, starting="earliest")

    def _return_unread(
        self, batch: Lease, messages: Sequence[Message], unreadable: Unreadable
    ) -> None:
        """Give back what was leased beyond the bytes that are handed over, and reject the rest.

        The rest are those that can't be read. Nothing if all are handed over.
        """
        if len(messages) == sum(each.monotons.count for each in batch.leased):
            return
        taken = Ranges.of(*(Range(each.monoton, each.monoton + 1) for each in messages))
        dead = unreadable.by_reason()
        rest = union(each.monotons for each in batch.leased) - taken - union(dead.values())
        self._last.forget()
        if rest:
            self._delivery.settle(batch.token, Settlement(unread=rest))
        receipt = Receipt(self.queue.queue_id, self.group, batch.token, 0)
        reject_unreadable(self._store, self.queue, receipt, dead, with_batch=False)

    def _messages(
        self, batch: Lease, wanted: Wanted, shelf: Shelf | None, unreadable: Unreadable
    ) -> list[Message]:
        group = self.group
        prefix = receipt_prefix(self.queue.queue_id, group, batch.token)
        # Told before the LWT, so never later than what the lease counts from.
        until = batch.state.now + self._length(wanted)
        messages: list[Message] = []
        left = wanted.most_bytes
        for each in batch.leased:
            if left is not None and left <= 0:
                break
            stored = self._stored(each, shelf, left, unreadable.add)
            if messages and stored and left is not None and size_of(stored[0]) > left:
                break
            messages += (
                Message(
                    queue=one.queue,
                    monoton=one.monoton,
                    key=one.key,
                    value=one.value,
                    headers=one.headers,
                    published_at=one.published_at,
                    group=group,
                    delivery_count=each.deliveries,
                    receipt=f"{prefix}{one.monoton}",
                    lease_until=until,
                )
                for one in stored
            )
            if left is not None:
                left -= sum(map(size_of, stored))
                dead = union(unreadable.by_reason().values()) & each.monotons
                if len(stored) + dead.count < each.monotons.count:
                    break
        return messages

    def _stored(
        self,
        leased: LeasedSlot,
        shelf: Shelf | None,
        most_bytes: int | None,
        on_unreadable: OnUnreadable,
    ) -> list[StoredMessage]:
        """Those of a lease that can be read, as many as have so many bytes; one at least."""
        stored: Iterable[StoredMessage]
        if shelf:
            stored = shelf.take(leased, self._next, on_unreadable, most_bytes)
        else:
            stored = read_stored(self._store, self.queue, leased.monotons, on_unreadable)
        return list(within(stored, most_bytes))


def _give_back(delivery: ConsumerGroup, batch: Lease) -> None:
    try:
        delivery.release(batch.token, batch.leased)
    except CassieqError as error:
        logger.warning(
            "%s: messages were leased that nobody got; they are due when their lease runs out: %s",
            delivery,
            error,
            extra={
                "action": GIVE_BACK_FAILED,
                "queue": delivery.queue_id,
                "group": delivery.name,
            },
        )
