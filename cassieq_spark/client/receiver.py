"""Receiving: lease what is there, find it, fetch it, and hand it over as messages; and peeking."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from cassieq_spark import backoff
from cassieq_spark.arguments import A_MOMENT, check_count, check_duration, check_flag
from cassieq_spark.arrow.receipts import receipt_prefix
from cassieq_spark.arrow.rows import metadata_of, rows_of
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.message import Message, StoredMessage, stored_messages
from cassieq_spark.consumer.prefetch import Prefetch
from cassieq_spark.errors import (
    CassieqError,
    DeletedError,
    InvariantError,
    LeaseLostError,
    NotFoundError,
    NotYetError,
    OptionError,
)
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import OnUnreadable, Unreadable, fetch
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.presence import Presences
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, validate_name
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: What was leased could not be handed over, nor given back; it is due when its lease runs out.
GIVE_BACK_FAILED = "receive.give_back_failed"

#: For how long a receiver goes by what it has read of the ledger and the group.
CACHED_FOR = timedelta(milliseconds=100)

#: What a program gets of a lease.
Handed = TypeVar("Handed", bound=Sized)

#: Of each group that a client has received for, whether fresh messages go first next time.
Turns = dict[tuple[QueueId, str], bool]

#: Messages that were to be looked at can't be read.
UNSEEN = "peek.unreadable"

#: Seconds between two looks at a queue that has nothing: three reads each.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.75
#: Several partitions are looked at less often, by this factor at most.
_MOST_PATIENT = 4


class QueueReceiver:
    """Receives for one group, of all partitions of a queue. A read. For one thread at a time.

    Args:
        store: Where the queue is kept.
        turns: What the client remembers; a new group is made, and begins at the earliest message.
        queue: Name of the queue.
        group: Name of the group.
        presences: Of the client.
        make_group: Whether a new group is made.

    Raises:
        OptionError: The group's name is not valid.
        QueueStateError: There is no such queue.
    """

    def __init__(  # noqa: PLR0913 (where, whose, and which group, by name)
        self,
        store: Store,
        turns: Turns,
        queue: str,
        group: str,
        *,
        presences: Presences,
        make_group: bool = True,
    ) -> None:
        validate_name("group", group)
        self.queue = read_queue(store, queue)
        self._group = group
        self._presences = presences
        self._receivers = [
            Receiver(store, turns, each, group, make_group=make_group)
            for each in self.queue.by_partition
        ]
        self._first = secrets.randbelow(len(self._receivers))

    def look(self, request: LeaseRequest) -> list[Message]:
        """Lease and fetch what is there; see `Receiver.look`.

        Of several partitions, one after the other until there are enough messages: those of its
        share first (see `Presence`), each time beginning with another one. An LWT for each that
        has some.
        """
        return [message for each in self._gather(request, Receiver.look) for message in each]

    def look_table(self, request: LeaseRequest) -> pa.Table:
        """As `look`, as an Arrow table."""
        return pa.concat_tables(self._gather(request, Receiver.look_table))

    def give_back(self, messages: Sequence[Message] | pa.Table) -> None:
        """Make messages due again that were returned last, and that nobody got. Never raises."""
        for receiver in self._receivers:
            receiver.give_back(messages)

    @property
    def longest_pause(self) -> float:
        """Seconds between two looks at most; see `pauses_within`."""
        return _LONGEST_PAUSE * min(_MOST_PATIENT, max(1.0, len(self._receivers) / _MOST_PATIENT))

    def _gather(
        self, request: LeaseRequest, look: Callable[[Receiver, LeaseRequest], Handed]
    ) -> list[Handed]:
        self._first += 1
        share = self._presences.share(self.queue, self._group)
        gathered: list[Handed] = []
        left = request.max_messages or 0
        for number in own_first(share, len(self._receivers), turn=self._first):
            receiver = self._receivers[number]
            try:
                handed = look(receiver, replace(request, max_messages=left))
            except BaseException:
                for each in self._receivers:
                    each.give_back([*gathered])
                raise
            gathered.append(handed)
            left -= len(handed)
            # A limit of bytes is that of one lease.
            if left <= 0 or (len(handed) and request.max_bytes is not None):
                break
        return gathered


class Receiver:
    """Receives for one group, of one partition of a queue. For one thread at a time.

    Args:
        store: Where the queue is kept.
        turns: What the client remembers; a new group is made, and begins at the earliest message.
        queue: Which queue, or which partition of it.
        group: Name of the group.
        make_group: Whether a new group is made.
        prefetch: Makes what reads messages ahead of their lease; None: nothing does.

    Raises:
        OptionError: The group's name is not valid.
    """

    def __init__(  # noqa: PLR0913 (where, whose, and how, by name)
        self,
        store: Store,
        turns: Turns,
        queue: QueueDefinition,
        group: str,
        *,
        make_group: bool = True,
        prefetch: Callable[[QueueDefinition], Prefetch] | None = None,
    ) -> None:
        validate_name("group", group)
        check_flag("make_group", make_group)
        self._store = store
        self._turns = turns
        self.queue = queue
        self._prefetch = prefetch(self.queue) if prefetch else None
        self._consumer = Consumer(
            store, self.queue, group, cache_for=CACHED_FOR, prefetch=self._prefetch
        )
        self._make_group = make_group
        self._given: Lease | None = None

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._consumer.group.name

    @property
    def was_misled(self) -> bool:
        """Whether the last lease went by a cached state that was not so any more."""
        return self._consumer.was_misled

    def look(self, request: LeaseRequest) -> list[Message]:
        """Lease and fetch what is there. Three reads; if there is something, an LWT and some more.

        For a group not met before, two reads more. What was handed out too often is
        dead-lettered. A queue that is paused has nothing.

        Raises:
            NotFoundError: There is no such group, and it is not to be made.
            QueueStateError: The queue was purged or deleted, or the group deleted.
            StoreError: Cassandra failed; what was leased is due again, at once if possible.
        """
        self._given = None
        self._consumer.forget()
        return self.fetch(self.lease(request))

    def lease(self, request: LeaseRequest) -> Lease:
        """Ack what is done and lease what is there; see `Consumer.poll`.

        Raises:
            NotFoundError: There is no such group, and it is not to be made.
            QueueStateError: The queue was purged or deleted, or the group deleted.
        """
        key = (self.queue.queue_id, self.group)
        # Only once: a group that is deleted is not to come back by itself, and with everything.
        if request.max_messages and key not in self._turns:
            self._ensure_group()
        prefer_fresh = self._turns.get(key, False)
        lease = self._consumer.poll(replace(request, by_receipts=True, prefer_fresh=prefer_fresh))
        if request.max_messages:
            self._turns[key] = any(each.deliveries > 1 for each in lease.leased)
        return lease

    def look_table(self, request: LeaseRequest) -> pa.Table:
        """As `look`, as an Arrow table."""
        self._given = None
        self._consumer.forget()
        lease = self.lease(request)
        return self._hand_over(lease, partial(self._table, lease))

    def fetch(self, lease: Lease) -> list[Message]:
        """Fetch what was leased, and dead-letter what was leased too often.

        Raises:
            StoreError: Cassandra failed; what was leased is due again, at once if possible.
        """
        take: Callable[[Unreadable], list[Message]] = partial(self._messages, lease)
        return self._hand_over(lease, take)

    def _hand_over(self, lease: Lease, take: Callable[[Unreadable], Handed]) -> Handed:
        try:
            unreadable = Unreadable()
            handed = take(unreadable)
            self._consumer.return_unread(lease, _monotons_of(handed), unreadable.by_reason())
            self._consumer.dead_letter(lease.dead, known=lease.state.waiting)
        except BaseException:
            if lease.leased:
                self._give_back(lease)
            raise
        self._given = lease
        return handed

    def give_back(self, messages: Sequence[Message] | pa.Table) -> None:
        """Make messages due again that were returned last, and that nobody got. Never raises.

        One LWT and two reads; nothing without messages.
        """
        if len(messages) and self._given is not None:
            self._give_back(self._given)

    def _ensure_group(self) -> None:
        group = self._consumer.group
        if not self._make_group and group.ledger.read_group(group.name) is None:
            raise NotFoundError(
                f"queue {group.queue_id} has no group {group.name!r}, and this call "
                "does not create it: create it first"
            )
        ensure_group(group, starting="earliest")

    def _table(self, lease: Lease, unreadable: Unreadable) -> pa.Table:
        prefix = receipt_prefix(self.queue.queue_id, self.group, lease.token)
        rows = rows_of(self.queue, receipt_prefix=prefix)
        ledger = Ledger(self._store, self.queue.queue_id)
        batches = [
            batch
            for each in lease.leased
            for batch in fetch(
                self._store,
                self.queue,
                find_pieces(ledger, each.monotons, deliveries=each.deliveries),
                rows,
                on_unreadable=unreadable.add,
            )
        ]
        return pa.Table.from_batches(batches, rows.schema)

    def _messages(self, lease: Lease, unreadable: Unreadable) -> list[Message]:
        prefix = receipt_prefix(self.queue.queue_id, self.group, lease.token)
        # Told before the LWT, so never later than what the lease counts from.
        until = lease.state.now + (lease.request.lease or self.queue.lease)
        messages: list[Message] = []
        left = lease.request.max_decoded_bytes
        for each in lease.leased:
            if left is not None and left <= 0:
                break
            stored = self._stored(each, lease.request.stop, left, unreadable.add)
            if messages and stored and left is not None and stored[0].size > left:
                break
            messages += (
                Message(
                    queue=one.queue,
                    monoton=one.monoton,
                    key=one.key,
                    value=one.value,
                    headers=one.headers,
                    published_at=one.published_at,
                    partition=one.partition,
                    group=self.group,
                    delivery_count=each.deliveries,
                    receipt=f"{prefix}{one.monoton}",
                    lease_until=until,
                )
                for one in stored
            )
            if left is not None:
                left -= sum(each.size for each in stored)
                dead = Ranges.union(unreadable.by_reason().values()) & each.monotons
                if len(stored) + dead.count < each.monotons.count:
                    break
        return messages

    def _stored(
        self, leased: LeasedSlot, stop: int, most_bytes: int | None, on_unreadable: OnUnreadable
    ) -> list[StoredMessage]:
        """Those of a lease that can be read, as many as have so many bytes; one at least."""
        stored: Iterable[StoredMessage]
        if self._prefetch:
            stored = self._prefetch.take(leased, stop, on_unreadable, most_bytes)
        else:
            stored = read_stored(self._store, self.queue, leased.monotons, on_unreadable)
        return list(within(stored, most_bytes))

    def _give_back(self, lease: Lease) -> None:
        try:
            self._consumer.group.release(lease.token, lease.leased)
        except CassieqError as error:
            logger.warning(
                "%s: messages were leased, but neither handed over nor released; they "
                "are due when their lease runs out: %s",
                self._consumer.group,
                error,
                extra={"action": GIVE_BACK_FAILED, **self._consumer.log_fields},
            )


def _monotons_of(handed: Any) -> Ranges:
    """The monotons of messages, or of the rows of a table."""
    if isinstance(handed, pa.Table):
        columns = [metadata_of(batch, "monoton") for batch in handed.to_batches()]
        monotons = [monoton for column in columns for monoton in column.to_pylist()]
    else:
        monotons = [message.monoton for message in handed]
    return Ranges.of(*(Range(each, each + 1) for each in monotons))


def own_first(share: Collection[int], partitions: int, *, turn: int) -> list[int]:
    """All partitions: first those of a share, and each turn another one of them first. Pure.

    >>> own_first({1, 3}, 4, turn=2)
    [3, 1, 2, 0]
    """
    turned = ((turn + at) % partitions for at in range(partitions))
    return sorted(turned, key=lambda number: number not in share)


def check_receive(
    limit: int, wait: timedelta, lease: timedelta | None, max_bytes: int | None
) -> None:
    """Raise `OptionError` if one of them is of another type, or out of range."""
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    check_count("max", limit)
    check_duration("wait", wait)
    if lease is not None:
        check_duration("lease", lease, least=A_MOMENT)


def pauses_within(wait: timedelta, longest: float = _LONGEST_PAUSE) -> Iterator[float]:
    """Seconds to pause before each further look, longer each time, until ``wait`` is over."""
    return backoff.pauses_within(wait, first=_FIRST_PAUSE, longest=longest, shortest_part=1)


def within(messages: Iterable[StoredMessage], most_bytes: int | None) -> Iterator[StoredMessage]:
    """The first messages, as many as have so many bytes together; one at least."""
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
    """Look at messages without leasing them. A few reads. Those that can't be read are left out.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        limit: Most messages.
        start: Where to begin.
        max_bytes: Most bytes of them, by `StoredMessage.size`; None: no limit.

    Raises:
        OptionError: ``limit`` is below 1.
        QueueStateError: No message has that monoton yet.
    """
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
    """The same for one partition."""
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


def read_message(
    store: Store, queue: QueueDefinition, monoton: int, *, partition: int | None
) -> StoredMessage:
    """Read one message by its position; see `Client.message`."""
    check_count("monoton", monoton, least=0)
    if partition is not None:
        check_count("partition", partition, least=0, most=queue.partitions - 1)
    elif queue.partitions > 1:
        raise OptionError(
            f"queue {queue.name!r} has {queue.partitions} partitions, each with monotons of its "
            f"own: say in which partition message {monoton} is"
        )
    part = queue.of_partition(partition or 0)
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
    store: Store, queue: QueueDefinition, monotons: Ranges, on_unreadable: OnUnreadable
) -> Iterator[StoredMessage]:
    """Read messages, in order. Two reads, and one for each bucket; more if they are far apart.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        monotons: Which messages.
        on_unreadable: Is told of those that can't be read, which are left out.

    Raises:
        LeaseLostError: Messages are not there any more.
        InvariantError: The ledger has a hole there (I1).
    """
    pieces = find_pieces(Ledger(store, queue.queue_id), monotons, deliveries=None)
    return stored_messages(fetch(store, queue, pieces, on_unreadable=on_unreadable))
