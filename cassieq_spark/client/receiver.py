"""Receives messages: leases, finds, fetches and hands them over; reads without a lease, too."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

import cassieq_spark.schemas.to_rows  # noqa: F401 (not first in a thread, beside a fork)
from cassieq_spark.arguments import (
    A_MOMENT,
    check_attempt,
    check_count,
    check_duration,
    check_flag,
)
from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.arrow.rows import metadata_of, rows_of
from cassieq_spark.backoff import pauses_within
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.idle_backoff import IdleBackoff
from cassieq_spark.consumer.lane_reader import LaneReader, LaneReaders
from cassieq_spark.consumer.message import Message, StoredMessage, stored_messages
from cassieq_spark.consumer.prefetch import Prefetch
from cassieq_spark.errors import (
    CassieqError,
    DeletedError,
    InvariantError,
    LeaseLostError,
    NotYetError,
    OptionError,
    SchemaChangedError,
)
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import OnUnreadable, Unreadable, fetch
from cassieq_spark.groups.lease import Lease, LeaseRequest
from cassieq_spark.groups.partitions import ensure_groups
from cassieq_spark.groups.presence import Presences
from cassieq_spark.groups.rounds import Rounds
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, validate_name
from cassieq_spark.processes import StaysHere
from cassieq_spark.queues import CACHED_FOR, ledgers_of, read_queue
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Messages were leased, but neither handed over nor released; they are due when the lease ends.
GIVE_BACK_FAILED = "receive.give_back_failed"

#: A partition failed, and the messages of other partitions were handed over.
PARTITION_FAILED = "receive.partition_failed"

#: How long messages wait whose read failed. The failure counts as a delivery: so messages that can
#: never be read die and stop nobody, and an outage of seconds kills no others.
READ_AGAIN_AFTER = timedelta(minutes=1)

#: Messages in the form that a program gets: a list or a table.
Handed = TypeVar("Handed", bound=Sized)

#: For each group and partition that a client has received from, True if fresh messages go first
#: next time.
Turns = dict[tuple[QueueId, str], bool]
#: Groups that a client has made, or found, in all partitions of a version of a queue.
KnownGroups = set[tuple[QueueId, str]]

#: A peek left out unreadable messages.
UNSEEN = "peek.unreadable"

#: Seconds between two looks at a queue without messages, at first and later.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.75
#: More partitions than this are looked at less often: ten reads per second for all together.
_MOST_AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Member:
    """A client as a member of a consumer group.

    Attributes:
        store: The store.
        turns: By group and partition, True if fresh messages go first next time.
        known: The groups that the client knows.
        presences: The presences of the client.
        rounds: Shares LWTs among the threads of this client and of other clients.
        lanes: The lanes of messages that the client has read.
        name: The name of the client, which its leases carry.
        queue: Name of the queue.
        group: Name of the group.
        make_group: True to create the group, from the earliest message on, if it does not exist.

    Raises:
        OptionError: The name of the group is not valid, or ``make_group`` is not a flag.
    """

    store: Store
    turns: Turns
    known: KnownGroups
    presences: Presences
    rounds: Rounds
    lanes: LaneReaders
    name: str
    queue: str
    group: str
    make_group: bool = True

    def __post_init__(self) -> None:
        validate_name("group", self.group)
        check_flag("make_group", self.make_group)

    def ensure_group(self, queue: QueueDefinition) -> None:
        """Create the group in all partitions before the first lease; see `ensure_groups`.

        This happens once per version of the queue: a deleted group must not come back by itself,
        because a new group is owed every message.
        """
        key = (queue.queue_id, self.group)
        if key not in self.known:
            ledgers = ledgers_of(self.store, queue)
            ensure_groups(ledgers, self.group, make_group=self.make_group)
            self.known.add(key)


class QueueReceiver(StaysHere):
    """Receives for one group, from all partitions of a queue. One read. For one thread at a time.

    Raises:
        QueueStateError: The queue does not exist.
    """

    _instead = "send the client, and make a receiver where it is used"

    def __init__(self, member: Member) -> None:
        self._member = member
        self._use(read_queue(member.store, member.queue))
        self._first = secrets.randbelow(len(self._receivers))

    def _use(self, queue: QueueDefinition) -> None:
        self.queue = queue
        self._receivers = [Receiver(self._member, each) for each in queue.by_partition]

    def look(self, request: LeaseRequest) -> list[Message]:
        """Lease and fetch messages; see `Receiver.look`.

        The first look of a client for a group costs two more reads per partition, or creates the
        group there. If the queue has several partitions, messages are leased from one after the
        other until there are enough: first from the share (see `Presence`), and each time
        beginning with another partition. This costs one LWT per partition that has messages.
        Partitions without news since the last look are left out; see `Receiver.news`. If a
        partition fails, the error is logged and the messages of the others are returned; the error
        is raised if there are none. After a second failure, the look ends.
        """
        return [message for each in self._gather(request, Receiver.look) for message in each]

    def look_table(self, request: LeaseRequest) -> pa.Table:
        """Lease and fetch messages as an Arrow table; see `look`."""
        gathered = self._gather(request, Receiver.look_table)
        nothing = rows_of(self.queue, receipt_prefix="").schema.empty_table()
        return pa.concat_tables([nothing, *gathered])

    def pauses(self, wait: timedelta) -> Iterator[float]:
        """The pauses before further looks in seconds, growing, until ``wait`` is over."""
        longest = longest_pause(self.queue.partitions)
        return pauses_within(wait, first=FIRST_PAUSE, longest=longest, shortest_part=1)

    def give_back(self, handed: Sized) -> None:
        """Give back the messages of the last look, which nobody got. Never raises."""
        for receiver in self._receivers:
            receiver.give_back(handed)

    def _gather(
        self, request: LeaseRequest, look: Callable[[Receiver, LeaseRequest, LedgerHead], Handed]
    ) -> list[Handed]:
        try:
            return self._gather_as_known(request, look)
        except SchemaChangedError:
            # The queue was changed while the program waited.
            self._use(read_queue(self._member.store, self._member.queue))
            return self._gather_as_known(request, look)

    def _gather_as_known(
        self, request: LeaseRequest, look: Callable[[Receiver, LeaseRequest, LedgerHead], Handed]
    ) -> list[Handed]:
        self._member.ensure_group(self.queue)
        return self._gather_again(request, look) or self._gather_anew(request, look)

    def _gather_again(
        self, request: LeaseRequest, look: Callable[[Receiver, LeaseRequest, LedgerHead], Handed]
    ) -> list[Handed]:
        """Gather the messages that an earlier receive of the attempt holds in all partitions."""
        if request.attempt is None:
            return []
        again = [each for each in self._receivers if each.holds_again(request)]
        return [look(each, request, each.read_head()) for each in again]

    def _gather_anew(
        self, request: LeaseRequest, look: Callable[[Receiver, LeaseRequest, LedgerHead], Handed]
    ) -> list[Handed]:
        self._first += 1
        share = self._member.presences.share(self.queue, self._member.group)
        gathered: list[Handed] = []
        failed: tuple[QueueId, CassieqError] | None = None
        left = request.max_messages or 0
        for number in own_first(share, len(self._receivers), turn=self._first):
            receiver = self._receivers[number]
            try:
                head = receiver.news()
                if head is None:
                    continue
                handed = look(receiver, replace(request, max_messages=left), head)
            except CassieqError as error:
                if failed is not None:
                    # More than one partition fails: waiting for the others would be in vain.
                    break
                failed = receiver.queue.queue_id, error
                continue
            except BaseException:
                self.give_back(gathered)
                raise
            gathered.append(handed)
            left -= len(handed)
            # A limit of bytes is for one lease.
            if left <= 0 or (len(handed) and request.max_bytes is not None):
                break
        if failed is not None:
            queue_id, reason = failed
            if not any(map(len, gathered)):
                raise reason
            text = "queue %s failed, so group %r gets messages of other partitions only: %s"
            extra = {"action": PARTITION_FAILED, "queue": queue_id, "group": self._member.group}
            logger.warning(text, queue_id, self._member.group, reason, extra=extra)
        return gathered


class Receiver:
    """Receives for one group, from one partition of a queue. For one thread at a time.

    The group exists in all partitions before a message is leased; see `Member.ensure_group`.

    Args:
        member: The client and its group.
        queue: The queue, or one of its partitions.
        prefetch: The prefetch of the queue, which follows ``queue``; None: messages are read after
            they are leased.
        idle: The knowledge of an earlier receiver about the partition; None: no knowledge.
        lanes: The reader of the messages' lanes; None: the client's reader.
    """

    def __init__(
        self,
        member: Member,
        queue: QueueDefinition,
        prefetch: Prefetch | None = None,
        idle: IdleBackoff | None = None,
        lanes: LaneReader | None = None,
    ) -> None:
        self._member = member
        self.queue = queue
        self._prefetch = prefetch
        if prefetch is not None:
            prefetch.renew(queue)
        self._idle = idle or IdleBackoff()
        self._idle.partitions = queue.partitions
        self._consumer = Consumer(
            member.store,
            queue,
            member.group,
            cache_for=CACHED_FOR,
            prefetch=prefetch,
            rounds=member.rounds,
            lanes=(lanes or member.lanes.of(queue, member.group)) if queue.has_lanes else None,
            name=member.name,
        )
        self._given: Lease | None = None
        # The lease of an earlier receive of the same attempt; the next look hands it over.
        self._again: Lease | None = None

    def holds_again(self, request: LeaseRequest) -> bool:
        """True if an earlier receive of this attempt holds messages; the next look has them."""
        self._again = self._consumer.lease_again(request)
        return self._again is not None

    @property
    def was_misled(self) -> bool:
        """True if the last lease used a cached state of the group that was outdated."""
        return self._consumer.was_misled

    def read_head(self) -> LedgerHead:
        """Read the head of the partition's ledger, as `Consumer.read_head` does."""
        return self._consumer.read_head()

    def news(self) -> LedgerHead | None:
        """The head of the partition if it may have messages to lease. One read.

        If the queue has several partitions, a partition counts as empty while its last lease found
        no message, nothing was published since, and no message seen then has become due. Messages
        that others have given back since are found after at most one `RECHECK` per partition.

        Returns:
            The head, or None if there is nothing to lease.

        Raises:
            QueueStateError: The queue was purged or deleted.
        """
        head = self._consumer.read_head()
        is_worth = self.queue.partitions == 1 or self._idle.is_over(None, head.offered_below())
        return head if is_worth else None

    def look(self, request: LeaseRequest, head: LedgerHead) -> list[Message]:
        """Lease and fetch messages. Two reads; one LWT and some reads more if messages are found.

        Messages that were delivered too often are dead-lettered. A paused queue returns no
        messages.

        Args:
            request: What to lease.
            head: The result of `news`.

        Raises:
            QueueStateError: The queue was purged or deleted, or the group does not exist.
            StoreError: Cassandra failed. Messages that were leased are due again; see `fetch`.
        """
        return self.fetch(self._lease_anew(request, head))

    def lease(self, request: LeaseRequest, head: LedgerHead | None = None) -> Lease:
        """Ack messages and lease others; see `Consumer.poll`.

        Raises:
            QueueStateError: The queue was purged or deleted, or the group does not exist.
        """
        turns, key = self._member.turns, (self.queue.queue_id, self._member.group)
        prefer_fresh = turns.get(key, False)
        request = replace(request, by_receipts=True, prefer_fresh=prefer_fresh)
        lease = self._consumer.poll(request, head)
        self._idle.record(lease)
        if request.max_messages:
            is_again = any(each.deliveries > 1 for each in lease.leased)
            turns[key] = is_again and not prefer_fresh
        return lease

    def look_table(self, request: LeaseRequest, head: LedgerHead) -> pa.Table:
        """Lease and fetch messages as an Arrow table; see `look`."""
        lease = self._lease_anew(request, head)
        return self._hand_over(lease, partial(self._table, lease))

    def fetch(self, lease: Lease) -> list[Message]:
        """Fetch leased messages, and dead-letter those that were leased too often.

        Raises:
            StoreError: Cassandra failed. The messages are due again: in a minute, and count as
                delivered, if they could not be read; otherwise at once if possible, uncounted.
            SchemaChangedError: The definition of the queue is older than some messages. All
                messages are due again at once, uncounted.
        """
        take: Callable[[Unreadable], list[Message]] = partial(self._messages, lease)
        return self._hand_over(lease, take)

    def _lease_anew(self, request: LeaseRequest, head: LedgerHead) -> Lease:
        self._given = None
        self._consumer.forget()
        again, self._again = self._again, None
        return again or self.lease(request, head)

    def _hand_over(self, lease: Lease, take: Callable[[Unreadable], Handed]) -> Handed:
        unreadable, is_read = Unreadable(), False
        try:
            handed = take(unreadable)
            is_read = True
            self._consumer.return_unread(lease, _monotons_of(handed), unreadable.by_reason())
            self._consumer.dead_letter(lease.dead, known=lease.state.waiting)
        except BaseException as error:
            # If the definition is older than the schema, the messages may well be readable.
            is_old = isinstance(error, SchemaChangedError)
            is_broken = not is_read and isinstance(error, Exception) and not is_old
            self._give_back(lease, read_failed=is_broken)
            raise
        self._given = lease
        return handed

    def give_back(self, handed: Sized) -> None:
        """Give back the messages of the last look, which nobody got, uncounted. Never raises.

        One LWT and two reads; no request without messages.
        """
        if len(handed) and self._given is not None:
            self._give_back(self._given)

    def _table(self, lease: Lease, unreadable: Unreadable) -> pa.Table:
        prefix = receipt_prefix(self.queue.queue_id, self._member.group, lease.token)
        rows = rows_of(self.queue, receipt_prefix=prefix)
        ledger = Ledger(self._member.store, self.queue.queue_id)
        pieces = [
            piece
            for each in lease.leased
            for piece in find_pieces(ledger, each.monotons, deliveries=each.deliveries)
        ]
        batches = fetch(
            self._member.store,
            self.queue,
            sorted(pieces, key=lambda piece: piece.first_monoton),
            rows,
            on_unreadable=unreadable.add,
            whole=True,
        )
        return pa.Table.from_batches(batches, rows.schema)

    def _messages(self, lease: Lease, unreadable: Unreadable) -> list[Message]:
        prefix = receipt_prefix(self.queue.queue_id, self._member.group, lease.token)
        # The lease counts from the time of the LWT; the state was read before.
        until = lease.state.now + (lease.request.lease or self.queue.lease)
        leased = Ranges.union(each.monotons for each in lease.leased)
        if not leased:
            return []
        most_bytes = lease.request.max_decoded_bytes
        stored = self._stored(leased, lease, most_bytes, unreadable.add)
        handed_out = dict(_each_delivery(lease))
        return [
            Message(
                queue=one.queue,
                monoton=one.monoton,
                key=one.key,
                value=one.value,
                headers=one.headers,
                published_at=one.published_at,
                partition=one.partition,
                group=self._member.group,
                delivery_count=handed_out[one.monoton][0],
                receipt=f"{prefix}{one.monoton}",
                lease_until=until,
                first_delivered_at=handed_out[one.monoton][1],
            )
            for one in stored
        ]

    def _stored(
        self,
        monotons: Ranges,
        lease: Lease,
        most_bytes: int | None,
        on_unreadable: OnUnreadable,
    ) -> list[StoredMessage]:
        """The readable messages of a lease, in order, up to ``most_bytes``, but at least one."""
        stored: Iterable[StoredMessage]
        if self._prefetch:
            is_new = all(each.deliveries == 1 for each in lease.leased)
            ahead = lease.request.stop if is_new else 0
            stored = self._prefetch.take(monotons, ahead, on_unreadable, most_bytes)
        else:
            store = self._member.store
            stored = read_stored(store, self.queue, monotons, on_unreadable, whole=True)
        return list(within(stored, most_bytes))

    def _give_back(self, lease: Lease, *, read_failed: bool = False) -> None:
        if not lease.leased or not lease.ops:
            # Nothing is held, or an earlier receive of the same attempt has handed it over.
            return
        monotons = Ranges.union(each.monotons for each in lease.leased)
        back = (
            Settlement(released={READ_AGAIN_AFTER: monotons})
            if read_failed
            else Settlement(unread=monotons)
        )
        try:
            self._consumer.settle(lease.token, back)
        except CassieqError as error:
            logger.warning(
                "%s: messages were leased, but neither handed over nor released; they "
                "are due when their lease ends: %s",
                self._consumer.group,
                error,
                extra={"action": GIVE_BACK_FAILED, **self._consumer.log_fields},
            )


