"""Changes of a group's state: operations on it, and the state after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from cassieq_spark.groups.lanes import lanes_within
from cassieq_spark.groups.state import (
    HEAD,
    IS_DUE,
    GroupState,
    Slot,
    Waiting,
    Written,
    as_read,
    emptied,
    fields_written,
    slot_key,
    slot_values,
    token_in,
    waiting_values,
)
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Delete, DeleteBelow, Insert, Op, Update, Values, When

_NOTHING = Ranges()


@dataclass(slots=True)
class Changes:
    """Collects the operations of one LWT on a state.

    At most one operation per row, conditioned on what was read in that row.
    """

    state: GroupState
    _head_values: Written = field(default_factory=dict)
    _head_when: dict[str, When] = field(default_factory=dict)
    _slots: dict[int, Insert | Update] = field(default_factory=dict)
    _removed: list[Waiting] = field(default_factory=list)
    _added: list[Waiting] = field(default_factory=list)

    def ops(self) -> tuple[Op, ...]:
        """All operations; the one on the head comes first."""
        low_end = self._low_end()
        if low_end != self.state.head.waiting_from:
            self._advance("waiting_from", low_end)
        head = Update(HEAD, self._head_values, when=tuple(self._head_when.values()))
        return (
            *((head,) if self._head_values else ()),
            *self._slots.values(),
            *(Delete(each.key) for each in self._removed),
            *(Insert(each.key, waiting_values(each)) for each in self._added),
        )

    def move_pointer(self, pointer: int) -> None:
        """Count all messages below ``pointer`` as offered."""
        if pointer != self.state.head.pointer:
            self._advance("pointer", pointer)

    def change_slot(self, slot: Slot, values: Values, *when: When) -> None:
        """Write columns of a slot, if the slot still has the token that was read."""
        under = as_read(slot, "lease")
        if slot.recorded and token_in(values):
            # Outcomes of another lease would be dropped anyway, but they take room.
            values = {**values, **slot_values(recorded="")}
        self._slots[slot.number] = Update(slot_key(slot.number), values, when=(under, *when))

    def empty_slot(self, slot: Slot, lease: UUID, *when: When) -> None:
        """Free a slot: it holds nothing, is due, and is under a token that nobody else knows."""
        self.change_slot(slot, emptied(lease), *when)

    def touches(self, slot: Slot) -> bool:
        """True if there is an operation on this slot."""
        return slot.number in self._slots

    def frees(self, slot: Slot) -> bool:
        """True if the operation on this slot frees it."""
        return token_in(self._slots[slot.number].values) is not None

    def fill_slot(self, values: Values, *, reuse: Iterable[Slot] = ()) -> int:
        """Put a lease into a slot: one of ``reuse``, else a free one, else a new one.

        Args:
            values: The columns of the lease.
            reuse: Slots that this change empties; the conditions for emptying them stay.

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
                # A reader that was slow to extend its empty lease may have it again.
                self.change_slot(slot, values, IS_DUE)
                return slot.number
        number = max([-1, *self._slots, *(slot.number for slot in self.state.slots)]) + 1
        self._slots[number] = Insert(slot_key(number), values, if_absent=True)
        return number

    def leave_token(self, *ours: UUID) -> None:
        """If slots change, leave one of these tokens in a slot; nobody else writes these tokens.

        If the answer is lost, the token shows that this change was applied, not one by the holder
        of a lease.
        """
        tokens = {token_in(op.values) for op in self._slots.values()}
        if tokens and not tokens & set(ours):
            self.fill_slot(emptied(ours[-1]) | slot_values(deliveries=0))

    def add_waiting(self, waiting: Waiting) -> None:
        """Add a waiting row, unless it has no messages."""
        if waiting.monotons:
            self.exclude_others()
            self._added.append(waiting)

    def remove_waiting(self, waiting: Waiting, *, rest: Ranges = _NOTHING) -> None:
        """Remove a waiting row; the ``rest`` of its messages goes on waiting.

        Only from a consistent state; see `GroupState.of_one_moment`.
        """
        self.exclude_others()
        self._removed.append(waiting)
        if rest:
            # Under the key of the row that is deleted, it would be deleted with it.
            due = waiting.due + (rest.start == waiting.monotons.start)
            lanes = lanes_within(waiting.lanes, rest)
            self.add_waiting(replace(waiting, due=due, monotons=rest, lanes=lanes))

    def exclude_others(self) -> None:
        """Fail if waiting rows have changed since the read; make later changes of them fail."""
        head = self.state.head
        self._advance("waiting_version", head.waiting_version + 1)
        self._head_when["waiting_from"] = as_read(head, "waiting_from")

    def _low_end(self) -> int:
        """No waiting row is left below this due time: readers skip the rows deleted there.

        The due time follows from the rows, never from a clock: a wrong clock must hide no row.
        """
        state = self.state
        end = state.head.waiting_from
        if self._removed:
            beyond = [max(each.due for each in self._removed) + 1]
            beyond += [each.due for each in state.waiting if each not in self._removed]
            if not state.all_waiting:
                # Rows beyond those read are due no earlier than the last one read.
                beyond.append(state.waiting[-1].due)
            end = max(end, min(beyond))
        return min([end, *(each.due for each in self._added)])

    def _advance(self, name: str, new: int) -> None:
        self._head_values[name] = new
        self._head_when[name] = as_read(self.state.head, name)


