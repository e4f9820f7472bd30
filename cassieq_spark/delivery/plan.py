"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from cassieq_spark.delivery.state import HEAD, GroupState, Slot, Waiting, slot_key, waiting_key
from cassieq_spark.model import Range
from cassieq_spark.store.protocol import (
    Delete,
    Insert,
    Op,
    ServerNow,
    Update,
    Value,
    When,
)


@dataclass(frozen=True, slots=True)
class Leased:
    """A range in a slot under our token, handed out for the ``deliveries``-th time."""

    slot: int
    monotons: Range
    deliveries: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reader wants.

    Attributes:
        held: Token of the batch that it has finished; its slots are acked.
        lease: Fresh token for what it gets.
        length: How long the lease lasts.
        limit: Most messages to get; None for all there are.
        stop: Monoton from which on nothing is offered: the ledger's ``next``, or a target below.
        prefer_fresh: Whether fresh messages go before those that are due again. Readers alternate,
            so that neither kind starves.
    """

    held: UUID | None
    lease: UUID
    length: timedelta
    limit: int | None
    stop: int
    prefer_fresh: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What carrying out ``ops`` at once acks and leases; nothing is to be done without ops."""

    acked: tuple[Slot, ...]
    leased: tuple[Leased, ...]
    ops: tuple[Op, ...]


@dataclass(slots=True)
class _Draft:
    """A plan in the making: at most one operation for each row."""

    slots: dict[int, Op] = field(default_factory=dict)
    leased: list[Leased] = field(default_factory=list)
    head_values: dict[str, Value | ServerNow] = field(default_factory=dict)
    head_when: dict[str, When] = field(default_factory=dict)
    waiting: list[Op] = field(default_factory=list)


