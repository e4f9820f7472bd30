"""Exact figures of a queue, computed from its state: nothing is counted that could drift."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cassieq_spark.delivery.groups import read_group_states
from cassieq_spark.delivery.state import GroupState
from cassieq_spark.ledger.read import read_block_of, read_head
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import Store


@dataclass(frozen=True, slots=True)
class GroupStats:
    """What a consumer group is owed.

    Attributes:
        group: Its name.
        depth: Messages owed: not offered yet, leased, or waiting.
        leased: Messages under a lease that runs.
        due: Messages to be offered again now: their lease ran out, or their wait is over.
        waiting: Messages to be offered again later.
        oldest_age: Age of the oldest message owed; None if none is.
        pointer: First monoton never offered.
        floor: Lowest monoton owed.
    """

    group: str
    depth: int
    leased: int
    due: int
    waiting: int
    oldest_age: timedelta | None
    pointer: int
    floor: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What a queue holds: monotons ``[finalised, next)``, and what each group is owed of them."""

    queue_id: QueueId
    finalised: int
    next: int
    groups: tuple[GroupStats, ...]


def queue_stats(store: Store, queue_id: QueueId) -> QueueStats:
    """Compute the figures of a queue. Two reads, and five more for each group.

    Each group's figures agree with each other. Groups are read one after the other and before the
    ledger's head, so those of a busy queue are not all of one moment.

    Raises:
        QueueStateError: There is no such queue.
    """
    states = read_group_states(store, queue_id)
    head = read_head(store, queue_id)
    figures = tuple(
        _group_stats(store, queue_id, name, state, head.next) for name, state in states.items()
    )
    return QueueStats(queue_id, head.finalised, head.next, figures)


def _group_stats(
    store: Store, queue_id: QueueId, name: str, state: GroupState, end: int
) -> GroupStats:
    held = [slot for slot in state.slots if slot.monotons]
    leased = sum(slot.monotons.count for slot in held if slot.due_at >= state.now)
    outstanding = sum(slot.monotons.count for slot in held)
    due = sum(each.monotons.count for each in state.waiting if each.due <= state.now_ms)
    waiting = sum(each.monotons.count for each in state.waiting) - due
    return GroupStats(
        group=name,
        depth=end - state.head.pointer + outstanding + due + waiting,
        leased=leased,
        due=outstanding - leased + due,
        waiting=waiting,
        oldest_age=_age(store, queue_id, state.floor, end, state.now),
        pointer=state.head.pointer,
        floor=state.floor,
    )


def _age(store: Store, queue_id: QueueId, floor: int, end: int, now: datetime) -> timedelta | None:
    if floor >= end:
        return None
    block = read_block_of(store, queue_id, floor)
    # None: settled since by its reader, and deleted by the sweep.
    return max(timedelta(0), now - block.published_at) if block else None