def _each_delivery(lease: Lease) -> Iterator[tuple[int, tuple[int, datetime | None]]]:
    """The monotons of a lease, each with its deliveries and the time of the first one."""
    for each in lease.leased:
        is_first = each.deliveries == 1 and each.first_at is None
        delivery = (each.deliveries, lease.state.now if is_first else each.first_at)
        for part in each.monotons:
            yield from ((monoton, delivery) for monoton in range(part.start, part.stop))


def _monotons_of(handed: Any) -> Ranges:
    """The monotons of messages, or of the rows of a table."""
    if isinstance(handed, pa.Table):
        columns = [metadata_of(batch, "monoton") for batch in handed.to_batches()]
        monotons = [monoton for column in columns for monoton in column.to_pylist()]
    else:
        monotons = [message.monoton for message in handed]
    return Ranges.of(*(Range(each, each + 1) for each in monotons))


def longest_pause(partitions: int) -> float:
    """The longest time between two looks at a queue without messages, in seconds.

    >>> longest_pause(1), longest_pause(16)
    (0.75, 2.0)
    """
    return LONGEST_PAUSE * max(1.0, partitions / _MOST_AT_ONCE)


def own_first(share: Collection[int], partitions: int, *, turn: int) -> list[int]:
    """All partitions, those of a share first; each turn begins with another one.

    >>> own_first({1, 3}, 4, turn=2)
    [3, 1, 2, 0]
    """
    turned = ((turn + at) % partitions for at in range(partitions))
    return sorted(turned, key=lambda number: number not in share)


