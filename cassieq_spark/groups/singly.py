"""Plans leases for receivers that settle one by one: clients and gateways.

`hand_out` decides which receiver gets what; this module makes the operations, and decides what a
lease steps over. In a queue ordered by key, the pointer passes messages whose lane is held up.
They are parked: put into a slot per lane, which nobody holds, and handed out from there before all
later messages of the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.lanes import (
    NO_LANE,
    ByLane,
    Window,
    encode_lanes,
    join_lanes,
    lanes_of,
    restrict,
)
from cassieq_spark.groups.lease import LeasedSlot, LeaseRequest, leased_values, spare_token
from cassieq_spark.groups.lookahead import Lookahead, look_ahead_for
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    Slot,
    Waiting,
    as_read,
    emptied,
    slot_values,
)
from cassieq_spark.groups.takers import Rules, Source, Taker, hand_out
from cassieq_spark.model import LedgerBlock, Range, Ranges

#: A group steps over at most this many messages, in a partition. So a lease that finds all of them
#: held up ends after some steps.
MOST_PARKED = 20_000
#: These messages are in at most this many ranges, and in at most this many lanes. They are text in
#: the state, about 30 bytes per range.
MOST_PARKED_RANGES, MOST_PARKED_LANES = 2_000, 500


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows from which messages are leased.

    Attributes:
        alive: The rows that are due.
        outstanding: All rows that were handed out or wait, including those that are due.
        empty: Slots that this change empties anyway.
    """

    alive: Sequence[Slot | Waiting]
    outstanding: Sequence[Slot | Waiting]
    empty: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice of messages to lease.

    Attributes:
        leased: The slots that hold the messages.
        lookahead: Where the pointer goes, and which messages it passes.
        shares: The messages of each receiver.
    """

    leased: tuple[LeasedSlot, ...]
    lookahead: Lookahead
    shares: tuple[Ranges, ...] = ()


def lease_singly(  # noqa: PLR0913 (each is a part of the state or of the request)
    changes: Changes,
    request: LeaseRequest,
    rows: Rows,
    blocks: Sequence[LedgerBlock],
    *,
    window: Window | None,
    limit: int,
) -> Chosen:
    """Lease messages of any rows that are due, and fresh ones; see `hand_out`.

    Args:
        changes: The operations are added.
        request: If it is the request of a batch, only messages that nobody has had are leased.
        rows: The rows of the state.
        blocks: See `plan_lease`.
        window: See `plan_lease`.
        limit: Maximum number of messages for all receivers together.
    """
    if window is not None and window.fitting is not None:
        limit = min(limit, window.fitting)
    due = [row for row in rows.alive if request.by_receipts or not row.deliveries]
    numbers = set(map(id, due))
    held = [row for row in rows.outstanding if id(row) not in numbers]
    rules = Rules(
        _lanes_by(request, window), request.max_deliveries, prefer_fresh=request.prefer_fresh
    )

    def handed_out_with(fresh: ByLane) -> list[Taker]:
        takers = [Taker(most) for most in _rooms(request, limit, window)]
        hand_out(takers, due, held, fresh, rules)
        return takers

    if window is None:
        look = partial(look_ahead_for, changes.state, request, blocks, stop=request.stop)
        takers = handed_out_with({_only_lane(request): look(limit=limit).leased})
        lookahead = look(limit=_taken_from(None, takers).count)
    else:
        takers, passed, pointer = _step(changes.state, request, window, handed_out_with)
        lookahead = Lookahead(Ranges(), (), 0, pointer)
        _park(changes, request, takers, passed)
    leased = _lease_taken(changes, request, takers, rules, window=window, empty=rows.empty)
    return Chosen(leased, lookahead, tuple(taker.monotons for taker in takers))


def _only_lane(request: LeaseRequest) -> int:
    """The lane of all messages if lanes are unknown: in an ordered queue one lane, else none."""
    return 0 if request.strict_fifo else NO_LANE


def _lanes_by(request: LeaseRequest, window: Window | None) -> Callable[[Slot | Waiting], ByLane]:
    """A function that returns the lanes of the messages of a row."""
    if window is not None:
        return lambda row: lanes_of(row.lanes, row.monotons)
    return lambda row: {_only_lane(request): row.monotons}


def _rooms(request: LeaseRequest, limit: int, window: Window | None) -> Iterator[int]:
    """How many messages each receiver takes; if all are of one lane, only the first takes any."""
    takers = request.takers if request.strict_fifo and request.takers else (limit,)
    for most in takers if window is not None else takers[:1]:
        yield min(most, limit)
        limit -= min(most, limit)


def _step(
    state: GroupState,
    request: LeaseRequest,
    window: Window,
    handed_out_with: Callable[[ByLane], list[Taker]],
) -> tuple[list[Taker], ByLane, int]:
    """Hand out messages, of as many fresh ones as the group may step over.

    Returns:
        The receivers, the fresh messages that are stepped over, and the pointer after them.
    """
    pointer = state.head.pointer
    most = len(window.lanes)
    while True:
        fresh = window.beyond(pointer, stop=request.stop, most=most)
        takers = handed_out_with(window.by_lane(Ranges.of(fresh)))
        taken = Ranges.union(taker.monotons for taker in takers)
        end = max(pointer, taken.hull.stop) if taken else pointer
        if not taken and fresh and fresh.stop < request.stop and takers[0].room:
            # All of it is held up; what lies beyond may not be.
            end = fresh.stop
        passed = window.by_lane(Ranges.of(Range(pointer, end)) - taken)
        if not most or _may_park(state, passed):
            return takers, passed, end
        most //= 2


def _may_park(state: GroupState, passed: ByLane) -> bool:
    """True if the group may step over these messages, in addition to those parked before."""
    if not passed:
        return True
    parked = [slot for slot in state.slots if slot.is_parked]
    every = [*passed.values(), *(slot.monotons for slot in parked)]
    lanes = passed.keys() | {lane for it in parked for lane in lanes_of(it.lanes, it.monotons)}
    return (
        sum(monotons.count for monotons in every) <= MOST_PARKED
        and sum(len(monotons.parts) for monotons in every) <= MOST_PARKED_RANGES
        and len(lanes) <= MOST_PARKED_LANES
    )


def _park(
    changes: Changes, request: LeaseRequest, takers: Sequence[Taker], passed: ByLane
) -> None:
    """Put the messages that are stepped over into the slots of their lanes.

    A slot that already has messages of a lane keeps those that no receiver gets.
    """
    passed = dict(passed)
    for slot in changes.state.slots if passed else ():
        lanes = lanes_of(slot.lanes, slot.monotons) if slot.is_parked else {}
        lane = next(iter(lanes)) if len(lanes) == 1 else None
        if lane is None or lane not in passed:
            continue
        more = passed.pop(lane)
        left = Ranges.union([slot.monotons - _taken_from(slot, takers), more])
        text = encode_lanes(join_lanes([lanes, {lane: more}]))
        values = slot_values(monotons=left, lanes=text)
        changes.change_slot(slot, values, RAN_OUT, as_read(slot, "monotons"))
    for lane, monotons in passed.items():
        # Nobody holds them, and nobody has had them.
        values = slot_values(monotons=monotons, deliveries=0, lanes=encode_lanes({lane: monotons}))
        changes.fill_slot(emptied(spare_token(request.token)) | values)


def _lease_taken(  # noqa: PLR0913 (as `lease_singly`)
    changes: Changes,
    request: LeaseRequest,
    takers: Sequence[Taker],
    rules: Rules,
    *,
    window: Window | None,
    empty: Sequence[Slot],
) -> tuple[LeasedSlot, ...]:
    """Lease what the receivers get: one slot per count of deliveries and time of first delivery.

    The name of a dead letter consists of the messages and the time of their first delivery; two
    deaths under one name would be one dead letter. So one slot never has messages with different
    times.
    """
    taken = {each: _taken_from(each, takers) for taker in takers for each in taker.taken}
    reuse = [*empty, *_take_out(changes, request, taken)]
    by_delivery: dict[tuple[int, datetime | None], list[Source]] = {}
    for source in taken:
        times = (0, None) if source is None else (source.deliveries, source.first_at)
        by_delivery.setdefault(times if times[0] else (0, None), []).append(source)
    leased = []
    for (before, first_at), sources in by_delivery.items():
        monotons = Ranges.union(taken[each] for each in sources)
        values = leased_values(request, monotons, before + 1, first_at)
        if window is not None:
            known = [
                window.by_lane(taken[it])
                if it is None
                else restrict(rules.lanes_of(it), taken[it])
                for it in sources
            ]
            values |= slot_values(lanes=encode_lanes(join_lanes(known)))
        number = changes.fill_slot(values, reuse=(reuse.pop(0),) if reuse else ())
        leased.append(LeasedSlot(number, monotons, before + 1, first_at))
    return tuple(sorted(leased, key=lambda each: each.monotons.start))


def _take_out(
    changes: Changes, request: LeaseRequest, taken: Mapping[Source, Ranges]
) -> list[Slot]:
    """Take messages out of their rows; return the slots that become empty."""
    spare, freed = spare_token(request.token), []
    for source, part in taken.items():
        if source is None:
            continue
        rest = source.monotons - part
        if isinstance(source, Waiting):
            changes.remove_waiting(source, rest=rest)
            continue
        if source.is_parked and changes.touches(source):
            # `_park` has put other messages of the lane in place of these.
            continue
        # I5, I8: since the read, some of it may have been settled under its token, or all of it
        # handed out once more, and released.
        still = (RAN_OUT, as_read(source, "monotons"), as_read(source, "deliveries"))
        if not rest:
            changes.empty_slot(source, spare, *still)
            freed.append(source)
        elif not source.is_parked:
            changes.empty_slot(source, spare, *still)
            changes.add_waiting(source.to_waiting(changes.state.due_in(), rest))
            freed.append(source)
        else:
            # What is left stays parked.
            changes.change_slot(source, slot_values(monotons=rest), *still)
    return freed


def _taken_from(source: Source, takers: Sequence[Taker]) -> Ranges:
    """The messages of one row that the receivers get; for None, those beyond the pointer."""
    return Ranges.union(it.taken[source] for it in takers if source in it.taken)
