"""The rows of a group's state as values, and the columns that they are written to."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, pairwise
from typing import Any, TypeVar
from uuid import UUID

from cassieq_spark.arguments import MOST
from cassieq_spark.errors import InvariantError
from cassieq_spark.groups.lanes import lanes_within
from cassieq_spark.model import Range, Ranges, to_millis
from cassieq_spark.store.decoded import OF_DECODING, decoded, demand, demand_counts
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Row,
    RowKey,
    ServerNow,
    Update,
    Value,
    Values,
    When,
)

_NOTHING = Ranges()
#: All monotons; no receipt has a higher one.
_EVERYTHING = Ranges.of(Range(0, MOST))
_MICROSECOND = timedelta(microseconds=1)
_Key = TypeVar("_Key", str, timedelta)

HEAD: RowKey = ("head", 0, 0)
#: Characters of the longest text of ranges that is remembered: about 80 ranges.
_REMEMBERED_LENGTH = 1000
#: The columns that are written to a row.
Written = dict[str, Value | ServerNow]
#: The due time of a free slot: earlier than any clock.
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
#: The condition that the lease of a slot has run out.
RAN_OUT = When("due_at", "<", ServerNow())
#: The condition that a slot is due.
IS_DUE = When("due_at", "<=", ServerNow())

#: Columns whose name differs from the field of a slot.
_COLUMNS = {"monotons": "ranges", "recorded": "outcomes"}
_FIELDS = {column: name for name, column in _COLUMNS.items()}


class Did(StrEnum):
    """The kinds of events in a history of messages; a settlement has a field for most kinds."""

    LEASED = "leased"
    REPLAYED = "replayed"
    ACKED = "acked"
    RELEASED = "released"
    RETURNED = "returned"
    EXTENDED = "extended"
    REJECTED = "rejected"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Settlement:
    """Decisions about messages of one lease: acked, released, extended, rejected or unread.

    A message that is named several times is acked; if not that, rejected; if not that, released.

    Attributes:
        acked: Messages that are done.
        rejected: Messages that are dead, by reason.
        released: Messages to offer again, by delay.
        extended: Messages to hold for longer, by how long from now. The ack of their batch does
            not reach them.
        unread: Messages to offer again at once, without counting this delivery, as nobody has seen
            them (I8). Only for messages of a client's lease; never recorded.
    """

    acked: Ranges = _NOTHING
    rejected: Mapping[str, Ranges] = field(default_factory=dict)
    released: Mapping[timedelta, Ranges] = field(default_factory=dict)
    extended: Mapping[timedelta, Ranges] = field(default_factory=dict)
    unread: Ranges = _NOTHING

    @property
    def named(self) -> Ranges:
        """All messages that the settlement names."""
        return Ranges.union(monotons for _, _, monotons in self.parts())

    def parts(self) -> Iterator[tuple[Did, timedelta | str | None, Ranges]]:
        """The kinds of events with their messages, and the delay, the duration or the reason."""
        yield Did.ACKED, None, self.acked
        yield from ((Did.REJECTED, reason, part) for reason, part in self.rejected.items())
        yield from ((Did.RELEASED, by, part) for by, part in self.released.items())
        yield from ((Did.EXTENDED, by, part) for by, part in self.extended.items())
        yield Did.RETURNED, None, self.unread

    def within(self, monotons: Ranges) -> Settlement:
        """The part of the settlement that concerns these messages, each named once."""
        return self._without(_EVERYTHING - monotons)

    def then(self, later: Settlement) -> Settlement:
        """Both settlements in one: for a message that both name, the later one counts."""
        before = self._without(later.named)
        return Settlement(
            Ranges.union([before.acked, later.acked]),
            _merge(before.rejected, later.rejected),
            _merge(before.released, later.released),
            _merge(before.extended, later.extended),
            Ranges.union([before.unread, later.unread]),
        )

    def _without(self, monotons: Ranges) -> Settlement:
        """The part of the settlement that names other messages than these, each named once."""
        rejected, released = sorted(self.rejected.items()), sorted(self.released.items())
        extended = sorted(self.extended.items())
        named = [ranges for _, ranges in chain(rejected, released, extended)]
        _, acked, *parts, unread = _each_once([monotons, self.acked, *named, self.unread])
        left = iter(parts)
        return Settlement(
            acked, _under(rejected, left), _under(released, left), _under(extended, left), unread
        )


@dataclass(frozen=True, slots=True)
class Head:
    """Where a group stands. The fields are named like their columns.

    Attributes:
        pointer: First monoton that the group was never offered.
        waiting_from: No waiting row has a due time (in ms) below this one.
        waiting_version: Grows with every change of the waiting rows.
    """

    pointer: int
    waiting_from: int
    waiting_version: int


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one lease; free if it holds no monoton and is due.

    Attributes:
        number, monotons: The number of the slot, and the messages in it.
        lease, due_at: The token that holds the messages, and when its lease runs out.
        deliveries, first_at, last_at: How often, and when, the messages were handed out.
        recorded: Recorded outcomes as text, and whether a sink has published the batch; possibly
            those of an earlier lease.
        by_receipts: True if the messages are settled one by one only, never as a batch.
        taken_up_by: The last replay that took the slot up, possibly under an earlier lease.
        lanes: The lanes of the messages as text, possibly of more messages; see `lanes_of`.
        attempt: The attempt that leased the slot, as `encode_attempt` writes it, possibly under an
            earlier lease.
        holder: The reader that leased the slot, as `holder_values` writes it, possibly under an
            earlier lease; see `by`.
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
    lanes: str | None = None
    attempt: str | None = None
    holder: str | None = None

    @property
    def by(self) -> str | None:
        """The name of the reader that has the lease, or had it last; None if unknown."""
        digits, _, name = (self.holder or "").partition(" ")
        return name if name and digits == _digits_of(self.lease) else None

    def is_held_by_attempt(self, name: str, now: datetime) -> bool:
        """True if a receive of this name has leased the slot, and still holds messages in it."""
        is_alive = bool(self.monotons) and self.due_at > now
        return is_alive and self.attempt == encode_attempt(self.lease, name)

    @property
    def outcomes(self) -> Settlement:
        """The outcomes recorded for the running batch, which its ack carries out."""
        return decode_outcomes(self.recorded, self.lease, self.deliveries)

    @property
    def is_published(self) -> bool:
        """True if a sink has published the batch: each replay hands out all of it."""
        return _told_of(self.recorded, self.lease, self.deliveries).get("published", False) is True

    @property
    def is_parked(self) -> bool:
        """True if nobody holds or has ever held its messages: a lease has stepped over them."""
        return bool(self.monotons) and not self.deliveries

    def is_free(self, now: datetime) -> bool:
        """True if another lease may use the slot."""
        return not self.monotons and self.due_at <= now

    def to_waiting(
        self, due: int, monotons: Ranges, reason: str | None = None, *, singly: bool = False
    ) -> Waiting:
        """A waiting row for messages of this slot, with their deliveries and times."""
        times, lanes = (self.first_at, self.last_at), lanes_within(self.lanes, monotons)
        return Waiting(due, monotons, self.deliveries, *times, reason, singly, lanes)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Monotons that the group is owed, and that are offered from ``due`` (in ms) on.

    Attributes:
        due, monotons: When the messages are due, and the messages.
        deliveries, first_at, last_at: How often, and when, the messages were handed out.
        reason: Why the messages are dead: to be dead-lettered, and never offered again; None if
            they are not dead.
        by_receipts: True if the holder gave the messages back one by one. If False, they failed
            together, and one of them may make the others fail again.
        lanes: See `Slot`.
    """

    due: int
    monotons: Ranges
    deliveries: int
    first_at: datetime | None = None
    last_at: datetime | None = None
    reason: str | None = None
    by_receipts: bool = False
    lanes: str | None = None

    @property
    def key(self) -> RowKey:
        """The key of the row."""
        return ("waiting", self.due, self.monotons.start)


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of a group as it was read.

    Attributes:
        head, slots: The head and all slots.
        waiting: The waiting rows, lowest due time first.
        now: When the state was read, by the server's clock.
        all_waiting: True if ``waiting`` has all waiting rows; False if only the first ones.
        of_one_moment: True if the state is a consistent snapshot: ``waiting`` was read after
            ``head``, and one of the two serially, so these are the waiting rows as long as
            ``waiting_version`` is the same. If False, ``waiting`` may be older or newer than
            ``head``.
        ahead: How far the server's clock is ahead of the clock of this process; see `Rows`.
        seek_pin: Where the group is about to be moved; it is owed all messages from there on.
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
        """The server's time, or the earlier one if clocks disagree; see `Rows.sure_now`."""
        return self.now - max(timedelta(0), self.ahead)

    def due_in(self, by: timedelta = timedelta(0)) -> int:
        """The due time (in ms) of messages that wait for ``by`` from now on.

        Computed from `sure_now`: by a clock that is a month ahead, messages would wait for a
        month.
        """
        return to_millis(self.sure_now) + by // timedelta(milliseconds=1)

    @property
    def now_ms(self) -> int:
        """``now`` in milliseconds."""
        return to_millis(self.now)

    def held_by(self, lease: UUID | None) -> tuple[Slot, ...]:
        """The slots under this token, including those that single settlements have emptied."""
        return tuple(slot for slot in self.slots if slot.lease == lease)

    def is_all_held_by(self, leases: Container[UUID]) -> bool:
        """True if no message is outstanding except those under these tokens."""
        held = [slot.lease for slot in self.slots if slot.monotons]
        return not self.waiting and all(lease in leases for lease in held)

    @property
    def is_quiet(self) -> bool:
        """True if no lease has run out, and no waiting row is due."""
        held = (slot for slot in self.slots if slot.monotons and not slot.is_parked)
        ran_out = any(slot.due_at < self.now for slot in held)
        return not ran_out and all(waiting.due > self.now_ms for waiting in self.waiting)

    @property
    def floor(self) -> int:
        """The lowest monoton still owed to the group; right only if all waiting rows were read."""
        outstanding = [slot.monotons.start for slot in self.slots if slot.monotons]
        outstanding += [waiting.monotons.start for waiting in self.waiting]
        pinned = [] if self.seek_pin is None else [self.seek_pin]
        return min([self.head.pointer, *outstanding, *pinned])


