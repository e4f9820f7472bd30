"""What of a group's state may be handed out now, and how much of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cassieq_spark.groups.isolation import backoff, is_dead
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.groups.wish import Wish
from cassieq_spark.model import Range, Ranges

_NO_LIMIT = 2**62


def what_is_due(state: GroupState, wish: Wish) -> list[Slot | Waiting]:
    """What is due: leases that ran out long enough ago, and what has waited long enough."""
    slots = [
        slot
        for slot in state.slots
        if slot.monotons
        and slot.lease != wish.held
        and slot.due_at + backoff(wish.retry_backoff, slot.deliveries) < state.now
    ]
    waiting = [waiting for waiting in state.waiting if waiting.due <= state.now_ms]
    due: list[Slot | Waiting] = [*slots, *waiting]
    return [each for each in due if each.monotons.start < wish.stop]


def is_to_be_buried(each: Slot | Waiting, wish: Wish) -> bool:
    """Whether it is not to be handed out any more, but to be dead-lettered."""
    condemned = isinstance(each, Waiting) and each.reason is not None
    return condemned or is_dead(each.deliveries, wish.max_deliveries)


def most_now(state: GroupState, wish: Wish, alive: Sequence[Slot | Waiting]) -> int:
    """How many messages may be handed out now."""
    limit = _NO_LIMIT if wish.limit is None else wish.limit
    if wish.max_in_flight is not None:
        others = (slot for slot in state.slots if slot.lease != wish.held)
        limit = min(
            limit,
            wish.max_in_flight
            - sum(slot.monotons.count for slot in others if slot.due_at >= state.now),
        )
    to_be_had = sum(each.monotons.count for each in alive) + max(0, wish.stop - state.head.pointer)
    return 0 if to_be_had < wish.least else max(0, limit)


def first_again(wish: Wish, alive: Sequence[Slot | Waiting]) -> Slot | Waiting | None:
    """What may be handed out once more; if order is strict, whatever waits."""
    again = (each for each in alive if each.deliveries or wish.strict)
    return min(again, key=lambda each: each.monotons.start, default=None)


def count_in_order(state: GroupState, wish: Wish, again: Slot | Waiting) -> int:
    """How many of these messages come before all others that are outstanding."""
    others = [each.monotons.start for each in outstanding(state, wish) if each != again]
    return (again.monotons & Ranges.of(Range(0, min(others, default=_NO_LIMIT)))).count


def outstanding(state: GroupState, wish: Wish) -> list[Slot | Waiting]:
    """What others hold and what waits: handed to the group, and not settled."""
    slots = [slot for slot in state.slots if slot.monotons and slot.lease != wish.held]
    return [*slots, *state.waiting]


def first_delayed(
    alive: Sequence[Slot | Waiting], wish: Wish, limit: int
) -> tuple[list[tuple[Waiting, Ranges]], int]:
    """What was delayed and is due, with how much of it fits; and the room that is left."""
    taken = []
    for each in alive:
        if isinstance(each, Waiting) and not each.deliveries and not wish.strict and limit:
            part, _ = each.monotons.split(limit)
            taken.append((each, part))
            limit -= part.count
    return taken, limit
