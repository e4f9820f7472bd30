"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.groups.changes import Changes, apply, handed_out
from cassieq_spark.groups.settle import (
    BySlot,
    ReceiptAcks,
    are_gone,
    dead_of,
    finish_slot,
    is_freed,
    joined,
    take_receipt_acks,
    without,
)
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.model import LedgerBlock, Range, Ranges, to_millis
from cassieq_spark.store.protocol import Op, ServerNow, Value, When

#: No message that failed is left alone for longer, unless the first pause is longer already.
LONGEST_BACKOFF = timedelta(hours=1)


def most_messages(count: int, *, delivery: int, max_deliveries: int) -> int:
    """Most of ``count`` messages that may be handed out together, for the ``delivery``-th time.

    The second delivery is as large as the first: a batch that failed after its sink had it must
    come again whole, or the sink could not know it by its id. Then it shrinks, by the same factor
    each time, to single messages one delivery before the last. So the neighbours of a bad message
    succeed in batches without it, and with a delivery to spare. With fewer than four deliveries
    there is no room for the whole batch to come again: the second is of single messages.

    Args:
        count: How many failed together, or are left of those.
        delivery: 1 for messages that were never handed out.
        max_deliveries: After so many a message is dead; 0 for never, and then nothing shrinks.

    >>> [most_messages(100_000, delivery=d, max_deliveries=5) for d in (1, 2, 3, 4, 5)]
    [100000, 100000, 316, 1, 1]
    """
    if not max_deliveries or delivery == 1:
        return count
    steps_left = max_deliveries - 1 - delivery
    if steps_left <= 0:
        return 1
    if delivery == 2:  # noqa: PLR2004 the second delivery
        return count
    return max(1, int(count ** (steps_left / (steps_left + 1))))


def is_dead(deliveries: int, max_deliveries: int) -> bool:
    """Whether messages that were handed out so often must not be handed out again (I8)."""
    return 0 < max_deliveries <= deliveries


def backoff(first: timedelta, deliveries: int) -> timedelta:
    """How long messages that failed are left alone: doubles each time, up to an hour.

    Args:
        first: After the first delivery.
        deliveries: How often they were handed out.

    >>> [str(backoff(timedelta(minutes=10), n)) for n in (1, 2, 3, 4)]
    ['0:10:00', '0:20:00', '0:40:00', '1:00:00']
    """
    if not first or not deliveries:
        return timedelta(0)
    doubled: timedelta = first * (1 << min(deliveries - 1, 32))
    return max(first, min(LONGEST_BACKOFF, doubled))


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a reader wants.

    Attributes:
        held: Token of the batch that it has finished; its slots are acked.
        held_as: How often the messages of each slot of ``held`` were handed out when this process
            got them; if it is more by now, another process has taken the batch up, and nothing is
            acked. None: another process got them, and this one goes on after it.
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
        by_receipts: Whether what it gets is settled one by one only, as clients do, and never as
            the batch of ``held``: the slot is free as soon as all of it is settled.
        acks: Messages that are done, of other leases than ``held``.
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
    held_as: Mapping[int, int] | None = None
    by_receipts: bool = False
    acks: ReceiptAcks = field(default_factory=dict)

    @property
    def is_exclusive(self) -> bool:
        """Whether what it may get depends on all that others hold."""
        return self.strict or self.max_in_flight is not None

    def needs_blocks(self, pointer: int) -> bool:
        """Whether what is offered from the pointer on depends on the blocks there."""
        depends = pointer < self.delayed_stop or self.max_bytes or self.skip_older is not None
        return bool(depends) and pointer < self.stop


_NO_LIMIT = 2**62


def what_is_due(state: GroupState, wish: LeaseRequest) -> list[Slot | Waiting]:
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


def is_to_be_buried(each: Slot | Waiting, wish: LeaseRequest) -> bool:
    """Whether it is not to be handed out any more, but to be dead-lettered."""
    condemned = isinstance(each, Waiting) and each.reason is not None
    return condemned or is_dead(each.deliveries, wish.max_deliveries)