def slot_key(number: int) -> RowKey:
    """The key of the row of a slot."""
    return ("slot", number, 0)


def registration_key(registered_as: int) -> RowKey:
    """The key of the row that says to which registration a group state belongs."""
    return ("registration", registered_as, 0)


@decoded
def registration_of(row: Row) -> tuple[int, UUID]:
    """Decode a registration row: its number, and its token."""
    demand(row, "lease")
    return int(str(row["ordinal"])), UUID(str(row["lease"]))


def create_state(registered_as: int, token: UUID, pointer: int) -> tuple[Op, ...]:
    """Operations that write head and registration of a new group state, if there is none."""
    head: Written = {"pointer": pointer, "waiting_from": 0, "waiting_version": 0}
    registration: Written = {"lease": token}
    return (
        Insert(HEAD, head, if_absent=True),
        Insert(registration_key(registered_as), registration, if_absent=True),
    )


def change_token(registered_as: int, before: UUID, after: UUID) -> Op:
    """Change the token of a registration, if it still is ``before``."""
    unchanged = (When("lease", "=", before),)
    return Update(registration_key(registered_as), {"lease": after}, when=unchanged)


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
    """Decode the waiting rows among these rows."""
    return tuple(_waiting_of(row) for row in rows if row["kind"] == "waiting")


