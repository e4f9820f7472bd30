"""What a group's state is after a compare-and-set of our own, without reading it again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cassieq_spark.groups.state import GroupState, Slot
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import Insert, Op, ServerNow, Update, Values

_A_MILLISECOND = timedelta(milliseconds=1)


def follow(state: GroupState, ops: Sequence[Op]) -> GroupState | None:
    """The state once ``ops`` have gone in, if nobody else has changed it; None: read it.

    What the server's clock has set is told a little too early. So whoever goes on from this state
    conditions all on it, and reads before handing out what was handed out before.

    Args:
        state: As it was before.
        ops: A plan for it. None is returned for one that changes what waits, which is rare.
    """
    head, slots = state.head, {slot.number: slot for slot in state.slots}
    for op in ops:
        match op:
            case Update(row=("head", _, _)):
                head = replace(head, **_values(op.values, state.now))
            case Update(row=("slot", int(number), _)):
                slots[number] = replace(slots[number], **_slot_values(op.values, state.now))
            case Insert(row=("slot", int(number), _)):
                slots[number] = Slot(number, **_slot_values(op.values, state.now))
            case _:
                return None
    return replace(state, head=head, slots=tuple(slots[number] for number in sorted(slots)))


def later(state: GroupState, seconds: float) -> GroupState:
    """The state so much later, to the millisecond before, if nobody has changed it."""
    passed = timedelta(seconds=seconds) // _A_MILLISECOND * _A_MILLISECOND
    return replace(state, now=state.now + passed)


def is_quiet(state: GroupState) -> bool:
    """Whether nothing is due that was handed out, or delayed, before."""
    ran_out = any(slot.monotons and slot.due_at < state.now for slot in state.slots)
    return not ran_out and all(waiting.due > state.now_ms for waiting in state.waiting)


def _slot_values(values: Values, now: datetime) -> dict[str, Any]:
    known = _values(values, now)
    if "ranges" in known:
        known["monotons"] = Ranges.parse(known.pop("ranges"))
    if "outcomes" in known:
        known["recorded"] = known.pop("outcomes")
    return known


def _values(values: Values, now: datetime) -> dict[str, Any]:
    return {
        column: now + value.plus if isinstance(value, ServerNow) else value
        for column, value in values.items()
    }
