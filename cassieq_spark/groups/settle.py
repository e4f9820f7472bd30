"""Settling single messages of a lease: some are done, some are given back, some are dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import UUID, uuid4

from cassieq_spark.errors import ContentionError
from cassieq_spark.groups.acks import are_gone, kept_token, take_out
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.fates import Fates, dead_of, put_away
from cassieq_spark.groups.lease import Delivery
from cassieq_spark.groups.outcomes import Settlement, encode, union
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Op, ServerNow, When
from cassieq_spark.store.race import pauses

__all__ = ["Settled", "Settlement", "SettlementPlan", "plan_settlement", "settle"]

_NOTHING = Ranges()


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
class SettlementPlan:
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
        return union([*self.settled.values(), self.extended, self.recorded])


def settle(
    delivery: Delivery,
    lease: UUID,
    settlement: Settlement,
    *,
    deliveries: int | None = None,
    with_batch: bool = False,
) -> Settled:
    """Settle messages of a lease, all at once. One LWT and two reads, whatever the number.

    The rest of the lease stays as it is. What is rejected can't be settled any more by anyone, and
    is still to be dead-lettered.

    Args:
        delivery: Queue and group.
        lease: The token that holds them.
        settlement: What is to become of which.
        deliveries: Which delivery of a batch: once a restarted query has taken the batch up, what
            is asked for an earlier one is stale. What is held beyond its batch is reached all the
            same. None: whichever it is.
        with_batch: Only record it for messages of the batch in hand: the LWT that acks the batch
            carries it out, and a replay of the batch drops it. For a message that is named again,
            what is recorded last counts. Acks cost no LWT then, unless they take something back.
            What is held beyond its batch is settled at once all the same.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    for _ in pauses():
        state, token = delivery.read(), uuid4()
        plan = plan_settlement(
            state, lease, settlement, token, deliveries=deliveries, with_batch=with_batch
        )
        went_in = partial(_went_in, plan, lease, token)
        if not plan.ops or delivery.carry_out(plan.ops, went_in=went_in):
            reached = plan.reached
            return Settled(reached.count, settlement.named - reached, plan.dead)
    raise ContentionError(f"{delivery}: lost the race to settle messages again and again")


def plan_settlement(  # noqa: PLR0913 (whose messages, what for, and when)
    state: GroupState,
    lease: UUID,
    settlement: Settlement,
    token: UUID,
    *,
    deliveries: int | None = None,
    with_batch: bool = False,
) -> SettlementPlan:
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
        recorded = union([recorded, slot.monotons & settlement.named])
        text = _record(changes, slot, settlement)
        if text is not None:
            texts[slot] = text
    for slot in (each for each in slots if each not in of_batch):
        fates = Fates.of(slot, lease, settlement)
        if not fates.leaving and not fates.stays:
            continue
        if fates.stays:
            # I6: whatever else is settled under this token at the same time changes the ranges.
            still = When("ranges", "=", str(slot.monotons))
            until = ServerNow(fates.stays_for)
            changes.change_slot(slot, {"ranges": str(fates.stays), "due_at": until}, still)
            stays = union([stays, fates.stays])
        else:
            # I8: a query that takes the batch up again leaves token and ranges as they are.
            once = When("deliveries", "=", slot.deliveries)
            take_out(changes, slot, lease, fates.leaving, token, once)
        if fates.leaving:
            settled[slot] = fates.leaving
            moved = union([moved, *fates.moved.values()])
        dead += dead_of(put_away(changes, slot, lease, fates))
    return SettlementPlan(changes.ops(), settled, stays, tuple(dead), recorded, texts, moved)


def _is_of(slot: Slot, lease: UUID, deliveries: int | None) -> bool:
    """Whether receipts of a delivery reach a slot of their lease, or of its `kept_token`."""
    return deliveries is None or slot.lease != lease or slot.deliveries == deliveries


def _is_acked_whole(slot: Slot, lease: UUID) -> bool:
    """Whether a slot has a batch, whose ack carries out what is recorded there."""
    return slot.lease == lease and not slot.by_receipts


def _record(changes: Changes, slot: Slot, settlement: Settlement) -> str | None:
    """Write what the ack of a slot is to do; the text, or None if that stays as it was."""
    outcomes = slot.outcomes.then(settlement.within(slot.monotons))
    text = encode(outcomes, slot.lease, slot.deliveries)
    if text == encode(slot.outcomes, slot.lease, slot.deliveries):
        return None
    as_read = (
        When("ranges", "=", str(slot.monotons)),
        When("deliveries", "=", slot.deliveries),
        When("outcomes", "=", slot.recorded),
    )
    changes.change_slot(slot, {"outcomes": text}, *as_read)
    return text


def _went_in(
    plan: SettlementPlan, lease: UUID, token: UUID, slots: Sequence[Slot], now: datetime | None
) -> bool:
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
