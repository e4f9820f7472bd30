"""A consumer: leases messages of a group, settles them, and dead-letters those that are dead."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from cassieq_spark.arguments import abridged
from cassieq_spark.errors import InvariantError
from cassieq_spark.fetch.find import Finder, Piece
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.plan import too_often
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import GroupState, Settlement, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead, check_open
from cassieq_spark.model import OnDead, QueueDefinition, Range, Ranges
from cassieq_spark.queues import check_delayable
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from cassieq_spark.consumer.prefetch import Prefetch

logger = logging.getLogger(__name__)

#: A replacement was published, but others have got the message that it replaces.
REPLACED_TWICE = "replace.lease_lost"

#: Messages can't be read, and go to the dead-letter queue.
UNREADABLE = "read.unreadable"

#: A group stops at a dead message, as its queue says.
STOPPED = "dead.stopped"

#: How long messages are held at least while their replacements are being published.
_HOLD = timedelta(seconds=60)

_ALWAYS_READ = timedelta(0)


class Replacements(NamedTuple):
    """New messages, and which each of them replaces.

    Attributes:
        monotons: Those of the old messages.
        new: For each of them a row, as the queue takes it: ``value``, or the columns of its
            schema; optionally its key and headers.
    """

    monotons: Sequence[int]
    new: pa.RecordBatch


class Consumer:
    """A member of a consumer group, for Spark's source, the client and so for the gateway.

    Making one costs nothing. `poll` is for one thread at a time.

    Args:
        store: Where the queue is kept.
        queue: Which queue.
        group: Name of the group, which is registered by `ensure_group`.
        cache_for: How long `poll` uses the state of the group that the last poll left; 0: each
            poll reads the group. In a strictly ordered queue each poll does.
        prefetch: Tells without a read how many messages have `LeaseRequest.max_bytes`.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueDefinition,
        group: str,
        *,
        cache_for: timedelta = _ALWAYS_READ,
        prefetch: Prefetch | None = None,
    ) -> None:
        self.queue = queue
        self.group = ConsumerGroup(Ledger(store, queue.queue_id), group)
        self._store = store
        self._finder = Finder(self.group.ledger)
        # Where order is strict, what others do counts at once.
        self._cache = StateCache(_ALWAYS_READ if queue.strict_fifo else cache_for)
        self._prefetch = prefetch
        self._head: LedgerHead | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """What each record of it has as ``extra``."""
        return {"queue": self.queue.queue_id, "group": self.group.name}

    @property
    def was_misled(self) -> bool:
        """Whether the last poll went by a cached state that was not so any more."""
        return self._cache.was_stale

    def read_head(self) -> LedgerHead:
        """Read the head of the queue's ledger. One read.

        Raises:
            QueueStateError: The queue was purged or deleted.
        """
        self._head = self.group.ledger.read_head()
        check_open(self.queue.queue_id, self._head)
        return self._head

    def poll(
        self, request: LeaseRequest, head: LedgerHead | None = None, *, stop: int | None = None
    ) -> Lease:
        """Ack what is done and lease what comes next, by one LWT and three reads at most.

        None of the reads while the cached state is good: it has enough messages that were never
        handed out, and nothing else is due. The LWT tells if that is not so any more. No LWT if
        there is nothing to ack and nothing to deliver; see `ConsumerGroup.lease`.

        Args:
            request: What is done, and what to lease.
            head: The ledger's head, if the caller has just read it.
            stop: Monoton from which on nothing is offered; None: all that the ledger has.

        Returns:
            The lease; `dead_letter` its ``dead``.

        Raises:
            ContentionError: Lost to other readers again and again.
            QueueStateError: The queue was purged or deleted, or the group deleted.
        """
        request = self._of_this_queue(request)
        known = None
        if head is not None:
            known = self._cache.get(stop=head.offered_below(stop))
        elif self._head is not None:
            least = request.max_messages or 0
            known = self._cache.get(stop=self._head.offered_below(stop), least=least)
            if known is not None and self._prefetch is not None:
                try:
                    request = self._prefetch.fit(request, known.head.pointer)
                except InvariantError:
                    # Others have it, settled it, and it is trimmed; or the ledger has a hole.
                    known = None
            head = self._head if known is not None else None
        head = head or self.read_head()
        request = replace(request, stop=head.offered_below(stop), delayed_stop=head.delayed_stop)
        lease = self.group.lease(request, known)
        self._cache.put(lease, known)
        return lease

    def ack(self, request: LeaseRequest) -> Lease:
        """Ack what is done, lease nothing, and dead-letter what is dead. One LWT, two reads."""
        request = self._of_this_queue(replace(request, max_messages=0))
        lease = self.group.lease(request)
        self.dead_letter(lease.dead, known=lease.state.waiting)
        return lease

    def forget(self) -> None:
        """Read ledger and group at the next poll."""
        self._cache.clear()

    def take_again(self, request: LeaseRequest) -> tuple[LeasedSlot, ...]:
        """Take up a lease that this process did not make; see `ConsumerGroup.take_again`."""
        leased = self.group.take_again(self._of_this_queue(request))
        self._cache.clear()
        return leased

    def find(self, leased: Sequence[LeasedSlot]) -> list[Piece]:
        """Find the messages of a lease; reads as `Finder.pieces`."""
        return [
            piece
            for each in leased
            for piece in self._finder.pieces(each.monotons, deliveries=each.deliveries)
        ]

    def dead_letter(self, dead: Sequence[Waiting], *, known: Sequence[Waiting] = ()) -> int:
        """Dead-letter messages of a lease or a settlement; how many.

        See `dead_letter_messages`. None if the queue stops at a dead message: an operator decides,
        see `resume_group`.

        Args:
            dead: The waiting rows that are dead.
            known: Rows at which the group had stopped before; they are not logged again.
        """
        if self.queue.on_dead is OnDead.STOP:
            self._report_stop([each for each in dead if each not in known])
            return 0
        if not dead:
            return 0
        from cassieq_spark.dead_letters.dead_letter import (  # noqa: PLC0415 (as in `replace`)
            dead_letter_messages,
        )

        return dead_letter_messages(self._store, self.queue, self.group, dead)

    def _report_stop(self, dead: Sequence[Waiting]) -> None:
        for each in dead:
            logger.error(
                "%s stops at the dead messages %s (%s), and is given nothing behind them: deliver "
                "them again, or let them go to the dead-letter queue: cassieq group resume %s %s "
                "--retry | --dead-letter",
                self.group,
                each.monotons.short,
                each.reason or too_often(each.deliveries),
                self.queue.name,
                self.group.name,
                extra={
                    "action": STOPPED,
                    "count": each.monotons.count,
                    **self.log_fields,
                },
            )

    def settle(
        self,
        lease: UUID,
        settlement: Settlement,
        *,
        deliveries: int | None = None,
        with_batch: bool = False,
    ) -> Settled:
        """Settle messages of a lease. One LWT and two reads; a few more for what is rejected.

        Args:
            lease: The token that holds the messages.
            settlement: What is to become of which.
            deliveries: Which delivery under that lease; see `Receipt`.
            with_batch: Let the ack of the batch in hand carry it out, not this call.

        Raises:
            ContentionError: Lost to others again and again.
            QueueStateError: There is no such group.
        """
        settled = self.group.settle(
            lease, settlement, deliveries=deliveries, with_batch=with_batch
        )
        self.dead_letter(settled.dead)
        return settled

    def return_unread(self, lease: Lease, read: Ranges, unreadable: Mapping[str, Ranges]) -> None:
        """Give back what was leased and is not handed over, and reject what can't be read.

        Nothing if all is handed over; else an LWT and two reads for either.

        Args:
            lease: What was leased.
            read: What is handed over.
            unreadable: What can't be read, by reason.
        """
        leased = Ranges.union(each.monotons for each in lease.leased)
        rest = leased - read
        if not rest:
            return
        self._cache.clear()
        if unread := rest - Ranges.union(unreadable.values()):
            self.group.settle(lease.token, Settlement(unread=unread))
        self.reject_unreadable(lease.token, unreadable)

    def reject_unreadable(
        self,
        lease: UUID,
        found: Mapping[str, Ranges],
        *,
        deliveries: int | None = None,
        with_batch: bool = False,
    ) -> None:
        """Dead-letter messages of a lease that can't be read. See `settle`.

        Args:
            lease: The token that holds them.
            found: Which, by reason; nothing is done if there are none.
            deliveries: As for `settle`.
            with_batch: As for `settle`.
        """
        if not found:
            return
        monotons = Ranges.union(found.values())
        logger.error(
            "%s: messages %s can't be read, and are rejected: %s",
            self.group,
            monotons.short,
            abridged(list(found), "; "),
            extra={"action": UNREADABLE, "count": monotons.count, **self.log_fields},
        )
        self.settle(
            lease, Settlement(rejected=found), deliveries=deliveries, with_batch=with_batch
        )

    def replace(
        self,
        lease: UUID,
        replacements: Replacements,
        *,
        deliveries: int | None = None,
        delay: timedelta = timedelta(0),
        with_batch: bool = False,
    ) -> Settled:
        """Publish messages instead of others, which are acked. Three LWTs and some reads.

        The new ones are messages like any other: at the end of the queue, for every group, their
        deliveries counted anew. First the old ones are held on, so that none is replaced that
        others have got; then the new ones are published; then the old ones are acked. A crash
        before that leaves both: the old ones are delivered again when their lease runs out. So
        does a batch that is replayed, if the old ones are to be acked with it.

        Args:
            lease: The token that holds the old messages.
            replacements: The new messages, and which each replaces.
            deliveries: Which delivery under that lease; see `Receipt`.
            delay: How much later the new ones are delivered, at the earliest.
            with_batch: Let the ack of the batch in hand ack the old ones, not this call.

        Returns:
            How many were replaced, and which are stale.

        Raises:
            MessageError: A new message that the queue does not take; nothing has changed then.
            SchemaError: The queue has other columns; nothing has changed then.
            OptionError: A delay in a strictly ordered queue; nothing has changed then.
            ContentionError: Lost to others again and again.
            QueueStateError: There is no such group.
        """
        # A query begins sooner without what writes messages, and most never need it.
        import pyarrow as pa  # noqa: PLC0415

        from cassieq_spark.arrow.chunks import check_messages  # noqa: PLC0415
        from cassieq_spark.arrow.typed_chunks import form_of  # noqa: PLC0415
        from cassieq_spark.producer.partitioned import (  # noqa: PLC0415
            publish_all,
            write_messages,
        )

        queue, form = self.queue, form_of(self.queue)
        if delay:
            check_delayable(queue)
        options = SinkOptions(queue=queue.name)
        monotons = replacements.monotons
        (rows,) = form.assigned([replacements.new])
        check_messages(rows, options.max_message_bytes, first_row=0, form=form)
        hold = {max(_HOLD, queue.lease): Ranges.of(*(Range(at, at + 1) for at in monotons))}
        settle = partial(self.group.settle, lease, deliveries=deliveries, with_batch=with_batch)
        held = settle(Settlement(extended=hold))
        live = [at not in held.stale for at in monotons]
        taken = Ranges.of(
            *(Range(at, at + 1) for at, ok in zip(monotons, live, strict=True) if ok)
        )
        if not taken:
            return held
        # With another key, a message may belong to another partition.
        new, whole = rows.filter(pa.array(live)), replace(queue, partition=None)
        written = write_messages(self._store, whole, [new], visible=delay or None)
        publish_all(self._store, written)
        acked = settle(Settlement(acked=taken))
        if acked.stale:
            logger.warning(
                "%s: messages %s were replaced, but their lease had run out, so other "
                "readers have them as well",
                self.group,
                acked.stale.short,
                extra={
                    "action": REPLACED_TWICE,
                    "count": acked.stale.count,
                    **self.log_fields,
                },
            )
        return held

    def _of_this_queue(self, request: LeaseRequest) -> LeaseRequest:
        """The same with what follows from the queue, and a token of its own."""
        queue = self.queue
        most, in_order = request.max_messages, request.max_messages_in_order
        if queue.strict_fifo and in_order is not None:
            most = in_order if most is None else min(most, in_order)
        return replace(
            request,
            token=uuid4(),
            lease=queue.lease if request.lease is None else request.lease,
            max_messages=most,
            max_deliveries=queue.max_deliveries,
            strict_fifo=queue.strict_fifo,
        )


