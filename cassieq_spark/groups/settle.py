"""Settling messages of a lease: which messages leave their slot, and where they go."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from cassieq_spark.errors import TooLargeError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.lanes import lanes_within
from cassieq_spark.groups.state import (
    GroupState,
    Settlement,
    Slot,
    Waiting,
    as_read,
    encode_outcomes,
    handed_out_before,
    holder_values,
    slot_values,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op, ServerNow, When

#: Messages to ack by their receipts, by the token of their lease.
ReceiptAcks = Mapping[UUID, Ranges]
#: Messages that leave their slots, by slot as it was read.
BySlot = Mapping[Slot, Ranges]

#: At most this many different delays and reasons per batch: each is a row of the acking LWT.
MOST_OUTCOMES = 10_000
#: Maximum size in bytes of the ack of a batch with recorded outcomes. The ack has their text
#: twice, in a condition and in its rows, and the numbers of its messages once, in a condition.
#: Cassandra takes 16 MiB at once; the other half is for what is leased with it.
MOST_ACK_BYTES = 8 << 20

_ADVICE = (
    "nothing was changed: round the delays, give fewer or shorter reasons, or read smaller "
    "batches (option maxMessagesPerTrigger)"
)
_NOTHING = Ranges()


def kept_token(lease: UUID) -> UUID:
    """The token that holds messages of a lease that were extended one by one."""
    return UUID(int=lease.int ^ 2)


def take_receipt_acks(changes: Changes, acks: ReceiptAcks, token: UUID) -> dict[Slot, Ranges]:
    """Take messages out of the slots of their leases; messages in no slot are stale.

    Args:
        token: The token for slots that become free; see `take_out`.

    Returns:
        The messages that were found, by slot.
    """
    settled: dict[Slot, Ranges] = {}
    for lease, monotons in acks.items():
        for slot in _slots_of_lease(changes.state.slots, lease):
            if leaving := slot.monotons & monotons:
                take_out(changes, slot, lease, leaving, token)
                settled[slot] = leaving
    return settled


def take_out(
    changes: Changes, slot: Slot, lease: UUID, leaving: Ranges, token: UUID, *when: When
) -> None:
    """Take messages out of a slot, one by one.

    If none is left, the slot is free, under a token of this attempt. Only a slot whose batch its
    reader has yet to ack stays under the batch's token, so that the reader knows it is not lost.

    Args:
        lease: The token of the lease; the slot may be under its `kept_token`.
        token: A token that only this attempt writes.
    """
    # I6: each other settlement under this token changes the ranges.
    still = as_read(slot, "monotons")
    if is_freed(slot, {lease}, leaving):
        changes.empty_slot(slot, token, still, *when)
    else:
        changes.change_slot(slot, slot_values(monotons=slot.monotons - leaving), still, *when)


def is_freed(slot: Slot, leases: Container[UUID], leaving: Ranges) -> bool:
    """True if a slot of one of these leases is free once messages have left it one by one."""
    return leaving == slot.monotons and _is_settled_singly(slot, leases)


def holds_all(state: GroupState, acks: ReceiptAcks) -> bool:
    """True if each lease still holds all of its messages."""
    return all(
        not monotons - Ranges.union(slot.monotons for slot in _slots_of_lease(state.slots, lease))
        for lease, monotons in acks.items()
    )


def settled_of(settled: BySlot, lease: UUID) -> Ranges:
    """The messages that were held under this lease."""
    return Ranges.union(settled[slot] for slot in _slots_of_lease(settled, lease))


def were_settled(
    settled: BySlot,
    leases: Container[UUID],
    slots: Sequence[Slot],
    now: datetime | None,
    *,
    moved: Ranges = _NOTHING,
) -> bool:
    """True if an attempt, whose answer was lost, settled these messages; no slot has its token.

    Until a lease runs out, only its holder takes messages out of its slots. A slot that the
    attempt has freed may hold another lease by now; so may a slot that others have emptied since.

    Args:
        settled: The messages that were to leave their slots, by slot as it was read.
        leases: The tokens of the leases that held the messages, without their `kept_token`.
        now: When ``slots`` were read, by the server's clock.
        moved: The messages that were to move to slots of their own.
    """
    by_number = {slot.number: slot for slot in slots}
    for slot, leaving in settled.items():
        found = by_number.get(slot.number)
        if found is None:
            return False
        if found.lease == slot.lease:
            if is_freed(slot, leases, leaving) or found.monotons & leaving:
                return False
        elif not _is_settled_singly(slot, leases) or now is None or now > slot.due_at:
            # Its batch was acked, or someone may have taken it over.
            return False
        # An extension by the same receipts may have moved them.
        ours = {slot.lease, kept_token(slot.lease)}
        if any(each.lease in ours and each.monotons & (leaving - moved) for each in slots):
            return False
    return True


def _is_settled_singly(slot: Slot, leases: Container[UUID]) -> bool:
    """True if no ack of a batch frees this slot of one of these leases."""
    return slot.by_receipts or slot.lease not in leases


def _slots_of_lease(slots: Iterable[Slot], lease: UUID) -> list[Slot]:
    return [slot for slot in slots if slot.lease in {lease, kept_token(lease)}]


def put_away(
    changes: Changes, slot: Slot, lease: UUID, outcomes: Settlement
) -> list[Slot | Waiting]:
    """Put messages that leave a slot, and are not acked, into slots and waiting rows.

    Args:
        lease: The token of the lease; the slot may be under its `kept_token`.
        outcomes: It names each message of the slot at most once.

    Returns:
        The slots and waiting rows; rows with a reason are dead.
    """
    state, kept = changes.state, kept_token(lease)
    held: list[Slot | Waiting] = []
    for by, monotons in outcomes.extended.items():
        values = slot_values(monotons=monotons, lease=kept, due_at=ServerNow(by))
        values |= holder_values(kept, slot.by)
        if lanes := lanes_within(slot.lanes, monotons):
            values |= slot_values(lanes=lanes)
        number = changes.fill_slot(values | handed_out_before(slot))
        due_at, times = state.now + by, (slot.first_at, slot.last_at)
        held.append(Slot(number, monotons, kept, due_at, slot.deliveries, *times))
    now = state.due_in()
    rows = [
        slot.to_waiting(state.due_in(by), part, singly=True)
        for by, part in outcomes.released.items()
    ]
    rows += [slot.to_waiting(now, part, reason) for reason, part in outcomes.rejected.items()]
    if outcomes.unread:
        before = slot.deliveries - 1
        row = replace(slot.to_waiting(now, outcomes.unread, singly=True), deliveries=before)
        rows.append(row if before else replace(row, first_at=None, last_at=None))
    for row in rows:
        changes.add_waiting(row)
    return [*held, *rows]


def finish_slot(changes: Changes, slot: Slot, token: UUID, *, whole: bool) -> list[Slot | Waiting]:
    """Free a slot whose batch is done, and carry out the outcomes recorded for the slot.

    Args:
        slot: The slot as it was read, under the token of the batch.
        token: The token to put into the slot.
        whole: Apply it only if no message has left the slot meanwhile.

    Returns:
        The slots and waiting rows of messages that are not acked; rows with a reason are dead.
    """
    outcomes = slot.outcomes.within(slot.monotons) if slot.recorded else None
    # An outcome that is recorded meanwhile must take effect with this ack, or its caller must
    # learn that it is late. A replay, which drops outcomes, may have come between, too.
    still = [as_read(slot, "recorded"), as_read(slot, "deliveries")]
    if whole or (outcomes and outcomes.named):
        # I6: a message that is settled meanwhile must not be put elsewhere as well.
        still.append(as_read(slot, "monotons"))
    changes.empty_slot(slot, token, *still)
    # Mostly nothing is recorded: all messages are acked.
    return put_away(changes, slot, slot.lease, outcomes) if outcomes else []


def dead_of(rows: Iterable[Slot | Waiting]) -> list[Waiting]:
    """The rows of rejected messages, to dead-letter."""
    return [each for each in rows if isinstance(each, Waiting) and each.reason is not None]


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a settlement.

    Attributes:
        count: How many messages were settled, or recorded for the ack of their batch.
        stale: Messages that the lease does not hold: settled before, or leased by others.
        dead: The waiting rows of rejected messages, to dead-letter.
    """

    count: int
    stale: Ranges
    dead: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """The outcome of carrying out ``ops`` at once.

    Attributes:
        ops: The operations.
        settled: Messages that leave their slots, by slot as it was read.
        extended: Messages that stay in their slots, for longer.
        dead: The waiting rows of rejected messages.
        recorded: Messages whose outcomes the ack of their batch carries out.
        texts: The text of these outcomes, by slot as it was read.
        moved: Messages that are held for longer, in other slots.
    """

    ops: tuple[Op, ...]
    settled: Mapping[Slot, Ranges]
    extended: Ranges
    dead: tuple[Waiting, ...]
    recorded: Ranges = _NOTHING
    texts: Mapping[Slot, str] = field(default_factory=dict)
    moved: Ranges = _NOTHING

    @property
    def reached(self) -> Ranges:
        """All messages that the lease holds."""
        return Ranges.union([*self.settled.values(), self.extended, self.recorded])


