"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from cassieq_spark.delivery.ahead import Ahead, walk
from cassieq_spark.delivery.changes import Changes, handed_out
from cassieq_spark.delivery.isolation import backoff, is_dead, most_messages
from cassieq_spark.delivery.state import GroupState, Slot, Waiting
from cassieq_spark.model import LedgerBlock, Range, Ranges
from cassieq_spark.store.protocol import Op, ServerNow, Value, When

_NO_LIMIT = 2**62


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
        prefer_fresh: Whether fresh messages go before those that are due again. Readers alternate,
            so that neither kind starves.
        max_deliveries: After so many, messages are not handed out any more; 0 for no limit.
        delayed_stop: No message from here on is delayed; see `LedgerHead`.
        least: With fewer messages than that to be had, get none.
        max_bytes: How many bytes of fresh messages to get, about; None for no limit.
        skip_older: Fresh messages that have been visible for longer count as settled; None: none.
        max_in_flight: Most messages that the group's readers hold together; None for no limit.
        retry_backoff: How long messages that failed once are left alone; see `isolation.backoff`.
        strict: Nothing is offered before all earlier messages are settled.
    """

    held: UUID | None
    lease: UUID
    length: timedelta
    limit: int | None
    stop: int
    prefer_fresh: bool = False
    max_deliveries: int = 0
    delayed_stop: int = 0
    least: int = 0
    max_bytes: int | None = None
    skip_older: timedelta | None = None
    max_in_flight: int | None = None
    retry_backoff: timedelta = timedelta(0)
    strict: bool = False

    def needs_blocks(self, pointer: int) -> bool:
        """Whether what is offered from the pointer on depends on the blocks there."""
        depends = pointer < self.delayed_stop or self.max_bytes or self.skip_older is not None
        return bool(depends) and pointer < self.stop


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
    """

    acked: tuple[Slot, ...]
    leased: tuple[Leased, ...]
    ops: tuple[Op, ...]
    pointer: int
    skipped: int = 0
    dead: tuple[Waiting, ...] = ()


def plan_batch(state: GroupState, wish: Wish, blocks: Sequence[LedgerBlock] = ()) -> Plan:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has messages that were never handed out, or those of one row that is due again, never
    both, so that a message which makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; waiting rows may be the first ones only, unless ``wish.strict``.
        wish: What the reader has finished, and what it wants.
        blocks: The first ones from the pointer on, if `Wish.needs_blocks`.
    """
    changes = Changes(state)
    acked = state.held_by(wish.held)
    for slot in acked:
        # I5: under another token, or whoever saw the lease run out could still take it over.
        changes.empty_slot(slot, spare_token(wish.lease))
    due = _due(state, wish)
    dead = tuple(_condemn(changes, wish, each) for each in due if _is_dead(each, wish))
    alive = [each for each in due if not _is_dead(each, wish)]
    limit = _limit(state, wish, alive)
    again = _again(wish, alive)
    delayed, room = _delayed(alive, wish, limit)
    ahead = _walk(state, wish, blocks, room)
    leased: tuple[Leased, ...] = ()
    if (delayed or ahead.leased) and (wish.prefer_fresh or again is None):
        leased = _lease_first(changes, wish, delayed, ahead, acked)
    else:
        ahead = _walk(state, wish, blocks, 0)
        if again is not None and wish.strict:
            limit = min(limit, _in_order(state, wish, again))
        if limit and isinstance(again, Slot):
            leased = _take_over(changes, wish, again, limit)
        elif limit and isinstance(again, Waiting):
            leased = _take_waiting(changes, wish, again, limit, acked)
    if leased and wish.max_in_flight is not None:
        changes.exclude_others()
    changes.move_pointer(ahead.pointer)
    for each in ahead.waiting:
        changes.wait(each)
    return Plan(acked, leased, changes.ops(), ahead.pointer, ahead.skipped, dead)


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; as much its own as that of its lease."""
    return UUID(int=lease.int ^ 1)


