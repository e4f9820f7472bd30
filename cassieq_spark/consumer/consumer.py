"""A consumer: leases messages of a group, settles them, and dead-letters them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from cassieq_spark.arguments import abridged
from cassieq_spark.consumer.heartbeat import Heartbeat
from cassieq_spark.display import on_one_line
from cassieq_spark.errors import CassieqError, InvariantError, OutcomeUnknownError
from cassieq_spark.fetch.find import Finder, Piece
from cassieq_spark.groups.deliveries import too_often
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.history import (
    HistoryEvent,
    events_of_lease,
    events_of_settlement,
    writer_of,
)
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.rounds import Rounds
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Did, GroupState, Settlement, Waiting
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead, check_open
from cassieq_spark.model import OnDead, QueueDefinition, Range, Ranges
from cassieq_spark.processes import process_name
from cassieq_spark.queues import check_delayable
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from cassieq_spark.consumer.lane_reader import LaneReader
    from cassieq_spark.consumer.prefetch import Prefetch

logger = logging.getLogger(__name__)

#: A replacement was published, but another reader also has the message that it replaces.
REPLACED_TWICE = "replace.lease_lost"

#: Messages could not be read, and go to the dead-letter queue.
UNREADABLE = "read.unreadable"

#: A group stops at a dead message, by the setting ``on_dead`` of its queue.
STOPPED = "dead.stopped"

#: How long, at least, messages are extended while their replacements are published.
_HOLD = timedelta(seconds=60)

_ALWAYS_READ = timedelta(0)


class Replacements(NamedTuple):
    """New messages, and the old ones that they replace.

    Attributes:
        monotons: The monotons of the old messages.
        new: One row per old message, as the queue takes it: ``value``, or the columns of its
            schema; optionally key and headers.
    """

    monotons: Sequence[int]
    new: pa.RecordBatch


class Consumer:
    """A member of a consumer group, for Spark's source and the client.

    Creating a consumer costs nothing. `poll` is not thread-safe.

    Args:
        group: Name of the group, which is registered by `ensure_group`.
        cache_for: How long `poll` uses the group state that the last poll left; with 0, each poll
            reads the state.
        prefetch: Knows without a read how many messages fit into `LeaseRequest.max_bytes`.
        rounds: Shares LWTs among threads, including other consumers of the group; None: only this
            one.
        lanes: Reads the lanes of messages, in a queue ordered by key; None: a held message
            holds up its whole partition.
        name: The name of the reader, which its leases carry; None: it has none.
    """

    def __init__(  # noqa: PLR0913 (the last five by name)
        self,
        store: Store,
        queue: QueueDefinition,
        group: str,
        *,
        cache_for: timedelta = _ALWAYS_READ,
        prefetch: Prefetch | None = None,
        rounds: Rounds | None = None,
        lanes: LaneReader | None = None,
        name: str | None = None,
    ) -> None:
        self.queue = queue
        self.group = ConsumerGroup(Ledger(store, queue.queue_id), group, rounds or Rounds())
        self._store = store
        self._finder = Finder(self.group.ledger)
        self._cache = StateCache(cache_for)
        self._prefetch = prefetch
        self._lanes = lanes
        self._name = name
        self._head: LedgerHead | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """The fields that each log record of this consumer has in ``extra``."""
        return self.group.log_fields

    @property
    def was_misled(self) -> bool:
        """True if the last poll used a cached state that was stale."""
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
        """Ack messages and lease the next ones, by one LWT and at most three reads.

        No read while the cached state suffices: by that state, there are enough messages that were
        never handed out, and no other message is due. One read, of the ledger's head, if that
        shows further messages. If the state is stale, the LWT is refused. No LWT if there is
        nothing to ack and nothing to lease; see `ConsumerGroup.lease`.

        Args:
            head: The ledger's head, if the caller has just read it.
            stop: The monoton from which on nothing is offered; None: all that the ledger has.

        Returns:
            The lease. The caller must `dead_letter` its ``dead``.

        Raises:
            ContentionError: Other readers won every attempt.
            QueueStateError: The queue was purged or deleted, or the group deleted.
        """
        request = self._of_this_queue(request)
        seen, known = head or self._head, None
        if seen:
            # A head that was read before must show as many messages as are wanted.
            least = 1 if head else request.max_messages or 0
            known = self._known(request, seen.offered_below(stop), least)
        if not seen or not (head or known):
            seen = self.read_head()
            known = self._known(request, seen.offered_below(stop), least=1)
        ahead = None if self._lanes is None else self._lanes.window
        if known and self._prefetch is not None and ahead is None:
            try:
                offered = Range(known.head.pointer, seen.offered_below(stop))
                request = self._prefetch.fit(request, offered)
            except InvariantError:
                # Others have settled the messages, and they are trimmed; or the ledger has a hole.
                known, seen = None, self.read_head()
        request = replace(request, stop=seen.offered_below(stop), delayed_stop=seen.delayed_stop)
        lease = self.group.lease(request, known, ahead)
        self._cache.put(lease, known)
        self._record_lease(lease)
        return lease

    def ack(self, request: LeaseRequest) -> Lease:
        """Ack messages, lease none, and dead-letter those that are dead. One LWT, two reads."""
        request = self._of_this_queue(replace(request, max_messages=0))
        lease = self.group.lease(request)
        self._record_lease(lease)
        self.dead_letter(lease.dead, known=lease.state.waiting)
        return lease

    def forget(self) -> None:
        """Make the next poll read ledger and group."""
        self._cache.clear()

    def lease_again(self, request: LeaseRequest) -> Lease | None:
        """Lease an earlier request's messages anew, if any; see `ConsumerGroup.lease_again`."""
        self._cache.clear()
        lease = self.group.lease_again(self._of_this_queue(request))
        if lease is not None:
            self._record_again(lease.leased, lease.token, lease.request.by)
        return lease

    def take_again(self, request: LeaseRequest) -> tuple[LeasedSlot, ...]:
        """Take up a lease of another process; see `ConsumerGroup.take_again`."""
        leased = self.group.take_again(self._of_this_queue(request))
        self._cache.clear()
        if request.held is not None:
            self._record_again(leased, request.held, request.by or self._name)
        return leased

    def heartbeat(self, length: timedelta) -> Heartbeat:
        """A heartbeat for leases of this length; see `Heartbeat`."""
        return Heartbeat(self.group, length)

    def release(self, lease: UUID, leased: Sequence[LeasedSlot]) -> int:
        """Make messages that are still held due at once; see `ConsumerGroup.release`."""
        self._cache.clear()
        return self.group.release(lease, leased)

    def is_waiting(self, row: Waiting) -> bool:
        """True if this waiting row is still there, unchanged. One serial read."""
        return self.group.has_waiting(row)

    def find(self, leased: Sequence[LeasedSlot]) -> list[Piece]:
        """Find the messages of a lease, at the cost of `Finder.pieces`."""
        return [
            piece
            for each in leased
            for piece in self._finder.pieces(each.monotons, deliveries=each.deliveries)
        ]

    def dead_letter(self, dead: Sequence[Waiting], *, known: Sequence[Waiting] = ()) -> int:
        """Dead-letter waiting rows of a lease or a settlement; see `dead_letter_messages`.

        If the queue stops at dead messages, the rows are only logged: an operator decides, see
        `resume_group`. One LWT and two or three reads per row that was released at its last
        delivery.

        Args:
            dead: The waiting rows that are dead.
            known: Rows at which the group had stopped before; they are not logged again.
        """
        if self.queue.on_dead is OnDead.STOP:
            self._stop_at(dead, known)
            return 0
        if not dead:
            return 0
        from cassieq_spark.dead_letters.dead_letter import dead_letter_messages  # noqa: PLC0415 (as in `replace`)

        return dead_letter_messages(self._store, self.queue, self.group, dead)

    def _stop_at(self, dead: Sequence[Waiting], known: Sequence[Waiting]) -> None:
        """Log each dead row once."""
        told = [each for each in dead if each.reason is not None and each not in known]
        # Those without a reason were released at their last delivery, and nobody has marked them
        # yet. If that fails now, the next reader tries again.
        with suppress(CassieqError):
            for each in dead:
                if each.reason is None and self.group.mark_dead(each):
                    told.append(each)  # noqa: PERF401 (those before a failure are told, too)
        for each in told:
            logger.error(
                "%s stops at the dead messages %s (%s), and is given nothing behind them: deliver "
                "them again, or let them go to the dead-letter queue: cassieq group resume %s %s "
                "--retry | --dead-letter",
                self.group,
                each.monotons.short,
                on_one_line(each.reason or too_often(each.deliveries)),
                self.queue.name,
                self.group.name,
                extra={"action": STOPPED, "count": each.monotons.count, **self.log_fields},
            )

    def settle(
        self,
        lease: UUID,
        settlement: Settlement,
        *,
        deliveries: int | None = None,
        with_batch: bool = False,
    ) -> Settled:
        """Settle messages of a lease, and dead-letter the rejected ones.

        One LWT and two reads; a few more if some are rejected. The next poll reads the group
        again. See `ConsumerGroup.settle`.
        """
        self._cache.clear()
        settled = self.group.settle(
            lease, settlement, deliveries=deliveries, with_batch=with_batch
        )
        if self.queue.history is not None and not with_batch:
            by = self._name or process_name()
            self._record(
                events_of_settlement(lease, settlement, settled, by=by, deliveries=deliveries)
            )
        self.dead_letter(settled.dead)
        return settled

    def _record_lease(self, lease: Lease) -> None:
        if self.queue.history is not None:
            by = self._name or lease.request.by or process_name()
            self._record(events_of_lease(lease, acked_by=by))

    def _record_again(self, leased: Sequence[LeasedSlot], lease: UUID, by: str | None) -> None:
        if self.queue.history is not None:
            self._record(
                HistoryEvent(
                    did=Did.REPLAYED,
                    monotons=each.monotons,
                    by=by,
                    lease=lease,
                    deliveries=each.deliveries,
                )
                for each in leased
            )

    def _record(self, events: Iterable[HistoryEvent]) -> None:
        writer_of(self._store).record(self.queue, self.group.name, events)

    def return_unread(self, lease: Lease, read: Ranges, unreadable: Mapping[str, Ranges]) -> None:
        """Reject messages of a lease that can't be read; give back the others not handed over.

        One LWT and two reads for each of the two; none if all messages are handed over.

        Args:
            read: The messages that are handed over.
            unreadable: The messages that can't be read, by reason.
        """
        leased = Ranges.union(each.monotons for each in lease.leased)
        rest = leased - read
        if not rest:
            return
        if unread := rest - Ranges.union(unreadable.values()):
            self.settle(lease.token, Settlement(unread=unread))
        self.reject_unreadable(lease.token, unreadable)

    def reject_unreadable(
        self,
        lease: UUID,
        found: Mapping[str, Ranges],
        *,
        deliveries: int | None = None,
        with_batch: bool = False,
    ) -> None:
        """Reject messages of a lease that can't be read, by reason, if any; see `settle`."""
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
        """Publish new messages in place of old ones, which are acked. Three LWTs and some reads.

        The new messages are published at the end of the queue, for every group, and their
        deliveries are counted anew. First the old messages are extended, so that no message is
        replaced that another reader has; then the new messages are published; then the old ones
        are acked. If a crash prevents the ack, both are delivered, the old ones once their lease
        runs out; the same happens if a batch is replayed whose ack should have acked the old ones.

        Args:
            lease: The token that holds the old messages.
            replacements: The new messages, and the old ones that they replace.
            deliveries: Which delivery under that lease; see `Receipt`.
            delay: How much later, at least, the new messages are delivered.
            with_batch: True if the ack of the running batch, not this call, acks the old messages.

        Returns:
            How many were replaced, and which are stale.

        Raises:
            MessageError: The queue does not take a new message; nothing has changed.
            SchemaError: The queue has other columns; nothing has changed.
            OptionError: A delay in a strictly ordered queue; nothing has changed.
            ContentionError: Competing changes won every attempt; nothing has changed.
            OutcomeUnknownError: The new messages are published, or may be; the old ones are not
                acked.
            QueueStateError: There is no such group.
        """
        # A query starts faster without the modules that write messages, which most never need.
        import pyarrow as pa  # noqa: PLC0415

        from cassieq_spark.arrow.chunks import check_messages  # noqa: PLC0415
        from cassieq_spark.arrow.typed_chunks import form_of  # noqa: PLC0415
        from cassieq_spark.producer.partitioned import publish_all, write_messages  # noqa: PLC0415

        queue, form = self.queue, form_of(self.queue)
        if delay:
            check_delayable(queue)
        options = SinkOptions(queue=queue.name)
        monotons = replacements.monotons
        replaced = Ranges.of(*(Range(at, at + 1) for at in monotons))
        (rows,) = form.assigned([replacements.new])
        check_messages(rows, options.max_message_bytes, first_row=0, form=form)
        settle = partial(self.settle, lease, deliveries=deliveries, with_batch=with_batch)
        held = settle(Settlement(extended={max(_HOLD, queue.lease): replaced}))
        taken = replaced - held.stale
        if not taken:
            return held
        # A new message with another key may belong to another partition.
        new = rows.filter(pa.array([at in taken for at in monotons]))
        whole = replace(queue, partition=None)
        written = write_messages(self._store, whole, [new], visible=delay or None)
        publish_all(self._store, written)
        try:
            acked = settle(Settlement(acked=taken))
        except CassieqError as error:
            raise OutcomeUnknownError(
                f"{self.group}: the new messages are published, and the old ones {taken.short} "
                "could not be acked: they come again when their lease runs out. Ack them; a "
                f"repeated call would publish the new messages again. The error was: {error}"
            ) from error
        if acked.stale:
            logger.warning(
                "%s: messages %s were replaced, but their lease had run out, so other "
                "readers have them as well",
                self.group,
                acked.stale.short,
                extra={"action": REPLACED_TWICE, "count": acked.stale.count, **self.log_fields},
            )
        return held

    def _known(self, request: LeaseRequest, stop: int, least: int) -> GroupState | None:
        """The cached state, if it suffices for this request; see `StateCache.get`."""
        state = self._cache.get(stop=stop, least=least)
        is_one_lane = request.strict_fifo and self._lanes is None
        if state and is_one_lane and not state.is_all_held_by(request.finishes):
            # By that state there is nothing to lease before others have settled their messages.
            return None
        return state

    def _of_this_queue(self, request: LeaseRequest) -> LeaseRequest:
        """The request with a token of its own, and with the settings of the queue's definition."""
        queue = self.queue
        lease = queue.lease if request.lease is None else request.lease
        if request.lease is None and request.longest_lease is not None:
            lease = min(lease, request.longest_lease)
        return replace(
            request,
            token=uuid4(),
            lease=lease,
            by=request.by or self._name,
            max_deliveries=queue.max_deliveries,
            strict_fifo=queue.is_ordered,
        )