def most_now(state: GroupState, wish: LeaseRequest, alive: Sequence[Slot | Waiting]) -> int:
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


def first_again(wish: LeaseRequest, alive: Sequence[Slot | Waiting]) -> Slot | Waiting | None:
    """What may be handed out once more; if order is strict, whatever waits."""
    again = (each for each in alive if each.deliveries or wish.strict)
    return min(again, key=lambda each: each.monotons.start, default=None)


def count_in_order(state: GroupState, wish: LeaseRequest, again: Slot | Waiting) -> int:
    """How many of these messages come before all others that are outstanding."""
    others = [each.monotons.start for each in outstanding(state, wish) if each != again]
    return (again.monotons & Ranges.of(Range(0, min(others, default=_NO_LIMIT)))).count


def outstanding(state: GroupState, wish: LeaseRequest) -> list[Slot | Waiting]:
    """What others hold and what waits: handed to the group, and not settled."""
    slots = [slot for slot in state.slots if slot.monotons and slot.lease != wish.held]
    return [*slots, *state.waiting]


def first_delayed(
    alive: Sequence[Slot | Waiting], wish: LeaseRequest, limit: int
) -> tuple[list[tuple[Waiting, Ranges]], int]:
    """What was delayed and is due, with how much of it fits; and the room that is left."""
    taken = []
    for each in alive:
        if isinstance(each, Waiting) and not each.deliveries and not wish.strict and limit:
            part, _ = each.monotons.split(limit)
            taken.append((each, part))
            limit -= part.count
    return taken, limit


@dataclass(frozen=True, slots=True)
class Lookahead:
    """What a look_ahead from the pointer on found.

    Attributes:
        leased: To be handed out.
        waiting: Delayed, to be stepped over until they are due.
        skipped: Too old; they count as settled.
        pointer: Where the look_ahead ended.
    """

    leased: Ranges
    waiting: tuple[Waiting, ...]
    skipped: int
    pointer: int


def look_ahead(  # noqa: PLR0913 (each is a bound of its own, by name)
    blocks: Sequence[LedgerBlock],
    fresh: Range,
    *,
    limit: int | None,
    max_bytes: int | None,
    not_before: datetime | None,
    now: datetime,
) -> Lookahead:
    """Walk over the blocks from the pointer on, as far as the limits allow.

    Args:
        blocks: Those that hold the first messages of ``fresh``, in order.
        fresh: What may be offered.
        limit: Most messages to lease; None for no limit. With 0, what comes before the first
            message that could be leased is still stepped over.
        max_bytes: How many bytes to lease, about, but a message at least; None for no limit.
        not_before: Messages visible since before this are skipped; None: never.
        now: By the server's clock.
    """
    leased: list[Range] = []
    delayed: dict[int, list[Range]] = {}
    skipped, bytes_left = 0, max_bytes
    at = fresh.start
    for block in blocks:
        part = block.monotons & fresh
        if not part:
            continue
        due = block.visible_at
        if due is not None and due > now:
            delayed.setdefault(to_millis(due), []).append(part)
        elif not_before is not None and block.young_since < not_before:
            skipped += len(part)
        else:
            taken = len(part) if limit is None else min(limit, len(part))
            if bytes_left is not None:
                most = bytes_left * len(block.monotons) // max(1, block.size)
                taken = min(taken, max(most, 0 if leased else 1))
                bytes_left -= taken * block.size // len(block.monotons)
            limit = None if limit is None else limit - taken
            leased.append(Range(part.start, part.start + taken))
            at = part.start + taken
            if taken < len(part):
                break
        at = max(at, part.stop)
    waiting = tuple(Waiting(due, Ranges.of(*parts), 0) for due, parts in sorted(delayed.items()))
    return Lookahead(Ranges.of(*leased), waiting, skipped, at)


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
    leased: tuple[LeasedSlot, ...]
    acked: int
    acked_slots: frozenset[int]
    pointer: int
    skipped: int
    dead: tuple[Waiting, ...]
    state: GroupState
    settled: BySlot = field(default_factory=dict)
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
            after=apply(state, plan.ops),
            left=plan.left,
        )


