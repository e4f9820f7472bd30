"""Settling messages of a lease: what leaves a slot, and where it goes. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.state import (
    GroupState,
    Settlement,
    Slot,
    Waiting,
    as_read,
    encode_outcomes,
    handed_out_before,
    slot_values,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op, ServerNow, When

#: Messages to be acked by their receipts, by the token of their lease.
ReceiptAcks = Mapping[UUID, Ranges]
#: Messages that leave the slots that they are in, by slot as it was read.
BySlot = Mapping[Slot, Ranges]

_NOTHING = Ranges()


def kept_token(lease: UUID) -> UUID:
    """The token under which messages of a lease are held that were extended one by one."""
    return UUID(int=lease.int ^ 2)


def take_receipt_acks(changes: Changes, acks: ReceiptAcks, token: UUID) -> dict[Slot, Ranges]:
    """Take what is acked out of the slots that hold it under its token; the rest is stale.

    Args:
        changes: Where the operations go.
        acks: What is acked.
        token: Put into the slots that become free; see `take_out`.
    """
    settled: dict[Slot, Ranges] = {}
    for lease, monotons in acks.items():
        for slot in _held(changes.state.slots, lease):
            if gone := slot.monotons & monotons:
                take_out(changes, slot, lease, gone, token)
                settled[slot] = gone
    return settled


def take_out(
    changes: Changes, slot: Slot, lease: UUID, gone: Ranges, token: UUID, *when: When
) -> None:
    """Take messages out of a slot, one by one.

    If none is left, the slot is free, under a token of this attempt. Only a slot whose batch its
    reader has yet to ack stays under its own, so that the reader knows that it is not lost.

    Args:
        changes: Where the operation goes.
        slot: As it was read.
        lease: The token of the lease; the slot may be under its `kept_token`.
        gone: What leaves it.
        token: As much this attempt's own as that of a lease.
        when: On what else it depends.
    """
    # I6: whatever else is settled under this token meanwhile changes the ranges.
    still = as_read(slot, "monotons")
    if is_freed(slot, {lease}, gone):
        changes.empty_slot(slot, token, still, *when)
    else:
        changes.change_slot(slot, slot_values(monotons=slot.monotons - gone), still, *when)


def is_freed(slot: Slot, leases: Container[UUID], gone: Ranges) -> bool:
    """Whether a slot of one of these leases is free once messages have left it one by one."""
    return gone == slot.monotons and _is_settled_singly(slot, leases)


def holds_all(state: GroupState, acks: ReceiptAcks) -> bool:
    """Whether all of it is held under its token."""
    return all(
        not monotons - Ranges.union(slot.monotons for slot in _held(state.slots, lease))
        for lease, monotons in acks.items()
    )


def without(state: GroupState, settled: BySlot) -> GroupState:
    """The state once these messages are settled."""
    slots = tuple(
        replace(slot, monotons=slot.monotons - settled[slot]) if slot in settled else slot
        for slot in state.slots
    )
    return replace(state, slots=slots)


def settled_of(settled: BySlot, lease: UUID) -> Ranges:
    """What of it was held under this lease."""
    return Ranges.union(settled[slot] for slot in _held(settled, lease))


def are_gone(
    settled: BySlot,
    leases: Container[UUID],
    slots: Sequence[Slot],
    now: datetime | None,
    *,
    moved: Ranges = _NOTHING,
) -> bool:
    """Whether they were settled by an attempt whose answer was lost, and whose token is nowhere.

    Only the holder of a lease takes messages out of its slots until it runs out. A slot that the
    attempt has freed may be another lease's by now; so may one that was emptied by others since.

    Args:
        settled: What was to leave its slot, by slot as it was read.
        leases: The tokens under which it was held; their `kept_token` is not among them.
        slots: As they are now.
        now: By the clock of the server that told.
        moved: What was to be held in slots of its own.
    """
    there = {slot.number: slot for slot in slots}
    for slot, gone in settled.items():
        found = there.get(slot.number)
        if found is None:
            return False
        if found.lease == slot.lease:
            if is_freed(slot, leases, gone) or found.monotons & gone:
                return False
        elif not _is_settled_singly(slot, leases) or now is None or now > slot.due_at:
            # Its batch was acked, or someone may have taken it over.
            return False
        # An extension by the same receipts may have moved them.
        ours = {slot.lease, kept_token(slot.lease)}
        if any(each.lease in ours and each.monotons & (gone - moved) for each in slots):
            return False
    return True


def _is_settled_singly(slot: Slot, leases: Container[UUID]) -> bool:
    """Whether no batch's ack frees a slot of one of these leases."""
    return slot.by_receipts or slot.lease not in leases


def _held(slots: Iterable[Slot], lease: UUID) -> list[Slot]:
    return [slot for slot in slots if slot.lease in {lease, kept_token(lease)}]


