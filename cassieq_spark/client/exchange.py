"""Acks and leases for one group, by one LWT each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from uuid import UUID

from cassieq_spark.arguments import check_flag, check_many, shown
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.receiver import Member, Receiver, own_first
from cassieq_spark.client.settling import (
    LeaseKey,
    by_lease,
    error_of_parts,
    monotons_by,
    settle_all,
)
from cassieq_spark.consumer.idle_backoff import IdleBackoff
from cassieq_spark.consumer.lane_reader import LaneReader
from cassieq_spark.consumer.message import Message
from cassieq_spark.consumer.prefetch import Prefetch, PrefetchBudget
from cassieq_spark.errors import (
    CassieqError,
    MessageError,
    OptionError,
    QueueStateError,
    SchemaChangedError,
)
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.settle import settled_of
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.parallel import in_parallel
from cassieq_spark.processes import StaysHere
from cassieq_spark.queues import CACHED_FOR, read_queue

#: The messages of each of several receivers.
Shares = Sequence[Sequence[Message]]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round. Receipts that are neither stale nor failed are settled.

    Attributes:
        messages: The messages that were leased.
        stale: The receipts that were stale.
        queue: The queue as it was when the messages were read: the messages have its columns. If
            the queue is strictly ordered, all messages are for one receiver.
        shares: In a queue ordered by key, the messages for each of the `LeaseRequest.takers`; else
            empty, and any taker may get any message.
        error: Why no more messages were leased, or why leased messages could not be handed over
            and are due again.
        failed: Why receipts were not acked, at least not for certain; acking these again is safe.
    """

    messages: list[Message]
    stale: frozenset[Receipt]
    queue: QueueDefinition
    error: CassieqError | None = None
    failed: Mapping[Receipt, CassieqError] = field(default_factory=dict)
    shares: Shares = ()