def plan_settle(  # noqa: PLR0913 (whose messages, what for, and when)
    state: GroupState,
    lease: UUID,
    settlement: Settlement,
    token: UUID,
    *,
    deliveries: int | None = None,
    with_batch: bool = False,
) -> SettlePlan:
    """Plan a settlement: take messages out of the slots of a lease, and put them elsewhere.

    Args:
        token: A fresh token for the slots that become free; see `take_out`.
        deliveries: Which delivery of a batch; see `ConsumerGroup.settle`.
        with_batch: Only record outcomes of a batch's messages; see `ConsumerGroup.settle`.

    Raises:
        TooLargeError: One LWT can't carry out all of it; see `ConsumerGroup.settle`.
    """
    changes = Changes(state)
    settled: dict[Slot, Ranges] = {}
    texts: dict[Slot, str] = {}
    recorded, extended, moved, dead = _NOTHING, _NOTHING, _NOTHING, []
    slots = [*state.held_by(lease), *state.held_by(kept_token(lease))]
    if deliveries is not None:
        # Receipts of a delivery reach the kept slots whatever their count.
        slots = [it for it in slots if it.lease != lease or it.deliveries == deliveries]
    # The ack of a batch carries out what is recorded; slots of a client have no such ack.
    of_batch = [it for it in slots if with_batch and it.lease == lease and not it.by_receipts]
    for slot in of_batch:
        recorded = Ranges.union([recorded, slot.monotons & settlement.named])
        text = _record(changes, slot, settlement)
        if text is not None:
            texts[slot] = text
    for slot in (each for each in slots if each not in of_batch):
        asked = settlement.within(slot.monotons)
        if not asked.named:
            continue
        _check_count(asked, lease)
        if asked.named == slot.monotons and len(asked.extended) == 1 and slot.lease != lease:
            # It is under the kept token, so what is left of it may stay there, for longer.
            ((by, stays),) = asked.extended.items()
            asked = replace(asked, extended={})
            # I6: each other settlement under this token changes the ranges.
            still = as_read(slot, "monotons")
            values = slot_values(monotons=stays, due_at=ServerNow(by))
            changes.change_slot(slot, values, still)
            extended = Ranges.union([extended, stays])
        else:
            # I8: a query that takes the batch up again leaves token and ranges as they are.
            once = as_read(slot, "deliveries")
            take_out(changes, slot, lease, asked.named, token, once)
        if asked.named:
            settled[slot] = asked.named
            moved = Ranges.union([moved, *asked.extended.values()])
        dead += dead_of(put_away(changes, slot, lease, asked))
    return SettlePlan(changes.ops(), settled, extended, tuple(dead), recorded, texts, moved)


