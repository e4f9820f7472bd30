"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from cassieq_spark.delivery.isolation import is_dead, most_messages
from cassieq_spark.delivery.state import HEAD, GroupState, Slot, Waiting, slot_key, waiting_key
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.protocol import (
    Delete,
    Insert,
    Op,
    ServerNow,
    Update,
    Value,
    Values,
    When,
)


@dataclass(frozen=True, slots=True)
class Leased:
    """Monotons in a slot under our token, handed out for the ``deliveries``-th time."""

    slot: int
    monotons: Ranges
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
        max_deliveries: After so many, messages are not handed out any more; 0 for no limit.
        prefer_fresh: Whether fresh messages go before those that are due again. Readers alternate,
            so that neither kind starves.
    """

    held: UUID | None
    lease: UUID
    length: timedelta
    limit: int | None
    stop: int
    prefer_fresh: bool = False
    max_deliveries: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What carrying out ``ops`` at once acks and leases; nothing is to be done without ops.

    ``dead`` was handed out too often, and is to be dead-lettered.
    """

    acked: tuple[Slot, ...]
    leased: tuple[Leased, ...]
    ops: tuple[Op, ...]
    dead: tuple[Slot | Waiting, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A plan in the making: at most one operation for each row."""

    slots: dict[int, Op] = field(default_factory=dict)
    leased: list[Leased] = field(default_factory=list)
    head_values: dict[str, Value | ServerNow] = field(default_factory=dict)
    head_when: dict[str, When] = field(default_factory=dict)
    waiting: list[Op] = field(default_factory=list)

    def ops(self) -> tuple[Op, ...]:
        """All of it, the head first."""
        head = Update(HEAD, self.head_values, when=tuple(self.head_when.values()))
        return (*((head,) if self.head_values else ()), *self.slots.values(), *self.waiting)


def plan_batch(state: GroupState, wish: Wish) -> Plan:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has fresh messages or those of one row that is due again, never both, so that a message
    which makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; waiting rows may be the first ones only.
        wish: What the reader has finished, and what it wants.
    """
    draft = _Draft()
    acked = state.held_by(wish.held)
    for slot in acked:
        # I5: under another token, or whoever saw the lease run out could still take it over.
        draft.slots[slot.number] = empty_slot(slot, spare_token(wish.lease))
    fresh = _fresh(state, wish)
    due = _due(state, wish)
    dead = tuple(each for each in due if is_dead(each.deliveries, wish.max_deliveries))
    again = min(set(due) - set(dead), key=lambda each: each.monotons.start, default=None)
    if fresh and (wish.prefer_fresh or again is None):
        _lease_fresh(draft, state, wish, fresh)
    elif isinstance(again, Slot):
        _take_over(draft, state, wish, again)
    elif isinstance(again, Waiting):
        _take_waiting(draft, state, wish, again)
    ops = draft.ops()
    return Plan(acked, tuple(draft.leased), ops, dead)


def plan_replay(state: GroupState, wish: Wish) -> Plan:
    """Plan to take up a lease again: a batch that this process did not lease, and Spark replays.

    What its token still holds is handed out once more, as much of it as that delivery may have.
    What was handed out too often gets a token that nobody knows: no ack must reach it.

    Args:
        state: The group as read.
        wish: Its ``held`` is the token of the batch, ``lease`` a fresh one.
    """
    draft = _Draft()
    for slot in state.held_by(wish.held):
        still = (*_under(slot), When("ranges", "=", str(slot.monotons)))
        if slot.monotons and is_dead(slot.deliveries, wish.max_deliveries):
            gone: Values = {"lease": wish.lease, "due_at": ServerNow()}
            draft.slots[slot.number] = Update(slot_key(slot.number), gone, when=still)
            continue
        # Whatever the limit is by now, the second delivery is the batch as it was, and without a
        # limit of deliveries every one is.
        whole = slot.deliveries == 1 or not wish.max_deliveries
        again = replace(wish, limit=None) if whole else wish
        taken, rest = slot.monotons.split(_most(again, slot))
        leased = Leased(slot.number, taken, slot.deliveries + 1)
        values: Values = {
            "ranges": str(taken),
            "deliveries": leased.deliveries,
            "due_at": ServerNow(wish.length),
        }
        once = When("deliveries", "=", slot.deliveries)
        draft.slots[slot.number] = Update(slot_key(slot.number), values, when=(*still, once))
        draft.leased.append(leased)
        _give_back(draft, state, rest, slot.deliveries)
    return Plan((), tuple(draft.leased), draft.ops())


def plan_burial(state: GroupState, dead: Slot | Waiting, lease: UUID) -> tuple[Op, ...]:
    """Plan to let go of messages that were handed out too often; their copies are safe (I9)."""
    draft = _Draft()
    if isinstance(dead, Slot):
        still = (When("due_at", "<", ServerNow()), When("ranges", "=", str(dead.monotons)))
        emptied: Values = {"ranges": "", "lease": lease, "due_at": ServerNow()}
        draft.slots[dead.number] = Update(
            slot_key(dead.number), emptied, when=(*_under(dead), *still)
        )
    else:
        draft.waiting.append(Delete(waiting_key(dead.due, dead.monotons.start)))
        _touch_waiting(draft, state)
    return draft.ops()


def _fresh(state: GroupState, wish: Wish) -> Range:
    pointer = state.head.pointer
    stop = max(pointer, wish.stop)
    return Range(pointer, stop if wish.limit is None else min(stop, pointer + wish.limit))


def _due(state: GroupState, wish: Wish) -> list[Slot | Waiting]:
    """What is due again: leases that ran out, and what has waited long enough."""
    slots = [
        slot
        for slot in state.slots
        if slot.monotons and slot.lease != wish.held and slot.due_at < state.now
    ]
    waiting = [waiting for waiting in state.waiting if waiting.due <= state.now_ms]
    due: list[Slot | Waiting] = [*slots, *waiting]
    return [each for each in due if each.monotons.start < wish.stop]


def _lease_fresh(draft: _Draft, state: GroupState, wish: Wish, fresh: Range) -> None:
    _advance(draft, "pointer", state.head.pointer, fresh.stop)
    _fill(draft, state, wish, Ranges.of(fresh), deliveries=1)


def _take_over(draft: _Draft, state: GroupState, wish: Wish, slot: Slot) -> None:
    """Take a lease that ran out, in its own slot; what does not fit goes back as waiting."""
    taken, rest = slot.monotons.split(_most(wish, slot))
    leased = Leased(slot.number, taken, slot.deliveries + 1)
    # I5, I8: some of it may have been settled under its token since it was read, or all of it been
    # handed out once more, and released.
    still = (
        When("due_at", "<", ServerNow()),
        When("ranges", "=", str(slot.monotons)),
        When("deliveries", "=", slot.deliveries),
    )
    draft.slots[slot.number] = Update(
        slot_key(slot.number), _lease_values(wish, leased), when=(*_under(slot), *still)
    )
    draft.leased.append(leased)
    _give_back(draft, state, rest, slot.deliveries)


def _give_back(draft: _Draft, state: GroupState, rest: Ranges, deliveries: int) -> None:
    """Let what does not fit wait, due now, its count unchanged."""
    if rest:
        _wait(draft, Waiting(max(state.now_ms, state.head.waiting_from), rest, deliveries))
        _touch_waiting(draft, state)


def _most(wish: Wish, again: Slot | Waiting) -> int | None:
    return most_messages(
        wish.limit, delivery=again.deliveries + 1, max_deliveries=wish.max_deliveries
    )


def _take_waiting(draft: _Draft, state: GroupState, wish: Wish, waiting: Waiting) -> None:
    taken, rest = waiting.monotons.split(_most(wish, waiting))
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
    draft: _Draft, state: GroupState, wish: Wish, monotons: Ranges, *, deliveries: int
) -> None:
    """Put a range into a slot: one just acked, else a free one, else a new one."""
    own = next((slot for slot in state.slots if slot.number in draft.slots), None)
    slot = own or next((slot for slot in state.slots if slot.is_free(state.now)), None)
    number = slot.number if slot else len(state.slots)
    leased = Leased(number, monotons, deliveries)
    values = _lease_values(wish, leased)
    if slot is None:
        draft.slots[number] = Insert(slot_key(number), values, if_absent=True)
    else:
        # A free one may be its reader's again, if that was slow to extend an empty lease.
        free = () if slot is own else (When("due_at", "<=", ServerNow()),)
        draft.slots[number] = Update(slot_key(number), values, when=(*_under(slot), *free))
    draft.leased.append(leased)


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; as much its own as that of its lease."""
    return UUID(int=lease.int ^ 1)


def empty_slot(slot: Slot, lease: UUID) -> Op:
    """Free a slot: it holds nothing, under a token that nobody else knows, and is due."""
    values: Values = {"ranges": "", "lease": lease, "due_at": ServerNow()}
    return Update(slot_key(slot.number), values, when=_under(slot))


def _lease_values(wish: Wish, leased: Leased) -> dict[str, Value | ServerNow]:
    return {
        "ranges": str(leased.monotons),
        "lease": wish.lease,
        "due_at": ServerNow(wish.length),
        "deliveries": leased.deliveries,
    }


def _under(slot: Slot) -> tuple[When, ...]:
    return (When("lease", "=", slot.lease),)


def _wait(draft: _Draft, waiting: Waiting) -> None:
    values: dict[str, Value | ServerNow] = {
        "ranges": str(waiting.monotons),
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
