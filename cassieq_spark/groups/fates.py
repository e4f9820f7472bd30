"""What becomes of the messages of a slot that is settled, at once or with its batch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from cassieq_spark.groups.acks import kept_token
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.outcomes import Settlement
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import ServerNow, Value, When

_NOTHING = Ranges()


@dataclass(frozen=True, slots=True)
class Fates:
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
    def of(cls, slot: Slot, lease: UUID, settlement: Settlement) -> Fates:
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


def put_away(changes: Changes, slot: Slot, lease: UUID, fates: Fates) -> list[Slot | Waiting]:
    """Put what leaves a slot, and is not done, where it belongs.

    Returns:
        The slots and waiting rows that it is in then; dead, where there is a reason.
    """
    put: list[Slot | Waiting] = []
    for by, monotons in fates.moved.items():
        values: dict[str, Value | ServerNow] = {
            "ranges": str(monotons),
            "lease": kept_token(lease),
            "due_at": ServerNow(by),
            **_handed_out_before(slot),
        }
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
    rows = _waiting_rows(changes, slot, fates)
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
    fates = Fates.of(slot, slot.lease, slot.outcomes)
    # What is recorded meanwhile takes effect with this ack, or is told that it comes too late. And
    # a replay, which drops what is recorded, may have come between.
    as_read = [When("outcomes", "=", slot.recorded), When("deliveries", "=", slot.deliveries)]
    if whole or fates.leaving:
        # I6: whatever is settled under this token meanwhile must not be put elsewhere as well.
        as_read.append(When("ranges", "=", str(slot.monotons)))
    changes.empty_slot(slot, token, *as_read)
    return put_away(changes, slot, slot.lease, fates)


def dead_of(put: Iterable[Slot | Waiting]) -> list[Waiting]:
    """The rows of rejected messages, which are to be dead-lettered."""
    return [each for each in put if isinstance(each, Waiting) and each.reason is not None]


def joined(state: GroupState, put: Sequence[Slot | Waiting]) -> GroupState:
    """The state with these slots and waiting rows besides."""
    slots = tuple(each for each in put if isinstance(each, Slot))
    waiting = tuple(each for each in put if isinstance(each, Waiting))
    return replace(state, slots=(*state.slots, *slots), waiting=(*state.waiting, *waiting))


def _waiting_rows(changes: Changes, slot: Slot, fates: Fates) -> list[Waiting]:
    state = changes.state
    about = (slot.deliveries, slot.first_at, slot.last_at)
    rows = [
        Waiting(state.due_in(delay), ranges, *about) for delay, ranges in fates.released.items()
    ]
    rows += [
        Waiting(state.due_in(), ranges, *about, reason)
        for reason, ranges in fates.rejected.items()
    ]
    if fates.unread:
        before = slot.deliveries - 1
        handed_out = (slot.first_at, slot.last_at) if before else (None, None)
        rows.append(Waiting(state.due_in(), fates.unread, before, *handed_out))
    return rows


def _handed_out_before(slot: Slot) -> dict[str, Value | ServerNow]:
    times = {"first_at": slot.first_at, "last_at": slot.last_at}
    known: dict[str, Value | ServerNow] = {k: v for k, v in times.items() if v is not None}
    return {"deliveries": slot.deliveries} | known
