"""Settling single messages of a lease: some are done, some are given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.state import HEAD, GroupState, Slot, slot_key, waiting_key
from cassieq_spark.errors import ContentionError
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Insert, Op, Update, Values, When
from cassieq_spark.store.race import pauses


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement.

    Attributes:
        count: Messages settled.
        stale: Messages that the lease does not hold: settled before, or with others by now.
    """

    count: int
    stale: int


def settle(
    delivery: Delivery, lease: UUID, *, acked: Ranges, released: Mapping[timedelta, Ranges]
) -> Settled:
    """Settle messages of a lease, all at once. One LWT and two reads, whatever the number.

    The rest of the lease stays as it is. A message that is acked as well as released is acked.

    Args:
        delivery: Queue and group.
        lease: The token that holds them.
        acked: Messages that are done.
        released: Messages to be offered again, by how much later.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    wanted = Ranges.of(*acked, *(part for each in released.values() for part in each))
    for _ in pauses():
        state = delivery.read()
        settled = Ranges.of(*(part for slot in state.held_by(lease) for part in slot.monotons))
        settled &= wanted
        ops = plan_settlement(state, lease, settled=settled, acked=acked, released=released)
        if not ops or delivery.carry_out(ops, went_in=partial(_is_settled, lease, settled)):
            return Settled(settled.count, wanted.count - settled.count)
    raise ContentionError(f"{delivery}: lost the race to settle messages again and again")


def plan_settlement(
    state: GroupState,
    lease: UUID,
    *,
    settled: Ranges,
    acked: Ranges,
    released: Mapping[timedelta, Ranges],
) -> list[Op]:
    """Take ``settled`` out of the slots of a lease, and let what is released wait. Pure.

    A slot that becomes empty stays under its token, so that its reader knows that it is not lost.
    """
    ops: list[Op] = []
    waits: list[Op] = []
    left = {delay: ranges - acked for delay, ranges in sorted(released.items())}
    for slot in state.held_by(lease):
        gone = slot.monotons & settled
        if not gone:
            continue
        # I6: whatever else is settled under this token at the same time changes the ranges.
        still = (When("lease", "=", lease), When("ranges", "=", str(slot.monotons)))
        ops.append(
            Update(slot_key(slot.number), {"ranges": str(slot.monotons - gone)}, when=still)
        )
        for delay, ranges in left.items():
            if back := ranges & gone:
                due = max(
                    state.now_ms + delay // timedelta(milliseconds=1), state.head.waiting_from
                )
                values: Values = {"ranges": str(back), "deliveries": slot.deliveries}
                waits.append(Insert(waiting_key(due, back.start), values))
                gone -= back
    if waits:
        version = state.head.waiting_version
        unchanged = (
            When("waiting_version", "=", version),
            When("waiting_from", "=", state.head.waiting_from),
        )
        ops.append(Update(HEAD, {"waiting_version": version + 1}, when=unchanged))
    return [*ops, *waits]


def _is_settled(lease: UUID, settled: Ranges, slots: Sequence[Slot]) -> bool:
    """Nobody but the holder of the token takes messages out of its slots."""
    held = [slot for slot in slots if slot.lease == lease]
    return bool(held) and not any(slot.monotons & settled for slot in held)