def is_carried_out(
    plan: Plan, wish: LeaseRequest, slots: Sequence[Slot], now: datetime | None
) -> bool:
    """Whether a plan of `plan_lease` went in.

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


@dataclass(frozen=True, slots=True)
class LeasedSlot:
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
    leased: tuple[LeasedSlot, ...]
    ops: tuple[Op, ...]
    pointer: int
    skipped: int = 0
    dead: tuple[Waiting, ...] = ()
    settled: BySlot = field(default_factory=dict)
    left: tuple[Slot | Waiting, ...] = ()


def plan_lease(state: GroupState, wish: LeaseRequest, blocks: Sequence[LedgerBlock] = ()) -> Plan:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has messages that were never handed out, or those of one row that is due again, never
    both, so that a message which makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; if ``wish.strict``, all of it, of one moment. Of another one, a
            plan that removes waiting rows has to be made again from one that is of one moment.
        wish: What the reader has finished, and what it wants.
        blocks: The first ones from the pointer on, if `LeaseRequest.needs_blocks`.
    """
    if _is_taken_up(state, wish):
        wish = replace(wish, held=None)
    changes = Changes(state)
    settled = take_receipt_acks(changes, wish.acks, spare_token(wish.lease))
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
    leased: tuple[LeasedSlot, ...] = ()
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


def _is_taken_up(state: GroupState, wish: LeaseRequest) -> bool:
    """Whether another process has the batch by now that this one has finished."""
    counts = wish.held_as or {}
    return any(
        slot.deliveries != counts.get(slot.number, slot.deliveries)
        for slot in state.held_by(wish.held)
    )


def spare_token(lease: UUID) -> UUID:
    """The token of the slots that an attempt empties; as much its own as that of its lease."""
    return UUID(int=lease.int ^ 1)


def mark_dead(changes: Changes, slot: Slot, lease: UUID, *when: When) -> Waiting:
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


def _condemn(changes: Changes, wish: LeaseRequest, dead: Slot | Waiting) -> Waiting:
    """See to it that no token reaches dead messages."""
    if isinstance(dead, Waiting):
        return dead
    return mark_dead(changes, dead, spare_token(wish.lease), When("due_at", "<", ServerNow()))


def _walk(
    state: GroupState, wish: LeaseRequest, blocks: Sequence[LedgerBlock], limit: int
) -> Lookahead:
    pointer = state.head.pointer
    fresh = Range(pointer, max(pointer, wish.stop))
    if wish.strict and outstanding(state, wish):
        fresh = Range(pointer, pointer)
    if not wish.needs_blocks(pointer):
        stop = min(fresh.stop, pointer + limit)
        return Lookahead(Ranges.of(Range(pointer, stop)), (), 0, stop)
    return look_ahead(
        blocks,
        fresh,
        limit=limit,
        max_bytes=wish.max_bytes,
        not_before=None if wish.skip_older is None else state.sure_now - wish.skip_older,
        now=state.now,
    )


def _lease_first(
    changes: Changes,
    wish: LeaseRequest,
    delayed: Sequence[tuple[Waiting, Ranges]],
    ahead: Lookahead,
    empty: Sequence[Slot],
) -> tuple[LeasedSlot, ...]:
    """Lease what was never handed out."""
    for waiting, part in delayed:
        changes.replace_waiting(waiting, waiting.monotons - part)
    monotons = Ranges.of(*ahead.leased, *(each for _, part in delayed for each in part))
    return _fill(changes, wish, monotons, None, empty)