@dataclass(frozen=True, slots=True)
class SlotOutcomes:
    """What becomes of the messages of one slot.

    Attributes:
        rejected, released: What leaves it to wait, or to be dead-lettered.
        moved: What moves to slots of its own, by how long it is held there.
        stays, stays_for: What is held on in this very slot.
        leaving: All that leaves the slot.
        unread: What waits as if it had not been handed out.
    """

    rejected: Mapping[str, Ranges]
    released: Mapping[timedelta, Ranges]
    moved: Mapping[timedelta, Ranges]
    stays: Ranges
    stays_for: timedelta
    leaving: Ranges
    unread: Ranges

    @classmethod
    def of(cls, slot: Slot, lease: UUID, settlement: Settlement) -> SlotOutcomes:
        """What becomes of those that the slot holds.

        Args:
            slot: As it was read.
            lease: The token of the lease; the slot may be under its `kept_token`.
            settlement: What is asked for.
        """
        asked = settlement.within(slot.monotons)
        moved, leaving = asked.extended, asked.named
        stays, stays_for = _NOTHING, timedelta(0)
        if leaving == slot.monotons and len(moved) == 1 and slot.lease == kept_token(lease):
            ((stays_for, stays),) = moved.items()
            moved, leaving = {}, leaving - stays
        return cls(asked.rejected, asked.released, moved, stays, stays_for, leaving, asked.unread)


def put_away(
    changes: Changes, slot: Slot, lease: UUID, outcomes: SlotOutcomes
) -> list[Slot | Waiting]:
    """Put what leaves a slot, and is not done, where it belongs.

    Returns:
        The slots and waiting rows that it is in then; dead, where there is a reason.
    """
    put: list[Slot | Waiting] = []
    for by, monotons in outcomes.moved.items():
        held = slot_values(monotons=monotons, lease=kept_token(lease), due_at=ServerNow(by))
        values = held | handed_out_before(slot)
        put.append(
            Slot(
                changes.fill_slot(values),
                monotons,
                kept_token(lease),
                changes.state.now + by,
                slot.deliveries,
                slot.first_at,
                slot.last_at,
            )
        )
    rows = _waiting_rows(changes, slot, outcomes)
    for row in rows:
        changes.wait(row)
    return [*put, *rows]


def finish_slot(changes: Changes, slot: Slot, token: UUID, *, whole: bool) -> list[Slot | Waiting]:
    """Free a slot whose batch is done: what outcomes were recorded for goes where they say.

    Args:
        changes: Where the operations go.
        slot: As it was read, under the token of the batch.
        token: Put into the slot.
        whole: Only if nothing has left it meanwhile.

    Returns:
        The slots and waiting rows of what is not acked; dead, where there is a reason.
    """
    # Mostly nothing is recorded: all of it is acked.
    outcomes = SlotOutcomes.of(slot, slot.lease, slot.outcomes) if slot.recorded else None
    # What is recorded meanwhile takes effect with this ack, or is told that it comes too late. And
    # a replay, which drops what is recorded, may have come between.
    still = [as_read(slot, "recorded"), as_read(slot, "deliveries")]
    if whole or (outcomes and outcomes.leaving):
        # I6: whatever is settled under this token meanwhile must not be put elsewhere as well.
        still.append(as_read(slot, "monotons"))
    changes.empty_slot(slot, token, *still)
    return put_away(changes, slot, slot.lease, outcomes) if outcomes else []


def dead_of(put: Iterable[Slot | Waiting]) -> list[Waiting]:
    """The rows of rejected messages, which are to be dead-lettered."""
    return [each for each in put if isinstance(each, Waiting) and each.reason is not None]


def joined(state: GroupState, put: Sequence[Slot | Waiting]) -> GroupState:
    """The state with these slots and waiting rows besides."""
    slots = tuple(each for each in put if isinstance(each, Slot))
    waiting = tuple(each for each in put if isinstance(each, Waiting))
    return replace(state, slots=(*state.slots, *slots), waiting=(*state.waiting, *waiting))


def _waiting_rows(changes: Changes, slot: Slot, outcomes: SlotOutcomes) -> list[Waiting]:
    state = changes.state
    about = (slot.deliveries, slot.first_at, slot.last_at)
    rows = [
        Waiting(state.due_in(delay), ranges, *about) for delay, ranges in outcomes.released.items()
    ]
    rows += [
        Waiting(state.due_in(), ranges, *about, reason)
        for reason, ranges in outcomes.rejected.items()
    ]
    if outcomes.unread:
        before = slot.deliveries - 1
        handed_out = (slot.first_at, slot.last_at) if before else (None, None)
        rows.append(Waiting(state.due_in(), outcomes.unread, before, *handed_out))
    return rows


def plan_remove_dead(state: GroupState, dead: Waiting) -> tuple[Op, ...]:
    """Plan to remove dead messages from the group; their copies are safe (I9)."""
    changes = Changes(state)
    changes.take_waiting(dead)
    return changes.ops()