@decoded
def _slot_of(row: Row) -> Slot:
    values: Any = row
    demand(row, "lease", "due_at")
    demand_counts(row, "deliveries")
    where = (values["ordinal"], _ranges_in(values["ranges"]), values["lease"], values["due_at"])
    handed_out = (values["deliveries"], values["first_at"], values["last_at"])
    by_receipts = bool(values["by_receipts"])
    rest = (by_receipts, values["taken_up_by"], values["lanes"] or None)
    names = {"attempt": values["attempt"], "holder": values["holder"]}
    return Slot(*where, *handed_out, values["outcomes"], *rest, **names)


@decoded
def _waiting_of(row: Row) -> Waiting:
    values: Any = row
    demand_counts(row, "deliveries")
    handed_out = (values["deliveries"], values["first_at"], values["last_at"])
    rest = (values["reason"], bool(values["by_receipts"]), values["lanes"] or None)
    return Waiting(values["ordinal"], _ranges_in(values["ranges"]), *handed_out, *rest)


def _ranges_in(text: str) -> Ranges:
    """Read ranges; most rows are as they were when the group was read last."""
    return _remembered(text) if len(text) <= _REMEMBERED_LENGTH else Ranges.parse(text)


@lru_cache(maxsize=1024)
def _remembered(text: str) -> Ranges:
    return Ranges.parse(text)


