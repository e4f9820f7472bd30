"""Registers and removes consumer groups, so that no message that a group is owed is deleted."""

from __future__ import annotations

import logging
from dataclasses import replace

from cassieq_spark.arguments import abridged
from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, ExistsError, QueueStateError, in_doubt
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import GroupState, Head, move_head
from cassieq_spark.ledger.decide import register_group, remove_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group, LedgerHead, group_of, seek_pin_of
from cassieq_spark.model import NO_END, Range, validate_name
from cassieq_spark.settings.position import StartingPosition, show_position
from cassieq_spark.store.protocol import DeleteBelow, Slice

logger = logging.getLogger(__name__)

#: The messages at which a new group was to begin are deleted already, so the group begins later.
BEGINS_LATER = "group.begins_later"


def ensure_group(
    group: ConsumerGroup, *, starting: StartingPosition, fail_on_data_loss: bool = True
) -> int | None:
    """Create the group if it does not exist. Two LWTs and a few reads; two reads if it exists.

    The ledger knows a group before its group state exists. This registration and the move of
    ``finalised`` are both conditioned on the head's groups version: so a new group is not owed
    messages that are being deleted (I7).

    Args:
        starting: Where a new group begins.
        fail_on_data_loss: True to refuse a position below ``finalised``, rather than to begin
            at ``finalised``.

    Returns:
        The first monoton that the group is owed, if it existed; None if it is new.

    Raises:
        QueueStateError: There is no such queue or position.
        ContentionError: Competing changes won every attempt.
    """
    is_new = False
    for _ in attempts():
        open_as = group.read_registrations()
        known = group.ledger.read_group(group.name)
        if known is None:
            is_new = True
            head = group.ledger.read_head(serial=True)
            starts_at = _find_start(group, head, starting, fail_on_data_loss=fail_on_data_loss)
            group.ledger.try_cas(register_group(head, group.name, starts_at))
        elif known.registered_as in open_as:
            return None if is_new else known.starts_at
        else:
            group.open_state(known)
    raise ContentionError(f"could not register {group}; try again")


def check_start(group: ConsumerGroup, starting: StartingPosition) -> None:
    """Check that the group exists, or can be created at ``starting``. One read; more if it is new.

    Raises:
        OptionError: ``starting`` is not a position.
        QueueStateError: There is no such queue or position, or the messages from there on are
            deleted.
    """
    if group.ledger.read_group(group.name) is None:
        _find_start(group, group.ledger.read_head(serial=True), starting)


def create_group(group: ConsumerGroup, position: StartingPosition) -> None:
    """Create a group that must not exist yet. Two LWTs and a few reads.

    Raises:
        OptionError: The name is not valid.
        QueueStateError: There is no such queue or position, or the group exists.
        ContentionError: Competing changes won every attempt.
        OutcomeUnknownError: The group may exist now, or may be created later.
    """
    validate_name("group", group.name)
    tried: dict[int, int] = {}
    with in_doubt(group, tried):
        for _ in attempts():
            head = group.ledger.read_head(serial=True)
            known = group.ledger.read_group(group.name, serial=True)
            if known is None:
                starts_at = _find_start(group, head, position)
                ops = register_group(head, group.name, starts_at)
                if group.ledger.try_cas(ops) is not False:
                    tried[head.groups_version + 1] = starts_at
            elif tried.get(known.registered_as) == known.starts_at:
                ensure_group(group, starting=position)
                return
            else:
                raise ExistsError(f"{group} exists already; to move it: cassieq group seek")
        raise ContentionError(f"could not create {group}; try again")


def delete_group(group: ConsumerGroup, *, force: bool = False) -> bool:
    """Delete a group. Two LWTs and some reads.

    First its registration: the repair no longer waits for the group. Then its state: from then on
    the group's readers fail, as it does not exist. If the call breaks off in between, readers
    continue, unprotected from the repair, until the deletion is repeated, or the group is created
    anew.

    Returns:
        False if there was no such group.

    Raises:
        QueueStateError: There is no such queue, or readers hold messages.
        ContentionError: Competing changes won every attempt.
    """
    found: int | None = None
    for _ in attempts():
        head = group.ledger.read_head(serial=True)
        known = group.ledger.read_group(group.name, serial=True)
        if known is None:
            # A later state belongs to a group that somebody has created anew since.
            every = group.read_registrations(serial=True)
            leftover = [number for number in every if number <= head.groups_version]
            removed = [group.remove_state(number) for number in leftover]
            if all(each is not None for each in removed):
                return found is not None or bool(leftover)
            continue
        if found not in (None, known.registered_as):
            return True  # created anew since, which has removed the old state
        found = known.registered_as
        if not force and group.read_registrations(serial=True):
            refuse_leases(group, group.read(every_waiting=True))
        pins = group.ledger.read_seek_pins(group.name)
        group.ledger.try_cas(remove_group(head, known, pins))
    raise ContentionError(f"could not delete {group}; try again")


