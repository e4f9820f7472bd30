"""Plans which messages a reader acks and leases next, given a group's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest, spare_token
from cassieq_spark.groups.settle import BySlot, dead_of, finish_slot, take_receipt_acks
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    Settlement,
    Slot,
    Waiting,
    Written,
    as_read,
    encode_outcomes,
    handed_out,
    slot_values,
)
from cassieq_spark.model import LedgerBlock, Range, Ranges, to_millis
from cassieq_spark.store.protocol import ServerNow, When

#: No message that failed waits for longer, unless the first pause is longer already.
LONGEST_BACKOFF = timedelta(hours=1)

_NO_LIMIT = 2**62
_NO_TIME = timedelta(0)


def plan_lease(
    state: GroupState, request: LeaseRequest, blocks: Sequence[LedgerBlock] = ()
) -> Lease:
    """Plan one batch: ack what the reader has finished, and lease the next messages.

    A batch has either messages that were never handed out, or those of one row that is due, so
    that a message that makes its batch fail takes no fresh messages with it.

    Args:
        state: The group as read; if ``request.strict_fifo``, all of it, of one moment. A plan that
            removes waiting rows may be carried out only if the state is of one moment.
        request: What the reader has finished, and what it wants.
        blocks: The first ones from the pointer on, if `LeaseRequest.needs_blocks`.
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
    # Lease either fresh messages or one row again. Messages in ``left``, for which outcomes were
    # recorded, have their turn with a later batch.
    outstanding = [*_outstanding(state, held, settled), *left]
    limit = _most_now(state, request, alive, outstanding)
    again = min(
        (row for row in alive if row.deliveries or request.strict_fifo),
        key=lambda row: row.monotons.start,
        default=None,
    )
    delayed, room = _delayed_rows(request, alive, limit)
    stop = state.head.pointer if request.strict_fifo and outstanding else request.stop
    lookahead = _look_ahead(state, request, blocks, stop=stop, limit=room)
    empty = (*acked, *(slot for slot in settled if changes.frees(slot)))
    leased: tuple[LeasedSlot, ...] = ()
    if (delayed or lookahead.leased) and (request.prefer_fresh or again is None):
        leased = (_lease_fresh(changes, request, delayed, lookahead.leased, empty),)
    else:
        lookahead = _look_ahead(state, request, blocks, stop=stop, limit=0)
        if again is not None and request.strict_fifo:
            limit = min(limit, _count_in_order(again, outstanding))
        if again is not None and limit:
            leased = (_lease_again(changes, request, again, limit, empty),)
    changes.leave_token(request.token, spare)
    if leased and request.is_exclusive:
        changes.exclude_others()
    changes.move_pointer(lookahead.pointer)
    for each in lookahead.waiting:
        changes.add_waiting(each)
    return Lease(
        request=request,
        state=state,
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

    The messages that its token still holds are handed out once more, as many as that delivery may
    have. Those that were handed out too often are taken from the token: no ack must reach them. A
    batch that its sink has published is handed out whole, however often: it will be skipped, and
    what was left out would be published once more.

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
            leased.append(LeasedSlot(slot.number, taken, slot.deliveries + 1))
            held = slot_values(
                monotons=taken,
                due_at=ServerNow(request.lease or _NO_TIME),
                # Another replay at the same time writes the same, but for this.
                taken_up_by=request.token,
            )
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
    """Move messages that were handed out too often to a waiting row, where no token settles them.

    Returns:
        The waiting row.
    """
    dead = slot.to_waiting(changes.state.due_in(), slot.monotons, too_often(slot.deliveries))
    changes.empty_slot(slot, lease, as_read(slot, "monotons"), as_read(slot, "deliveries"), *when)
    changes.add_waiting(dead)
    return dead


def too_often(deliveries: int) -> str:
    """The reason of dead messages that nobody rejected."""
    return f"not settled in {deliveries} deliveries, which is the limit"


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
        max_deliveries: Deliveries after which a message is dead; 0 for never, and then nothing
            shrinks.

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
    """True if messages that were handed out so often must not be handed out again (I8)."""
    return 0 < max_deliveries <= deliveries


def row_is_dead(row: Slot | Waiting, max_deliveries: int) -> bool:
    """True if the row's messages must be dead-lettered: marked dead, or handed out too often."""
    is_marked = isinstance(row, Waiting) and row.reason is not None
    return is_marked or is_dead(row.deliveries, max_deliveries)


def backoff(first: timedelta, deliveries: int) -> timedelta:
    """How long messages wait after they failed: doubles each time, up to an hour.

    Args:
        first: After the first delivery. If it is an hour or more, each wait is as long.
        deliveries: How often they were handed out.

    >>> [str(backoff(timedelta(minutes=10), n)) for n in (1, 2, 3, 4)]
    ['0:10:00', '0:20:00', '0:40:00', '1:00:00']
    """
    if not first or not deliveries:
        return _NO_TIME
    # A pause of days, doubled so often, is more than a timedelta holds.
    if first >= LONGEST_BACKOFF:
        return first
    doubled: timedelta = first * (1 << min(deliveries - 1, 32))
    return min(LONGEST_BACKOFF, doubled)


# -- beyond the pointer ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Messages beyond the pointer.

    Attributes:
        leased: To lease.
        waiting: Delayed, to step over until they are due.
        skipped: How many are too old, and count as settled.
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
    limit: int,
    max_bytes: int | None,
    skip_before: datetime | None,
    now: datetime,
) -> Lookahead:
    """Go over the blocks from the pointer on, as far as the limits allow.

    Args:
        blocks: Those that hold the first messages of ``fresh``, in order.
        fresh: The messages that may be offered.
        limit: Most messages to lease. With 0, it still steps over messages before the first one
            that could be leased.
        max_bytes: About how many bytes to lease, but a message at least; None for no limit.
        skip_before: Messages that have been visible since before this are skipped; None: none are.
        now: The time by the server's clock.
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
        elif skip_before is not None and block.young_since < skip_before:
            skipped += len(part)
        else:
            taken = min(limit, len(part))
            if bytes_left is not None:
                most = bytes_left * len(block.monotons) // max(1, block.size)
                taken = min(taken, max(most, 0 if leased else 1))
                bytes_left -= taken * block.size // len(block.monotons)
            limit -= taken
            leased.append(Range(part.start, part.start + taken))
            at = part.start + taken
            if taken < len(part):
                break
        at = max(at, part.stop)
    waiting = tuple(Waiting(due, Ranges.of(*parts), 0) for due, parts in sorted(delayed.items()))
    return Lookahead(Ranges.of(*leased), waiting, skipped, at)


def _look_ahead(
    state: GroupState,
    request: LeaseRequest,
    blocks: Sequence[LedgerBlock],
    *,
    stop: int,
    limit: int,
) -> Lookahead:
    pointer = state.head.pointer
    fresh = Range(pointer, max(pointer, stop))
    if not request.needs_blocks(pointer):
        end = min(fresh.stop, pointer + limit)
        return Lookahead(Ranges.of(Range(pointer, end)), (), 0, end)
    skip_older_than = request.skip_older_than
    return look_ahead(
        blocks,
        fresh,
        limit=limit,
        max_bytes=request.max_bytes,
        skip_before=None if skip_older_than is None else state.sure_now - skip_older_than,
        now=state.now,
    )


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
    """Messages that were handed to the group and are not settled, but for those of ``held``."""
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


# -- leasing them ---------------------------------------------------------------------------------


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
    number = changes.fill_slot(_lease_values(request, monotons, 1, None), reuse=empty)
    return LeasedSlot(number, monotons, 1)


def _lease_again(
    changes: Changes, request: LeaseRequest, row: Slot | Waiting, limit: int, empty: Sequence[Slot]
) -> LeasedSlot:
    """Lease messages of a row, as many as this delivery may have; the others wait."""
    count, delivery = row.monotons.count, row.deliveries + 1
    most = most_messages(count, delivery=delivery, max_deliveries=request.max_deliveries)
    taken, rest = row.monotons.split(min(limit, most))
    values = _lease_values(request, taken, delivery, row.first_at)
    if isinstance(row, Waiting):
        changes.remove_waiting(row, rest=rest)
        return LeasedSlot(changes.fill_slot(values, reuse=empty), taken, delivery)
    # I5, I8: since the read, some of it may have been settled under its token, or all of it handed
    # out once more, and released.
    still = (RAN_OUT, as_read(row, "monotons"), as_read(row, "deliveries"))
    changes.change_slot(row, values, *still)
    changes.add_waiting(row.to_waiting(changes.state.due_in(), rest))
    return LeasedSlot(row.number, taken, delivery)


def _lease_values(
    request: LeaseRequest, monotons: Ranges, delivery: int, first_at: datetime | None
) -> Written:
    held = slot_values(
        monotons=monotons,
        lease=request.token,
        due_at=ServerNow(request.lease or _NO_TIME),
        by_receipts=request.by_receipts,
    )
    return held | handed_out(delivery, first_at)


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
