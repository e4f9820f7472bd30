"""The rows of a group's state as values, and the columns that they are written to. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from cassieq_spark.errors import InvariantError
from cassieq_spark.model import Ranges, to_millis
from cassieq_spark.store.decoded import OF_DECODING, decoded, demand, demand_counts
from cassieq_spark.store.protocol import Row, RowKey, ServerNow, Update, Value, Values, When

_NOTHING = Ranges()
_MICROSECOND = timedelta(microseconds=1)
_Key = TypeVar("_Key", str, timedelta)

HEAD: RowKey = ("head", 0, 0)
#: What is written to a row.
Written = dict[str, Value | ServerNow]
#: When what is free has been due: before all that any clock says.
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
#: Only if the lease of a slot has run out.
RAN_OUT = When("due_at", "<", ServerNow())

#: Columns that have another name than the field of a slot.
_COLUMNS = {"monotons": "ranges", "recorded": "outcomes"}
_FIELDS = {column: name for name, column in _COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of messages of one lease.

    A message that is named several times is acked; if not that, rejected; if not that, released.

    Attributes:
        acked: They are done.
        rejected: They are dead, by reason.
        released: They are to be offered again, by how much later.
        extended: They are to be held on, by how long from now; an ack of their whole batch leaves
            them alone.
        unread: They are to be offered again at once, and this delivery does not count, as nobody
            has seen them (I8). Only for messages of a client's lease: it is never recorded.
    """

    acked: Ranges = _NOTHING
    rejected: Mapping[str, Ranges] = field(default_factory=dict)
    released: Mapping[timedelta, Ranges] = field(default_factory=dict)
    extended: Mapping[timedelta, Ranges] = field(default_factory=dict)
    unread: Ranges = _NOTHING

    @property
    def named(self) -> Ranges:
        """All the messages."""
        back = (*self.released.values(), *self.extended.values(), self.unread)
        return Ranges.union([self.acked, self.dead, *back])

    @property
    def dead(self) -> Ranges:
        """Those that are rejected."""
        return Ranges.union(self.rejected.values())

    def within(self, monotons: Ranges) -> Settlement:
        """The same for these messages only, and each of them named once."""
        acked = monotons & self.acked
        rejected, left = _deal(monotons - acked, self.rejected)
        released, left = _deal(left, self.released)
        extended, left = _deal(left, self.extended)
        return Settlement(acked, rejected, released, extended, left & self.unread)

    def then(self, later: Settlement) -> Settlement:
        """What both come to: for a message that both name, what the later one says."""
        gone = later.named
        return Settlement(
            Ranges.union([self.acked - gone, later.acked]),
            _merge(self.rejected, later.rejected, gone),
            _merge(self.released, later.released, gone),
            _merge(self.extended, later.extended, gone),
            Ranges.union([self.unread - gone, later.unread]),
        )


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
        return decode_outcomes(self.recorded, self.lease, self.deliveries)

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
    With a ``seek_pin`` the group is about to be moved there, and is owed what comes from there on.
    """

    head: Head
    slots: tuple[Slot, ...]
    waiting: tuple[Waiting, ...]
    now: datetime
    all_waiting: bool = True
    of_one_moment: bool = True
    ahead: timedelta = timedelta(0)
    seek_pin: int | None = None

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
    def is_quiet(self) -> bool:
        """Whether nothing is due that was handed out, or delayed, before."""
        ran_out = any(slot.monotons and slot.due_at < self.now for slot in self.slots)
        return not ran_out and all(waiting.due > self.now_ms for waiting in self.waiting)

    @property
    def floor(self) -> int:
        """Lowest monoton still owed to the group; right only if all waiting rows were read."""
        outstanding = [slot.monotons.start for slot in self.slots if slot.monotons]
        outstanding += [waiting.monotons.start for waiting in self.waiting]
        pinned = [] if self.seek_pin is None else [self.seek_pin]
        return min([self.head.pointer, *outstanding, *pinned])


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


def new_head(pointer: int) -> Written:
    """The columns of the head of a group that begins at ``pointer``."""
    return {"pointer": pointer, "waiting_from": 0, "waiting_version": 0}


def move_head(head: Head, pointer: int, *, waiting_from: int | None = None) -> Update:
    """Move the pointer to anywhere, if neither pointer nor waiting rows have changed."""
    values: Written = {"pointer": pointer, "waiting_version": head.waiting_version + 1}
    if waiting_from is not None:
        values["waiting_from"] = waiting_from
    as_it_was = (
        When("pointer", "=", head.pointer),
        When("waiting_version", "=", head.waiting_version),
    )
    return Update(HEAD, values, when=as_it_was)


def slot_values(**fields: Ranges | Value | ServerNow) -> Written:
    """The columns of these fields of a slot; see also `handed_out`."""
    return {
        _COLUMNS.get(name, name): str(value) if isinstance(value, Ranges) else value
        for name, value in fields.items()
    }


def emptied(lease: UUID) -> Written:
    """The columns of a slot that holds nothing, and is due by every clock."""
    return slot_values(monotons=_NOTHING, lease=lease, due_at=LONG_AGO)


def handed_out(deliveries: int, first_at: datetime | None) -> Written:
    """The columns of a slot that tell how often, since when and when it was handed out."""
    values: Written = {"deliveries": deliveries, "last_at": ServerNow()}
    if deliveries == 1:
        values["first_at"] = ServerNow()
    elif first_at is not None:
        values["first_at"] = first_at
    return values


def handed_out_before(row: Slot | Waiting) -> Written:
    """The same columns, for messages that go on as they were."""
    times = {"first_at": row.first_at, "last_at": row.last_at}
    known: Written = {column: value for column, value in times.items() if value is not None}
    return {"deliveries": row.deliveries} | known


def waiting_values(waiting: Waiting) -> Written:
    """The columns of a waiting row."""
    reason: Written = {} if waiting.reason is None else {"reason": waiting.reason}
    return {"ranges": str(waiting.monotons)} | handed_out_before(waiting) | reason


def as_read(slot: Slot, field: str) -> When:
    """Only if the column of this field still is what was read."""
    ((column, value),) = slot_values(**{field: getattr(slot, field)}).items()
    return When(column, "=", value)


def fields_written(values: Values, now: datetime) -> dict[str, Any]:
    """What columns that were written mean: the fields of a head or slot, by name."""
    fields: dict[str, Any] = {
        _FIELDS.get(column, column): now + value.plus if isinstance(value, ServerNow) else value
        for column, value in values.items()
    }
    if "monotons" in fields:
        fields["monotons"] = Ranges.parse(fields["monotons"])
    return fields


def encode_outcomes(outcomes: Settlement, lease: UUID, deliveries: int) -> str:
    """Outcomes of a batch, as text; empty, if all is acked, which needs no telling.

    Args:
        outcomes: Each message is named once.
        lease: The token of the batch.
        deliveries: How often its messages were handed out: a replay counts one more.
    """
    told = {
        "rejected": {reason: str(part) for reason, part in outcomes.rejected.items()},
        "released": {str(by // _MICROSECOND): str(it) for by, it in outcomes.released.items()},
        "extended": {str(by // _MICROSECOND): str(it) for by, it in outcomes.extended.items()},
    }
    if not any(told.values()):
        return ""
    whose = {"lease": str(lease), "deliveries": deliveries}
    return json.dumps(whose | told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode_outcomes(text: str | None, lease: UUID, deliveries: int) -> Settlement:
    """Read what `encode_outcomes` writes.

    Outcomes of another lease, or of another delivery, are dropped: so a slot that is handed out
    anew, or emptied, has none.

    Raises:
        InvariantError: The text is not ours.
    """
    if not text:
        return Settlement()
    try:
        told: dict[str, Any] = json.loads(text)
        if (told["lease"], told["deliveries"]) != (str(lease), deliveries):
            return Settlement()
        return Settlement(
            rejected={reason: Ranges.parse(part) for reason, part in told["rejected"].items()},
            released=_by_span(told["released"]),
            extended=_by_span(told["extended"]),
        )
    except OF_DECODING as error:
        raise InvariantError(f"outcomes of lease {lease} can't be read: {error}") from error


def _deal(left: Ranges, wanted: Mapping[_Key, Ranges]) -> tuple[dict[_Key, Ranges], Ranges]:
    dealt: dict[_Key, Ranges] = {}
    for key, ranges in sorted(wanted.items()):
        if found := left & ranges:
            dealt[key] = found
            left -= found
    return dealt, left


def _merge(
    before: Mapping[_Key, Ranges], later: Mapping[_Key, Ranges], gone: Ranges
) -> dict[_Key, Ranges]:
    merged: dict[_Key, Ranges] = {key: ranges - gone for key, ranges in before.items()}
    for key, ranges in later.items():
        merged[key] = Ranges.union([merged.get(key, _NOTHING), ranges])
    return {key: ranges for key, ranges in merged.items() if ranges}


def _by_span(told: Mapping[str, str]) -> dict[timedelta, Ranges]:
    return {int(by) * _MICROSECOND: Ranges.parse(part) for by, part in told.items()}
