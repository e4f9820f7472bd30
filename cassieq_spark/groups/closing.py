"""The end of a group's delivery state: nothing can be leased from it any more."""

from __future__ import annotations

from cassieq_spark.errors import ContentionError, QueueStateError
from cassieq_spark.groups.lease import Delivery
from cassieq_spark.groups.registration import (
    attempt,
    open_state,
    read_registrations,
    refuse_leases,
)
from cassieq_spark.groups.state import HEAD, GroupState
from cassieq_spark.ledger.read import read_groups
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    DeleteBelow,
    Op,
    Store,
    Update,
    When,
    partition_of_delivery,
)
from cassieq_spark.store.race import pauses

_NO_END = 2**63 - 1


def close_groups(store: Store, queue_id: QueueId, *, end: int) -> None:
    """Settle all that every group is owed. One LWT and five reads for each; reads only, if done.

    What remains of a group says that everything was offered to it and nothing is left. It stays
    for ever, so that no reader that comes late makes the group anew, and nothing can be leased.

    Args:
        store: Where the queue is kept.
        queue_id: Which version of which queue; its ledger is closed.
        end: The ledger's ``next``, which is final.

    Raises:
        ContentionError: Lost to readers again and again.
    """
    for group in read_groups(store, queue_id, serial=True):
        _close(store, queue_id, group, end)


def check_unleased(store: Store, queue_id: QueueId) -> None:
    """Raise if readers of any group hold messages. Five reads for each group.

    Raises:
        QueueStateError: They do.
    """
    for group in read_groups(store, queue_id, serial=True):
        state = _read_state(store, queue_id, group)
        if state is not None:
            refuse_leases(queue_id, group.name, state)


def _close(store: Store, queue_id: QueueId, group: Group, end: int) -> None:
    for _ in pauses():
        state = _read_state(store, queue_id, group)
        if state is None:
            # Whoever else is about to make it finds this one.
            open_state(store, queue_id, group)
        elif state.head.pointer == end and not state.slots and not state.waiting:
            return
        else:
            partition = partition_of_delivery(queue_id, group.name)
            attempt(store, partition, _all_settled(state, end))
    raise ContentionError(
        f"group {group.name!r} of queue {queue_id} could not be closed; try again"
    )


def _read_state(store: Store, queue_id: QueueId, group: Group) -> GroupState | None:
    if group.registered_as not in read_registrations(store, queue_id, group.name, serial=True):
        return None
    try:
        return Delivery(store, queue_id, group.name).read(every_waiting=True)
    except QueueStateError:
        return None


def _all_settled(state: GroupState, end: int) -> list[Op]:
    """I6: whoever had read the state leases, acks and extends nothing: its slots are gone."""
    head = state.head
    unchanged = (
        When("pointer", "=", head.pointer),
        When("waiting_version", "=", head.waiting_version),
    )
    values = {"pointer": end, "waiting_version": head.waiting_version + 1}
    gone = [DeleteBelow(kind, _NO_END) for kind in ("slot", "waiting")]
    return [Update(HEAD, values, when=unchanged), *gone]