def read_group_states(ledger: Ledger) -> dict[str, GroupState]:
    """Read the whole state of every registered group, by name. One read, and four per group.

    A registered group without a state is owed everything from its start. A group that
    is removed meanwhile is left out.

    I7: a caller that deletes what no group is owed reads the ledger's head first, and conditions
    the deletion on the groups version of that head.
    """
    registered = ledger.read(Slice(kinds=("group", "seek_pin")), serial=True)
    if registered.now is None:
        return {}
    rows = registered.rows
    pins = [seek_pin_of(row) for row in rows if row["kind"] == "seek_pin"]
    states: dict[str, GroupState] = {}
    for known in (group_of(row) for row in rows if row["kind"] == "group"):
        state = ConsumerGroup(ledger, known.name).read_opened(known)
        if state is None and ledger.read_group(known.name, serial=True) == known:
            state = GroupState(Head(known.starts_at, 0, 0), (), (), registered.now)
        pinned = [pin.position for pin in pins if pin.group == known.name]
        if state is not None:
            states[known.name] = replace(state, seek_pin=min(pinned, default=None))
    return states


def close_groups(ledger: Ledger, *, end: int) -> None:
    """Settle all messages for every group. One LWT and five reads per group; no LWT if done.

    The state of a closed group says that all messages were offered and none is left. It stays for
    ever, so that a late reader can neither create the group anew nor lease a message.

    Args:
        ledger: The closed ledger of a version of a queue.
        end: The ledger's ``next``, which is final.

    Raises:
        ContentionError: Readers won every attempt.
    """
    for known in ledger.read_groups(serial=True):
        _close(ConsumerGroup(ledger, known.name), known, end)


def check_unleased(ledger: Ledger, *, group: str | None = None) -> None:
    """Refuse if readers of any group, or of one, hold messages. Five reads per group.

    Raises:
        QueueStateError: Readers hold messages.
    """
    for known in ledger.read_groups(serial=True):
        if group not in (None, known.name):
            continue
        found = ConsumerGroup(ledger, known.name)
        state = found.read_opened(known)
        if state is not None:
            refuse_leases(found, state)


def refuse_leases(group: ConsumerGroup, state: GroupState) -> None:
    """Raise `QueueStateError` if readers hold messages."""
    leases = [
        f"messages {slot.monotons.short} until {slot.due_at.isoformat(timespec='seconds')}"
        + (f" ({slot.by})" if slot.by else "")
        for slot in state.slots
        if slot.monotons and slot.due_at >= state.now
    ]
    if leases:
        raise QueueStateError(
            f"readers of {group} hold {abridged(leases)}; stop them, wait until "
            "their leases run out, or force it: then they lose these messages"
        )


def _find_start(
    group: ConsumerGroup,
    head: LedgerHead,
    starting: StartingPosition,
    *,
    fail_on_data_loss: bool = True,
) -> int:
    starts_at = group.ledger.find_position(head, starting)
    if starts_at >= head.finalised:
        return starts_at
    deleted = Range(starts_at, head.finalised)
    problem = (
        f"new {group} is to begin at {show_position(starting)}, but monotons "
        f"{deleted} are settled by every other group and deleted"
    )
    if fail_on_data_loss:
        raise QueueStateError(
            f"{problem}; begin at earliest ({deleted.stop}) or later, or set failOnDataLoss to "
            "false"
        )
    extra = {"action": BEGINS_LATER, "count": len(deleted), **group.log_fields}
    logger.warning("%s; it begins at %d", problem, deleted.stop, extra=extra)
    return deleted.stop


def _close(group: ConsumerGroup, known: Group, end: int) -> None:
    for _ in attempts():
        state = group.read_opened(known)
        if state is None:
            # So a process that is about to create the state finds this one.
            group.open_state(known)
        elif state.head.pointer == end and not state.slots and not state.waiting:
            return
        else:
            # I6: no slot is left, so a reader that has read the state can't lease, ack or extend.
            rest = [DeleteBelow(kind, NO_END) for kind in ("slot", "waiting")]
            group.try_cas([move_head(state.head, end), *rest])
    raise ContentionError(f"{group} could not be closed; try again")
