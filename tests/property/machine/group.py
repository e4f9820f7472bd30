"""A consumer group in plain Python, message by message: checked after every change.

Each message that was offered and is owed has a place: a lease, or the waiting room. A change of a
place needs a reason: something that a reader has declared, or the time. Invariants are those of
docs/design.md section 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.property.machine.declared import Declared, Named, beyond
from tests.property.machine.ledger import LedgerModel
from tests.property.machine.rows import (
    AnyRows,
    Outcome,
    Place,
    members,
    millis,
    of_kind,
    outcomes_of,
    places_of,
    says_published,
)
from tests.property.machine.terms import Terms

#: Dead-lettering that failed is tried again so much later.
RETRY_MS = 60_000
#: A compare-and-set goes in so much later than what it goes by was read, at the most.
LATE_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Move:
    """What happened to a message."""

    at: int
    was: Place | None
    now: Place | None

    @property
    def is_handed_out(self) -> bool:
        """Whether somebody gets it who did not have it."""
        was, now = self.was, self.now
        if now is None or now.token is None:
            return False
        return was is None or was.token != now.token


class GroupModel:
    """What a group has been given, and what became of it.

    Args:
        name: Its name.
        starts_at: First monoton that it is owed.
        registered_as: The groups version that its registration made.
        ledger: Of its queue.
        terms: On which its readers agree.
        declared: What its readers have declared.
        is_copied: Whether a message of this group is in the dead-letter queue.

    Attributes:
        places: Where the messages are that were offered and are owed.
        handed: How often each was handed out.
        fates: What became of those that are owed no more: acked, skipped, or dead-lettered.
        revived: Tokens whose lease had run out when they were held on.
        tokens: All that were ever in a slot, of other groups too.
        most_occupied: Slots that were needed at once.
        outdated: Whether who changes it may have read it before somebody else changed it.
    """

    def __init__(  # noqa: PLR0913 (each is a part of its world, by name)
        self,
        name: str,
        starts_at: int,
        registered_as: int,
        *,
        ledger: LedgerModel,
        terms: Terms,
        declared: Declared,
        is_copied: Callable[[str, int], bool],
        tokens: set[UUID],
    ) -> None:
        self.name = name
        self.starts_at = self.starts_at_first = self.pointer = starts_at
        self.registered_as = registered_as
        self.terms = terms
        self.places: dict[int, Place] = {}
        self.handed: Counter[int] = Counter()
        self.fates: dict[int, str] = {}
        self.kept: dict[UUID, UUID] = {}
        self.ever_dead: set[int] = set()
        self.tokens = tokens
        self.revived: set[UUID] = set()
        self.epoch = 0
        self.most_occupied = 0
        self.outdated = False
        self.is_open = False
        self._ledger = ledger
        self._declared = declared
        self._is_copied = is_copied
        self._token: UUID | None = None
        self._outcomes: dict[tuple[UUID, int], Outcome] = {}
        self._slots: AnyRows = []
        self._waiting: AnyRows = []
        self._waiting_from = self._waiting_version = 0

    # -- what it is owed ----------------------------------------------------------------------

    @property
    def floor(self) -> int:
        return min([self.pointer, *self.places])

    def held_by(self, lease: UUID | None) -> dict[int, Place]:
        """What a lease holds; without what was extended message by message."""
        return {at: place for at, place in self.places.items() if lease and place.token == lease}

    def reached_by(self, lease: UUID) -> dict[int, Place]:
        """What receipts of a lease reach."""
        return {at: p for at, p in self.places.items() if p.token and self.owner(p.token) == lease}

    def owner(self, token: UUID) -> UUID:
        """The lease whose receipts reach what a token holds."""
        return self.kept.get(token, token)

    def _names(self, token: UUID, at: int) -> list[Named]:
        """Under which names its readers say what is to become of a message."""
        owner = self.owner(token)
        return [(owner, at), *([(beyond(owner), at)] if token in self.kept else [])]

    def _extended_by(self, token: UUID, at: int) -> set[int]:
        extended = self._declared.extended
        return {by for name in self._names(token, at) for by in extended.get(name, ())}

    def is_dead(self, place: Place) -> bool:
        return place.reason is not None or self.terms.is_dead(place.deliveries)

    def is_due(self, place: Place, now: int) -> bool:
        """Whether any actor may take it."""
        if place.token is None:
            return place.due <= now
        return place.due + self.terms.pause(place.deliveries) < now

    def is_given_back(self, place: Place) -> bool:
        """True if its holder gave it back alone: then it did not fail together with others."""
        rows = [(("waiting", it["ordinal"], it["position"]), it) for it in self._waiting]
        return any(it["by_receipts"] for key, it in rows if key == place.row)

    # -- a change -----------------------------------------------------------------------------

    def watch(self, rows: AnyRows, now: int) -> None:
        """Check what a compare-and-set has changed."""
        (registration,) = of_kind(rows, "registration")
        moved = self.is_open and self._token != registration["lease"]
        self._token = registration["lease"]
        (head,) = of_kind(rows, "head")
        old_slots, old_waiting = self._slots, self._waiting
        old_pointer, old_places, old_tokens = self.pointer, self.places, set(self.tokens)
        old_from, old_version = self._waiting_from, self._waiting_version
        self.pointer, self.places = head["pointer"], places_of(rows)
        self._waiting_from, self._waiting_version = head["waiting_from"], head["waiting_version"]
        self._slots, self._waiting = of_kind(rows, "slot"), of_kind(rows, "waiting")
        self.tokens |= {row["lease"] for row in self._slots}
        if not self.is_open:
            self.is_open = True
            assert (self.pointer, self.places) == (self.starts_at, {})
            return
        self._check_heads(old_from, old_version, old_waiting)
        if moved and not self._may_be_expiry():
            self._begin_anew(old_slots, old_tokens)
            return
        assert old_pointer <= self.pointer <= self._ledger.next, "I5"
        assert all(at < self.pointer for at in self.places), "I5: offered, and not"
        self._check_recorded(old_slots)
        moves = self._moves(old_places, old_pointer)
        for move in moves:
            self._check(move, now, old_pointer, old_tokens)
        self._check_batch([move for move in moves if move.is_handed_out], now, old_waiting)
        self._check_slots(old_slots, now)

    def _moves(self, old: dict[int, Place], old_pointer: int) -> list[Move]:
        touched = sorted({*old, *self.places, *range(old_pointer, self.pointer)})
        every = [Move(at, old.get(at), self.places.get(at)) for at in touched]
        return [each for each in every if each.was != each.now or each.at >= old_pointer]

    def _may_be_expiry(self) -> bool:
        """Whether an expiry has changed the token of the registration, and not a seek."""
        held = self._held()
        moving = held and not self.places and min(held) <= self.pointer
        return self.terms.expire_after is not None and not moving

    def _held(self) -> list[int]:
        return [pin.position for pin in self._ledger.seek_pins.values() if pin.group == self.name]

    def _begin_anew(self, old_slots: AnyRows, old_tokens: set[UUID]) -> None:
        """A seek: below the pointer all is settled, above it nothing was offered."""
        held = self._held()
        assert self._ledger.finalised <= self.pointer <= self._ledger.next, "I7"
        assert min(held) <= self.pointer, "I7: a repair run could pass it"
        assert not self.places, "I5"
        for old, new in zip(old_slots, self._slots, strict=True):
            assert not old["ranges"] or new["lease"] not in old_tokens, (old, new, "I6")
        self.starts_at = self.pointer
        self.epoch += 1
        self.handed.clear()
        self.fates.clear()
        self.kept.clear()

    # -- one message --------------------------------------------------------------------------

    def _check(self, move: Move, now: int, old_pointer: int, old_tokens: set[UUID]) -> None:
        fresh = move.at >= old_pointer
        assert (move.was is None) <= fresh, (move, "I5: settled, and owed again")
        assert move.at not in self.fates, (move, self.fates[move.at], "I5: settled before")
        if move.now is None:
            self.fates[move.at] = self._check_settled(move, now)
        elif move.now.token is None:
            self._check_waits(move, move.now, now)
        elif not move.is_handed_out:
            self._check_held_on(move, move.now, now)
        elif move.was is not None and move.was.deliveries == move.now.deliveries:
            self._check_extended(move, move.was, move.now, now, old_tokens)
        else:
            self._check_handed_out(move, move.now, now, old_tokens)
        if move.now is not None:
            assert move.now.deliveries == self.handed[move.at], (move, "I8")
            is_published = move.now.token in self._declared.published
            too_often = self.terms.is_dead(move.now.deliveries - 1) and not is_published
            was_before = move.was is not None and move.was.deliveries == move.now.deliveries
            assert not too_often or was_before, (move, "I8: too often")

    def is_published(self, lease: UUID) -> bool:
        """Whether all slots of a lease say that a sink has published its batch."""
        slots = [row for row in self._slots if row["lease"] == lease and row["ranges"]]
        return bool(slots) and all(says_published(row) for row in slots)

    def recorded_for(self, lease: UUID | None) -> dict[int, Outcome]:
        """What the ack of a batch has to do with messages that it holds."""
        return {
            at: outcome
            for row in self._slots
            if lease and row["lease"] == lease
            for at, outcome in outcomes_of(row).items()
            if at in members(row["ranges"])
        }

    def _check_recorded(self, old_slots: AnyRows) -> None:
        """What is recorded was asked for; what was, is what acks go by from here on."""
        self._outcomes = {
            (row["lease"], at): outcome
            for row in old_slots
            for at, outcome in outcomes_of(row).items()
        }
        for row in self._slots:
            for at, outcome in outcomes_of(row).items():
                named = (row["lease"], at, row["deliveries"])
                asked = self._declared.recorded.get(named, set())
                assert outcome in asked, (row, at, outcome, "nobody recorded that")

    def _is_recorded(self, move: Move, *wanted: Outcome) -> bool:
        """Whether the ack of its batch was to do so with a message."""
        was = move.was
        assert was is not None
        assert was.token is not None
        is_acked = was.token in self._declared.finished
        return is_acked and self._outcomes.get((was.token, move.at)) in wanted

    def _check_settled(self, move: Move, now: int) -> str:
        was, declared = move.was, self._declared
        age = now - millis(self._ledger.visible_since(move.at))
        expires = self.terms.has_expired(timedelta(milliseconds=age))
        if was is None:
            skipped = any(age > oldest for oldest in declared.skipped)
            assert expires or skipped, (move, "I5: stepped over")
            return "skipped"
        if was.token is not None:
            outcome = self._outcomes.get((was.token, move.at))
            done = was.token in declared.finished and outcome is None
            done = done or any(
                named in declared.acked for named in self._names(was.token, move.at)
            )
            late = expires and was.due < now
            assert done or late, (move, outcome, "I6: settled without its token")
            return "acked" if done else "expired"
        if expires and not self.is_dead(was):
            return "expired"
        assert self.is_dead(was), (move, "I5: lost while it waited")
        assert self._is_copied(self.name, move.at), (move, "I9: left without its copy")
        return "dead-lettered"

    def _check_waits(self, move: Move, place: Place, now: int) -> None:
        was = move.was
        if was is None:
            visible_at = self._ledger.delayed_times.get(move.at)
            assert visible_at is not None, (move, "a message waits that is not delayed")
            assert place.deliveries == 0, (move, "I8")
            assert place.reason is None, move
            self._check_due(move, place, millis(visible_at), millis(visible_at))
            return
        assert place.deliveries == was.deliveries, (move, "I8")
        if was.token is None:
            assert self.is_dead(was), (move, "moved while it waited")
            # It is marked dead before it is copied.
            is_marked = was.reason is None and str(was.deliveries) in str(place.reason)
            assert place.reason == was.reason or is_marked, move
            assert place.due > was.due, (move, "deferred to an earlier time")
            self._check_due(move, place, was.due, now + RETRY_MS)
        elif place.reason is not None:
            self._check_marked_dead(move, was, place, now)
        else:
            self._check_given_back(move, was, place, now)

    def _check_marked_dead(self, move: Move, was: Place, place: Place, now: int) -> None:
        assert was.token is not None
        rejected = self._declared.rejected
        reasons = {why for it in self._names(was.token, move.at) for why in rejected.get(it, ())}
        if place.reason not in reasons and not self._is_recorded(
            move, ("reject", str(place.reason))
        ):
            assert self.terms.is_dead(was.deliveries), (move, "dead before its time")
            theirs = was.token in self._declared.retaken
            assert theirs or self.is_due(was, now), (move, "I6: marked dead too early")
            assert str(was.deliveries) in str(place.reason), move
        self._check_due(move, place, 0, now)
        self.ever_dead.add(move.at)

    def _check_given_back(self, move: Move, was: Place, place: Place, now: int) -> None:
        assert was.token is not None
        released = self._declared.released
        wanted = [by for it in self._names(was.token, move.at) for by in released.get(it, ())]
        if any(since + delay <= place.due <= now + delay for since, delay in wanted):
            if self.is_dead(place):
                self.ever_dead.add(move.at)
            return
        recorded = self._outcomes.get((was.token, move.at))
        if recorded and recorded[0] == "release" and self._is_recorded(move, recorded):
            # Counted from the ack, or a little earlier: from what it has read.
            delay = int(recorded[1])
            self._check_due(move, place, now + delay - LATE_MS, now + delay)
            if self.is_dead(place):
                self.ever_dead.add(move.at)
            return
        assert not self.terms.is_dead(was.deliveries), (move, "it should be dead")
        if was.token in self._declared.retaken:
            # The whole batch comes again once; after that what is left over has its pause.
            pause = self.terms.pause(was.deliveries) if was.deliveries > 1 else 0
            self._check_due(move, place, 0, now + pause)
        else:
            assert self.is_due(was, now), (move, "I6: taken too early")
            self._check_due(move, place, 0, now)

    def _check_due(self, move: Move, place: Place, earliest: int, latest: int) -> None:
        assert earliest <= place.due <= latest, (move, earliest, latest)

    def _check_held_on(self, move: Move, place: Place, now: int) -> None:
        was, token, declared = move.was, place.token, self._declared
        assert was is not None
        assert token is not None
        again = place.deliveries - was.deliveries
        assert again == 0 or (again == 1 and token in declared.retaken), (move, "I8")
        self.handed[move.at] += again
        is_limited = again and token not in declared.published
        most = self.terms.most(place.deliveries) if is_limited else None
        together = [at for at, each in self.places.items() if again and each.row == place.row]
        assert most is None or len(together) <= most, (move, "not isolated")
        allowed = set()
        if (token, place.deliveries) in declared.given_back:
            allowed.add(now)
        if (token, place.deliveries) in declared.beaten or again:
            allowed.add(now + self._lease_ms)
        if token in self.kept:
            allowed |= {now + by for by in self._extended_by(token, move.at)}
        assert place.due in allowed, (move, allowed, "no one may hold it")
        if was.due < now:
            self.revived.add(token)

    def _check_extended(
        self, move: Move, was: Place, place: Place, now: int, old_tokens: set[UUID]
    ) -> None:
        assert place.token is not None
        assert was.token is not None, (move, "I8: handed out, and not counted")
        owner = self.owner(was.token)
        wanted = self._extended_by(was.token, move.at)
        recorded = self._outcomes.get((was.token, move.at))
        if recorded and recorded[0] == "extend" and self._is_recorded(move, recorded):
            wanted = wanted | {int(recorded[1])}
        assert wanted, (move, "I6, I8: handed out, and not counted")
        assert place.due in {now + by for by in wanted}, move
        known = place.token in old_tokens and place.token not in self.kept
        assert not known, (move, "I6: token used twice")
        assert self.kept.setdefault(place.token, owner) == owner, (move, "I6: token used twice")
        if was.due < now:
            self.revived.add(place.token)

    def _check_handed_out(self, move: Move, place: Place, now: int, old_tokens: set[UUID]) -> None:
        was = move.was
        assert millis(self._ledger.visible_since(move.at)) <= now, (move, "before its time")
        assert was is None or self.is_due(was, now), (move, "I6: taken too early")
        assert was is None or was.reason is None, (move, "I9: risen from the dead")
        assert place.token not in old_tokens, (move, "I6: token used twice")
        assert place.due == now + self._lease_ms, move
        self.handed[move.at] += 1

    # -- all of it together -------------------------------------------------------------------

    @property
    def _lease_ms(self) -> int:
        return round(self.terms.lease.total_seconds() * 1000)

    def _check_batch(self, moves: Iterable[Move], now: int, old_waiting: AnyRows) -> None:
        """What is handed out together."""
        batch = [
            each
            for each in moves
            if each.now and (each.was is None or each.was.deliveries < each.now.deliveries)
        ]
        if not batch:
            return
        tokens = {each.now.token for each in batch if each.now}
        assert len(tokens) == 1, (batch, "a lease has one token")
        if any(row["by_receipts"] for row in self._slots if row["lease"] in tokens):
            self._check_singly(batch, old_waiting)
        else:
            self._check_together(batch)
        highest = max(each.at for each in batch)
        handed = {each.at for each in batch}
        below = {at for at in self.places if at < highest} - handed
        assert not (self.terms.strict and below), (batch, below, "out of order")
        running = sum(
            each.token is not None and each.due >= now and each.token not in self.revived
            for each in self.places.values()
        )
        most = self.terms.max_in_flight
        assert most is None or running <= most, (batch, running, "too many in flight")

    def _check_together(self, batch: Sequence[Move]) -> None:
        """A batch: its messages fail together."""
        rows = {each.now.row for each in batch if each.now}
        assert len(rows) == 1, (batch, "a batch is one row")
        deliveries = {each.now.deliveries for each in batch if each.now}
        assert len(deliveries) == 1, (batch, "fresh messages with those that failed")
        (delivery,) = deliveries
        if delivery > 1:
            sources = {(each.was.row, each.was.token) for each in batch if each.was}
            assert len(sources) == 1, (batch, "messages that failed apart are together again")
            self._check_isolated(batch, delivery)

    def _check_singly(self, batch: Sequence[Move], old_waiting: AnyRows) -> None:
        """A lease of a client: what failed together is still by itself."""
        given_back = {
            ("waiting", row["ordinal"], row["position"])
            for row in old_waiting
            if row["by_receipts"]
        }
        sources = {each.was and (each.was.row, each.was.token) for each in batch}
        suspect = [
            each
            for each in batch
            if each.was and each.was.deliveries and each.was.row not in given_back
        ]
        if suspect:
            assert len(sources) == 1, (batch, "messages that failed together drag others along")
            assert suspect[0].now is not None
            self._check_isolated(batch, suspect[0].now.deliveries)

    def _check_isolated(self, batch: Sequence[Move], delivery: int) -> None:
        most = self.terms.most(delivery)
        is_published = {each.now.token for each in batch if each.now} & self._declared.published
        assert most is None or len(batch) <= most or is_published, (batch, "not isolated")

    def _check_heads(self, old_from: int, old_version: int, old_waiting: AnyRows) -> None:
        if self._waiting_from < old_from:
            came = [row for row in self._waiting if row["ordinal"] == self._waiting_from]
            assert came, "reads begin among rows that went"
        assert all(row["ordinal"] >= self._waiting_from for row in self._waiting), "out of sight"
        for row in self._waiting:
            assert row["ranges"].startswith(f"{row['position']}-"), (row, "not where it is")
        changed = list(self._waiting) != list(old_waiting)
        step = self._waiting_version - old_version
        assert step in (0, 1), "I7"
        assert step or not changed, "I7: a repair run would not notice"

    def _is_occupied(self, row: Any, now: int) -> bool:
        """Whether a slot holds messages, or has to tell its reader that its lease is not lost."""
        if row["ranges"]:
            return True
        by_receipts = row["lease"] in self.kept or row["lease"] in self._declared.by_receipts
        return millis(row["due_at"]) > now and not by_receipts

    def _check_slots(self, old_slots: AnyRows, now: int) -> None:
        assert [row["ordinal"] for row in self._slots] == list(range(len(self._slots)))
        occupied = sum(self._is_occupied(row, now) for row in self._slots)
        self.most_occupied = max(self.most_occupied, occupied)
        grown = len(self._slots) > len(old_slots)
        if grown and self.outdated:
            # Who has not seen that a slot is free takes a new one.
            self.most_occupied = max(self.most_occupied, len(self._slots))
        # One more: it has the token of who has acked or put away what was in others.
        assert not grown or len(self._slots) <= self.most_occupied + 1, "more slots than leases"
        if len(self._slots) > len(old_slots) and not self.outdated:
            unused = [
                old["ordinal"]
                for old, new in zip(old_slots, self._slots, strict=False)
                if old == new and not old["ranges"] and millis(old["due_at"]) <= now
            ]
            assert not unused, (unused, "a slot was free")