def apply(state: GroupState, ops: Sequence[Op]) -> GroupState | None:
    """The state after ``ops``, if nobody else has changed it; None if ``ops`` change waiting rows.

    Times that the server sets are a little too early in this state. So a caller that leases from
    it conditions its LWT on it, and reads the state before it leases messages again that were
    handed out before.
    """
    keeps = all(isinstance(op, Insert | Update) and op.row[0] != "waiting" for op in ops)
    return state_after(state, ops) if keeps else None


def state_after(state: GroupState, ops: Sequence[Op]) -> GroupState:
    """The state after ``ops``, for a plan that is carried out by the same LWT; see `merge_ops`."""
    head, slots = state.head, {slot.number: slot for slot in state.slots}
    waiting = list(state.waiting)
    # Of the rows beyond those that were read, nothing is known but that none is due earlier.
    last = None if state.all_waiting or not waiting else waiting[-1].due
    for op in ops:
        match op:
            case Update(row=("head", _, _)):
                head = replace(head, **fields_written(op.values, state.now))
            case Update(row=("slot", int(number), _)):
                slots[number] = replace(slots[number], **fields_written(op.values, state.now))
            case Insert(row=("slot", int(number), _)):
                slots[number] = Slot(number, **fields_written(op.values, state.now))
            case Delete():
                waiting = [each for each in waiting if each.key != op.row]
            case Insert(row=(_, int(due), _)) if last is None or due <= last:
                waiting.append(Waiting(due, **fields_written(op.values, state.now)))
    return replace(
        state,
        head=head,
        slots=tuple(slots[number] for number in sorted(slots)),
        waiting=tuple(sorted(waiting, key=lambda each: each.key)),
    )


def merge_ops(first: Sequence[Op], then: Sequence[Op]) -> tuple[Op, ...]:
    """The operations of one LWT that does the same as two, one at once after the other.

    At most one operation per row. The LWT has the conditions of the first, and those of the second
    on columns that the first does not write.

    Args:
        first: Operations on a state, by `Changes`.
        then: Operations on the state after those.
    """
    merged: dict[object, Op] = {_place(op): op for op in first}
    for op in then:
        before = merged.get(_place(op))
        if isinstance(op, Delete) and _written(op) in merged:
            # A row that was only to be added.
            del merged[_written(op)]
        elif isinstance(op, Insert | Update) and isinstance(before, Insert | Update):
            merged[_place(op)] = _both(before, op)
        else:
            merged[_place(op)] = op
    return tuple(merged.values())


def _place(op: Op) -> object:
    """The key of an operation in `merge_ops`: a row is deleted before it is written."""
    return op if isinstance(op, Delete | DeleteBelow) else _written(op)


def _written(op: Insert | Update | Delete) -> object:
    return ("written", op.row)


def _both(first: Insert | Update, then: Insert | Update) -> Insert | Update:
    values = {**first.values, **then.values}
    if isinstance(first, Insert) or isinstance(then, Insert):
        return replace(first, values=values)
    new = [each for each in then.when if each.column not in first.values]
    return replace(first, values=values, when=tuple(dict.fromkeys([*first.when, *new])))
