"""What a compare-and-set came to, and whether one went in whose answer was lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from cassieq_spark.groups.acks import Settled, are_gone, is_freed
from cassieq_spark.groups.follow import follow
from cassieq_spark.groups.plan import Leased, Plan, spare_token
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.groups.wish import Wish


@dataclass(frozen=True, slots=True)
class Batch:
    """What one compare-and-set acked and leased.

    Attributes:
        lease: Token that holds ``leased``.
        leased: Empty if there is nothing to deliver.
        acked: Messages of the batch before that were still held, and are settled now.
        acked_slots: The slots that the batch before still had; another one is lost.
        pointer: First monoton not offered to the group yet, afterwards.
        skipped: Messages that were too old, and count as settled.
        dead: What is to be dead-lettered and buried.
        state: The group as it was before.
        settled: What was acked by receipts, by slot as it was before.
        after: The group as it is now, unless others have changed it; None: not known.
        left: What of the batch before is not acked, as outcomes were recorded for it: in which
            slots and rows it is now.
    """

    lease: UUID
    leased: tuple[Leased, ...]
    acked: int
    acked_slots: frozenset[int]
    pointer: int
    skipped: int
    dead: tuple[Waiting, ...]
    state: GroupState
    settled: Settled = field(default_factory=dict)
    after: GroupState | None = None
    left: tuple[Slot | Waiting, ...] = ()

    @property
    def leaves_due(self) -> bool:
        """Whether the batch before leaves messages that may be leased already."""
        now = self.state.now_ms
        rows = [each for each in self.left if isinstance(each, Waiting)]
        return any(each.reason is None and each.due <= now for each in rows)

    @classmethod
    def of(cls, token: UUID, state: GroupState, plan: Plan) -> Batch:
        """What carrying out a plan for this state came to."""
        return cls(
            lease=token,
            leased=plan.leased,
            acked=sum(it.monotons.count for it in plan.acked)
            - sum(it.monotons.count for it in plan.left),
            acked_slots=frozenset(slot.number for slot in plan.acked),
            pointer=plan.pointer,
            skipped=plan.skipped,
            dead=plan.dead,
            state=state,
            settled=plan.settled,
            after=follow(state, plan.ops),
            left=plan.left,
        )


def is_carried_out(plan: Plan, wish: Wish, slots: Sequence[Slot], now: datetime | None) -> bool:
    """Whether a plan of `plan_batch` went in.

    One that only acks may have left its token in slots that others have leased since.
    """
    if has_token(wish.lease, slots):
        return True
    only_acks = not plan.leased and len(plan.ops) == len(plan.settled)
    frees = any(is_freed(slot, wish.acks, gone) for slot, gone in plan.settled.items())
    return only_acks and frees and are_gone(plan.settled, wish.acks, slots, now)


def is_taken_up(token: UUID, slots: Sequence[Slot], _: object) -> bool:
    """Whether a plan of `plan_replay` went in, and nobody has taken the batch up since."""
    return has_token(token, slots) or any(slot.taken_up_by == token for slot in slots)


def has_token(token: UUID, slots: Sequence[Slot]) -> bool:
    """Whether a slot is under the token of an attempt, or the one of those that it empties."""
    return any(slot.lease in (token, spare_token(token)) for slot in slots)