def _take_over(
    changes: Changes, wish: LeaseRequest, slot: Slot, limit: int
) -> tuple[LeasedSlot, ...]:
    """Take a lease that ran out, in its own slot; what does not fit goes back as waiting."""
    taken, rest = slot.monotons.split(_most(wish, slot, limit))
    leased = LeasedSlot(slot.number, taken, slot.deliveries + 1)
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
    changes: Changes, wish: LeaseRequest, waiting: Waiting, limit: int, empty: Sequence[Slot]
) -> tuple[LeasedSlot, ...]:
    taken, rest = waiting.monotons.split(_most(wish, waiting, limit))
    changes.replace_waiting(waiting, rest)
    return _fill(changes, wish, taken, waiting, empty)


def _most(wish: LeaseRequest, again: Slot | Waiting, limit: int) -> int:
    most = most_messages(
        again.monotons.count,
        delivery=again.deliveries + 1,
        max_deliveries=wish.max_deliveries,
    )
    return min(limit, most)


def _fill(
    changes: Changes,
    wish: LeaseRequest,
    monotons: Ranges,
    before: Waiting | None,
    empty: Sequence[Slot],
) -> tuple[LeasedSlot, ...]:
    """Put monotons into a slot, which were handed out ``before`` or never."""
    deliveries, first_at = (before.deliveries, before.first_at) if before else (0, None)
    values = _lease_values(wish, monotons) | handed_out(deliveries + 1, first_at)
    return (LeasedSlot(changes.fill_slot(values, reuse=empty), monotons, deliveries + 1),)


def _lease_values(wish: LeaseRequest, monotons: Ranges) -> dict[str, Value | ServerNow]:
    return {
        "ranges": str(monotons),
        "lease": wish.lease,
        "due_at": ServerNow(wish.length),
        "by_receipts": wish.by_receipts,
    }


_NOTHING = Ranges()


def plan_replay(state: GroupState, wish: LeaseRequest) -> Plan:
    """Plan to take up a lease again: a batch that this process did not lease, and Spark replays.

    What its token still holds is handed out once more, as much of it as that delivery may have.
    What was handed out too often is taken from the token: no ack must reach it.

    Args:
        state: The group as read.
        wish: Its ``held`` is the token of the batch, ``lease`` a fresh one.
    """
    changes = Changes(state)
    leased = []
    for slot in state.held_by(wish.held):
        if slot.monotons and is_dead(slot.deliveries, wish.max_deliveries):
            mark_dead(changes, slot, wish.lease)
            continue
        taken, rest, after = _parts(slot, wish)
        once = When("deliveries", "=", slot.deliveries)
        still = When("ranges", "=", str(slot.monotons))
        if taken or not slot.monotons:
            leased.append(LeasedSlot(slot.number, taken, slot.deliveries + 1))
            held: dict[str, Value | ServerNow] = {
                "ranges": str(taken),
                "due_at": ServerNow(wish.length),
                # Another replay at the same time writes the same, but for this.
                "taken_up_by": wish.lease,
            }
            values = held | handed_out(slot.deliveries + 1, slot.first_at)
            changes.change_slot(slot, values, still, once)
        else:
            changes.empty_slot(slot, wish.lease, still, once)
        give_back(changes, rest, slot, after=after)
    return Plan((), tuple(leased), changes.ops(), state.head.pointer)


def _parts(slot: Slot, wish: LeaseRequest) -> tuple[Ranges, Ranges, timedelta]:
    """What to hand out at once, what to give back, and for how long."""
    first_replay = slot.deliveries == 1
    pause = backoff(wish.retry_backoff, slot.deliveries)
    if pause and not first_replay:
        return _NOTHING, slot.monotons, pause
    most = most_messages(
        slot.monotons.count, delivery=slot.deliveries + 1, max_deliveries=wish.max_deliveries
    )
    # Whatever the limit is by now, the second delivery is the batch as it was, and without a
    # limit of deliveries every one is.
    if wish.limit is not None and wish.max_deliveries and not first_replay:
        most = min(most, wish.limit)
    return *slot.monotons.split(most), timedelta(0)
