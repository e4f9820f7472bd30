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
        left: Messages that its own batch leaves, as it was recorded, and are due by then; it gets
            them if there is nothing else.
        is_left: Whether its batch leaves any.
        suspect: Of ``again``, those that failed together with others.
        in_order: Whether nothing comes before what is earlier.
    """

    again: frozenset[int]
    first: frozenset[int]
    room: int | None
    left: frozenset[int] = frozenset()
    is_left: bool = False
    suspect: frozenset[int] = frozenset()
    in_order: bool = False

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
            first = {at for at in first if millis(ledger.young_since(at)) >= oldest}
        again = {at for at, each in due.items() if each.deliveries}
        outcomes = group.recorded_for(done)
        left = {
            at
            for at, outcome in outcomes.items()
            if outcome == ("release", 0) and not group.is_dead(group.places[at])
        }
        if model.terms.strict:
            owed = others.keys() | outcomes.keys()
            again = set(due) if due and min(due) == min(owed) else set()
            left = left if left and min(left) == min(owed) else set()
            first = first if not owed else set()
        else:
            first |= due.keys() - again
        rooms = [] if action.limit is None else [action.limit]
        if model.terms.max_in_flight is not None:
            running = [each for each in others.values() if each.token and each.due >= now]
            kept = [at for at, (what, _) in outcomes.items() if what == "extend"]
            rooms.append(model.terms.max_in_flight - len(running) - len(kept))
        if len(due) + len(unseen) < action.least:
            rooms.append(0)
        room = min(rooms, default=None)
        suspect = {at for at in again if not group.is_given_back(group.places[at])}
        return cls(
            frozenset(again),
            frozenset(first),
            room,
            frozenset(left),
            bool(outcomes),
            frozenset(suspect),
            model.terms.strict,
        )

    def check(self, leased: Sequence[Any], action: Any) -> None:
        """Compare it with what the reader got."""
        got = [at for each in leased for at in members(str(each.monotons))]
        if self.is_left and action.least:
            # With what it leaves there may be enough.
            assert set(got) <= self.first | self.again | self.left
        elif self.room is not None and self.room <= 0:
            assert not got
        elif self.first and (action.prefer_fresh or not self.again):
            assert got, "withheld"
            assert set(got) <= self.first
            full = self.room is None or len(got) == min(self.room, len(self.first))
            assert full or action.max_bytes is not None, "withheld"
        elif self.again:
            assert got, "withheld"
            assert min(got) == min(self.again), "not the lowest"
        elif self.left:
            assert got, "withheld"
            assert min(got) == min(self.left), "not the lowest"
        else:
            assert not got
        assert self.room is None or len(got) <= max(0, self.room)

    def check_singly(self, leased: Sequence[Any], action: Any) -> None:
        """Compare it with what a client got, which settles one by one."""
        got = {at for each in leased for at in members(str(each.monotons))}
        every = self.first | self.again
        if self.room is not None and self.room <= 0:
            assert not got
            return
        assert bool(got) == bool(every), "withheld, or not to be had"
        assert self.room is None or len(got) <= self.room
        if self.in_order:
            assert not got or min(got) == min(every), "not the lowest"
            return
        assert got <= every
        if got & self.suspect:
            assert got <= self.suspect, "messages that failed together drag others along"
            assert min(got) == min(self.again), "not the lowest"
        elif not self.suspect:
            full = self.room is None or len(got) == min(self.room, len(every))
            assert full or action.max_bytes is not None, "withheld"

    def check_at_most(self, leased: Sequence[Any]) -> None:
        """Compare it with what a reader got who did not look at what comes again."""
        got = [at for each in leased for at in members(str(each.monotons))]
        assert set(got) <= self.first
        assert self.room is None or len(got) <= max(0, self.room)