def move_head(head: Head, pointer: int, *, waiting_from: int | None = None) -> Update:
    """Move the pointer to any position, if neither pointer nor waiting rows have changed."""
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


def encode_attempt(lease: UUID, name: str) -> str:
    """The name of an attempt as text, valid only with the lease that the attempt got."""
    return f"{lease} {name}"


def holder_values(lease: UUID, by: str | None) -> Written:
    """The column that says who has the lease of a slot; none if the reader has no name."""
    return {} if by is None else {"holder": f"{_digits_of(lease)} {by}"}


def _digits_of(lease: UUID) -> str:
    """The first digits of a token, which tell one lease from another."""
    return lease.hex[:8]


def emptied(lease: UUID) -> Written:
    """The columns of a slot that holds nothing, and is due by every clock."""
    return slot_values(monotons=_NOTHING, lease=lease, due_at=LONG_AGO)


def handed_out(deliveries: int, first_at: datetime | None) -> Written:
    """The columns of a slot that count its deliveries and date the first and the last."""
    values: Written = {"deliveries": deliveries, "last_at": ServerNow()}
    if deliveries == 1:
        values["first_at"] = ServerNow()
    elif first_at is not None:
        values["first_at"] = first_at
    return values


def handed_out_before(row: Slot | Waiting) -> Written:
    """The columns of `handed_out`, for messages that keep their deliveries and times."""
    times = {"first_at": row.first_at, "last_at": row.last_at}
    known: Written = {column: value for column, value in times.items() if value is not None}
    return {"deliveries": row.deliveries} | known


def waiting_values(waiting: Waiting) -> Written:
    """The columns of a waiting row."""
    given = {"reason": waiting.reason, "lanes": waiting.lanes}
    rest: Written = {column: value for column, value in given.items() if value is not None}
    if waiting.by_receipts:
        rest["by_receipts"] = True
    return {"ranges": str(waiting.monotons)} | handed_out_before(waiting) | rest


def token_in(values: Values) -> Value | bytes | ServerNow:
    """The token under which these columns put a slot; None if the slot keeps its token."""
    return values.get("lease")


def as_read(row: Head | Slot, field: str) -> When:
    """The condition that the column of this field still has the value that was read."""
    ((column, value),) = slot_values(**{field: getattr(row, field)}).items()
    return When(column, "=", value)


def still_held(lease: UUID, deliveries: int) -> tuple[When, ...]:
    """The conditions that a slot has this token, and was handed out this many times."""
    return (When("lease", "=", lease), When("deliveries", "=", deliveries))


def fields_written(values: Values, now: datetime) -> dict[str, Any]:
    """The fields of a head or slot, by name, after these columns were written."""
    fields: dict[str, Any] = {
        _FIELDS.get(column, column): now + value.plus if isinstance(value, ServerNow) else value
        for column, value in values.items()
    }
    if "monotons" in fields:
        fields["monotons"] = Ranges.parse(fields["monotons"])
    return fields


