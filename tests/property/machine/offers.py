"""What a reader has to be given when nothing comes between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.property.machine.group import GroupModel
from tests.property.machine.model import QueueModel
from tests.property.machine.rows import MILLISECOND, members, millis


@dataclass(frozen=True, slots=True)
class Offers:
    """What there is for a reader.

    Attributes:
        again: Messages that failed, and are due.
        first: Messages that were never handed out, and may be.
        room: Most messages that it may get; None for any number.
    """

    again: frozenset[int]
    first: frozenset[int]
    room: int | None

    @classmethod
    def of(cls, group: GroupModel, model: QueueModel, action: Any, done: UUID | None) -> Offers:
        """What a reader that has finished ``done`` has to be given; see `readers.Lease`."""
        if action.paused:
            return cls(frozenset(), frozenset(), 0)
        now, ledger = model.now, model.ledger
        others = {at: each for at, each in group.places.items() if not done or each.token != done}
        due = {
            at: each
            for at, each in others.items()
            if group.is_due(each, now) and not group.is_dead(each)
        }
        unseen = range(group.pointer, ledger.next)
        first = {at for at in unseen if millis(ledger.visible_since(at)) <= now}
        if action.skip_older is not None:
            oldest = now - action.skip_older // MILLISECOND
            first = {at for at in first if millis(ledger.visible_since(at)) >= oldest}
        again = {at for at, each in due.items() if each.deliveries}
        if model.terms.strict:
            again = set(due) if due and min(due) == min(others) else set()
            first = first if not others else set()
        else:
            first |= due.keys() - again
        rooms = [] if action.limit is None else [action.limit]
        if model.terms.max_in_flight is not None:
            running = [each for each in others.values() if each.token and each.due >= now]
            rooms.append(model.terms.max_in_flight - len(running))
        if len(due) + len(unseen) < action.least:
            rooms.append(0)
        return cls(frozenset(again), frozenset(first), min(rooms, default=None))

    def check(self, leased: Sequence[Any], action: Any) -> None:
        """Compare it with what the reader got."""
        got = [at for each in leased for at in members(str(each.monotons))]
        if self.room is not None and self.room <= 0:
            assert not got
        elif self.first and (action.prefer_fresh or not self.again):
            assert got, "withheld"
            assert set(got) <= self.first
            full = self.room is None or len(got) == min(self.room, len(self.first))
            assert full or action.max_bytes is not None, "withheld"
        elif self.again:
            assert got, "withheld"
            assert min(got) == min(self.again), "not the lowest"
        else:
            assert not got
        assert self.room is None or len(got) <= max(0, self.room)

    def check_at_most(self, leased: Sequence[Any]) -> None:
        """Compare it with what a reader got who did not look at what comes again."""
        got = [at for each in leased for at in members(str(each.monotons))]
        assert set(got) <= self.first
        assert self.room is None or len(got) <= max(0, self.room)
