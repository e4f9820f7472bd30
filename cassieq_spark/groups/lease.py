"""Lease requests of readers, and the leases that one compare-and-set grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.groups.changes import apply
from cassieq_spark.groups.settle import BySlot, ReceiptAcks, is_freed, were_settled
from cassieq_spark.groups.state import (
    GroupState,
    Slot,
    Waiting,
    Written,
    encode_attempt,
    handed_out,
    holder_values,
    slot_values,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op, ServerNow


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A reader's request: the messages that it has finished, and the messages that it wants.

    A `Consumer` fills in ``token`` and the last four fields, from the queue and its ledger.

    Attributes:
        token: Fresh token for the lease.
        held: Token of the batch that the reader has finished; its slots are acked.
        held_deliveries: For each slot of ``held``, its ``deliveries`` when this process leased it.
            If a slot has more by now, another process has taken the batch up, and nothing is
            acked. None: this process did not lease the batch, and continues after it.
        receipt_acks: Messages that are done, of other leases than ``held``.
        lease: How long the lease lasts; None: as long as the queue's definition says.
        longest_lease: The longest that the lease lasts if ``lease`` is None; None for no limit.
        max_messages: Maximum number of messages to lease; None for no limit.
        takers: Maximum number of messages for each of several receivers; empty: one gets all.
            It matters in a queue with an order: each lane goes to one receiver, as no other
            receiver may have a message of the lane before the earlier ones are settled.
        min_messages: Lease nothing if fewer messages than this could be leased.
        max_bytes: About how many bytes of fresh messages to lease, as stored; None for no limit.
        max_decoded_bytes: How many decompressed bytes the caller takes, but at least one message;
            None for no limit. `Consumer.return_unread` gives back what was leased beyond that.
        max_in_flight: Maximum number of messages that all readers of the group hold together; None
            for no limit.
        skip_older_than: Fresh messages that have been visible for longer count as settled; None:
            none do.
        retry_backoff: How long messages wait after their first failure; see `backoff`.
        by_receipts: True if the messages are only settled one by one, as clients do, and never as
            the batch of ``held``: then the slot is free as soon as all of them are settled.
        attempt: The name of the request, by which its lease is found again; None: it has none.
        by: The name of the reader, for people; None: it has none.
        prefer_fresh: True if fresh messages go before those that are due. Readers alternate, so
            that neither kind starves.
        max_deliveries: Deliveries after which a message is dead; 0 for no limit.
        strict_fifo: True if nothing is offered before all earlier messages are settled.
        stop: Monoton from which on nothing is offered: the ledger's ``next``, or lower.
        delayed_stop: No message from this monoton on is delayed; see `LedgerHead`.
    """

    token: UUID = field(default_factory=uuid4)
    held: UUID | None = None
    held_deliveries: Mapping[int, int] | None = None
    receipt_acks: ReceiptAcks = field(default_factory=dict)
    lease: timedelta | None = None
    longest_lease: timedelta | None = None
    max_messages: int | None = None
    takers: tuple[int, ...] = ()
    min_messages: int = 0
    max_bytes: int | None = None
    max_decoded_bytes: int | None = None
    max_in_flight: int | None = None
    skip_older_than: timedelta | None = None
    retry_backoff: timedelta = timedelta(0)
    by_receipts: bool = False
    attempt: str | None = None
    by: str | None = None
    prefer_fresh: bool = False
    max_deliveries: int = 0
    strict_fifo: bool = False
    stop: int = 0
    delayed_stop: int = 0

    @property
    def finishes(self) -> frozenset[UUID]:
        """The tokens of the leases whose messages the request acks."""
        return frozenset(
            self.receipt_acks if self.held is None else {self.held, *self.receipt_acks}
        )

    @property
    def is_exclusive(self) -> bool:
        """True if the lease depends on all messages that others hold."""
        return self.strict_fifo or self.max_in_flight is not None

    def needs_blocks(self, pointer: int) -> bool:
        """True if the blocks from the pointer on decide which of their messages are leased."""
        depends = pointer < self.delayed_stop or self.max_bytes or self.skip_older_than is not None
        return bool(depends) and pointer < self.stop


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """Monotons in a slot under our token, in their ``deliveries``-th delivery.

    Attributes:
        first_at: When they were delivered for the first time; None: now, or nobody knows. It says
            nothing of who holds them, and is not compared.
    """

    slot: int
    monotons: Ranges
    deliveries: int
    first_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class Lease(Displayed):
    """The acks and leases of one compare-and-set; without ``ops`` there is nothing to do.

    Attributes:
        request: What was asked for; its ``token`` holds ``leased``.
        state: The group as it was read.
        ops: The operations.
        leased: The messages that are handed out.
        pointer: The first monoton that the group is not offered, after ``ops``.
        acked: How many messages of the finished batch were still held, and are settled now.
        acked_slots: The slots that the finished batch still had; its other slots are lost.
        left: Slots and waiting rows with messages of the finished batch that are not acked,
            because outcomes were recorded for them.
        settled: The messages that are acked by receipts, by slot as it was read.
        skipped: How many messages were too old, and count as settled.
        dead: Rows to dead-letter after ``ops`` are applied.
        is_shared: True if the same compare-and-set also changed the group for other threads.
        shares: What each receiver gets of ``leased``, if the receivers settle one by one.
    """

    request: LeaseRequest
    state: GroupState
    ops: tuple[Op, ...]
    leased: tuple[LeasedSlot, ...]
    pointer: int
    acked: int = 0
    acked_slots: frozenset[int] = frozenset()
    left: tuple[Slot | Waiting, ...] = ()
    settled: BySlot = field(default_factory=dict)
    skipped: int = 0
    dead: tuple[Waiting, ...] = ()
    is_shared: bool = False
    shares: tuple[Ranges, ...] = ()

    @property
    def token(self) -> UUID:
        """The token that holds ``leased``."""
        return self.request.token

    def _view(self) -> ObjectView:
        facts = {
            "token": str(self.token),
            "messages": self.count,
            "acked": self.acked,
            "skipped": self.skipped,
            "dead": sum(each.monotons.count for each in self.dead),
        }
        return ObjectView("leases", "", facts, usual={"acked": 0, "skipped": 0, "dead": 0})

    @property
    def count(self) -> int:
        """How many messages are leased."""
        return sum(each.monotons.count for each in self.leased)

    @property
    def after(self) -> GroupState | None:
        """The group as it is now, unless others have changed it; None if unknown."""
        return None if self.is_shared else apply(self.state, self.ops)

    @property
    def changed(self) -> bool:
        """True if the lease acked, leased, stepped over or marked dead any message."""
        moved = self.pointer != self.state.head.pointer
        return bool(moved or self.acked_slots or self.dead or self.leased)

    @property
    def asks_for_more(self) -> bool:
        """True if nothing was leased, but the next attempt may find messages."""
        if self.leased:
            return False
        waiting = [each for each in self.left if isinstance(each, Waiting)]
        is_due = any(each.reason is None and each.due <= self.state.now_ms for each in waiting)
        return is_due or self.state.head.pointer < self.pointer < self.request.stop

    def following(self, first: Lease) -> Lease:
        """This lease, with what the attempt before it has acked, skipped and found dead."""
        return replace(
            self,
            acked=first.acked,
            acked_slots=first.acked_slots,
            settled=first.settled,
            skipped=first.skipped + self.skipped,
            dead=tuple(dict.fromkeys((*first.dead, *self.dead))),
        )


