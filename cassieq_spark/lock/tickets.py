"""The rows of a lock as values, and whose turn it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from cassieq_spark.store.protocol import Row, RowKey

ENTRY: RowKey = ("entry", "")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in the order of those who want the lock.

    Attributes:
        id: Never used twice.
        number: Lower ones go first; None while it is being chosen.
    """

    id: UUID
    number: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """Who entered last; inside still, or not.

    Attributes:
        epoch: How often the lock was taken; never goes down.
        holder: The ticket it was taken with.
        owner: Who that is, for people.
        entered_at: By the coordinator's clock.
    """

    epoch: int
    holder: UUID
    owner: str
    entered_at: datetime


@dataclass(frozen=True, slots=True)
class Board:
    """All rows of a lock, as one read showed them."""

    tickets: tuple[Ticket, ...]
    entry: Entry | None

    @property
    def epoch(self) -> int | None:
        """Of the last entry; None if there never was one."""
        return self.entry.epoch if self.entry else None

    @property
    def next_number(self) -> int:
        """Above all numbers that are taken."""
        return 1 + max((ticket.number or 0 for ticket in self.tickets), default=0)

    @property
    def has_ticket_of_entry(self) -> bool:
        """Whether who entered last is inside still, as far as anybody can see."""
        return self.entry is not None and any(
            ticket.id == self.entry.holder for ticket in self.tickets
        )

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Whether this ticket is there, and nobody is before it or may come to be.

        >>> low, high = Ticket(UUID(int=7), 1), Ticket(UUID(int=3), 2)
        >>> choosing = Ticket(UUID(int=9), None)
        >>> Board((low, high), None).is_turn_of(low), Board((low, high), None).is_turn_of(high)
        (True, False)
        >>> Board((low, choosing), None).is_turn_of(low)
        False
        """
        others = (each for each in self.tickets if each.id != ticket.id)
        return ticket in self.tickets and all(_is_behind(each, ticket) for each in others)


def ticket_key(ticket: UUID) -> RowKey:
    """The row of a ticket."""
    return ("ticket", str(ticket))


def board_of(rows: Iterable[Row]) -> Board:
    """Decode the rows of a lock."""
    listed: list[Any] = list(rows)
    tickets = (_ticket_of(row) for row in listed if row["kind"] == "ticket")
    entries = (_entry_of(row) for row in listed if row["kind"] == "entry")
    return Board(tuple(tickets), next(entries, None))


def _is_behind(other: Ticket, ticket: Ticket) -> bool:
    if other.number is None or ticket.number is None:
        return False
    return (other.number, other.id) > (ticket.number, ticket.id)


def _ticket_of(values: Any) -> Ticket:
    return Ticket(UUID(values["ticket"]), values["number"])


def _entry_of(values: Any) -> Entry:
    return Entry(values["epoch"], UUID(values["holder"]), values["owner"], values["entered_at"])
