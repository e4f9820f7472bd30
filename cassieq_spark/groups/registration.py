"""The delivery state of a registration: to which one it belongs, its beginning and its end.

A row of the delivery state has the groups version that the registration made as its key: state of
another registration is a leftover of a removed group. Each seek changes the token in that row.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from cassieq_spark.errors import OutcomeUnknownError, QueueStateError
from cassieq_spark.groups.state import HEAD, GroupState
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import QueueId
from cassieq_spark.store.decoded import decoded, demand
from cassieq_spark.store.protocol import (
    Delete,
    DeleteBelow,
    Insert,
    Op,
    Partition,
    Row,
    RowKey,
    Slice,
    Store,
    partition_of_delivery,
)

_NO_END = 2**63 - 1


def registration_key(registered_as: int) -> RowKey:
    """The row of a delivery state that says to which registration it belongs."""
    return ("registration", registered_as, 0)


def read_registrations(
    store: Store, queue_id: QueueId, group: str, *, serial: bool = False
) -> dict[int, UUID]:
    """To which registration the delivery state belongs, and its token. At most one. One read."""
    which = Slice(kinds=("registration",))
    rows = store.read_rows(partition_of_delivery(queue_id, group), which, serial=serial).rows
    return dict(map(_registration_of, rows))


def open_state(store: Store, queue_id: QueueId, known: Group) -> None:
    """Make the delivery state of a registration, or remove that of an earlier one. One LWT."""
    registrations = read_registrations(store, queue_id, known.name, serial=True)
    for number in registrations:
        if number < known.registered_as:
            remove_state(store, queue_id, known.name, number)
    if registrations:
        return
    ops: list[Op] = [
        Insert(
            HEAD,
            {"pointer": known.starts_at, "waiting_from": 0, "waiting_version": 0},
            if_absent=True,
        ),
        Insert(registration_key(known.registered_as), {"lease": uuid4()}, if_absent=True),
    ]
    attempt(store, partition_of_delivery(queue_id, known.name), ops)


def remove_state(store: Store, queue_id: QueueId, group: str, registered_as: int) -> bool | None:
    """Remove the delivery state of one registration, and of no other. One LWT."""
    ops: list[Op] = [Delete(registration_key(registered_as))]
    ops += [DeleteBelow(kind, _NO_END) for kind in ("head", "slot", "waiting")]
    return attempt(store, partition_of_delivery(queue_id, group), ops)


def refuse_leases(queue_id: QueueId, group: str, state: GroupState) -> None:
    """Raise if readers hold messages."""
    leases = [
        f"{slot.monotons} until {slot.due_at.isoformat(timespec='seconds')}"
        for slot in state.slots
        if slot.monotons and slot.due_at >= state.now
    ]
    if leases:
        raise QueueStateError(
            f"readers of group {group!r} of queue {queue_id} hold {', '.join(leases)}; stop them, "
            "wait, or force it: they will find their messages gone"
        )


def attempt(store: Store, partition: Partition, ops: Iterable[Op]) -> bool | None:
    """One LWT; None if its outcome is not known, and the caller has to read it back."""
    try:
        return store.cas(partition, list(ops))
    except OutcomeUnknownError:
        return None


@decoded
def _registration_of(row: Row) -> tuple[int, UUID]:
    demand(row, "lease")
    return int(str(row["ordinal"])), UUID(str(row["lease"]))