def lease_request(
    limit: int,
    wait: timedelta,
    lease: timedelta | None,
    max_bytes: int | None = None,
    attempt: str | None = None,
) -> LeaseRequest:
    """The lease request for the arguments of `Client.receive`.

    Raises:
        OptionError: An argument of `Client.receive` has another type, or is out of range.
    """
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    check_count("max", limit)
    check_duration("wait", wait)
    if lease is not None:
        check_duration("lease", lease, least=A_MOMENT)
    if attempt is not None:
        check_attempt(attempt)
    return LeaseRequest(
        max_messages=limit,
        lease=lease,
        max_bytes=max_bytes,
        max_decoded_bytes=max_bytes,
        attempt=attempt,
    )


def within(messages: Iterable[StoredMessage], most_bytes: int | None) -> Iterator[StoredMessage]:
    """The first messages, up to ``most_bytes``, but at least one."""
    left = float("inf") if most_bytes is None else float(most_bytes)
    is_first = True
    for each in messages:
        left -= each.size
        if left < 0 and not is_first:
            return
        is_first = False
        yield each


def peek_messages(
    store: Store,
    queue: QueueDefinition,
    *,
    limit: int,
    start: StartingPosition,
    max_bytes: int | None = None,
) -> list[StoredMessage]:
    """Read messages without leasing them, except unreadable ones; see `Client.peek`."""
    check_count("max", limit)
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    if isinstance(start, int) and queue.partitions > 1:
        raise OptionError(
            f"queue {queue.name!r} has {queue.partitions} partitions, each with monotons of its "
            f"own, so {start} is no position in it: give earliest, latest, or an instant"
        )
    messages: list[StoredMessage] = []
    for partition in queue.by_partition:
        if len(messages) < limit:
            left = None if max_bytes is None else max_bytes - sum(it.size for it in messages)
            if messages and left is not None and left <= 0:
                break
            messages += _peek(store, partition, limit - len(messages), start, left)
    return messages