class StateCache:
    """The group state that a reader's last poll has left, which saves reading the state.

    Each compare-and-set is conditioned on the state, so a stale state does no harm, but wastes an
    LWT. So after losing such a race, a reader reads before each batch until it finds the state
    that it has left. Until it reads, it does not see messages that others give back. Not
    thread-safe.

    Args:
        lasting: How long after a read the state may be used; 0 for never.
    """

    def __init__(self, lasting: timedelta) -> None:
        self._lasting = lasting.total_seconds()
        self._left: GroupState | None = None
        # By our own clock: when the state's `now` was certainly past; when the state was read.
        self._left_at = 0.0
        self._read_at = 0.0
        self._used_at = 0.0
        self._is_alone = True
        #: True if the last compare-and-set used a stale state.
        self.was_stale = False

    def get(self, *, stop: int, least: int = 1) -> GroupState | None:
        """The state, if it suffices for a batch of messages that were never handed out.

        Args:
            stop: The monoton from which on nothing is offered.
            least: How many messages there must be below ``stop``.

        Returns:
            None if the state must be read.
        """
        now = monotonic()
        if self._left is None or not self._is_alone or now >= self._read_at + self._lasting:
            return None
        # Rounded down: the server refuses a state from its future.
        passed = timedelta(milliseconds=int(1000 * (now - self._left_at)))
        state = replace(self._left, now=self._left.now + passed)
        if state.head.pointer + least > stop or not state.is_quiet:
            return None
        self._used_at = now
        return state

    def put(self, lease: Lease, known: GroupState | None) -> None:
        """Remember the state that a compare-and-set has left.

        Args:
            lease: The lease that the compare-and-set granted.
            known: The cached state that was used; None if the state was read.
        """
        was_read = lease.state is not known
        self.was_stale = was_read and known is not None
        if was_read:
            self._is_alone = not self.was_stale and _are_same(lease.state, self._left)
            self._read_at = monotonic()
        self._left = lease.after
        self._left_at = self._read_at if was_read else self._used_at

    def clear(self) -> None:
        """Forget the state."""
        self._left = None


def _are_same(found: GroupState, left: GroupState | None) -> bool:
    """True if no other consumer is known to have leased or settled a message."""
    if left is None:
        return True
    tokens = [[(slot.number, slot.lease) for slot in each.slots] for each in (found, left)]
    return found.head == left.head and tokens[0] == tokens[1]