class StateCache:
    """A group's state as one of its readers has left it, so that it need not read it again.

    A compare-and-set that goes by it is conditioned on it: if others have changed the group, it
    costs an LWT more, and does no harm. As that LWT is wasted, a reader that has lost such a race
    reads before each batch, until it finds the state that it has left. What others put back is not
    seen before the state is read again. For one thread at a time.

    Args:
        lasting: After so long it is read again, whatever happens; each time, if that is 0.
    """

    def __init__(self, lasting: timedelta) -> None:
        self._lasting = lasting.total_seconds()
        self._left: GroupState | None = None
        # By our own clock: when the state's `now` was certainly over; when it was read.
        self._left_at = 0.0
        self._read_at = 0.0
        self._used_at = 0.0
        self._is_alone = True
        #: Whether the last compare-and-set went by a state that was not so any more.
        self.was_stale = False

    def get(self, *, stop: int, least: int = 1) -> GroupState | None:
        """The state, if it is probably so, and good for a batch that was never handed out.

        Args:
            stop: Monoton from which on nothing is offered.
            least: So many messages must be left below it.

        Returns:
            None if it has to be read.
        """
        now = monotonic()
        if self._left is None or not self._is_alone or now >= self._read_at + self._lasting:
            return None
        # To the millisecond before: a state that is too new would be refused.
        passed = timedelta(milliseconds=int(1000 * (now - self._left_at)))
        state = replace(self._left, now=self._left.now + passed)
        if state.head.pointer + least > stop or not state.is_quiet:
            return None
        self._used_at = now
        return state

    def put(self, lease: Lease, known: GroupState | None) -> None:
        """Remember what a compare-and-set has left.

        Args:
            lease: What it came to.
            known: By which state it was to go, as known last; None if it was to be read.
        """
        was_read = lease.state is not known
        self.was_stale = was_read and known is not None
        if was_read:
            self._is_alone = not self.was_stale and _are_same(lease.state, self._left)
            self._read_at = monotonic()
        self._left = lease.after
        self._left_at = self._read_at if was_read else self._used_at

    def clear(self) -> None:
        """Read the state before the next compare-and-set."""
        self._left = None


def _are_same(found: GroupState, left: GroupState | None) -> bool:
    """Whether nobody else has leased or settled anything; so, if nothing is known."""
    if left is None:
        return True
    tokens = [[(slot.number, slot.lease) for slot in each.slots] for each in (found, left)]
    return found.head == left.head and tokens[0] == tokens[1]