def _peek(
    store: Store,
    queue: QueueDefinition,
    limit: int,
    start: StartingPosition,
    max_bytes: int | None,
) -> list[StoredMessage]:
    ledger = Ledger(store, queue.queue_id)
    head = ledger.read_head(serial=True)
    first = max(head.finalised, ledger.find_position(head, start))
    which = Ranges.of(Range(first, max(first, min(head.next, first + limit))))
    found = Unreadable()
    messages = list(within(read_stored(store, queue, which, found.add), max_bytes))
    for reason, monotons in found.by_reason().items():
        logger.warning(
            "queue %s: messages %s can't be shown, as they are %s",
            queue.queue_id,
            monotons.short,
            reason,
            extra={"action": UNSEEN, "queue": queue.queue_id, "count": monotons.count},
        )
    return messages


def partition_given(
    queue: QueueDefinition, monoton: int, partition: int | None
) -> QueueDefinition:
    """The partition of a message that somebody names.

    Raises:
        OptionError: The monoton is none, or no such partition is given.
    """
    check_count("monoton", monoton, least=0)
    if partition is not None:
        check_count("partition", partition, least=0, most=queue.partitions - 1)
    elif queue.partitions > 1:
        raise OptionError(
            f"queue {queue.name!r} has {queue.partitions} partitions, each with monotons of its "
            f"own: say in which partition message {monoton} is"
        )
    return queue.of_partition(partition or 0)