def condemn_slot(changes: Changes, slot: Slot, lease: UUID, *when: When) -> Waiting:
    """Take messages that were handed out too often from where a token could still settle them."""
    dead = Waiting(
        changes.earliest(changes.state.now_ms),
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
        due = changes.state.now_ms + after // timedelta(milliseconds=1)
        changes.wait(
            Waiting(
                changes.earliest(due), rest, failed.deliveries, failed.first_at, failed.last_at
            )
        )


def _due(state: GroupState, wish: Wish) -> list[Slot | Waiting]:
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


def _is_dead(each: Slot | Waiting, wish: Wish) -> bool:
    condemned = isinstance(each, Waiting) and each.reason is not None
    return condemned or is_dead(each.deliveries, wish.max_deliveries)


def _condemn(changes: Changes, wish: Wish, dead: Slot | Waiting) -> Waiting:
    """See to it that no token reaches dead messages."""
    if isinstance(dead, Waiting):
        return dead
    return condemn_slot(changes, dead, spare_token(wish.lease), When("due_at", "<", ServerNow()))


def _limit(state: GroupState, wish: Wish, alive: Sequence[Slot | Waiting]) -> int:
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


def _again(wish: Wish, alive: Sequence[Slot | Waiting]) -> Slot | Waiting | None:
    """What may be handed out once more; if order is strict, whatever waits."""
    again = (each for each in alive if each.deliveries or wish.strict)
    return min(again, key=lambda each: each.monotons.start, default=None)


def _in_order(state: GroupState, wish: Wish, again: Slot | Waiting) -> int:
    """How many of these messages come before all others that are outstanding."""
    others = [each.monotons.start for each in _outstanding(state, wish) if each != again]
    return (again.monotons & Ranges.of(Range(0, min(others, default=_NO_LIMIT)))).count


def _outstanding(state: GroupState, wish: Wish) -> list[Slot | Waiting]:
    slots = [slot for slot in state.slots if slot.monotons and slot.lease != wish.held]
    return [*slots, *state.waiting]


def _delayed(
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


def _walk(state: GroupState, wish: Wish, blocks: Sequence[LedgerBlock], limit: int) -> Ahead:
    pointer = state.head.pointer
    fresh = Range(pointer, max(pointer, wish.stop))
    if wish.strict and _outstanding(state, wish):
        fresh = Range(pointer, pointer)
    if not wish.needs_blocks(pointer):
        stop = min(fresh.stop, pointer + limit)
        return Ahead(Ranges.of(Range(pointer, stop)), (), 0, stop)
    return walk(
        blocks,
        fresh,
        limit=limit,
        max_bytes=wish.max_bytes,
        not_before=None if wish.skip_older is None else state.now - wish.skip_older,
        now=state.now,
        waiting_from=state.head.waiting_from,
    )


def _lease_first(
    changes: Changes,
    wish: Wish,
    delayed: Sequence[tuple[Waiting, Ranges]],
    ahead: Ahead,
    acked: Sequence[Slot],
) -> tuple[Leased, ...]:
    """Lease what was never handed out."""
    for waiting, part in delayed:
        changes.replace_waiting(waiting, waiting.monotons - part)
    monotons = Ranges.of(*ahead.leased, *(each for _, part in delayed for each in part))
    return _fill(changes, wish, monotons, None, acked)


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
    changes: Changes, wish: Wish, waiting: Waiting, limit: int, acked: Sequence[Slot]
) -> tuple[Leased, ...]:
    taken, rest = waiting.monotons.split(_most(wish, waiting, limit))
    changes.replace_waiting(waiting, rest)
    return _fill(changes, wish, taken, waiting, acked)


def _most(wish: Wish, again: Slot | Waiting, limit: int) -> int:
    most = most_messages(
        again.monotons.count,
        delivery=again.deliveries + 1,
        max_deliveries=wish.max_deliveries,
    )
    return min(limit, most)


def _fill(
    changes: Changes, wish: Wish, monotons: Ranges, before: Waiting | None, acked: Sequence[Slot]
) -> tuple[Leased, ...]:
    """Put monotons into a slot, which were handed out ``before`` or never."""
    deliveries, first_at = (before.deliveries, before.first_at) if before else (0, None)
    values = _lease_values(wish, monotons) | handed_out(deliveries + 1, first_at)
    return (Leased(changes.fill_slot(values, reuse=acked), monotons, deliveries + 1),)


def _lease_values(wish: Wish, monotons: Ranges) -> dict[str, Value | ServerNow]:
    return {"ranges": str(monotons), "lease": wish.lease, "due_at": ServerNow(wish.length)}