def encode_outcomes(
    outcomes: Settlement, lease: UUID, deliveries: int, *, is_published: bool = False
) -> str:
    """Outcomes of a batch as text; empty if all of them are acks, which are not recorded.

    Args:
        outcomes: It names each message once.
        deliveries: How often the batch was handed out: a replay counts one more.
        is_published: See `Slot.is_published`.
    """
    told = {
        "rejected": {reason: str(part) for reason, part in outcomes.rejected.items()},
        "released": {str(by // _MICROSECOND): str(it) for by, it in outcomes.released.items()},
        "extended": {str(by // _MICROSECOND): str(it) for by, it in outcomes.extended.items()},
    }
    if not any(told.values()) and not is_published:
        return ""
    whose: dict[str, Any] = {"lease": str(lease), "deliveries": deliveries}
    if is_published:
        whose["published"] = True
    return json.dumps(whose | told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode_outcomes(text: str | None, lease: UUID, deliveries: int) -> Settlement:
    """Read what `encode_outcomes` writes.

    Outcomes of another lease or delivery are dropped: a slot that is handed out anew, or
    emptied, has none.

    Raises:
        InvariantError: The text is not one of `encode_outcomes`.
    """
    told = _told_of(text, lease, deliveries)
    if not told:
        return Settlement()
    try:
        return Settlement(
            rejected={reason: Ranges.parse(part) for reason, part in told["rejected"].items()},
            released=_by_span(told["released"]),
            extended=_by_span(told["extended"]),
        )
    except OF_DECODING as error:
        raise InvariantError(f"outcomes of lease {lease} can't be read: {error}") from error


def _told_of(text: str | None, lease: UUID, deliveries: int) -> dict[str, Any]:
    """The fields of a text of `encode_outcomes`; empty if it is of another lease or delivery."""
    if not text:
        return {}
    try:
        told: dict[str, Any] = json.loads(text)
        is_ours = (told["lease"], told["deliveries"]) == (str(lease), deliveries)
    except OF_DECODING as error:
        raise InvariantError(f"outcomes of lease {lease} can't be read: {error}") from error
    return told if is_ours else {}


def _each_once(claims: Sequence[Ranges]) -> list[Ranges]:
    """The messages of each claim that no earlier one names.

    Takes n log n of all ranges: there may be as many claims as messages.
    """
    parts = sorted(
        (part.start, at, part.stop) for at, claim in enumerate(claims) for part in claim
    )
    bounds = sorted({bound for start, _, stop in parts for bound in (start, stop)})
    found: list[list[Range]] = [[] for _ in claims]
    # The parts that have begun, the one of the first claim foremost.
    begun: list[tuple[int, int]] = []
    taken = 0
    for start, stop in pairwise(bounds):
        while taken < len(parts) and parts[taken][0] == start:
            heappush(begun, parts[taken][1:])
            taken += 1
        while begun and begun[0][1] <= start:
            heappop(begun)
        if begun:
            found[begun[0][0]].append(Range(start, stop))
    return [Ranges.of(*each) for each in found]


def _under(keys: Iterable[tuple[_Key, Ranges]], parts: Iterator[Ranges]) -> dict[_Key, Ranges]:
    """The next parts under these keys, without empty ones."""
    return {key: part for (key, _), part in zip(keys, parts, strict=False) if part}


def _merge(before: Mapping[_Key, Ranges], later: Mapping[_Key, Ranges]) -> dict[_Key, Ranges]:
    merged = dict(before)
    for key, ranges in later.items():
        merged[key] = Ranges.union([merged.get(key, _NOTHING), ranges])
    return {key: ranges for key, ranges in merged.items() if ranges}


def _by_span(told: Mapping[str, str]) -> dict[timedelta, Ranges]:
    return {int(by) * _MICROSECOND: Ranges.parse(part) for by, part in told.items()}