def _record(changes: Changes, slot: Slot, settlement: Settlement) -> str | None:
    """Record outcomes for the ack of a slot; return their text, or None if it stays the same."""
    outcomes = slot.outcomes.then(settlement.within(slot.monotons))
    encode = partial(
        encode_outcomes,
        lease=slot.lease,
        deliveries=slot.deliveries,
        is_published=slot.is_published,
    )
    text = encode(outcomes)
    if text == encode(slot.outcomes):
        return None
    _check_count(outcomes, slot.lease)
    size = 2 * len(text.encode()) + len(str(slot.monotons))
    if text and size > MOST_ACK_BYTES:
        raise TooLargeError(
            f"the delays and reasons of the batch of lease {slot.lease}, with the numbers of its "
            f"messages, take {size} bytes of its ack, and {MOST_ACK_BYTES} is the most; {_ADVICE}"
        )
    still = (as_read(slot, "monotons"), as_read(slot, "deliveries"), as_read(slot, "recorded"))
    changes.change_slot(slot, slot_values(recorded=text), *still)
    return text


def _check_count(outcomes: Settlement, lease: UUID) -> None:
    count = len(outcomes.rejected) + len(outcomes.released) + len(outcomes.extended)
    if count > MOST_OUTCOMES:
        raise TooLargeError(
            f"messages of lease {lease} have {count} different delays and reasons, and "
            f"{MOST_OUTCOMES} is the most of one batch; {_ADVICE}"
        )


def plan_keep_whole(state: GroupState, lease: UUID) -> SettlePlan:
    """Plan to mark a batch that its sink has published, so that a replay hands out all of it.

    A replay under the same token counts one delivery more, and keeps the mark.
    """
    changes = Changes(state)
    texts: dict[Slot, str] = {}
    for slot in state.held_by(lease):
        if slot.by_receipts or not slot.monotons or slot.is_published:
            continue
        texts[slot] = encode_outcomes(slot.outcomes, lease, slot.deliveries, is_published=True)
        still = (as_read(slot, "deliveries"), as_read(slot, "recorded"))
        changes.change_slot(slot, slot_values(recorded=texts[slot]), *still)
    return SettlePlan(changes.ops(), {}, _NOTHING, (), texts=texts)


def was_settled(
    plan: SettlePlan, lease: UUID, slots: Sequence[Slot], now: datetime | None
) -> bool:
    """True if a plan, whose answer was lost, was applied; no slot has its token."""
    recorded = {(slot.number, slot.lease, slot.deliveries, slot.recorded) for slot in slots}
    for slot, text in plan.texts.items():
        if (slot.number, slot.lease, slot.deliveries, text) not in recorded:
            return False
    if plan.settled:
        return were_settled(plan.settled, {lease}, slots, now, moved=plan.moved)
    # Recording the same twice does no harm, nor does extending twice.
    return bool(plan.texts) and not plan.extended
