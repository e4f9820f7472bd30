"""The rows of a lock as values, and which ticket may enter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cassieq_spark.store.protocol import Row, RowKey

ENTRY: RowKey = ("entry", "")


@dataclass(frozen=True, slots=True)
class Ticket:
    """The place of a process that wants the lock; lower numbers go first.

    Attributes:
        id: The id; never used twice.
        number: The number; None until it is chosen.
        writes: How often the ticket was written; a living process writes it repeatedly. 0: an
            earlier release has written it, and does not count.
    """

    id: UUID
    number: int | None
    writes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """The last process that entered; it may have left.

    Attributes:
        epoch: How often the lock was taken; never decreases.
        holder: The ticket with which the lock was taken.
        owner: The name of that process, for people.
        entered_at: When that process entered, by the coordinator's clock.
    """

    epoch: int
    holder: UUID
    owner: str
    entered_at: datetime


@dataclass(frozen=True, slots=True)
class Board:
    """All rows of a lock, as one read returned them."""

    tickets: tuple[Ticket, ...]
    entry: Entry | None

    @property
    def epoch(self) -> int | None:
        """The epoch of the last entry; None if there never was one."""
        return self.entry.epoch if self.entry else None

    @property
    def next_number(self) -> int:
        """A number above all numbers that are taken."""
        return 1 + max((ticket.number or 0 for ticket in self.tickets), default=0)

    @property
    def has_ticket_of_entry(self) -> bool:
        """True if the process that entered last has a ticket, so that it seems to be inside."""
        entry = self.entry
        return entry is not None and any(each.id == entry.holder for each in self.tickets)

    def is_turn_of(self, ticket: Ticket) -> bool:
        """True if this ticket exists, and no other ticket goes before it or may still do so.

        >>> low, high = Ticket(UUID(int=7), 1), Ticket(UUID(int=3), 2)
        >>> choosing = Ticket(UUID(int=9), None)
        >>> Board((low, high), None).is_turn_of(low), Board((low, high), None).is_turn_of(high)
        (True, False)
        >>> Board((low, choosing), None).is_turn_of(low)
        False
        """
        others = (each for each in self.tickets if each.id != ticket.id)
        return ticket in self.tickets and all(_is_behind(each, ticket) for each in others)


class Watch:
    """Finds the tickets of dead processes, by a clock that only this process uses.

    A ticket expires by the clock of the node that has written it. If that clock was a day ahead,
    Cassandra keeps the ticket for a day. But the ticket's process does not trust it for longer
    than a TTL without writing it again.
    """

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl.total_seconds()
        self._seen: dict[UUID, tuple[int, float]] = {}

    def silent(self, board: Board, *, began: float, ended: float) -> list[Ticket]:
        """The tickets that were not written for a whole TTL. Their processes do not hold the lock.

        Between two reads that see the same write, no later write was acknowledged. The process
        had begun the write that the first read saw before that read ended.

        Args:
            board: The rows that were read.
            began: When the read began, in seconds of the clock.
            ended: When the read had ended.
        """
        before, self._seen = self._seen, {}
        silent = []
        for ticket in board.tickets:
            writes, since = before.get(ticket.id, (None, ended))
            if writes != ticket.writes:
                since = ended
            elif ticket.writes and began >= since + self._ttl:
                silent.append(ticket)
            self._seen[ticket.id] = ticket.writes, since
        return silent


def ticket_key(ticket: UUID) -> RowKey:
    """The key of the row of a ticket."""
    return ("ticket", str(ticket))


def board_of(rows: Iterable[Row]) -> Board:
    """Decode the rows of a lock."""
    tickets, entry = [], None
    for row in rows:
        values: Any = row
        if row["kind"] == "ticket":
            written = values["number"], values["writes"] or 0
            tickets.append(Ticket(UUID(values["ticket"]), *written))
        elif row["kind"] == "entry":
            who = UUID(values["holder"]), values["owner"]
            entry = Entry(values["epoch"], *who, values["entered_at"])
    return Board(tuple(tickets), entry)


def _is_behind(other: Ticket, ticket: Ticket) -> bool:
    if other.number is None or ticket.number is None:
        return False
    return (other.number, other.id) > (ticket.number, ticket.id)
