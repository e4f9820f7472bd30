"""Acks by receipts that ride along with a lease: what they take out of which slots. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.outcomes import union
from cassieq_spark.groups.state import GroupState, Slot
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import When

#: Messages to be acked, by the token of their lease.
Acks = Mapping[UUID, Ranges]
#: Messages that leave the slots that they are in, by slot as it was read.
Settled = Mapping[Slot, Ranges]

_NOTHING = Ranges()


def kept_token(lease: UUID) -> UUID:
    """The token under which messages of a lease are held that were extended one by one."""
    return UUID(int=lease.int ^ 2)


def take_acks(changes: Changes, acks: Acks, token: UUID) -> dict[Slot, Ranges]:
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
    still = When("ranges", "=", str(slot.monotons))
    if is_freed(slot, {lease}, gone):
        changes.empty_slot(slot, token, still, *when)
    else:
        changes.change_slot(slot, {"ranges": str(slot.monotons - gone)}, still, *when)


def is_freed(slot: Slot, leases: Container[UUID], gone: Ranges) -> bool:
    """Whether a slot of one of these leases is free once messages have left it one by one."""
    return gone == slot.monotons and _is_settled_singly(slot, leases)


def holds(state: GroupState, acks: Acks) -> bool:
    """Whether all of it is held under its token."""
    return all(
        not monotons - union(slot.monotons for slot in _held(state.slots, lease))
        for lease, monotons in acks.items()
    )


def without(state: GroupState, settled: Settled) -> GroupState:
    """The state once these messages are settled."""
    slots = tuple(
        replace(slot, monotons=slot.monotons - settled[slot]) if slot in settled else slot
        for slot in state.slots
    )
    return replace(state, slots=slots)


def settled_of(settled: Settled, lease: UUID) -> Ranges:
    """What of it was held under this lease."""
    return union(settled[slot] for slot in _held(settled, lease))


def are_gone(
    settled: Settled,
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
