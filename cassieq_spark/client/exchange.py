"""Acks and leases for one group, by one LWT each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from uuid import UUID

from cassieq_spark.arguments import check_many, shown
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.receiver import CACHED_FOR, Member, Receiver, own_first
from cassieq_spark.client.settling import by_lease, settle_all
from cassieq_spark.consumer.message import Message
from cassieq_spark.consumer.prefetch import Prefetch
from cassieq_spark.errors import CassieqError, MessageError, OptionError, QueueStateError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.settle import settled_of
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, Range, Ranges, parts_of_id
from cassieq_spark.queues import read_queue


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The result of a turn.

    Attributes:
        messages: The messages that were leased.
        stale: The receipts that were stale; the others are settled.
        strict: Whether the queue is strictly ordered: the messages are for one receiver.
        error: Why the messages could not be handed over; they are due again.
    """

    messages: list[Message]
    stale: frozenset[Receipt]
    strict: bool
    error: CassieqError | None = None


class Exchange:
    """Acks messages and leases others for one group, from all partitions of a queue.

    One LWT for each partition whose messages are acked or leased; see `PartExchange`. Made by
    `Client.exchange`. For one thread at a time.
    """

    def __init__(self, calls: Calls, member: Member) -> None:
        self._calls, self._member = calls, member
        # As many as the queue has; the first one finds out how many.
        self._parts = [PartExchange(calls, member, 0)]
        self._first = 0

    def turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        """Ack messages, and lease others; see `PartExchange.turn`.

        Messages are leased from the partitions whose messages are acked, and then from others
        until there are enough: first from the share (see `Presence`), and each time beginning with
        another partition.
        """
        check_many("receipts", receipts, "receipts that were parsed")
        if not all(isinstance(each, Receipt) for each in receipts):
            raise MessageError("receipts must be parsed, by Receipt.parse")
        if not isinstance(request, LeaseRequest):
            raise OptionError(f"request must be a LeaseRequest, not {shown(request)}")
        # A queue that was created again may have another number of partitions.
        is_of_several = any(parts_of_id(each.queue_id)[2] is not None for each in receipts)
        queue = self._parts[0].definition(now=is_of_several and len(self._parts) == 1)
        if queue is None or queue.partitions == 1:
            del self._parts[1:]
            return self._parts[0].turn(receipts, request)
        if queue.partitions != len(self._parts):
            numbers = range(queue.partitions)
            self._parts = [PartExchange(self._calls, self._member, each) for each in numbers]
        share = self._member.presences.share(queue, self._member.group)
        return self._turn(receipts, request, share)

    def _turn(
        self, receipts: Sequence[Receipt], request: LeaseRequest, share: Collection[int]
    ) -> Exchanged:
        of_part: defaultdict[int, list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            # A receipt of another version is stale in any partition.
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
            # A limit of bytes is that of one lease; in strict order one receiver gets all.
            if told.messages and (request.max_bytes is not None or strict):
                left = 0
        return Exchanged(messages, stale, strict)


class PartExchange:
    """Acks messages and leases others for one group, again and again. For one thread at a time.

    For a tenth of a second it uses the definition of the queue and the state of the group that it
    has read, so a pause or another setting may take effect that much later. It prefetches
    messages. As always, the LWT decides who leases a message.
    """

    def __init__(self, calls: Calls, member: Member, partition: int) -> None:
        self._calls, self._member, self._partition = calls, member, partition
        self._definition: QueueDefinition | None = None
        self._receiver: Receiver | None = None
        self._prefetch: Prefetch | None = None
        self._until = 0.0

    def turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        """Ack messages, and lease others. One LWT; none if there is nothing to ack or lease.

        Four reads in a tenth of a second, and a few for some hundred messages.

        Args:
            receipts: Receipts of this group, of any leases.
            request: What to lease. In a strictly ordered queue one receiver gets all of it; see
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
        """The queue as it was read last, or as it is ``now``; None: it was not read yet."""
        if now:
            with self._calls:
                self._definition = read_queue(self._member.store, self._member.queue)
        return self._definition

    def _new_receiver(self) -> Receiver:
        member = self._member
        queue = self._definition = read_queue(member.store, member.queue)
        # A queue that was created again may have fewer partitions.
        part = queue.of_partition(self._partition % queue.partitions)
        return Receiver(member, part, self._prefetch_of)

    def _turn(self, receipts: Sequence[Receipt], request: LeaseRequest) -> Exchanged:
        kept = self._kept(receipts)
        receiver = self._receiver = kept or self._new_receiver()
        if kept is None:
            self._until = monotonic() + CACHED_FOR.total_seconds()
        if request.max_messages and self._definition is not None:
            self._member.ensure_group(self._definition)
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
            # It may have been created again since, or not exist any more.
            self._receiver = None
            return self._turn(receipts, request)
        gone = {token: settled_of(lease.settled, token) for token in acks}
        # Leases of an earlier version of the queue are over.
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
        """Ack messages of queries' batches, and return the stale receipts.

        One LWT and three reads for each batch, as the number of the delivery counts there.
        """
        stale = settle_all(
            self._member.store,
            by_lease(map(str, receipts)),
            lambda monotons: Settlement(acked=monotons),
        )
        return frozenset(map(Receipt.parse, stale))

    def _kept(self, receipts: Sequence[Receipt]) -> Receiver | None:
        """The receiver of the last turn, if it is still fresh and of the same queue id."""
        kept = self._receiver
        if kept is None or self._until <= monotonic():
            return None
        is_same = all(receipt.queue_id == kept.queue.queue_id for receipt in receipts)
        return kept if is_same else None

    def _prefetch_of(self, queue: QueueDefinition) -> Prefetch:
        if self._prefetch is None or self._prefetch.queue.queue_id != queue.queue_id:
            self._prefetch = Prefetch(self._member.store, queue)
        return self._prefetch


def _by_lease(receipts: Iterable[Receipt]) -> dict[UUID, Ranges]:
    ranges: defaultdict[UUID, list[Range]] = defaultdict(list)
    for each in receipts:
        ranges[each.lease].append(Range(each.monoton, each.monoton + 1))
    return {lease: Ranges.of(*parts) for lease, parts in ranges.items()}
