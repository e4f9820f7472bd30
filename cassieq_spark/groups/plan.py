"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from cassieq_spark.groups.acks import Settled, take_acks, without
from cassieq_spark.groups.ahead import Ahead, walk
from cassieq_spark.groups.changes import Changes, handed_out
from cassieq_spark.groups.due import (
    count_in_order,
    first_again,
    first_delayed,
    is_to_be_buried,
    most_now,
    outstanding,
    what_is_due,
)
from cassieq_spark.groups.fates import dead_of, finish_slot, joined
from cassieq_spark.groups.isolation import most_messages
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.groups.wish import Wish
from cassieq_spark.model import LedgerBlock, Range, Ranges
from cassieq_spark.store.protocol import Op, ServerNow, Value, When


@dataclass(frozen=True, slots=True)
class Leased:
    """Monotons in a slot under our token, handed out for the ``deliveries``-th time."""

    slot: int
    monotons: Ranges
    deliveries: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What carrying out ``ops`` at once acks and leases; nothing is to be done without ops.

    Attributes:
        acked: Slots of the batch before.
        leased: What is handed out.
        ops: The operations.
        pointer: First monoton not offered to the group, afterwards.
        skipped: Messages that were too old.
        dead: To be dead-lettered, once ``ops`` have gone in.
        settled: What is acked by receipts, by slot as it was read.
        left: What of the batch before is not acked, as outcomes were recorded for it: in which
            slots and rows it is afterwards.
    """

    acked: tuple[Slot, ...]
    leased: tuple[Leased, ...]
    ops: tuple[Op, ...]
    pointer: int
    skipped: int = 0
    dead: tuple[Waiting, ...] = ()
    settled: Settled = field(default_factory=dict)
    left: tuple[Slot | Waiting, ...] = ()


def plan_batch(state: GroupState, wish: Wish, blocks: Sequence[LedgerBlock] = ()) -> Plan:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has messages that were never handed out, or those of one row that is due again, never
    both, so that a message which makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; if ``wish.strict``, all of it, of one moment. Of another one, a
            plan that removes waiting rows has to be made again from one that is of one moment.
        wish: What the reader has finished, and what it wants.
        blocks: The first ones from the pointer on, if `Wish.needs_blocks`.
    """
    if _is_taken_up(state, wish):
        wish = replace(wish, held=None)
    changes = Changes(state)
    settled = take_acks(changes, wish.acks, spare_token(wish.lease))
    # What is left in these slots has its turn with the next batch: one operation for each row.
    touched = {slot.number for slot in settled}
    state = without(state, settled)
    acked = state.held_by(wish.held)
    left: list[Slot | Waiting] = []
    for slot in acked:
        # I5: under another token, or a reader that saw the lease run out could still take it over.
        # What a client has moved elsewhere since is in the way of what follows, and in flight.
        left += finish_slot(changes, slot, spare_token(wish.lease), whole=wish.is_exclusive)
    due = [
        each
        for each in what_is_due(state, wish)
        if isinstance(each, Waiting) or each.number not in touched
    ]
    if any(each.monotons & row.monotons for each in left for row in due):
        # The waiting rows were read later than the slots, which have changed since: this plan will
        # be refused, but it has to be one.
        due = []
    dead = tuple(_condemn(changes, wish, each) for each in due if is_to_be_buried(each, wish))
    alive = [each for each in due if not is_to_be_buried(each, wish)]
    # What the batch leaves counts as outstanding, and has its own turn later.
    state = joined(state, left)
    limit = most_now(state, wish, alive)
    again = first_again(wish, alive)
    delayed, room = first_delayed(alive, wish, limit)
    ahead = _walk(state, wish, blocks, room)
    empty = (*acked, *(slot for slot in settled if changes.frees(slot)))
    leased: tuple[Leased, ...] = ()
    if (delayed or ahead.leased) and (wish.prefer_fresh or again is None):
        leased = _lease_first(changes, wish, delayed, ahead, empty)
    else:
        ahead = _walk(state, wish, blocks, 0)
        if again is not None and wish.strict:
            limit = min(limit, count_in_order(state, wish, again))
        if limit and isinstance(again, Slot):
            leased = _take_over(changes, wish, again, limit)
        elif limit and isinstance(again, Waiting):
            leased = _take_waiting(changes, wish, again, limit, empty)
    changes.leave_token(wish.lease, spare_token(wish.lease))
    if leased and wish.is_exclusive:
        changes.exclude_others()
    changes.move_pointer(ahead.pointer)
    for each in ahead.waiting:
        changes.wait(each)
    dead = (*dead_of(left), *dead)
    ops = changes.ops()
    return Plan(acked, leased, ops, ahead.pointer, ahead.skipped, dead, settled, tuple(left))


