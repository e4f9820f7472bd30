"""Consumer groups: made known to the ledger first, so that nothing they are owed is deleted."""

from __future__ import annotations

from typing import Literal

from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.state import HEAD, GroupState, Head
from cassieq_spark.errors import ContentionError, OutcomeUnknownError, QueueStateError
from cassieq_spark.ledger import state as ledger_state
from cassieq_spark.ledger.read import read_group, read_head
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Partition,
    ServerNow,
    Slice,
    Store,
    Update,
    When,
    partition_of_delivery,
    partition_of_ledger,
)
from cassieq_spark.store.race import pauses

StartingPosition = Literal["earliest", "latest"]


def ensure_group(
    store: Store, queue_id: QueueId, group: str, *, starting: StartingPosition
) -> None:
    """Make the group if it does not exist. One read if it does, else two LWTs and a few reads.

    The ledger knows a group before its delivery state exists, and both this registration and the
    move of ``finalised`` are conditioned on the head's groups version: a new group can't be given
    messages that are being deleted (I7).

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        group: Name of the group.
        starting: What a new group is owed: all messages that still exist, or only later ones.

    Raises:
        QueueStateError: There is no such queue.
        ContentionError: Lost to others again and again.
    """
    delivery = partition_of_delivery(queue_id, group)
    if store.read_rows(delivery, Slice(row=HEAD)).rows:
        return
    for _ in pauses():
        known = read_group(store, queue_id, group)
        if known is None:
            ops = _registration(store, queue_id, group, starting)
            _try(store, partition_of_ledger(queue_id), ops)
            continue
        values = {"pointer": known.starts_at, "waiting_from": 0, "waiting_version": 0}
        _try(store, delivery, [Insert(HEAD, values, if_absent=True)])
        if store.read_rows(delivery, Slice(row=HEAD), serial=True).rows:
            return
    raise ContentionError(f"queue {queue_id}: could not register group {group!r}; try again")


def read_group_states(store: Store, queue_id: QueueId) -> dict[str, GroupState]:
    """Read what every registered group is owed, all of it, by name. One read, and three for each.

    A group that is registered and has no delivery state yet is owed everything from its start.
    """
    which = Slice(kinds=("group",))
    registered = store.read_rows(partition_of_ledger(queue_id), which)
    if registered.now is None:
        return {}
    states = {}
    for group in map(ledger_state.group_of, registered.rows):
        try:
            state = Delivery(store, queue_id, group.name).read(every_waiting=True)
        except QueueStateError:
            state = GroupState(Head(group.starts_at, 0, 0), (), (), registered.now)
        states[group.name] = state
    return states


def _registration(
    store: Store, queue_id: QueueId, group: str, starting: StartingPosition
) -> list[Op]:
    head = read_head(store, queue_id)
    starts_at = head.finalised if starting == "earliest" else head.next
    unchanged = (
        When("groups_version", "=", head.groups_version),
        When("finalised", "=", head.finalised),
    )
    return [
        Insert(
            ledger_state.group_key(group),
            {"starts_at": starts_at, "created_at": ServerNow()},
            if_absent=True,
        ),
        Update(ledger_state.HEAD, {"groups_version": head.groups_version + 1}, when=unchanged),
    ]


def _try(store: Store, partition: Partition, ops: list[Op]) -> None:
    """One LWT whose outcome the caller reads back."""
    try:
        store.cas(partition, ops)
    except OutcomeUnknownError:
        return
