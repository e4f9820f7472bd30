"""What becomes of a lease that its reader takes up again. Pure."""

from __future__ import annotations

from datetime import timedelta

from cassieq_spark.groups.changes import Changes, handed_out
from cassieq_spark.groups.isolation import backoff, is_dead, most_messages
from cassieq_spark.groups.plan import Leased, Plan, condemn_slot, give_back
from cassieq_spark.groups.state import GroupState, Slot
from cassieq_spark.groups.wish import Wish
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import ServerNow, Value, When

_NOTHING = Ranges()


def plan_replay(state: GroupState, wish: Wish) -> Plan:
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
            condemn_slot(changes, slot, wish.lease)
            continue
        taken, rest, after = _parts(slot, wish)
        once = When("deliveries", "=", slot.deliveries)
        still = When("ranges", "=", str(slot.monotons))
        if taken or not slot.monotons:
            leased.append(Leased(slot.number, taken, slot.deliveries + 1))
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


def _parts(slot: Slot, wish: Wish) -> tuple[Ranges, Ranges, timedelta]:
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
