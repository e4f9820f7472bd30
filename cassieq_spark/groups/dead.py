"""Letting go of dead messages, and putting that off. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.state import GroupState, Waiting
from cassieq_spark.store.protocol import Op


def plan_burial(state: GroupState, dead: Waiting) -> tuple[Op, ...]:
    """Plan to let go of dead messages; their copies are safe (I9)."""
    changes = Changes(state)
    changes.take_waiting(dead)
    return changes.ops()


def plan_postponement(state: GroupState, dead: Waiting, by: timedelta) -> tuple[Op, ...]:
    """Plan to try it again later, so that what can't be buried does not hide what waits."""
    changes = Changes(state)
    changes.take_waiting(dead)
    due = state.due_in(by)
    if due > dead.due:
        changes.wait(replace(dead, due=due))
    return changes.ops() if due > dead.due else ()
