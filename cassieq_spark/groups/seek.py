"""Moves a group to another position, while readers and repair runs go on."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import ContentionError, NotFoundError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import refuse_leases
from cassieq_spark.groups.state import (
    RAN_OUT,
    GroupState,
    as_read,
    change_token,
    emptied,
    move_head,
    slot_key,
)
from cassieq_spark.ledger.decide import place_seek_pin
from cassieq_spark.ledger.state import Group, seek_pin_key
from cassieq_spark.model import Range
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Delete, DeleteBelow, Op, Update


def seek_group(group: ConsumerGroup, position: StartingPosition, *, force: bool = False) -> int:
    """Move a group to another position. Three LWTs and some reads.

    Messages below the position become settled, all others become not yet offered. Leases and
    waiting rows are dropped.

    No message that the group is owed is deleted (I7), whatever happens in between, and wherever
    the call breaks off:

    1. Read the token of the group state, which each seek changes, and then the state.
    2. Ledger: place a seek pin at the position, conditioned on ``finalised`` and groups version as
       read. A repair run that has read either before fails; a later run sees the pin, and counts
       it as a floor of the group.
    3. Group: move the pointer, free the slots, remove the waiting rows and change the token,
       conditioned on the state as read in 1; if it has changed, try again from 1. A process that
       has read the state before fails.
    4. Ledger: remove our pin, and the pins found in 2. Their seeks had read the token before they
       placed these pins, thus before 3; so they fail at their own 3 and place another pin.

    If the call breaks off after 2, the pin stays: no message from the pin on is deleted until the
    group is moved again, or deleted. Repeating the call is always safe.

    Args:
        force: Drop running leases; their readers lose the messages.

    Returns:
        The monoton from which the group continues.

    Raises:
        QueueStateError: There is no such group or position, the position is finalised, or readers
            hold messages.
        ContentionError: Competing changes won every attempt.
    """
    return _Seek(group).run(position, force=force)


class _Seek:
    """One call of `seek_group`, with the pins that it has placed and found."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._ledger = group.ledger
        self._ours: set[int] = set()
        self._found: set[int] = set()
        self._in_doubt = False

    def run(self, position: StartingPosition, *, force: bool) -> int:
        try:
            target = self._try_again_and_again(position, force=force)
        except (QueueStateError, ContentionError):
            # A move that may still be applied needs its pin.
            if not self._in_doubt:
                self._remove(self._ours)
            raise
        self._remove(self._ours | self._found)
        return target

    def _try_again_and_again(self, position: StartingPosition, *, force: bool) -> int:
        for _ in attempts():
            known = self._ledger.read_group(self._group.name, serial=True)
            if known is None:
                queue_id, name = self._group.queue_id, self._group.name
                raise NotFoundError(f"queue {queue_id} has no group {name!r}")
            registrations = self._group.read_registrations(serial=True)
            if known.registered_as not in registrations:
                self._group.open_state(known)
                continue
            # I7: the token before the pin; see `seek_group`.
            token = registrations[known.registered_as]
            state = self._group.read(every_waiting=True)
            if not force:
                refuse_leases(self._group, state)
            target = self._place_pin(known, position)
            if target is not None and self._move(known, token, state, target, force=force):
                return target
        raise ContentionError(
            f"{self._group} changes too fast to be moved: stop its readers, or try again"
        )

    def _place_pin(self, known: Group, position: StartingPosition) -> int | None:
        """Pin the target and return it; None if the outcome is unknown, or others came first."""
        head = self._ledger.read_head(serial=True)
        target = self._ledger.find_position(head, position)
        if target < head.finalised:
            raise QueueStateError(
                f"{Range(target, head.finalised)} is settled by every group and "
                f"deleted; {self._group} can go back to {head.finalised} (earliest) at most"
            )
        pins = self._ledger.read_seek_pins(self._group.name)
        # If the answer to an earlier attempt was lost, its pin may be among them.
        self._found |= {pin.number for pin in pins}
        if not self._ledger.try_cas(place_seek_pin(head, known, target)):
            return None
        self._ours.add(head.groups_version + 1)
        return target

    def _move(
        self, known: Group, token: UUID, state: GroupState, target: int, *, force: bool
    ) -> bool:
        ours = uuid4()
        mark = change_token(known.registered_as, token, ours)
        was_applied = self._group.try_cas([mark, *_move(state, target, force=force)])
        if was_applied is not None:
            return was_applied
        found = self._group.read_registrations(serial=True)
        self._in_doubt = True
        return found.get(known.registered_as) == ours

    def _remove(self, numbers: Iterable[int]) -> None:
        numbers = set(numbers)
        for _ in attempts():
            pins = self._ledger.read_seek_pins(self._group.name)
            ours = [pin for pin in pins if pin.number in numbers]
            left = [Delete(seek_pin_key(pin.number, pin.group)) for pin in ours]
            if not left or self._ledger.try_cas(left):
                return
        raise ContentionError(
            f"could not remove the seek pin of {self._group}, which keeps the repair from "
            "deleting; seek again"
        )


def _move(state: GroupState, target: int, *, force: bool) -> list[Op]:
    head = state.head
    ran_out = () if force else (RAN_OUT,)
    freed: list[Op] = []
    for slot in (each for each in state.slots if each.monotons):
        # I5: only if it holds what was read: an extension moves messages from slot to slot.
        under = (as_read(slot, "lease"), as_read(slot, "monotons"))
        freed.append(Update(slot_key(slot.number), emptied(uuid4()), when=(*under, *ran_out)))
    if not state.waiting:
        return [move_head(head, target), *freed]
    beyond = state.waiting[-1].due + 1
    head_moved = move_head(head, target, waiting_from=beyond)
    return [head_moved, *freed, DeleteBelow("waiting", beyond)]
