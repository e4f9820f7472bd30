"""Settling single messages of a lease: some are done, some are given back, some are dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from cassieq_spark.delivery.acks import are_gone, kept_token, union
from cassieq_spark.delivery.changes import Changes
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.state import GroupState, Slot, Waiting
from cassieq_spark.errors import ContentionError
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op, ServerNow, Value, When
from cassieq_spark.store.race import pauses

_NOTHING = Ranges()
_Key = TypeVar("_Key", str, timedelta)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of messages of one lease.

    A message that is named several times is acked; if not that, rejected; if not that, released.

    Attributes:
        acked: They are done.
        rejected: They are dead, by reason.
        released: They are to be offered again, by how much later.
        extended: They are to be held on, by how long from now; an ack of their whole batch leaves
            them alone.
    """

    acked: Ranges = _NOTHING
    rejected: Mapping[str, Ranges] = field(default_factory=dict)
    released: Mapping[timedelta, Ranges] = field(default_factory=dict)
    extended: Mapping[timedelta, Ranges] = field(default_factory=dict)

    @property
    def named(self) -> Ranges:
        """All the messages."""
        return union([self.acked, self.dead, *self.released.values(), *self.extended.values()])

    @property
    def dead(self) -> Ranges:
        """Those that are rejected."""
        return union(self.rejected.values())


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement.

    Attributes:
        count: Messages settled.
        stale: Messages that the lease does not hold: settled before, or with others by now.
        dead: Where the rejected ones are, to be dead-lettered.
    """

    count: int
    stale: Ranges
    dead: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class SettlementPlan:
    """What carrying out ``ops`` at once settles.

    Attributes:
        ops: The operations.
        settled: Messages that leave the slots that they are in, by slot as it was read.
        extended: Messages that stay in theirs, for longer.
        dead: The rows that the rejected ones go to.
    """

    ops: tuple[Op, ...]
    settled: Mapping[Slot, Ranges]
    extended: Ranges
    dead: tuple[Waiting, ...]

    @property
    def count(self) -> int:
        """How many messages."""
        return sum(each.count for each in self.settled.values()) + self.extended.count


def settle(delivery: Delivery, lease: UUID, settlement: Settlement) -> Settled:
    """Settle messages of a lease, all at once. One LWT and two reads, whatever the number.

    The rest of the lease stays as it is. What is rejected can't be settled any more by anyone, and
    is still to be dead-lettered.

    Args:
        delivery: Queue and group.
        lease: The token that holds them.
        settlement: What is to become of which.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    for _ in pauses():
        state = delivery.read()
        plan = plan_settlement(state, lease, settlement)
        if not plan.ops or delivery.carry_out(plan.ops, went_in=partial(_went_in, plan)):
            gone = union([*plan.settled.values(), plan.extended])
            return Settled(plan.count, settlement.named - gone, plan.dead)
    raise ContentionError(f"{delivery}: lost the race to settle messages again and again")


def plan_settlement(state: GroupState, lease: UUID, settlement: Settlement) -> SettlementPlan:
    """Take what is settled out of the slots of a lease, and put it where it belongs. Pure.

    A slot that becomes empty stays under its token, so that its reader knows that it is not lost.
    """
    changes = Changes(state)
    settled: dict[Slot, Ranges] = {}
    stays, dead = _NOTHING, []
    for slot in (*state.held_by(lease), *state.held_by(kept_token(lease))):
        fates = _Fates.of(slot, lease, settlement)
        if not fates.leaving and not fates.stays:
            continue
        # I6: whatever else is settled under this token at the same time changes the ranges.
        still = When("ranges", "=", str(slot.monotons))
        values: dict[str, Value | ServerNow] = {"ranges": str(slot.monotons - fates.leaving)}
        if fates.stays:
            values["due_at"] = ServerNow(fates.stays_for)
            stays = union([stays, fates.stays])
        changes.change_slot(slot, values, still)
        if fates.leaving:
            settled[slot] = fates.leaving
        for by, monotons in fates.moved.items():
            changes.fill_slot(
                {
                    "ranges": str(monotons),
                    "lease": kept_token(lease),
                    "due_at": ServerNow(by),
                    **_handed_out_before(slot),
                }
            )
        rows = _waiting_rows(changes, slot, fates)
        for row in rows:
            changes.wait(row)
        dead += [row for row in rows if row.reason is not None]
    return SettlementPlan(changes.ops(), settled, stays, tuple(dead))


@dataclass(frozen=True, slots=True)
class _Fates:
    """What becomes of the messages of one slot.

    Attributes:
        rejected, released: What leaves it to wait, or to be dead-lettered.
        moved: What moves to slots of its own, by how long it is held there.
        stays, stays_for: What is held on in this very slot.
        leaving: All that leaves the slot.
    """

    rejected: Mapping[str, Ranges]
    released: Mapping[timedelta, Ranges]
    moved: Mapping[timedelta, Ranges]
    stays: Ranges
    stays_for: timedelta
    leaving: Ranges

    @classmethod
    def of(cls, slot: Slot, lease: UUID, settlement: Settlement) -> _Fates:
        left = slot.monotons - settlement.acked
        rejected, left = _deal(left, settlement.rejected)
        released, left = _deal(left, settlement.released)
        moved, left = _deal(left, settlement.extended)
        stays, stays_for = _NOTHING, timedelta(0)
        if not left and len(moved) == 1 and slot.lease == kept_token(lease):
            ((stays_for, stays),) = moved.items()
            moved, left = {}, stays
        return cls(rejected, released, moved, stays, stays_for, slot.monotons - left)


def _deal(left: Ranges, wanted: Mapping[_Key, Ranges]) -> tuple[dict[_Key, Ranges], Ranges]:
    dealt: dict[_Key, Ranges] = {}
    for key, ranges in sorted(wanted.items()):
        if found := left & ranges:
            dealt[key] = found
            left -= found
    return dealt, left


def _waiting_rows(changes: Changes, slot: Slot, fates: _Fates) -> list[Waiting]:
    state = changes.state
    about = (slot.deliveries, slot.first_at, slot.last_at)
    rows = [
        Waiting(state.due_in(delay), ranges, *about) for delay, ranges in fates.released.items()
    ]
    rows += [
        Waiting(state.due_in(), ranges, *about, reason)
        for reason, ranges in fates.rejected.items()
    ]
    return rows


def _handed_out_before(slot: Slot) -> dict[str, Value | ServerNow]:
    times = {"first_at": slot.first_at, "last_at": slot.last_at}
    known: dict[str, Value | ServerNow] = {k: v for k, v in times.items() if v is not None}
    return {"deliveries": slot.deliveries} | known


def _went_in(plan: SettlementPlan, slots: Sequence[Slot]) -> bool:
    # Holding them on twice does no harm.
    return bool(plan.settled) and are_gone(plan.settled, slots)