def read_message(
    store: Store, queue: QueueDefinition, monoton: int, *, partition: int | None
) -> StoredMessage:
    """Read one message by its position; see `Client.message`."""
    part = partition_given(queue, monoton, partition)
    ledger = Ledger(store, part.queue_id)
    head = ledger.read_head(serial=True)
    if monoton >= head.next:
        raise NotYetError(
            f"queue {part.label} has no message {monoton} yet: the next one that is put gets "
            f"position {head.next}"
        )
    which = Ranges.of(Range(monoton, monoton + 1) & Range(head.finalised, head.next))
    try:
        pieces = find_pieces(ledger, which, deliveries=None) if which else []
        found = list(stored_messages(fetch(store, part, pieces)))
    except (InvariantError, LeaseLostError):
        # Deleted since the head was read?
        head = ledger.read_head(serial=True)
        if monoton >= head.finalised:
            raise
        found = []
    if not found:
        raise DeletedError(
            f"message {monoton} of queue {part.label} is deleted: every group has settled it, or "
            f"it has expired; the first message that is left is {max(head.finalised, monoton + 1)}"
        )
    return found[0]


def read_stored(
    store: Store,
    queue: QueueDefinition,
    monotons: Ranges,
    on_unreadable: OnUnreadable,
    *,
    whole: bool = False,
) -> Iterator[StoredMessage]:
    """Read messages, in order. Two reads, and one per bucket; more if messages are far apart.

    Unreadable messages are left out, and reported to ``on_unreadable``. For ``whole``, see
    `Decoder`.

    Raises:
        LeaseLostError: Messages are deleted.
        InvariantError: The ledger has a hole at these monotons (I1).
    """
    pieces = find_pieces(Ledger(store, queue.queue_id), monotons, deliveries=None)
    batches = fetch(store, queue, pieces, on_unreadable=on_unreadable, whole=whole)
    return stored_messages(batches)
