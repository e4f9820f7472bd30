"""Acks and receives for one group, again and again, by one LWT each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from uuid import UUID

from cassieq_spark.arguments import check_many, shown
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.receiver import CACHED_FOR, Receiver, Turns, own_first
from cassieq_spark.client.settling import by_lease, settle_all
from cassieq_spark.consumer.message import Message
from cassieq_spark.consumer.prefetch import Prefetch
from cassieq_spark.errors import (
    CassieqError,
    MessageError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.presence import Presences
from cassieq_spark.groups.settle import settled_of
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, Range, Ranges, parts_of_id
from cassieq_spark.queues import read_queue
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
    """Acks what is done and leases what comes next, for one group, of all partitions of a queue.

    One LWT for each partition of which messages are acked or leased; see `PartExchange`. Made by
    `Client.exchange`. For one thread at a time.

    Args:
        store: Where the queue is kept.
        calls: The client's calls.
        turns: What the client remembers.
        queue: Name of the queue.
        group: Name of the group.
        presences: Of the client.
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
        presences: Presences,
        make_group: bool,
    ) -> None:
        self._part = partial(
            PartExchange, store, calls, turns, queue, group, make_group=make_group
        )
        self._share = partial(presences.share, group=group)
        # As many as the queue has; how many that is, the first of them finds.
        self._parts = [self._part(partition=0)]
        self._first = 0

    def turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        """Ack messages, and lease others; see `PartExchange.turn`.

        Messages are leased from the partitions whose messages are acked, and then from others
        until there are enough: those of its share first (see `Presence`), each time beginning with
        another one.
        """
        check_many("receipts", receipts, "receipts that were parsed")
        if not all(isinstance(each, Receipt) for each in receipts):
            raise MessageError("receipts must be parsed, by Receipt.parse")
        if not isinstance(request, LeaseRequest):
            raise OptionError(f"request must be a LeaseRequest, not {shown(request)}")
        # Made anew, a queue may have another number of partitions.
        is_of_several = any(parts_of_id(each.queue_id)[2] is not None for each in receipts)
        queue = self._parts[0].definition(now=is_of_several and len(self._parts) == 1)
        if queue is None or queue.partitions == 1:
            del self._parts[1:]
            return self._parts[0].turn(receipts, request)
        if queue.partitions != len(self._parts):
            self._parts = [self._part(partition=number) for number in range(queue.partitions)]
        return self._turn(receipts, request, self._share(queue))

    def _turn(
        self, receipts: Sequence[Receipt], request: LeaseRequest, share: Collection[int]
    ) -> Exchanged:
        of_part: defaultdict[int, list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            # One of another version is stale, whichever partition looks at it.
            number = parts_of_id(receipt.queue_id)[2] or 0
            of_part[number if number < len(self._parts) else 0].append(receipt)
        self._first += 1
        others = own_first(share, len(self._parts), turn=self._first)
        in_order = [*of_part, *(number for number in others if number not in of_part)]
        messages: list[Message] = []
        stale: frozenset[Receipt] = frozenset()
        strict = False
        left = request.max_messages
        for number in in_order:
            own = of_part.get(number, [])
            if not own and left == 0:
                continue
            told = self._parts[number].turn(own, replace(request, max_messages=left))
            messages += told.messages
            stale |= told.stale
            strict = told.strict
            if told.error is not None:
                return Exchanged(messages, stale, strict, told.error)
            if left is not None:
                left = max(0, left - len(told.messages))
            # A limit of bytes is that of one lease, and what is in order is for one receiver.
            if told.messages and (request.max_bytes is not None or strict):
                left = 0
        return Exchanged(messages, stale, strict)


class PartExchange:
    """Acks what is done and leases what comes next, for one group; for those who do so all day.

    It goes by the queue's definition, and by what it knows of the group, for a tenth of a second,
    so that a pause or another setting may come that much later; and has messages that are next
    ready before they are leased. Who leases what is decided by the LWT as ever.

    For one thread at a time.

    Args:
        store: Where the queue is kept.
        calls: The client's calls.
        turns: What the client remembers.
        queue: Name of the queue.
        group: Name of the group.
        make_group: Whether a new group is made.
        partition: Which partition of the queue.
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
        partition: int,
    ) -> None:
        self._store = store
        self._calls = calls

        self._queue = queue
        self._of = partition
        self._definition: QueueDefinition | None = None
        self._receiver_of = partial(
            Receiver, store, turns, group=group, make_group=make_group, prefetch=self._prefetch_of
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
        with self._calls:
            try:
                return self._turn(receipts, request)
            except BaseException:
                self._receiver = None
                raise

    def definition(self, *, now: bool) -> QueueDefinition | None:
        """The whole queue as it was read last; None: not yet.

        Args:
            now: Read it.
        """
        if now:
            with self._calls:
                self._definition = read_queue(self._store, self._queue)
        return self._definition

    def _new_receiver(self) -> Receiver:
        queue = self._definition = read_queue(self._store, self._queue)
        # Made anew, it may have fewer partitions.
        return self._receiver_of(queue=queue.of_partition(self._of % queue.partitions))

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
