"""What a reader acks and what it leases next, given a group's state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest, spare_token
from cassieq_spark.groups.settle import (
    dead_of,
    finish_slot,
    joined,
    take_receipt_acks,
    without,
)
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    Slot,
    Waiting,
    as_read,
    handed_out,
    slot_values,
)
from cassieq_spark.model import LedgerBlock, Range, Ranges, to_millis
from cassieq_spark.store.protocol import ServerNow, Value, When

#: No message that failed is left alone for longer, unless the first pause is longer already.
LONGEST_BACKOFF = timedelta(hours=1)

_NO_LIMIT = 2**62
_NO_TIME = timedelta(0)
_NOTHING = Ranges()


def plan_lease(
    state: GroupState, request: LeaseRequest, blocks: Sequence[LedgerBlock] = ()
) -> Lease:
    """Plan one batch: ack what the reader held, lease what comes next.

    A batch has messages that were never handed out, or those of one row that is due again, never
    both, so that a message which makes its batch fail does not drag fresh ones along.

    Args:
        state: The group as read; if ``request.strict_fifo``, all of it, of one moment. Of another
            one, a plan that removes waiting rows has to be made again from one that is of one
            moment.
        request: What the reader has finished, and what it wants.
        blocks: The first ones from the pointer on, if `LeaseRequest.needs_blocks`.
    """
    read, asked, changes = state, request, Changes(state)
    if _is_taken_up(state, request):
        request = replace(request, held=None)
    settled = take_receipt_acks(changes, request.receipt_acks, spare_token(request.token))
    # What is left in these slots has its turn with the next batch: one operation for each row.
    touched = {slot.number for slot in settled}
    state = without(state, settled)
    acked = state.held_by(request.held)
    left: list[Slot | Waiting] = []
    for slot in acked:
        # I5: under another token, or a reader that saw the lease run out could still take it over.
        # What a client has moved elsewhere since is in the way of what follows, and in flight.
        left += finish_slot(changes, slot, spare_token(request.token), whole=request.is_exclusive)
    due = [
        each
        for each in _what_is_due(state, request)
        if isinstance(each, Waiting) or each.number not in touched
    ]
    if any(each.monotons & row.monotons for each in left for row in due):
        # The waiting rows were read later than the slots, which have changed since: this plan will
        # be refused, but it has to be one.
        due = []
    dead = tuple(
        _see_dead(changes, request, each)
        for each in due
        if row_is_dead(each, request.max_deliveries)
    )
    alive = [each for each in due if not row_is_dead(each, request.max_deliveries)]
    # What the batch leaves counts as outstanding, and has its own turn later.
    state = joined(state, left)
    limit = _most_now(state, request, alive)
    again = _first_again(request, alive)
    delayed, room = _first_delayed(alive, request, limit)
    lookahead = _look_ahead(state, request, blocks, room)
    empty = (*acked, *(slot for slot in settled if changes.frees(slot)))
    leased: tuple[LeasedSlot, ...] = ()
    if (delayed or lookahead.leased) and (request.prefer_fresh or again is None):
        leased = _lease_fresh(changes, request, delayed, lookahead, empty)
    else:
        lookahead = _look_ahead(state, request, blocks, 0)
        if again is not None and request.strict_fifo:
            limit = min(limit, _count_in_order(state, request, again))
        if limit and isinstance(again, Slot):
            leased = _take_over(changes, request, again, limit)
        elif limit and isinstance(again, Waiting):
            taken, rest = again.monotons.split(_most(request, again, limit))
            changes.replace_waiting(again, rest)
            leased = _fill(changes, request, taken, again, empty)
    changes.leave_token(request.token, spare_token(request.token))
    if leased and request.is_exclusive:
        changes.exclude_others()
    changes.move_pointer(lookahead.pointer)
    for each in lookahead.waiting:
        changes.wait(each)
    return Lease(
        request=asked,
        state=read,
        ops=changes.ops(),
        leased=leased,
        pointer=lookahead.pointer,
        acked=_count(acked) - _count(left),
        acked_slots=frozenset(slot.number for slot in acked),
        left=tuple(left),
        settled=settled,
        skipped=lookahead.skipped,
        dead=(*dead_of(left), *dead),
    )


def plan_replay(state: GroupState, request: LeaseRequest) -> Lease:
    """Plan to take up a lease again: a batch that this process did not lease, and Spark replays.

    What its token still holds is handed out once more, as much of it as that delivery may have.
    What was handed out too often is taken from the token: no ack must reach it.

    Args:
        state: The group as read.
        request: Its ``held`` is the token of the batch, ``token`` a fresh one.
    """
    changes = Changes(state)
    leased = []
    for slot in state.held_by(request.held):
        if slot.monotons and is_dead(slot.deliveries, request.max_deliveries):
            mark_dead(changes, slot, request.token)
            continue
        taken, rest, after = _parts(slot, request)
        once = as_read(slot, "deliveries")
        still = as_read(slot, "monotons")
        if taken or not slot.monotons:
            leased.append(LeasedSlot(slot.number, taken, slot.deliveries + 1))
            held = slot_values(
                monotons=taken,
                due_at=ServerNow(request.lease or _NO_TIME),
                # Another replay at the same time writes the same, but for this.
                taken_up_by=request.token,
            )
            values = held | handed_out(slot.deliveries + 1, slot.first_at)
            changes.change_slot(slot, values, still, once)
        else:
            changes.empty_slot(slot, request.token, still, once)
        give_back(changes, rest, slot, after=after)
    return Lease(request, state, changes.ops(), tuple(leased), state.head.pointer)


def mark_dead(changes: Changes, slot: Slot, lease: UUID, *when: When) -> Waiting:
    """Move messages that were handed out too often to where no token can settle them any more."""
    dead = Waiting(
        changes.state.due_in(),
        slot.monotons,
        slot.deliveries,
        slot.first_at,
        slot.last_at,
        reason=too_often(slot.deliveries),
    )
    once = as_read(slot, "deliveries")
    changes.empty_slot(slot, lease, as_read(slot, "monotons"), once, *when)
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


# -- how many messages a delivery may have, so that one that always fails ends up alone -----------


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


def row_is_dead(row: Slot | Waiting, max_deliveries: int) -> bool:
    """Whether its messages are to be dead-lettered: marked, or handed out so often."""
    is_marked = isinstance(row, Waiting) and row.reason is not None
    return is_marked or is_dead(row.deliveries, max_deliveries)


def backoff(first: timedelta, deliveries: int) -> timedelta:
    """How long messages that failed are left alone: doubles each time, up to an hour.

    Args:
        first: After the first delivery.
        deliveries: How often they were handed out.

    >>> [str(backoff(timedelta(minutes=10), n)) for n in (1, 2, 3, 4)]
    ['0:10:00', '0:20:00', '0:40:00', '1:00:00']
    """
    if not first or not deliveries:
        return _NO_TIME
    doubled: timedelta = first * (1 << min(deliveries - 1, 32))
    return max(first, min(LONGEST_BACKOFF, doubled))


# -- what is beyond the pointer -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lookahead:
    """What is found beyond the pointer.

    Attributes:
        leased: To be handed out.
        waiting: Delayed, to be stepped over until they are due.
        skipped: How many are too old; they count as settled.
        pointer: Where the lookahead ended.
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
    """Go over the blocks from the pointer on, as far as the limits allow.

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


def _look_ahead(
    state: GroupState, request: LeaseRequest, blocks: Sequence[LedgerBlock], limit: int
) -> Lookahead:
    pointer = state.head.pointer
    fresh = Range(pointer, max(pointer, request.stop))
    if request.strict_fifo and _outstanding(state, request):
        fresh = Range(pointer, pointer)
    if not request.needs_blocks(pointer):
        stop = min(fresh.stop, pointer + limit)
        return Lookahead(Ranges.of(Range(pointer, stop)), (), 0, stop)
    oldest = request.skip_older_than
    return look_ahead(
        blocks,
        fresh,
        limit=limit,
        max_bytes=request.max_bytes,
        not_before=None if oldest is None else state.sure_now - oldest,
        now=state.now,
    )


# -- what may be handed out now, and how much of it -----------------------------------------------


def _is_taken_up(state: GroupState, request: LeaseRequest) -> bool:
    """Whether another process has the batch by now that this one has finished."""
    counts = request.held_deliveries or {}
    return any(
        slot.deliveries != counts.get(slot.number, slot.deliveries)
        for slot in state.held_by(request.held)
    )


def _what_is_due(state: GroupState, request: LeaseRequest) -> list[Slot | Waiting]:
    """What is due: leases that ran out long enough ago, and what has waited long enough."""
    slots = [
        slot
        for slot in state.slots
        if slot.monotons
        and slot.lease != request.held
        and slot.due_at + backoff(request.retry_backoff, slot.deliveries) < state.now
    ]
    waiting = [waiting for waiting in state.waiting if waiting.due <= state.now_ms]
    due: list[Slot | Waiting] = [*slots, *waiting]
    return [each for each in due if each.monotons.start < request.stop]


def _most_now(state: GroupState, request: LeaseRequest, alive: Sequence[Slot | Waiting]) -> int:
    """How many messages may be handed out now."""
    limit = _NO_LIMIT if request.max_messages is None else request.max_messages
    if request.max_in_flight is not None:
        others = (slot for slot in state.slots if slot.lease != request.held)
        limit = min(
            limit,
            request.max_in_flight
            - sum(slot.monotons.count for slot in others if slot.due_at >= state.now),
        )
    to_be_had = _count(alive) + max(0, request.stop - state.head.pointer)
    return 0 if to_be_had < request.min_messages else max(0, limit)


def _first_again(request: LeaseRequest, alive: Sequence[Slot | Waiting]) -> Slot | Waiting | None:
    """What may be handed out once more; if order is strict, whatever waits."""
    again = (each for each in alive if each.deliveries or request.strict_fifo)
    return min(again, key=lambda each: each.monotons.start, default=None)


def _count_in_order(state: GroupState, request: LeaseRequest, again: Slot | Waiting) -> int:
    """How many of these messages come before all others that are outstanding."""
    others = [each.monotons.start for each in _outstanding(state, request) if each != again]
    return (again.monotons & Ranges.of(Range(0, min(others, default=_NO_LIMIT)))).count


def _outstanding(state: GroupState, request: LeaseRequest) -> list[Slot | Waiting]:
    """What others hold and what waits: handed to the group, and not settled."""
    slots = [slot for slot in state.slots if slot.monotons and slot.lease != request.held]
    return [*slots, *state.waiting]


def _first_delayed(
    alive: Sequence[Slot | Waiting], request: LeaseRequest, limit: int
) -> tuple[list[tuple[Waiting, Ranges]], int]:
    """What was delayed and is due, with how much of it fits; and the room that is left."""
    taken = []
    for each in alive:
        if isinstance(each, Waiting) and not each.deliveries and not request.strict_fifo and limit:
            part, _ = each.monotons.split(limit)
            taken.append((each, part))
            limit -= part.count
    return taken, limit


# -- handing it out -------------------------------------------------------------------------------


def _see_dead(changes: Changes, request: LeaseRequest, dead: Slot | Waiting) -> Waiting:
    """See to it that no token reaches dead messages."""
    if isinstance(dead, Waiting):
        return dead
    return mark_dead(changes, dead, spare_token(request.token), RAN_OUT)


def _lease_fresh(
    changes: Changes,
    request: LeaseRequest,
    delayed: Sequence[tuple[Waiting, Ranges]],
    lookahead: Lookahead,
    empty: Sequence[Slot],
) -> tuple[LeasedSlot, ...]:
    """Lease what was never handed out."""
    for waiting, part in delayed:
        changes.replace_waiting(waiting, waiting.monotons - part)
    monotons = Ranges.of(*lookahead.leased, *(each for _, part in delayed for each in part))
    return _fill(changes, request, monotons, None, empty)


def _take_over(
    changes: Changes, request: LeaseRequest, slot: Slot, limit: int
) -> tuple[LeasedSlot, ...]:
    """Take a lease that ran out, in its own slot; what does not fit goes back as waiting."""
    taken, rest = slot.monotons.split(_most(request, slot, limit))
    leased = LeasedSlot(slot.number, taken, slot.deliveries + 1)
    # I5, I8: some of it may have been settled under its token since it was read, or all of it been
    # handed out once more, and released.
    still = (RAN_OUT, as_read(slot, "monotons"), as_read(slot, "deliveries"))
    values = _lease_values(request, taken) | handed_out(leased.deliveries, slot.first_at)
    changes.change_slot(slot, values, *still)
    give_back(changes, rest, slot, after=_NO_TIME)
    return (leased,)


def _most(request: LeaseRequest, again: Slot | Waiting, limit: int) -> int:
    most = most_messages(
        again.monotons.count,
        delivery=again.deliveries + 1,
        max_deliveries=request.max_deliveries,
    )
    return min(limit, most)


def _fill(
    changes: Changes,
    request: LeaseRequest,
    monotons: Ranges,
    before: Waiting | None,
    empty: Sequence[Slot],
) -> tuple[LeasedSlot, ...]:
    """Put monotons into a slot, which were handed out ``before`` or never."""
    deliveries, first_at = (before.deliveries, before.first_at) if before else (0, None)
    values = _lease_values(request, monotons) | handed_out(deliveries + 1, first_at)
    return (LeasedSlot(changes.fill_slot(values, reuse=empty), monotons, deliveries + 1),)


def _lease_values(request: LeaseRequest, monotons: Ranges) -> dict[str, Value | ServerNow]:
    return slot_values(
        monotons=monotons,
        lease=request.token,
        due_at=ServerNow(request.lease or _NO_TIME),
        by_receipts=request.by_receipts,
    )


def _parts(slot: Slot, request: LeaseRequest) -> tuple[Ranges, Ranges, timedelta]:
    """What to hand out at once, what to give back, and for how long."""
    first_replay = slot.deliveries == 1
    pause = backoff(request.retry_backoff, slot.deliveries)
    if pause and not first_replay:
        return _NOTHING, slot.monotons, pause
    most = most_messages(
        slot.monotons.count, delivery=slot.deliveries + 1, max_deliveries=request.max_deliveries
    )
    # Whatever the limit is by now, the second delivery is the batch as it was, and without a
    # limit of deliveries every one is.
    if request.max_messages is not None and request.max_deliveries and not first_replay:
        most = min(most, request.max_messages)
    return *slot.monotons.split(most), _NO_TIME


def _count(rows: Sequence[Slot | Waiting]) -> int:
    return sum(each.monotons.count for each in rows)