class Exchange(StaysHere):
    """Acks messages and leases others for one group, again and again, from all partitions.

    The exchange uses the definition of the queue, and the state of the group, for a tenth of a
    second after reading them, so a pause or another setting may take effect this much later. If a
    message was written with a newer version of the schema than the definition has, the exchange
    gives the lease back uncounted, reads the definition, and leases again. Messages are
    prefetched. As always, the LWT decides who leases a message. Made by `Client.exchange`. For one
    thread at a time.
    """

    _instead = "send the client, and make an exchange where it is used"

    def __init__(self, calls: Calls, member: Member, ahead: PrefetchBudget) -> None:
        if not isinstance(ahead, PrefetchBudget):
            raise OptionError(f"ahead must be a PrefetchBudget, not {shown(ahead)}")
        self._calls, self._member, self._ahead = calls, member, ahead
        # The queue as it was read last; None: to be read anew.
        self._queue: QueueDefinition | None = None
        self._until = 0.0
        # One per partition of this queue, in order.
        self._parts: dict[QueueId, PartExchange] = {}
        self._first = 0

    def round(
        self, receipts: Sequence[Receipt], request: LeaseRequest, *, only_news: bool = False
    ) -> RoundResult:
        """Ack messages, and lease others. One LWT per partition with acked or leased messages.

        Messages are leased from the partitions whose messages are acked, and then from others
        until there are enough: first from the share (see `Presence`), and each time beginning with
        another partition. Per tenth of a second, one read for the definition, three reads for each
        partition in use, and a few more for some hundred messages.

        If a partition fails, the receipts of the others are still acked, but no further messages
        are leased. The result has the errors, unless everything has failed.

        Args:
            receipts: Receipts of this group, of any leases.
            request: What to lease. In a queue with an order, the receivers matter; see
                `LeaseRequest.takers`.
            only_news: True to lease nothing from partitions without news since the last round (see
                `Receiver.news`), which costs one read instead of three.

        Raises:
            NotFoundError: The queue or the group does not exist.
            QueueStateError: The queue was purged or deleted, or the group deleted.
            OutcomeUnknownError: Cassandra failed; receipts may be settled.
            StoreError: Cassandra failed: no message is handed out, and no receipt is settled.
        """
        check_many("receipts", receipts, "receipts that were parsed")
        if not all(isinstance(each, Receipt) for each in receipts):
            raise MessageError("receipts must be parsed, by Receipt.parse")
        if not isinstance(request, LeaseRequest):
            raise OptionError(f"request must be a LeaseRequest, not {shown(request)}")
        check_flag("only_news", only_news)
        with self._calls:
            try:
                return self._round(receipts, request, only_news=only_news)
            except BaseException:
                self._queue = None
                raise

    def _round(
        self, receipts: Sequence[Receipt], request: LeaseRequest, *, only_news: bool
    ) -> RoundResult:
        known = self._known(receipts)
        told = self._exchange(known or self._read(), receipts, request, only_news=only_news)
        is_old = known and any(map(_is_outdated, [told.error, *told.failed.values()]))
        if is_old or isinstance(told.error, SchemaChangedError):
            told = self._exchange_anew(told, request)
        errors = [each for each in (told.error, *told.failed.values()) if each is not None]
        if errors:
            self._queue = None
            if not told.messages and told.failed.keys() >= {*receipts}:
                raise error_of_parts(errors, partly=False)
        return told

    def _exchange_anew(self, told: RoundResult, request: LeaseRequest) -> RoundResult:
        """Do the rest of a round, because the queue may have changed since it was read."""
        kept = {each: why for each, why in told.failed.items() if not _is_outdated(why)}
        rest = [each for each in told.failed if each not in kept]
        is_to_lease = _is_outdated(told.error) and not told.messages
        try:
            queue = self._read()
        except CassieqError as error:
            return replace(told, error=error, failed=kept | dict.fromkeys(rest, error))
        more = request if is_to_lease else replace(request, max_messages=0)
        then = self._exchange(queue, rest, more)
        return RoundResult(
            told.messages + then.messages,
            told.stale | then.stale,
            told.queue if told.messages else then.queue,
            then.error if _is_outdated(told.error) else told.error,
            {**kept, **then.failed},
            _joined(told.shares, then.shares),
        )

    def _known(self, receipts: Sequence[Receipt]) -> QueueDefinition | None:
        """The queue as it was last read, if it was read a moment ago and all receipts fit it."""
        is_fresh = monotonic() < self._until
        is_same = all(receipt.queue_id in self._parts for receipt in receipts)
        return self._queue if is_fresh and is_same else None

    def _read(self) -> QueueDefinition:
        """Read the queue, and make all partitions read their state again. One read."""
        queue = read_queue(self._member.store, self._member.queue)
        before = self._parts
        self._parts = {
            each.queue_id: before.get(each.queue_id)
            or PartExchange(self._member, each, self._ahead)
            for each in queue.by_partition
        }
        for queue_id in before.keys() - self._parts.keys():
            before[queue_id].rest()
        for each in queue.by_partition:
            self._parts[each.queue_id].renew(each)
        self._until = monotonic() + CACHED_FOR.total_seconds()
        self._queue = queue
        return queue

    def _exchange(
        self,
        queue: QueueDefinition,
        receipts: Sequence[Receipt],
        request: LeaseRequest,
        *,
        only_news: bool = False,
    ) -> RoundResult:
        left, error = request.max_messages, None
        if left != 0:
            try:
                self._member.ensure_group(queue)
            except CassieqError as problem:
                left, error = 0, problem
        of_part: defaultdict[QueueId, list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            of_part[receipt.queue_id].append(receipt)
        # Leases of an earlier version of the queue are over.
        stale = frozenset(each for each in receipts if each.queue_id not in self._parts)
        self._first += 1
        share = self._member.presences.share(queue, self._member.group)
        ids = list(self._parts)
        others = [ids[each] for each in own_first(share, len(ids), turn=self._first)]
        in_order = [each for each in dict.fromkeys([*of_part, *others]) if each in self._parts]
        messages: list[Message] = []
        shares: Shares = ()
        failed: dict[Receipt, CassieqError] = {}
        while in_order:
            queue_id = in_order.pop(0)
            own = of_part.pop(queue_id, [])
            if not own and left == 0:
                continue
            wanted = replace(request, max_messages=left)
            told = self._parts[queue_id].round(own, wanted, only_news=only_news)
            messages += told.messages
            stale |= told.stale
            failed |= told.failed
            shares = _joined(shares, told.shares)
            if told.error is not None:
                error = error if left == 0 else told.error
                # Each partition may wait long for Cassandra, so all are acked at the same time.
                acks = [(each, of_part[each]) for each in in_order if each in of_part]
                for rest in in_parallel(self._acked, acks):
                    stale |= rest.stale
                    failed |= rest.failed
                break
            request = _rest_of(queue, replace(request, max_messages=left), told)
            left = request.max_messages
        return RoundResult(messages, stale, queue, error, failed, shares)

    def give_back(self, messages: Sequence[Message]) -> None:
        """Give back messages that nobody has seen: due at once, and not counted as delivered (I8).

        One LWT and two reads per lease, and a read of the queue. For any thread.

        Raises:
            MessageError: An argument is not a message that was received.
            NotFoundError: The queue or the group does not exist.
            StoreError: Cassandra failed. Messages not given back are due when their leases end.
        """
        check_many("messages", messages, "messages that were received")
        with self._calls:
            settle_all(
                self._member.store,
                by_lease(messages),
                lambda monotons: Settlement(unread=monotons),
                self._member.rounds,
                self._member.name,
            )

    def rest(self) -> None:
        """Drop messages that were read ahead, while nobody asks for messages. No read."""
        for part in self._parts.values():
            part.rest()

    def _acked(self, receipts: tuple[QueueId, Sequence[Receipt]]) -> RoundResult:
        """Ack messages of one partition, and lease none."""
        queue_id, own = receipts
        return self._parts[queue_id].round(own, LeaseRequest(max_messages=0))


class PartExchange:
    """The part of an exchange for one partition of one version of a queue."""

    def __init__(self, member: Member, queue: QueueDefinition, ahead: PrefetchBudget) -> None:
        self._member = member
        self._prefetch = Prefetch(member.store, queue, ahead)
        self._idle = IdleBackoff()
        self._lanes = LaneReader(member.store, queue)
        self.renew(queue)

    def renew(self, queue: QueueDefinition) -> None:
        """Use this definition of the partition, and read ledger and group again."""
        self._receiver = Receiver(self._member, queue, self._prefetch, self._idle, self._lanes)

    def rest(self) -> None:
        """Drop messages of this partition that were read ahead; see `Exchange.rest`."""
        self._prefetch.forget()
        self._lanes.forget()

    def round(
        self, receipts: Sequence[Receipt], request: LeaseRequest, *, only_news: bool = False
    ) -> RoundResult:
        """Ack messages, and lease others. One LWT; none if no message is to be acked or leased.

        One more LWT and three more reads per batch of a streaming query whose messages are acked.
        With ``only_news``, one read if no message is to be acked and there is no news. Errors of
        this package are returned in the result.
        """
        receiver, head = self._receiver, None
        queue = receiver.queue
        own = [receipt for receipt in receipts if receipt.deliveries is None]
        stale, failed = self._ack_of_batches(
            [each for each in receipts if each.deliveries is not None]
        )
        acks = monotons_by(lambda each: each.lease, own)
        try:
            if only_news and not acks:
                head = receiver.news()
                if head is None:
                    return RoundResult([], stale, queue, failed=failed)
            lease = receiver.lease(replace(request, receipt_acks=acks), head)
        except CassieqError as error:
            return RoundResult([], stale, queue, error, failed | dict.fromkeys(own, error))
        gone = {token: settled_of(lease.settled, token) for token in acks}
        stale |= {each for each in own if each.monoton not in gone[each.lease]}
        try:
            messages = receiver.fetch(lease)
        except CassieqError as error:
            return RoundResult([], stale, queue, error, failed)
        if receiver.was_misled and request.max_messages and not lease.leased:
            self.renew(receiver.queue)
            return replace(self.round([], request), stale=stale, failed=failed)
        return RoundResult(
            messages, stale, queue, failed=failed, shares=_shares_of(queue, lease, messages)
        )

    def _ack_of_batches(
        self, receipts: Sequence[Receipt]
    ) -> tuple[frozenset[Receipt], dict[Receipt, CassieqError]]:
        """Ack messages of queries' batches; return stale receipts, and failed ones with errors.

        One LWT and three reads per batch, because the number of the delivery matters there.
        """
        of_batch: defaultdict[tuple[UUID, int | None], list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            of_batch[receipt.lease, receipt.deliveries].append(receipt)
        stale: list[str] = []
        failed: dict[Receipt, CassieqError] = {}
        for batch in of_batch.values():
            try:
                stale += settle_all(
                    self._member.store,
                    monotons_by(LeaseKey.of, batch),
                    lambda monotons: Settlement(acked=monotons),
                    self._member.rounds,
                    self._member.name,
                )
            except CassieqError as error:
                failed |= dict.fromkeys(batch, error)
        return frozenset(map(Receipt.parse, stale)), failed


def _is_outdated(error: CassieqError | None) -> bool:
    """True if the queue may have been altered, deleted, or created again since it was read."""
    return isinstance(error, QueueStateError)


def _shares_of(queue: QueueDefinition, lease: Lease, messages: Sequence[Message]) -> Shares:
    """The messages of a lease for each receiver; empty if any receiver may get any message."""
    if not (queue.has_lanes and lease.request.takers):
        return ()
    by_monoton = {message.monoton: message for message in messages}
    shares: list[list[Message]] = [[] for _ in lease.request.takers]
    for mine, share in zip(shares, lease.shares, strict=False):
        for part in share:
            mine += [by_monoton[at] for at in range(part.start, part.stop) if at in by_monoton]
    return shares


def _joined(shares: Shares, more: Shares) -> Shares:
    """The messages of two leases for each receiver."""
    if not (shares and more):
        return shares or more
    return [[*first, *then] for first, then in zip(shares, more, strict=True)]


def _rest_of(queue: QueueDefinition, request: LeaseRequest, told: RoundResult) -> LeaseRequest:
    """The request for the next partition, after one partition has given messages."""
    most = request.max_messages
    left = None if most is None else max(0, most - len(told.messages))
    if not told.messages:
        return request
    if not queue.has_lanes:
        # A limit of bytes is for one lease; in strict order, one receiver gets all.
        is_over = request.max_bytes is not None or queue.is_ordered
        return replace(request, max_messages=0 if is_over else left)
    spent = sum(message.size for message in told.messages)
    stored, decoded = request.max_bytes, request.max_decoded_bytes
    if decoded is not None and decoded <= spent:
        left = 0
    rooms = zip(request.takers, told.shares, strict=True) if told.shares else ()
    return replace(
        request,
        max_messages=left,
        takers=tuple(room - len(share) for room, share in rooms) or request.takers,
        max_bytes=None if stored is None else max(1, stored - spent),
        max_decoded_bytes=None if decoded is None else max(1, decoded - spent),
    )
