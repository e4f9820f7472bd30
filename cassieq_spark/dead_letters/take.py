"""Taking dead letters out of their queue, exactly those that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from uuid import UUID

from cassieq_spark.dead_letters.letters import union
from cassieq_spark.errors import ContentionError
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Slot, Waiting, emptied, handed_out, slot_values
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.protocol import Op, ServerNow
from cassieq_spark.store.race import pauses

#: What is taken at once lies between two multiples of this, so that a row which lists what is
#: left there stays small, however scattered that is.
WINDOW = 4096


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages that nobody else can take any more, and the token under which they went."""

    monotons: Ranges
    lease: UUID


def batches_of(monotons: Ranges, most: int) -> Iterator[Ranges]:
    """Cut into batches of at most so many monotons, each within one window.

    >>> [str(each) for each in batches_of(Ranges.parse("0-3,4094-4098"), 4)]
    ['0-3,4094-4095', '4095-4096', '4096-4098']
    """
    parts = (part for each in monotons for part in each.split_at_multiples(WINDOW))
    for _, window in groupby(parts, key=lambda part: part.start // WINDOW):
        left = Ranges(tuple(window))
        while left:
            batch, left = left.split(most)
            yield batch


def take(
    delivery: ConsumerGroup,
    wanted: Ranges,
    *,
    token: Callable[[], UUID],
    length: timedelta | None,
) -> Taken | None:
    """Lease or settle those of the wanted messages that are to be had. One LWT, three reads.

    Whatever else the group is owed stays owed; what a lease holds is not to be had.

    Args:
        delivery: Queue and group.
        wanted: Published messages, all within one window.
        token: Makes a fresh token for each attempt.
        length: How long to hold them; None: they are settled at once.

    Returns:
        What was taken; None if nothing is to be had.

    Raises:
        ContentionError: Lost to others again and again.
        QueueStateError: There is no such group.
    """
    tried: dict[UUID, Ranges] = {}
    for _ in pauses():
        state = delivery.read(every_waiting=True)
        # One whose answer was lost may have gone in after it was looked for.
        for slot in state.slots:
            if slot.lease in tried:
                return Taken(tried[slot.lease], slot.lease)
        lease = token()
        taken, ops = plan_take(state, wanted, lease, length)
        if not taken:
            return None
        if delivery.carry_out(ops, went_in=partial(_is_there, lease)):
            return Taken(taken, lease)
        tried[lease] = taken
    raise ContentionError(f"{delivery}: lost the race for messages again and again; try again")


def plan_take(
    state: GroupState, wanted: Ranges, lease: UUID, length: timedelta | None
) -> tuple[Ranges, tuple[Op, ...]]:
    """Plan to take messages from beyond the pointer and from waiting rows. Pure.

    The rest of those rows, and what the pointer passes, waits on in rows of its own: one for what
    lies in the window, one for what lies below it, one for what lies above. A slot gets the token
    in any case: it tells whether the plan went in.

    Returns:
        What is taken, and how.
    """
    changes = Changes(state)
    pointer = state.head.pointer
    fresh = wanted - Ranges.of(Range(0, pointer))
    passed = Ranges.of(Range(pointer, fresh.hull.stop)) if fresh else Ranges()
    # Most rows lie elsewhere, and may be long.
    near = (each for each in state.waiting if each.monotons.hull & wanted.hull)
    rows = [each for each in near if each.monotons & wanted]
    found = union(passed, *(each.monotons for each in rows))
    taken = wanted & found
    if not taken:
        return taken, ()
    changes.move_pointer(max(pointer, passed.hull.stop) if passed else pointer)
    for each in rows:
        changes.take_waiting(each)
    deliveries = max((each.deliveries for each in rows), default=0)
    # Later than the rows that go: none that comes may have the key of one of them.
    due = max([state.due_in(), *(each.due + 1 for each in rows)])
    for left in _around(found - taken, taken.start // WINDOW):
        changes.wait(Waiting(due, left, deliveries))
    if length is None:
        values = emptied(lease)
    else:
        until = ServerNow(length)
        values = slot_values(monotons=taken, lease=lease, due_at=until, by_receipts=False)
    changes.fill_slot(values | handed_out(deliveries + 1, None))
    return taken, changes.ops()


def _around(left: Ranges, window: int) -> list[Ranges]:
    """What lies below, within and above a window; none of it empty."""
    start, stop = window * WINDOW, (window + 1) * WINDOW
    below, within = left & Ranges.of(Range(0, start)), left & Ranges.of(Range(start, stop))
    return [each for each in (below, within, left - below - within) if each]


def _is_there(lease: UUID, slots: Sequence[Slot], _: object) -> bool:
    return any(slot.lease == lease for slot in slots)