def plan_defer_dead(state: GroupState, dead: Waiting, by: timedelta) -> tuple[Op, ...]:
    """Plan to dead-letter them later, so that a failure does not hide the messages behind."""
    changes = Changes(state)
    changes.take_waiting(dead)
    due = state.due_in(by)
    if due > dead.due:
        changes.wait(replace(dead, due=due))
    return changes.ops() if due > dead.due else ()


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement.

    Attributes:
        count: Messages settled, or recorded for when their batch is acked.
        stale: Messages that the lease does not hold: settled before, or with others by now.
        dead: Where the rejected ones are, to be dead-lettered.
    """

    count: int
    stale: Ranges
    dead: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """What carrying out ``ops`` at once settles.

    Attributes:
        ops: The operations.
        settled: Messages that leave the slots that they are in, by slot as it was read.
        extended: Messages that stay in theirs, for longer.
        dead: The rows that the rejected ones go to.
        recorded: Messages whose outcomes the ack of their batch carries out.
        texts: What is written for them, by slot as it was read.
        moved: Those that leave their slots for others, where they are held for longer.
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
        """All the messages that were found under the lease."""
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
    """Take what is settled out of the slots of a lease, and put it where it belongs. Pure.

    Args:
        state: The group as read.
        lease: The token that holds the messages.
        settlement: What is to become of them.
        token: A fresh one, put into the slots that become free; see `take_out`.
        deliveries: Which delivery of a batch; see `settle`.
        with_batch: Only record it where a batch is to be acked; see `settle`.
    """
    changes = Changes(state)
    settled: dict[Slot, Ranges] = {}
    texts: dict[Slot, str] = {}
    recorded, stays, moved, dead = _NOTHING, _NOTHING, _NOTHING, []
    slots = (*state.held_by(lease), *state.held_by(kept_token(lease)))
    slots = tuple(each for each in slots if _is_of(each, lease, deliveries))
    of_batch = [each for each in slots if with_batch and _is_acked_whole(each, lease)]
    for slot in of_batch:
        recorded = Ranges.union([recorded, slot.monotons & settlement.named])
        text = _record(changes, slot, settlement)
        if text is not None:
            texts[slot] = text
    for slot in (each for each in slots if each not in of_batch):
        outcomes = SlotOutcomes.of(slot, lease, settlement)
        if not outcomes.leaving and not outcomes.stays:
            continue
        if outcomes.stays:
            # I6: whatever else is settled under this token at the same time changes the ranges.
            still = as_read(slot, "monotons")
            until = ServerNow(outcomes.stays_for)
            changes.change_slot(slot, slot_values(monotons=outcomes.stays, due_at=until), still)
            stays = Ranges.union([stays, outcomes.stays])
        else:
            # I8: a query that takes the batch up again leaves token and ranges as they are.
            once = as_read(slot, "deliveries")
            take_out(changes, slot, lease, outcomes.leaving, token, once)
        if outcomes.leaving:
            settled[slot] = outcomes.leaving
            moved = Ranges.union([moved, *outcomes.moved.values()])
        dead += dead_of(put_away(changes, slot, lease, outcomes))
    return SettlePlan(changes.ops(), settled, stays, tuple(dead), recorded, texts, moved)


def _is_of(slot: Slot, lease: UUID, deliveries: int | None) -> bool:
    """Whether receipts of a delivery reach a slot of their lease, or of its `kept_token`."""
    return deliveries is None or slot.lease != lease or slot.deliveries == deliveries


def _is_acked_whole(slot: Slot, lease: UUID) -> bool:
    """Whether a slot has a batch, whose ack carries out what is recorded there."""
    return slot.lease == lease and not slot.by_receipts


def _record(changes: Changes, slot: Slot, settlement: Settlement) -> str | None:
    """Write what the ack of a slot is to do; the text, or None if that stays as it was."""
    outcomes = slot.outcomes.then(settlement.within(slot.monotons))
    text = encode_outcomes(outcomes, slot.lease, slot.deliveries)
    if text == encode_outcomes(slot.outcomes, slot.lease, slot.deliveries):
        return None
    still = (
        as_read(slot, "monotons"),
        as_read(slot, "deliveries"),
        as_read(slot, "recorded"),
    )
    changes.change_slot(slot, slot_values(recorded=text), *still)
    return text


def is_settled(
    plan: SettlePlan, lease: UUID, token: UUID, slots: Sequence[Slot], now: datetime | None
) -> bool:
    """Whether a plan of `plan_settle` went in whose answer was lost."""
    if any(slot.lease == token for slot in slots):
        return True
    if not all(_is_recorded(slot, text, slots) for slot, text in plan.texts.items()):
        return False
    if plan.settled:
        return are_gone(plan.settled, {lease}, slots, now, moved=plan.moved)
    # Recording the same twice does no harm, nor does holding them on twice.
    return bool(plan.texts) and not plan.extended


def _is_recorded(slot: Slot, text: str, slots: Sequence[Slot]) -> bool:
    """Whether a slot is still of the delivery that was read, with this text."""
    as_written = (slot.number, slot.lease, slot.deliveries, text)
    return any(
        (each.number, each.lease, each.deliveries, each.recorded) == as_written for each in slots
    )
