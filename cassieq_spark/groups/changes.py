"""Changes of a group's state: operations on it, and the state after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from cassieq_spark.groups.state import (
    HEAD,
    GroupState,
    Slot,
    Waiting,
    as_read,
    emptied,
    fields_written,
    slot_key,
    slot_values,
    waiting_key,
    waiting_values,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Delete, Insert, Op, ServerNow, Update, Value, Values, When


@dataclass(slots=True)
class Changes:
    """Gathers operations on one state: at most one for each row, each on what was read there.

    Args:
        state: The group as it was read.
    """

    state: GroupState
    _head_values: dict[str, Value | ServerNow] = field(default_factory=dict)
    _head_when: dict[str, When] = field(default_factory=dict)
    _slots: dict[int, Insert | Update] = field(default_factory=dict)
    _waiting: list[Op] = field(default_factory=list)
    _gone: list[Waiting] = field(default_factory=list)
    _come: list[Waiting] = field(default_factory=list)

    def ops(self) -> tuple[Op, ...]:
        """All of it, the head first."""
        begin, low_end = self.state.head.waiting_from, self._low_end()
        if low_end != begin:
            self._advance("waiting_from", begin, low_end)
        head = Update(HEAD, self._head_values, when=tuple(self._head_when.values()))
        return (
            *((head,) if self._head_values else ()),
            *self._slots.values(),
            *self._waiting,
        )

    def move_pointer(self, pointer: int) -> None:
        """Offer, or step over, all up to ``pointer``."""
        if pointer != self.state.head.pointer:
            self._advance("pointer", self.state.head.pointer, pointer)

    def change_slot(self, slot: Slot, values: Values, *when: When) -> None:
        """Write columns of a slot that is still under the token that was read there."""
        under = as_read(slot, "lease")
        if slot.recorded and "lease" in values:
            # Outcomes of another lease would be dropped anyway, but they take room.
            values = {**values, **slot_values(recorded="")}
        self._slots[slot.number] = Update(slot_key(slot.number), values, when=(under, *when))

    def empty_slot(self, slot: Slot, lease: UUID, *when: When) -> None:
        """Free a slot: it holds nothing, under a token that nobody else knows, and is due."""
        self.change_slot(slot, emptied(lease), *when)

    def frees(self, slot: Slot) -> bool:
        """Whether a slot is to be freed."""
        return "lease" in self._slots[slot.number].values

    def fill_slot(self, values: Values, *, reuse: Iterable[Slot] = ()) -> int:
        """Put a lease into a slot: one of those to be emptied, else a free one, else a new one.

        Returns:
            The number of the slot.
        """
        for slot in reuse:
            known = self._slots.get(slot.number)
            still = known.when[1:] if isinstance(known, Update) else ()
            self.change_slot(slot, values, *still)
            return slot.number
        for slot in self.state.slots:
            if slot.number not in self._slots and slot.is_free(self.state.now):
                # It may be its reader's again, if that was slow to extend an empty lease.
                free = When("due_at", "<=", ServerNow())
                self.change_slot(slot, values, free)
                return slot.number
        number = max([-1, *self._slots, *(slot.number for slot in self.state.slots)]) + 1
        self._slots[number] = Insert(slot_key(number), values, if_absent=True)
        return number

    def leave_token(self, *ours: UUID) -> None:
        """See to it that a change of slots leaves one of these tokens, which nobody else writes.

        Without it, nothing would tell a lost answer from what the holders of leases did meanwhile.
        """
        tokens = {op.values.get("lease") for op in self._slots.values()}
        if tokens and not tokens & set(ours):
            self.fill_slot({**emptied(ours[-1]), "deliveries": 0})

    def wait(self, waiting: Waiting) -> None:
        """Add a waiting row; reads begin there, if they began beyond it."""
        self._touch_waiting()
        self._come.append(waiting)
        self._waiting.append(Insert(self._key(waiting), waiting_values(waiting)))

    def take_waiting(self, waiting: Waiting) -> None:
        """Remove a waiting row; only from a state that is of one moment."""
        self._touch_waiting()
        self._gone.append(waiting)
        self._waiting.append(Delete(self._key(waiting)))

    def replace_waiting(self, waiting: Waiting, left: Ranges) -> None:
        """Remove a waiting row, and let what is ``left`` of it wait on."""
        self.take_waiting(waiting)
        if left:
            self.wait(replace(waiting, monotons=left))

    def exclude_others(self) -> None:
        """Refuse, and be refused by, whatever else does so or changes what waits meanwhile."""
        self._touch_waiting()

    def _key(self, waiting: Waiting) -> tuple[str | int, ...]:
        return waiting_key(waiting.due, waiting.monotons.start)

    def _low_end(self) -> int:
        """Below which due time no waiting row is left: readers skip the rows deleted there.

        It follows from the rows, never from a clock: one that is wrong must hide no row.
        """
        state = self.state
        end = state.head.waiting_from
        if self._gone:
            beyond = [max(each.due for each in self._gone) + 1]
            beyond += [each.due for each in state.waiting if each not in self._gone]
            if not state.all_waiting:
                # Rows beyond those read are due no earlier than the last one read.
                beyond.append(state.waiting[-1].due)
            end = max(end, min(beyond))
        return min([end, *(each.due for each in self._come)])

    def _touch_waiting(self) -> None:
        """Condition a change of the waiting rows on nobody else having changed them."""
        head = self.state.head
        self._advance("waiting_version", head.waiting_version, head.waiting_version + 1)
        self._head_when["waiting_from"] = When("waiting_from", "=", head.waiting_from)

    def _advance(self, column: str, old: int, new: int) -> None:
        self._head_values[column] = new
        self._head_when[column] = When(column, "=", old)


def apply(state: GroupState, ops: Sequence[Op]) -> GroupState | None:
    """The state once ``ops`` have gone in, if nobody else has changed it; None: read it.

    What the server's clock has set is told a little too early. So a caller that
    goes on from this state conditions all on it, and reads before it hands out again what was
    handed out before.

    Args:
        state: As it was before.
        ops: A plan for it. None is returned for one that changes what waits, which is rare.
    """
    head, slots = state.head, {slot.number: slot for slot in state.slots}
    for op in ops:
        match op:
            case Update(row=("head", _, _)):
                head = replace(head, **fields_written(op.values, state.now))
            case Update(row=("slot", int(number), _)):
                slots[number] = replace(slots[number], **fields_written(op.values, state.now))
            case Insert(row=("slot", int(number), _)):
                slots[number] = Slot(number, **fields_written(op.values, state.now))
            case _:
                return None
    return replace(state, head=head, slots=tuple(slots[number] for number in sorted(slots)))
