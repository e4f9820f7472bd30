"""The rows of a group's delivery state as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cassieq_spark.groups.outcomes import Settlement, decode
from cassieq_spark.model import Ranges, to_millis
from cassieq_spark.store.decoded import decoded, demand, demand_counts
from cassieq_spark.store.protocol import Row, RowKey

HEAD: RowKey = ("head", 0, 0)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a group stands.

    Attributes:
        pointer: First monoton it has never been offered.
        waiting_from: No waiting row has a due time (in ms) below this one.
        waiting_version: Grows with every change of the waiting rows.
    """

    pointer: int
    waiting_from: int
    waiting_version: int


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one lease; free if it holds no monoton and is due.

    Its messages were handed out ``deliveries`` times, first at ``first_at``, last at ``last_at``.
    ``recorded`` is the text of outcomes, maybe of an earlier lease. With ``by_receipts`` they are
    settled one by one only, and never as a batch. ``taken_up_by`` is the attempt of a replay that
    has taken the slot up last, maybe under an earlier lease.
    """

    number: int
    monotons: Ranges
    lease: UUID
    due_at: datetime
    deliveries: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    recorded: str | None = None
    by_receipts: bool = False
    taken_up_by: UUID | None = None

    @property
    def outcomes(self) -> Settlement:
        """What was recorded for messages of the batch in hand; the ack of it carries it out."""
        return decode(self.recorded, self.lease, self.deliveries)

    def is_free(self, now: datetime) -> bool:
        """Whether another lease may be put here."""
        return not self.monotons and self.due_at <= now


@dataclass(frozen=True, slots=True)
class Waiting:
    """Monotons that are owed to the group, to be offered from ``due`` (in ms) on.

    With a ``reason`` they are dead: to be dead-lettered, and never to be offered again.
    """

    due: int
    monotons: Ranges
    deliveries: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """What was read of a group, and when by the server's clock.

    ``waiting`` has the lowest due times first; without ``all_waiting``, not all of them. With
    ``of_one_moment`` it was read after ``head``, one of them serially: so long as
    ``waiting_version`` is the same, it is what waits. Without, it may be older than ``head``, or
    newer.
    By ``ahead`` the server's clock was ahead of this process's, if the two disagree; see `Rows`.
    """

    head: Head
    slots: tuple[Slot, ...]
    waiting: tuple[Waiting, ...]
    now: datetime
    all_waiting: bool = True
    of_one_moment: bool = True
    ahead: timedelta = timedelta(0)

    @property
    def sure_now(self) -> datetime:
        """See `Rows.sure_now`."""
        return self.now - max(timedelta(0), self.ahead)

    def due_in(self, by: timedelta = timedelta(0)) -> int:
        """When (in ms) messages are due that are to wait for so long from now on.

        By a clock that is a month ahead they would wait for a month.
        """
        return to_millis(self.sure_now) + by // timedelta(milliseconds=1)

    @property
    def now_ms(self) -> int:
        """``now`` in milliseconds."""
        return to_millis(self.now)

    def held_by(self, lease: UUID | None) -> tuple[Slot, ...]:
        """The slots under this token; empty ones too, whose messages were settled one by one."""
        return tuple(slot for slot in self.slots if slot.lease == lease)

    @property
    def floor(self) -> int:
        """Lowest monoton still owed to the group; right only if all waiting rows were read."""
        outstanding = [slot.monotons.start for slot in self.slots if slot.monotons]
        outstanding += [waiting.monotons.start for waiting in self.waiting]
        return min([self.head.pointer, *outstanding])


def slot_key(number: int) -> RowKey:
    """The row of a slot."""
    return ("slot", number, 0)


def waiting_key(due: int, first_monoton: int) -> RowKey:
    """The row of a waiting range."""
    return ("waiting", due, first_monoton)


@decoded
def head_of(row: Row) -> Head:
    """Decode a head row."""
    values: Any = row
    demand_counts(row, "pointer", "waiting_from", "waiting_version")
    return Head(values["pointer"], values["waiting_from"], values["waiting_version"])


def slots_of(rows: Iterable[Row]) -> tuple[Slot, ...]:
    """Decode the slots among these rows."""
    return tuple(_slot_of(row) for row in rows if row["kind"] == "slot")


def waiting_of(rows: Iterable[Row]) -> tuple[Waiting, ...]:
    """Decode the waiting ranges among these rows."""
    return tuple(_waiting_of(row) for row in rows if row["kind"] == "waiting")


@decoded
def _slot_of(row: Row) -> Slot:
    values: Any = row
    demand(row, "lease", "due_at")
    demand_counts(row, "deliveries")
    return Slot(
        values["ordinal"],
        Ranges.parse(values["ranges"]),
        values["lease"],
        values["due_at"],
        values["deliveries"],
        values["first_at"],
        values["last_at"],
        values["outcomes"],
        bool(values["by_receipts"]),
        values["taken_up_by"],
    )


@decoded
def _waiting_of(row: Row) -> Waiting:
    values: Any = row
    demand_counts(row, "deliveries")
    return Waiting(
        values["ordinal"],
        Ranges.parse(values["ranges"]),
        values["deliveries"],
        values["first_at"],
        values["last_at"],
        values["reason"],
    )
