"""Consumer groups: registered and removed so that nothing they are owed is ever deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, ExistsError, OutcomeUnknownError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import HEAD, GroupState, Head, move_head, new_head
from cassieq_spark.ledger.decide import register_group, remove_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group, LedgerHead, group_of, seek_pin_of
from cassieq_spark.model import QueueId, Range, validate_name
from cassieq_spark.settings.position import StartingPosition, show_position
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
    partition_of_ledger,
)

_NO_END = 2**63 - 1


def registration_key(registered_as: int) -> RowKey:
    """The row of a group state that says to which registration it belongs."""
    return ("registration", registered_as, 0)


def read_registrations(
    store: Store, queue_id: QueueId, group: str, *, serial: bool = False
) -> dict[int, UUID]:
    """To which registration the group state belongs, and its token. At most one. One read."""
    which = Slice(kinds=("registration",))
    rows = store.read_rows(partition_of_delivery(queue_id, group), which, serial=serial).rows
    return dict(map(_registration_of, rows))


def open_state(store: Store, queue_id: QueueId, known: Group) -> None:
    """Make the group state of a registration, or remove that of an earlier one. One LWT."""
    registrations = read_registrations(store, queue_id, known.name, serial=True)
    for number in registrations:
        if number < known.registered_as:
            remove_state(store, queue_id, known.name, number)
    if registrations:
        return
    ops: list[Op] = [
        Insert(
            HEAD,
            new_head(known.starts_at),
            if_absent=True,
        ),
        Insert(registration_key(known.registered_as), {"lease": uuid4()}, if_absent=True),
    ]
    attempt(store, partition_of_delivery(queue_id, known.name), ops)


def remove_state(store: Store, queue_id: QueueId, group: str, registered_as: int) -> bool | None:
    """Remove the group state of one registration, and of no other. One LWT."""
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


logger = logging.getLogger(__name__)

#: Where a new group was to begin is deleted already; it begins with what still exists.
BEGINS_LATER = "group.begins_later"


@dataclass(frozen=True, kw_only=True)
class HeldState(GroupState):
    """The state of a group that is being sought: ``finalised`` must not pass ``hold`` either."""

    hold: int

    @property
    def floor(self) -> int:
        """Lowest monoton that is owed, or may be in a moment."""
        return min(self.hold, super().floor)


def ensure_group(
    store: Store,
    queue_id: QueueId,
    group: str,
    *,
    starting: StartingPosition,
    fail_on_data_loss: bool = True,
) -> None:
    """Make the group if it does not exist. Two reads if it does, else two LWTs and a few reads.

    The ledger knows a group before its group state exists, and both this registration and the
    move of ``finalised`` are conditioned on the head's groups version: a new group can't be given
    messages that are being deleted (I7).

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        group: Name of the group.
        starting: Where a new group begins.
        fail_on_data_loss: Whether to refuse a position that is finalised already, rather than to
            begin with what still exists.

    Raises:
        QueueStateError: There is no such queue, or not such a position.
        ContentionError: Lost to others again and again.
    """
    for _ in attempts():
        open_as = read_registrations(store, queue_id, group)
        known = Ledger(store, queue_id).read_group(group)
        if known is None:
            ops = _registration(
                store, queue_id, group, starting, fail_on_data_loss=fail_on_data_loss
            )
            attempt(store, partition_of_ledger(queue_id), ops)
        elif known.registered_as in open_as:
            return
        else:
            open_state(store, queue_id, known)
    raise ContentionError(f"queue {queue_id}: could not register group {group!r}; try again")


def create_group(store: Store, queue_id: QueueId, group: str, position: StartingPosition) -> None:
    """Make a group that must not exist yet. Two LWTs and a few reads.

    Raises:
        OptionError: The name can't be one.
        QueueStateError: There is no such queue or position, or there is such a group.
        ContentionError: Lost to others again and again.
    """
    validate_name("group", group)
    tried: dict[int, int] = {}
    for _ in attempts():
        head = Ledger(store, queue_id).read_head(serial=True)
        known = Ledger(store, queue_id).read_group(group, serial=True)
        if known is None:
            starts_at = _find_start(store, queue_id, head, group, position)
            ops = register_group(head, group, starts_at)
            if attempt(store, partition_of_ledger(queue_id), ops) is not False:
                tried[head.groups_version + 1] = starts_at
        elif tried.get(known.registered_as) == known.starts_at:
            ensure_group(store, queue_id, group, starting=position)
            return
        else:
            raise ExistsError(
                f"group {group!r} of queue {queue_id} exists already; to move it: "
                "cassieq group seek"
            )
    raise ContentionError(f"queue {queue_id}: could not create group {group!r}; try again")


def delete_group(store: Store, queue_id: QueueId, group: str, *, force: bool = False) -> bool:
    """Remove a group and all that it is owed. Two LWTs and some reads.

    Its registration goes first: the repair no longer waits for it. Its group state follows; the
    next call of a reader then says that there is no such group. If it breaks off in between,
    readers go on, unprotected from the repair, until the deletion is repeated, or the group is
    made anew.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        group: Which group.
        force: Also if readers hold messages.

    Returns:
        False: there was none.

    Raises:
        QueueStateError: There is no such queue, or readers hold messages.
        ContentionError: Lost to others again and again.
    """
    found: int | None = None
    for _ in attempts():
        head = Ledger(store, queue_id).read_head(serial=True)
        known = Ledger(store, queue_id).read_group(group, serial=True)
        if known is None:
            # Later ones are not left over: somebody has made the group anew since.
            every = read_registrations(store, queue_id, group, serial=True)
            leftover = [number for number in every if number <= head.groups_version]
            removed = [remove_state(store, queue_id, group, number) for number in leftover]
            if all(each is not None for each in removed):
                return found is not None or bool(leftover)
            continue
        if found not in (None, known.registered_as):
            return True  # made anew since, and what was left of it removed thereby
        found = known.registered_as
        if not force:
            _check_unleased(store, queue_id, group)
        ops = remove_group(head, known, Ledger(store, queue_id).read_seek_pins(group))
        attempt(store, partition_of_ledger(queue_id), ops)
    raise ContentionError(f"queue {queue_id}: could not delete group {group!r}; try again")


def read_group_states(store: Store, queue_id: QueueId) -> dict[str, GroupState]:
    """Read what every registered group is owed, all of it, by name. One read, and four for each.

    I7: a caller that deletes by it reads the ledger's head first, and conditions the deletion on
    the groups version of that head.

    A group that is registered and has no group state yet is owed everything from its start; one
    that is removed meanwhile is left out.
    """
    which = Slice(kinds=("group", "hold"))
    registered = store.read_rows(partition_of_ledger(queue_id), which, serial=True)
    if registered.now is None:
        return {}
    rows = registered.rows
    holds = [seek_pin_of(row) for row in rows if row["kind"] == "hold"]
    states = {}
    for known in (group_of(row) for row in rows if row["kind"] == "group"):
        state = _read_state(store, queue_id, known, registered.now)
        held = [hold.position for hold in holds if hold.group == known.name]
        if state is not None:
            states[known.name] = _held_at(state, min(held)) if held else state
    return states


def _registration(
    store: Store,
    queue_id: QueueId,
    group: str,
    starting: StartingPosition,
    *,
    fail_on_data_loss: bool = True,
) -> tuple[Op, ...]:
    head = Ledger(store, queue_id).read_head(serial=True)
    starts_at = _find_start(
        store, queue_id, head, group, starting, fail_on_data_loss=fail_on_data_loss
    )
    return register_group(head, group, starts_at)


def _find_start(  # noqa: PLR0913 (what to find, where, and what if it is gone)
    store: Store,
    queue_id: QueueId,
    head: LedgerHead,
    group: str,
    starting: StartingPosition,
    *,
    fail_on_data_loss: bool = True,
) -> int:
    starts_at = Ledger(store, queue_id).find_position(head, starting)
    if starts_at >= head.finalised:
        return starts_at
    gone = Range(starts_at, head.finalised)
    what = (
        f"queue {queue_id}: new group {group!r} is to begin at {show_position(starting)}, but "
        f"monotons {gone} are settled for every other group and deleted"
    )
    if fail_on_data_loss:
        raise QueueStateError(
            f"{what}; begin at earliest ({gone.stop}) or later, or set failOnDataLoss to false"
        )
    logger.warning(
        "%s; it begins at %d",
        what,
        gone.stop,
        extra={"action": BEGINS_LATER, "queue": queue_id, "group": group, "count": len(gone)},
    )
    return head.finalised


def _read_state(store: Store, queue_id: QueueId, known: Group, now: datetime) -> GroupState | None:
    # I7: first to which registration the state belongs; a state read later is no earlier one's.
    if known.registered_as in read_registrations(store, queue_id, known.name, serial=True):
        try:
            return ConsumerGroup(store, queue_id, known.name).read(every_waiting=True)
        except QueueStateError:
            return None
    if Ledger(store, queue_id).read_group(known.name, serial=True) == known:
        return GroupState(Head(known.starts_at, 0, 0), (), (), now)
    return None


def _held_at(state: GroupState, hold: int) -> HeldState:
    values = {field.name: getattr(state, field.name) for field in fields(GroupState)}
    return HeldState(**values, hold=hold)


def _check_unleased(store: Store, queue_id: QueueId, group: str) -> None:
    if read_registrations(store, queue_id, group, serial=True):
        refuse_leases(
            queue_id, group, ConsumerGroup(store, queue_id, group).read(every_waiting=True)
        )


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
    for group in Ledger(store, queue_id).read_groups(serial=True):
        _close(store, queue_id, group, end)


def check_unleased(store: Store, queue_id: QueueId) -> None:
    """Raise if readers of any group hold messages. Five reads for each group.

    Raises:
        QueueStateError: They do.
    """
    for group in Ledger(store, queue_id).read_groups(serial=True):
        state = _read_opened(store, queue_id, group)
        if state is not None:
            refuse_leases(queue_id, group.name, state)


def _close(store: Store, queue_id: QueueId, group: Group, end: int) -> None:
    for _ in attempts():
        state = _read_opened(store, queue_id, group)
        if state is None:
            # Another process that is about to make it finds this one.
            open_state(store, queue_id, group)
        elif state.head.pointer == end and not state.slots and not state.waiting:
            return
        else:
            partition = partition_of_delivery(queue_id, group.name)
            attempt(store, partition, _all_settled(state, end))
    raise ContentionError(
        f"group {group.name!r} of queue {queue_id} could not be closed; try again"
    )


def _read_opened(store: Store, queue_id: QueueId, group: Group) -> GroupState | None:
    if group.registered_as not in read_registrations(store, queue_id, group.name, serial=True):
        return None
    try:
        return ConsumerGroup(store, queue_id, group.name).read(every_waiting=True)
    except QueueStateError:
        return None


def _all_settled(state: GroupState, end: int) -> list[Op]:
    """I6: a reader that had read the state can lease, ack and extend nothing: no slot is left."""
    gone = [DeleteBelow(kind, _NO_END) for kind in ("slot", "waiting")]
    return [move_head(state.head, end), *gone]
