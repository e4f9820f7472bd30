"""Plans which messages a reader acks and leases next, given a group's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.deliveries import (
    backoff,
    is_dead,
    most_messages,
    row_is_dead,
    too_often,
)
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.lease import (
    Lease,
    LeasedSlot,
    LeaseRequest,
    leased_values,
    spare_token,
)
from cassieq_spark.groups.lookahead import look_ahead_for
from cassieq_spark.groups.settle import BySlot, dead_of, finish_slot, take_receipt_acks
from cassieq_spark.groups.singly import Chosen, Rows, lease_singly
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    Settlement,
    Slot,
    Waiting,
    as_read,
    encode_outcomes,
    handed_out,
    holder_values,
    slot_values,
)
from cassieq_spark.model import LedgerBlock, Range, Ranges
from cassieq_spark.store.protocol import ServerNow, When

_NO_LIMIT = 2**62
_NO_TIME = timedelta(0)


def plan_lease(
    state: GroupState,
    request: LeaseRequest,
    blocks: Sequence[LedgerBlock] = (),
    window: Window | None = None,
) -> Lease:
    """Plan one lease: ack what the reader has finished, and lease the next messages.

    A batch has either messages that were never handed out, or those of one row that is due, so
    that a message that makes its batch fail takes no fresh messages with it. For receivers that
    settle one by one, see `hand_out`.

    Args:
        state: The group as read; if ``request.strict_fifo``, all of it, as one consistent
            snapshot. A plan that removes waiting rows needs a snapshot, too; see
            `GroupState.of_one_moment`.
        request: What the reader has finished, and what it wants.
        blocks: The first blocks from the pointer on, if `LeaseRequest.needs_blocks`.
        window: The lanes of the first messages from the pointer on; None: the partition is one
            lane, if it is ordered.
    """
    changes, spare = Changes(state), spare_token(request.token)
    held, counts = request.held, request.held_deliveries or {}
    acked = state.held_by(held)
    if any(slot.deliveries != counts.get(slot.number, slot.deliveries) for slot in acked):
        # Another process has taken the batch up, so this one has nothing to ack.
        held, acked = None, ()
    # Ack: single messages by their receipts, and the finished batch as a whole.
    settled = take_receipt_acks(changes, request.receipt_acks, spare)
    left: list[Slot | Waiting] = []
    for slot in acked:
        # I5: under another token, or a reader that saw the lease run out could still take it over.
        left += finish_slot(changes, slot, spare, whole=request.is_exclusive)
    # Find the rows that are due, and mark dead those that were handed out too often. Slots that
    # receipts change have their turn with the next batch: one operation for each row.
    due = [row for row in _due_rows(state, request, held) if row not in settled]
    if _monotons(left) & _monotons(due):
        # The waiting rows were read later than the slots, which have changed since: this plan will
        # be refused, but it must be one.
        due = []
    alive = [row for row in due if not row_is_dead(row, request.max_deliveries)]
    dead = [
        row if isinstance(row, Waiting) else mark_dead(changes, row, spare, RAN_OUT)
        for row in due
        if row_is_dead(row, request.max_deliveries)
    ]
    # Lease. Messages in ``left``, for which outcomes were recorded, have their turn with a later
    # batch.
    outstanding = [*_outstanding(state, held, settled), *left]
    empty = (*acked, *(slot for slot in settled if changes.frees(slot)))
    rows = Rows(alive, outstanding, empty)
    limit = _most_now(state, request, alive, outstanding)
    first = min(alive, key=lambda row: row.monotons.start, default=None)
    # In order, a batch has the messages that others have stepped over, together.
    is_parked = isinstance(first, Slot) and first.is_parked
    if request.by_receipts or (request.strict_fifo and is_parked):
        chosen = lease_singly(changes, request, rows, blocks, window=window, limit=limit)
    else:
        chosen = _lease_batch(changes, request, rows, blocks, limit=limit)
    lookahead = chosen.lookahead
    changes.leave_token(request.token, spare)
    changes.move_pointer(lookahead.pointer)
    if request.is_exclusive and (chosen.leased or lookahead.pointer != state.head.pointer):
        changes.exclude_others()
    for each in lookahead.waiting:
        changes.add_waiting(each)
    return Lease(
        request=request,
        state=state,
        ops=changes.ops(),
        leased=chosen.leased,
        pointer=lookahead.pointer,
        acked=_count(acked) - _count(left),
        acked_slots=frozenset(slot.number for slot in acked),
        left=tuple(left),
        settled=settled,
        skipped=lookahead.skipped,
        dead=(*dead_of(left), *dead),
        shares=chosen.shares,
    )


def plan_replay(state: GroupState, request: LeaseRequest) -> Lease:
    """Plan to take up a lease again: a batch that Spark replays, leased by another process.

    The messages that its token still holds are handed out once more, as many as that delivery may
    have. Messages that were handed out too often leave the token: no ack must reach them. A batch
    that its sink has published is handed out whole, however often: the sink skips it, and would
    publish once more what is left out of it.

    Args:
        request: Its ``held`` is the token of the batch, ``token`` a fresh one.
    """
    changes = Changes(state)
    leased = []
    for slot in state.held_by(request.held):
        is_over = is_dead(slot.deliveries, request.max_deliveries) and not slot.is_published
        if slot.monotons and is_over:
            mark_dead(changes, slot, request.token)
            continue
        taken, pause = _replayed(slot, request)
        still = (as_read(slot, "monotons"), as_read(slot, "deliveries"))
        if taken or not slot.monotons:
            leased.append(LeasedSlot(slot.number, taken, slot.deliveries + 1, slot.first_at))
            held = slot_values(
                monotons=taken,
                due_at=ServerNow(request.lease or _NO_TIME),
                # Another replay at the same time writes the same, but for this.
                taken_up_by=request.token,
            )
            held |= holder_values(slot.lease, request.by)
            if slot.is_published:
                text = encode_outcomes(
                    Settlement(), slot.lease, slot.deliveries + 1, is_published=True
                )
                held |= slot_values(recorded=text)
            values = held | handed_out(slot.deliveries + 1, slot.first_at)
            changes.change_slot(slot, values, *still)
        else:
            changes.empty_slot(slot, request.token, *still)
        changes.add_waiting(slot.to_waiting(state.due_in(pause), slot.monotons - taken))
    return Lease(request, state, changes.ops(), tuple(leased), state.head.pointer)


def mark_dead(changes: Changes, slot: Slot, lease: UUID, *when: When) -> Waiting:
    """Move messages that were handed out too often to a waiting row, which no token can settle.

    Returns:
        The waiting row.
    """
    dead = slot.to_waiting(changes.state.due_in(), slot.monotons, too_often(slot.deliveries))
    changes.empty_slot(slot, lease, as_read(slot, "monotons"), as_read(slot, "deliveries"), *when)
    changes.add_waiting(dead)
    return dead


# -- which messages may be leased now, and how many -----------------------------------------------


def _due_rows(state: GroupState, request: LeaseRequest, held: UUID | None) -> list[Slot | Waiting]:
    """Leases that ran out long enough ago, and waiting rows whose time has come."""
    rows: list[Slot | Waiting] = [
        slot
        for slot in state.slots
        if slot.monotons
        and slot.lease != held
        and slot.due_at + backoff(request.retry_backoff, slot.deliveries) < state.now
    ]
    rows += [waiting for waiting in state.waiting if waiting.due <= state.now_ms]
    return [row for row in rows if row.monotons.start < request.stop]


def _outstanding(state: GroupState, held: UUID | None, settled: BySlot) -> list[Slot | Waiting]:
    """Messages that were handed to the group and are not settled, except those of ``held``."""
    slots = [
        replace(slot, monotons=slot.monotons - settled[slot]) if slot in settled else slot
        for slot in state.slots
        if slot.lease != held
    ]
    return [*(slot for slot in slots if slot.monotons), *state.waiting]


def _most_now(
    state: GroupState,
    request: LeaseRequest,
    alive: Sequence[Slot | Waiting],
    outstanding: Iterable[Slot | Waiting],
) -> int:
    """How many messages may be leased now."""
    limit = _NO_LIMIT if request.max_messages is None else request.max_messages
    if request.max_in_flight is not None:
        held = [row for row in outstanding if isinstance(row, Slot) and row.due_at >= state.now]
        limit = min(limit, request.max_in_flight - _count(held))
    to_be_had = _count(alive) + max(0, request.stop - state.head.pointer)
    return 0 if to_be_had < request.min_messages else max(0, limit)


def _delayed_rows(
    request: LeaseRequest, alive: Iterable[Slot | Waiting], limit: int
) -> tuple[list[tuple[Waiting, Ranges]], int]:
    """Due rows that were never handed out, each with the part that fits; and the room left."""
    fitting = []
    for row in alive:
        if isinstance(row, Waiting) and not row.deliveries and not request.strict_fifo and limit:
            part, _ = row.monotons.split(limit)
            fitting.append((row, part))
            limit -= part.count
    return fitting, limit


def _count_in_order(row: Slot | Waiting, outstanding: Iterable[Slot | Waiting]) -> int:
    """How many messages of a row come before all others that are outstanding."""
    others = (each.monotons.start for each in outstanding if each != row)
    return (row.monotons & Ranges.of(Range(0, min(others, default=_NO_LIMIT)))).count


# -- leasing them, as a batch ---------------------------------------------------------------------


def _lease_batch(
    changes: Changes,
    request: LeaseRequest,
    rows: Rows,
    blocks: Sequence[LedgerBlock],
    *,
    limit: int,
) -> Chosen:
    """Lease either fresh messages, or messages of one due row."""
    state, alive, outstanding = changes.state, rows.alive, rows.outstanding
    again = min(
        (row for row in alive if row.deliveries or request.strict_fifo),
        key=lambda row: row.monotons.start,
        default=None,
    )
    delayed, room = _delayed_rows(request, alive, limit)
    stop = state.head.pointer if request.strict_fifo and outstanding else request.stop
    lookahead = look_ahead_for(state, request, blocks, stop=stop, limit=room)
    if (delayed or lookahead.leased) and (request.prefer_fresh or again is None):
        fresh = _lease_fresh(changes, request, delayed, lookahead.leased, rows.empty)
        return Chosen((fresh,), lookahead)
    lookahead = look_ahead_for(state, request, blocks, stop=stop, limit=0)
    if again is not None and request.strict_fifo:
        limit = min(limit, _count_in_order(again, outstanding))
    if again is None or not limit:
        return Chosen((), lookahead)
    return Chosen((_lease_again(changes, request, again, limit, rows.empty),), lookahead)


def _lease_fresh(
    changes: Changes,
    request: LeaseRequest,
    delayed: Sequence[tuple[Waiting, Ranges]],
    fresh: Ranges,
    empty: Sequence[Slot],
) -> LeasedSlot:
    """Lease messages that were never handed out."""
    for row, part in delayed:
        changes.remove_waiting(row, rest=row.monotons - part)
    monotons = Ranges.union([fresh, *(part for _, part in delayed)])
    number = changes.fill_slot(leased_values(request, monotons, 1, None), reuse=empty)
    return LeasedSlot(number, monotons, 1)


def _lease_again(
    changes: Changes, request: LeaseRequest, row: Slot | Waiting, limit: int, empty: Sequence[Slot]
) -> LeasedSlot:
    """Lease as many messages of a row as this delivery may have; the others wait."""
    count, delivery = row.monotons.count, row.deliveries + 1
    most = most_messages(count, delivery=delivery, max_deliveries=request.max_deliveries)
    taken, rest = row.monotons.split(min(limit, most))
    values = leased_values(request, taken, delivery, row.first_at)
    if isinstance(row, Waiting):
        changes.remove_waiting(row, rest=rest)
        number = changes.fill_slot(values, reuse=empty)
        return LeasedSlot(number, taken, delivery, row.first_at)
    # I5, I8: since the read, some of it may have been settled under its token, or all of it handed
    # out once more, and released.
    still = (RAN_OUT, as_read(row, "monotons"), as_read(row, "deliveries"))
    changes.change_slot(row, values, *still)
    changes.add_waiting(row.to_waiting(changes.state.due_in(), rest))
    return LeasedSlot(row.number, taken, delivery, row.first_at)


def _replayed(slot: Slot, request: LeaseRequest) -> tuple[Ranges, timedelta]:
    """The messages of a slot that a replay hands out, and how long the others wait."""
    if slot.is_published:
        return slot.monotons, _NO_TIME
    first_replay = slot.deliveries == 1
    pause = backoff(request.retry_backoff, slot.deliveries)
    if pause and not first_replay:
        return Ranges(), pause
    count, delivery = slot.monotons.count, slot.deliveries + 1
    most = most_messages(count, delivery=delivery, max_deliveries=request.max_deliveries)
    # The second delivery is the whole batch, whatever the limit is by now. Without a limit of
    # deliveries, each one is.
    if request.max_messages is not None and request.max_deliveries and not first_replay:
        most = min(most, request.max_messages)
    return slot.monotons.split(most)[0], _NO_TIME


def _monotons(rows: Iterable[Slot | Waiting]) -> Ranges:
    return Ranges.union(each.monotons for each in rows)


def _count(rows: Iterable[Slot | Waiting]) -> int:
    return sum(each.monotons.count for each in rows)