def _is_taken_up(state: GroupState, wish: Wish) -> bool:
    """Whether another process has the batch by now that this one has finished."""
    counts = wish.held_as or {}
    return any(
        slot.deliveries != counts.get(slot.number, slot.deliveries)
        for slot in state.held_by(wish.held)
    )


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; as much its own as that of its lease."""
    return UUID(int=lease.int ^ 1)


def condemn_slot(changes: Changes, slot: Slot, lease: UUID, *when: When) -> Waiting:
    """Take messages that were handed out too often from where a token could still settle them."""
    dead = Waiting(
        changes.state.due_in(),
        slot.monotons,
        slot.deliveries,
        slot.first_at,
        slot.last_at,
        reason=too_often(slot.deliveries),
    )
    once = When("deliveries", "=", slot.deliveries)
    changes.empty_slot(slot, lease, When("ranges", "=", str(slot.monotons)), once, *when)
    changes.wait(dead)
    return dead


def too_often(deliveries: int) -> str:
    """The reason of those that nobody rejected."""
    return f"not settled in {deliveries} deliveries, which is the limit"


def give_back(changes: Changes, rest: Ranges, failed: Slot, *, after: timedelta) -> None:
    """Let messages of a lease that failed wait, their count unchanged."""
    if rest:
        due = changes.state.due_in(after)
        changes.wait(Waiting(due, rest, failed.deliveries, failed.first_at, failed.last_at))


def _condemn(changes: Changes, wish: Wish, dead: Slot | Waiting) -> Waiting:
    """See to it that no token reaches dead messages."""
    if isinstance(dead, Waiting):
        return dead
    return condemn_slot(changes, dead, spare_token(wish.lease), When("due_at", "<", ServerNow()))


def _walk(state: GroupState, wish: Wish, blocks: Sequence[LedgerBlock], limit: int) -> Ahead:
    pointer = state.head.pointer
    fresh = Range(pointer, max(pointer, wish.stop))
    if wish.strict and outstanding(state, wish):
        fresh = Range(pointer, pointer)
    if not wish.needs_blocks(pointer):
        stop = min(fresh.stop, pointer + limit)
        return Ahead(Ranges.of(Range(pointer, stop)), (), 0, stop)
    return walk(
        blocks,
        fresh,
        limit=limit,
        max_bytes=wish.max_bytes,
        not_before=None if wish.skip_older is None else state.sure_now - wish.skip_older,
        now=state.now,
    )


def _lease_first(
    changes: Changes,
    wish: Wish,
    delayed: Sequence[tuple[Waiting, Ranges]],
    ahead: Ahead,
    empty: Sequence[Slot],
) -> tuple[Leased, ...]:
    """Lease what was never handed out."""
    for waiting, part in delayed:
        changes.replace_waiting(waiting, waiting.monotons - part)
    monotons = Ranges.of(*ahead.leased, *(each for _, part in delayed for each in part))
    return _fill(changes, wish, monotons, None, empty)


def _take_over(changes: Changes, wish: Wish, slot: Slot, limit: int) -> tuple[Leased, ...]:
    """Take a lease that ran out, in its own slot; what does not fit goes back as waiting."""
    taken, rest = slot.monotons.split(_most(wish, slot, limit))
    leased = Leased(slot.number, taken, slot.deliveries + 1)
    # I5, I8: some of it may have been settled under its token since it was read, or all of it been
    # handed out once more, and released.
    still = (
        When("due_at", "<", ServerNow()),
        When("ranges", "=", str(slot.monotons)),
        When("deliveries", "=", slot.deliveries),
    )
    values = _lease_values(wish, taken) | handed_out(leased.deliveries, slot.first_at)
    changes.change_slot(slot, values, *still)
    give_back(changes, rest, slot, after=timedelta(0))
    return (leased,)


def _take_waiting(
    changes: Changes, wish: Wish, waiting: Waiting, limit: int, empty: Sequence[Slot]
) -> tuple[Leased, ...]:
    taken, rest = waiting.monotons.split(_most(wish, waiting, limit))
    changes.replace_waiting(waiting, rest)
    return _fill(changes, wish, taken, waiting, empty)


def _most(wish: Wish, again: Slot | Waiting, limit: int) -> int:
    most = most_messages(
        again.monotons.count,
        delivery=again.deliveries + 1,
        max_deliveries=wish.max_deliveries,
    )
    return min(limit, most)


def _fill(
    changes: Changes, wish: Wish, monotons: Ranges, before: Waiting | None, empty: Sequence[Slot]
) -> tuple[Leased, ...]:
    """Put monotons into a slot, which were handed out ``before`` or never."""
    deliveries, first_at = (before.deliveries, before.first_at) if before else (0, None)
    values = _lease_values(wish, monotons) | handed_out(deliveries + 1, first_at)
    return (Leased(changes.fill_slot(values, reuse=empty), monotons, deliveries + 1),)


def _lease_values(wish: Wish, monotons: Ranges) -> dict[str, Value | ServerNow]:
    return {
        "ranges": str(monotons),
        "lease": wish.lease,
        "due_at": ServerNow(wish.length),
        "by_receipts": wish.by_receipts,
    }
