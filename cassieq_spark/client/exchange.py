"""Acks and receives for one group, again and again, by one LWT each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from uuid import UUID

from cassieq_spark.arguments import check_many, shown
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.receiver import CACHED_FOR, Receiver, Turns
from cassieq_spark.client.settling import by_lease, settle_all
from cassieq_spark.consumer.message import Message
from cassieq_spark.consumer.prefetch import Prefetch
from cassieq_spark.errors import CassieqError, MessageError, OptionError, QueueStateError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.settle import settled_of
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a turn came to.

    Attributes:
        messages: Leased.
        stale: Receipts that were stale; the others are settled.
        strict: Whether the queue is strictly ordered, so that the messages are for one receiver.
        error: Why nothing could be handed over after all; what was leased is due again.
    """

    messages: list[Message]
    stale: frozenset[Receipt]
    strict: bool
    error: CassieqError | None = None


class Exchange:
    """Acks what is done and leases what comes next, for one group; for those who do so all day.

    It goes by the queue's definition, and by what it knows of the group, for a tenth of a second,
    so that a pause or another setting may come that much later; and has messages that are next
    ready before they are leased. Who leases what is decided by the LWT as ever.

    Made by `Client.exchange`. For one thread at a time.

    Args:
        store: Where the queue is kept.
        calls: The client's calls.
        turns: What the client remembers.
        queue: Name of the queue.
        group: Name of the group.
        make_group: Whether a new group is made.
    """

    def __init__(  # noqa: PLR0913 (whose, and which group, by name)
        self,
        store: Store,
        calls: Calls,
        turns: Turns,
        queue: str,
        group: str,
        *,
        make_group: bool,
    ) -> None:
        self._store = store
        self._calls = calls
        self._new_receiver = partial(
            Receiver,
            store,
            turns,
            queue,
            group,
            make_group=make_group,
            prefetch=self._prefetch_of,
        )
        self._receiver: Receiver | None = None
        self._prefetch: Prefetch | None = None
        self._until = 0.0

    def turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        """Ack messages, and lease others. One LWT, unless there is nothing of either.

        Four reads in a tenth of a second; more to fetch the messages, a few for some hundred.

        Args:
            receipts: Of this group; of whatever leases.
            request: What to lease. In a strictly ordered queue, one receiver holds all of it: see
                `LeaseRequest.max_messages_in_order`.

        Raises:
            NotFoundError: There is no such queue or group.
            QueueStateError: The queue was purged or deleted, or the group deleted.
            StoreError: Cassandra failed. It does no harm to repeat the acks.
        """
        check_many("receipts", receipts, "receipts that were parsed")
        if not all(isinstance(each, Receipt) for each in receipts):
            raise MessageError("receipts must be parsed, by Receipt.parse")
        if not isinstance(request, LeaseRequest):
            raise OptionError(f"request must be a LeaseRequest, not {shown(request)}")
        with self._calls:
            try:
                return self._turn(receipts, request)
            except BaseException:
                self._receiver = None
                raise

    def _turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        kept = self._kept(receipts)
        receiver = self._receiver = kept or self._new_receiver()
        if kept is None:
            self._until = monotonic() + CACHED_FOR.total_seconds()
        queue_id = receiver.queue.queue_id
        own = [receipt for receipt in receipts if receipt.queue_id == queue_id]
        acks = _by_lease(receipt for receipt in own if receipt.deliveries is None)
        of_batches = [receipt for receipt in own if receipt.deliveries is not None]
        try:
            late = self._ack_of_batches(of_batches)
            lease = receiver.lease(replace(request, receipt_acks=acks))
        except QueueStateError:
            if kept is None:
                raise
            # It may have been made anew since, or be gone altogether.
            self._receiver = None
            return self._turn(receipts, request)
        gone = {token: settled_of(lease.settled, token) for token in acks}
        # Of a queue that was made anew since, nobody holds anything any more.
        stale = frozenset(
            each
            for each in receipts
            if each.queue_id != queue_id
            or each in late
            or (each.deliveries is None and each.monoton not in gone[each.lease])
        )
        try:
            messages = receiver.fetch(lease)
            if receiver.was_misled and request.max_messages and not lease.leased:
                self._receiver = None
                again = self._turn([], request)
                return replace(again, stale=stale)
        except CassieqError as error:
            self._receiver = None
            return Exchanged([], stale, receiver.queue.strict_fifo, error)
        return Exchanged(messages, stale, receiver.queue.strict_fifo)

    def _ack_of_batches(self, receipts: Sequence[Receipt]) -> frozenset[Receipt]:
        """Ack messages of queries' batches, where the delivery counts; those that were stale.

        One LWT and three reads for each batch: a client's own leases are acked with the next.
        """
        stale = settle_all(
            self._store,
            by_lease(map(str, receipts)),
            lambda monotons: Settlement(acked=monotons),
        )
        return frozenset(map(Receipt.parse, stale))

    def _kept(self, receipts: Sequence[Receipt]) -> Receiver | None:
        """The receiver of the last turn, if it was a moment ago."""
        kept = self._receiver
        if kept is None or self._until <= monotonic():
            return None
        is_same = all(receipt.queue_id == kept.queue.queue_id for receipt in receipts)
        return kept if is_same else None

    def _prefetch_of(self, queue: QueueDefinition) -> Prefetch:
        if self._prefetch is None or self._prefetch.queue.queue_id != queue.queue_id:
            self._prefetch = Prefetch(self._store, queue)
        return self._prefetch


def _by_lease(receipts: Iterable[Receipt]) -> dict[UUID, Ranges]:
    ranges: defaultdict[UUID, list[Range]] = defaultdict(list)
    for each in receipts:
        ranges[each.lease].append(Range(each.monoton, each.monoton + 1))
    return {lease: Ranges.of(*parts) for lease, parts in ranges.items()}
