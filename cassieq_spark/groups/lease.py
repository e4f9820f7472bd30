"""What a reader asks for, and what it gets by one compare-and-set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from cassieq_spark.groups.changes import apply
from cassieq_spark.groups.settle import BySlot, ReceiptAcks, are_gone, is_freed
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What a reader has finished, and what it wants.

    A `Consumer` fills in ``token`` and the last four, which follow from the queue and its ledger.

    Attributes:
        token: Fresh token for what it gets.
        held: Token of the batch that it has finished; its slots are acked.
        held_deliveries: How often the messages of each slot of ``held`` were handed out when this
            process got them; if it is more by now, another process has taken the batch up, and
            nothing is acked. None: another process got them, and this one goes on after it.
        receipt_acks: Messages that are done, of other leases than ``held``.
        lease: How long it holds what it gets; None: as long as the queue says.
        max_messages: Most messages to get; None for all there are.
        max_messages_in_order: Most messages to get if the queue is strictly ordered. A caller
            that deals messages to several receivers sets it to what the first of them takes, as
            the second must not have a message before the first has settled the earlier ones.
            None: ``max_messages``.
        min_messages: With fewer messages than that to be had, get none.
        max_bytes: How many bytes of fresh messages to get, about, as stored; None for no limit.
        max_decoded_bytes: How many bytes the caller takes, decompressed, but a message at least;
            None for no limit. `Consumer.return_unread` gives back what was leased beyond that.
        max_in_flight: Most messages that the group's readers hold together; None for no limit.
        skip_older_than: Fresh messages that have been visible for longer count as settled; None:
            none do.
        retry_backoff: How long messages that failed once are left alone; see `backoff`.
        by_receipts: Whether what it gets is settled one by one only, as clients do, and never as
            the batch of ``held``: the slot is free as soon as all of it is settled.
        prefer_fresh: Whether fresh messages go before those that are due again. Readers alternate,
            so that neither kind starves.
        max_deliveries: After so many, messages are not handed out any more; 0 for no limit.
        strict_fifo: Nothing is offered before all earlier messages are settled.
        stop: Monoton from which on nothing is offered: the ledger's ``next``, or a target below.
        delayed_stop: No message from here on is delayed; see `LedgerHead`.
    """

    token: UUID = field(default_factory=uuid4)
    held: UUID | None = None
    held_deliveries: Mapping[int, int] | None = None
    receipt_acks: ReceiptAcks = field(default_factory=dict)
    lease: timedelta | None = None
    max_messages: int | None = None
    max_messages_in_order: int | None = None
    min_messages: int = 0
    max_bytes: int | None = None
    max_decoded_bytes: int | None = None
    max_in_flight: int | None = None
    skip_older_than: timedelta | None = None
    retry_backoff: timedelta = timedelta(0)
    by_receipts: bool = False
    prefer_fresh: bool = False
    max_deliveries: int = 0
    strict_fifo: bool = False
    stop: int = 0
    delayed_stop: int = 0

    @property
    def is_exclusive(self) -> bool:
        """Whether what it may get depends on all that others hold."""
        return self.strict_fifo or self.max_in_flight is not None

    def needs_blocks(self, pointer: int) -> bool:
        """Whether what is offered from the pointer on depends on the blocks there."""
        depends = pointer < self.delayed_stop or self.max_bytes or self.skip_older_than is not None
        return bool(depends) and pointer < self.stop


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """Monotons in a slot under our token, handed out for the ``deliveries``-th time."""

    slot: int
    monotons: Ranges
    deliveries: int


@dataclass(frozen=True, slots=True)
class Lease:
    """What one compare-and-set acks and leases; without ``ops`` there is nothing to do.

    Attributes:
        request: What was asked for; its ``token`` holds what is leased.
        state: The group as it was read.
        ops: The operations.
        leased: What is handed out; empty if there is nothing to deliver.
        pointer: First monoton not offered to the group, afterwards.
        acked: How many messages of the batch before were still held, and are settled now.
        acked_slots: The slots that the batch before still had; another one is lost.
        left: What of the batch before is not acked, as outcomes were recorded for it: in which
            slots and rows it is afterwards.
        settled: What is acked by receipts, by slot as it was read.
        skipped: How many messages were too old, and count as settled.
        dead: What is to be dead-lettered, once ``ops`` have gone in.
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

    @property
    def token(self) -> UUID:
        """The token that holds ``leased``."""
        return self.request.token

    @property
    def count(self) -> int:
        """How many messages are leased."""
        return sum(each.monotons.count for each in self.leased)

    @property
    def after(self) -> GroupState | None:
        """The group as it is now, unless others have changed it; None: not known."""
        return apply(self.state, self.ops)

    @property
    def changed(self) -> bool:
        """Whether it did anything, so that the group is not as it was found."""
        moved = self.pointer != self.state.head.pointer
        return bool(moved or self.acked_slots or self.dead or self.leased)

    @property
    def asks_for_more(self) -> bool:
        """Whether it leased nothing, and yet there may be something for the next attempt."""
        if self.leased:
            return False
        waits = [each for each in self.left if isinstance(each, Waiting)]
        is_due = any(each.reason is None and each.due <= self.state.now_ms for each in waits)
        return is_due or self.state.head.pointer < self.pointer < self.request.stop

    def following(self, first: Lease) -> Lease:
        """This one, with what the attempt before it has acked, skipped and found dead."""
        return replace(
            self,
            acked=first.acked,
            acked_slots=first.acked_slots,
            settled=first.settled,
            skipped=first.skipped + self.skipped,
            dead=tuple(dict.fromkeys((*first.dead, *self.dead))),
        )


def is_leased(lease: Lease, slots: Sequence[Slot], now: datetime | None) -> bool:
    """Whether a lease of `plan_lease` went in whose answer was lost.

    One that only acks may have left its token in slots that others have leased since.
    """
    if has_token(lease.token, slots):
        return True
    acks = lease.request.receipt_acks
    only_acks = not lease.leased and len(lease.ops) == len(lease.settled)
    frees = any(is_freed(slot, acks, gone) for slot, gone in lease.settled.items())
    return only_acks and frees and are_gone(lease.settled, acks, slots, now)


def is_taken_up(token: UUID, slots: Sequence[Slot], _: object) -> bool:
    """Whether a plan of `plan_replay` went in, and nobody has taken the batch up since."""
    return has_token(token, slots) or any(slot.taken_up_by == token for slot in slots)


def has_token(token: UUID, slots: Sequence[Slot]) -> bool:
    """Whether a slot is under the token of an attempt, or the one of those that it empties."""
    return any(slot.lease in (token, spare_token(token)) for slot in slots)


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; as much its own as that of its lease."""
    return UUID(int=lease.int ^ 1)