def plan_batch(state: GroupState, wish: Wish) -> Plan:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has fresh messages or one range that is due again, never both, so that a message which
    makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; waiting rows may be the first ones only.
        wish: What the reader has finished, and what it wants.
    """
    draft = _Draft()
    acked = state.held_by(wish.held)
    for slot in acked:
        # I5: under a fresh token, or whoever saw the lease run out could still take it over.
        emptied: dict[str, Value | ServerNow] = {"start": 0, "stop": 0, "lease": wish.lease}
        draft.slots[slot.number] = Update(slot_key(slot.number), emptied, when=_under(slot))
    fresh = _fresh(state, wish)
    again = _due_again(state, wish)
    if fresh and (wish.prefer_fresh or again is None):
        _lease_fresh(draft, state, wish, fresh)
    elif isinstance(again, Slot):
        _take_over(draft, state, wish, again)
    elif isinstance(again, Waiting):
        _take_waiting(draft, state, wish, again)
    head = (
        (Update(HEAD, draft.head_values, when=tuple(draft.head_when.values())),)
        if draft.head_values
        else ()
    )
    ops = (*head, *draft.slots.values(), *draft.waiting)
    return Plan(acked, tuple(draft.leased), ops)


def _fresh(state: GroupState, wish: Wish) -> Range:
    pointer = state.head.pointer
    stop = max(pointer, wish.stop)
    return Range(pointer, stop if wish.limit is None else min(stop, pointer + wish.limit))


def _due_again(state: GroupState, wish: Wish) -> Slot | Waiting | None:
    """The lowest range that is due again: a lease that ran out, or a waiting range."""
    slots = [
        slot
        for slot in state.slots
        if slot.monotons and slot.lease != wish.held and slot.due_at < state.now
    ]
    waiting = [waiting for waiting in state.waiting if waiting.due <= state.now_ms]
    due: list[Slot | Waiting] = [*slots, *waiting]
    offered = [each for each in due if each.monotons.start < wish.stop]
    return min(offered, key=lambda each: each.monotons.start, default=None)


def _lease_fresh(draft: _Draft, state: GroupState, wish: Wish, fresh: Range) -> None:
    _advance(draft, "pointer", state.head.pointer, fresh.stop)
    _fill(draft, state, wish, fresh, deliveries=1)


def _take_over(draft: _Draft, state: GroupState, wish: Wish, slot: Slot) -> None:
    """Take a lease that ran out, in its own slot; what does not fit goes back as waiting."""
    taken, rest = _cut(slot.monotons, wish.limit)
    leased = Leased(slot.number, taken, slot.deliveries + 1)
    due = (When("due_at", "<", ServerNow()),)
    draft.slots[slot.number] = Update(
        slot_key(slot.number), _lease_values(wish, leased), when=(*_under(slot), *due)
    )
    draft.leased.append(leased)
    if rest:
        _wait(draft, Waiting(max(state.now_ms, state.head.waiting_from), rest, slot.deliveries))
        _touch_waiting(draft, state)


def _take_waiting(draft: _Draft, state: GroupState, wish: Wish, waiting: Waiting) -> None:
    taken, rest = _cut(waiting.monotons, wish.limit)
    draft.waiting.append(Delete(waiting_key(waiting.due, waiting.monotons.start)))
    left = [each for each in state.waiting if each != waiting]
    if rest:
        left.append(Waiting(waiting.due, rest, waiting.deliveries))
        _wait(draft, left[-1])
    _touch_waiting(draft, state)
    _advance(draft, "waiting_from", state.head.waiting_from, _low_end(state, left))
    _fill(draft, state, wish, taken, deliveries=waiting.deliveries + 1)


def _low_end(state: GroupState, left: list[Waiting]) -> int:
    """Below which due time no waiting row is left: readers skip the rows deleted there."""
    # Rows beyond those read are due no earlier than the last one read.
    end = state.now_ms if state.all_waiting else state.waiting[-1].due
    return max(state.head.waiting_from, min([end, *(each.due for each in left)]))


def _fill(
    draft: _Draft, state: GroupState, wish: Wish, monotons: Range, *, deliveries: int
) -> None:
    """Put a range into a slot: one just acked, else a free one, else a new one."""
    own = next((slot for slot in state.slots if slot.number in draft.slots), None)
    free = next((slot for slot in state.slots if not slot.monotons), None)
    slot = own or free
    number = slot.number if slot else len(state.slots)
    leased = Leased(number, monotons, deliveries)
    values = _lease_values(wish, leased)
    draft.slots[number] = (
        Update(slot_key(number), values, when=_under(slot))
        if slot
        else Insert(slot_key(number), values, if_absent=True)
    )
    draft.leased.append(leased)


def _cut(monotons: Range, limit: int | None) -> tuple[Range, Range]:
    middle = monotons.stop if limit is None else min(monotons.stop, monotons.start + limit)
    return Range(monotons.start, middle), Range(middle, monotons.stop)


def _lease_values(wish: Wish, leased: Leased) -> dict[str, Value | ServerNow]:
    return {
        "start": leased.monotons.start,
        "stop": leased.monotons.stop,
        "lease": wish.lease,
        "due_at": ServerNow(wish.length),
        "deliveries": leased.deliveries,
    }


def _under(slot: Slot) -> tuple[When, ...]:
    return (When("lease", "=", slot.lease),)


def _wait(draft: _Draft, waiting: Waiting) -> None:
    values: dict[str, Value | ServerNow] = {
        "start": waiting.monotons.start,
        "stop": waiting.monotons.stop,
        "deliveries": waiting.deliveries,
    }
    draft.waiting.append(Insert(waiting_key(waiting.due, waiting.monotons.start), values))


def _touch_waiting(draft: _Draft, state: GroupState) -> None:
    """Condition a change of the waiting rows on nobody else having changed them."""
    _advance(draft, "waiting_version", state.head.waiting_version, state.head.waiting_version + 1)
    draft.head_when["waiting_from"] = When("waiting_from", "=", state.head.waiting_from)


def _advance(draft: _Draft, column: str, old: int, new: int) -> None:
    draft.head_values[column] = new
    draft.head_when[column] = When(column, "=", old)