def was_leased(lease: Lease, slots: Sequence[Slot], now: datetime | None) -> bool:
    """True if a lease of `plan_lease`, whose answer was lost, was applied.

    If the lease only acks, others may since have leased the slots in which it left its token.
    """
    if _has_token(lease.token, slots):
        return True
    acks = lease.request.receipt_acks
    only_acks = not lease.leased and len(lease.ops) == len(lease.settled)
    frees = any(is_freed(slot, acks, monotons) for slot, monotons in lease.settled.items())
    return only_acks and frees and were_settled(lease.settled, acks, slots, now)


def was_taken_up(token: UUID, slots: Sequence[Slot], _: object = None) -> bool:
    """True if a plan of `plan_replay` was applied, and nobody has taken the batch up since."""
    return _has_token(token, slots) or any(slot.taken_up_by == token for slot in slots)


def _has_token(token: UUID, slots: Sequence[Slot]) -> bool:
    return any(slot.lease in (token, spare_token(token)) for slot in slots)


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; no other attempt has it."""
    return UUID(int=lease.int ^ 1)


def leased_values(
    request: LeaseRequest, monotons: Ranges, delivery: int, first_at: datetime | None
) -> Written:
    """The columns of a slot with messages that are leased for the ``delivery``-th time."""
    held = slot_values(
        monotons=monotons,
        lease=request.token,
        due_at=ServerNow(request.lease or timedelta(0)),
        by_receipts=request.by_receipts,
    )
    if request.attempt is not None:
        held |= slot_values(attempt=encode_attempt(request.token, request.attempt))
    return held | holder_values(request.token, request.by) | handed_out(delivery, first_at)
