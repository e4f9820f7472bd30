"""The headers of dead letters; filters and groups of dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol, Self

from cassieq_spark.arguments import REDRIVES, RESERVED
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.model import Position, Range, Ranges, parts_of_id

#: The maximum number of digits of a count; other programs may have written any number.
_LONGEST_COUNT = 9
#: The same of a monoton.
_LONGEST_MONOTON = 18

#: The header of a letter that represents messages that could not be read: their monotons.
UNREADABLE = RESERVED + "unreadable"
#: The header that says where the message was published; a letter that dies again keeps it.
FIRST_POSITION = RESERVED + "first-position"

#: The headers of a message as Arrow returns them; None if it has none.
Headers = Sequence[tuple[str, str | None]] | None


class Delivered(Protocol):
    """A message of a dead-letter queue, as far as `DeadLetter.of` reads it."""

    @property
    def monoton(self) -> int:
        """The position of the message in the dead-letter queue."""

    @property
    def headers(self) -> Mapping[str, str | None]:
        """The headers of the message."""


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetter(Displayed):
    """A message of a dead-letter queue, by its headers; None for what they do not say.

    Attributes:
        monoton: The position of the letter in the dead-letter queue.
        origin_queue, origin_group: The queue and the group that could not process the message; a
            message without ``origin_queue`` is no dead letter.
        reason: Why the message is dead.
        dead_lettered_at: When the message was dead-lettered.
        is_unreadable: True if the letter represents messages that could not be read.
        deliveries: How often the group got the message before; 0 also if unknown.
        first_delivered_at: When the group got the message first.
        published_at: When the message was published in ``origin_queue``.
        first_queue, first_position: The queue in which the message was published, and its position
            there. They differ from ``origin_queue`` if the message has died in several queues.
    """

    monoton: int
    origin_queue: str | None = None
    origin_group: str | None = None
    reason: str | None = None
    dead_lettered_at: datetime | None = None
    is_unreadable: bool = False
    deliveries: int = 0
    first_delivered_at: datetime | None = None
    published_at: datetime | None = None
    first_queue: str | None = None
    first_position: Position | None = None

    @classmethod
    def of(cls, message: Delivered) -> Self:
        """Read the headers of a message that `Client.receive` returned.

        What another program has written there is left out if it is malformed.
        """
        values = {
            name.removeprefix(RESERVED): value
            for name, value in message.headers.items()
            if name.startswith(RESERVED)
        }
        origin, group, reason = map(values.get, ("origin-queue", "origin-group", "reason"))
        dead_at, first_at, published_at = (
            _instant(values.get(name))
            for name in ("dead-lettered-at", "first-delivered-at", "published-at")
        )
        return cls(
            message.monoton,
            origin,
            group,
            reason,
            dead_at,
            UNREADABLE.removeprefix(RESERVED) in values,
            _count(values.get("deliveries")),
            first_at,
            published_at,
            *_first_of(values.get(FIRST_POSITION.removeprefix(RESERVED))),
        )

    def _view(self) -> ObjectView:
        facts = {
            "monoton": str(self.monoton),
            "origin_queue": self.origin_queue,
            "origin_group": self.origin_group,
            "reason": self.reason,
            "dead_lettered_at": self.dead_lettered_at,
        }
        return ObjectView("dead letters", "", facts)


class _Row(NamedTuple):
    monoton: int
    headers: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Takes the dead letters that match every attribute that is not None.

    Attributes:
        origin: The letters come from this queue.
        group: This consumer group could not process the messages.
        reason: The reason contains this text, whatever its case.
        since: The letters were dead-lettered at this instant or later.
        until: The letters were dead-lettered before this instant.
    """

    origin: str | None = None
    group: str | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """True if a letter matches. A header that a letter lacks never matches."""
        at = letter.dead_lettered_at
        return (
            (self.origin is None or letter.origin_queue == self.origin)
            and (self.group is None or letter.origin_group == self.group)
            and (self.reason is None or self.reason.casefold() in (letter.reason or "").casefold())
            and (self.since is None or (at is not None and self.since <= at))
            and (self.until is None or (at is not None and at < self.until))
        )


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetterGroup(Displayed):
    """Dead letters that share their origin and reason.

    Attributes:
        origin_queue, origin_group, reason: See `DeadLetter`.
        monotons: The monotons of the letters in the dead-letter queue; at least one.
        first, last: When the first and the last letter was dead-lettered; None if unknown.
        unreadable: The monotons of letters that represent messages that could not be read.
    """

    origin_queue: str | None
    origin_group: str | None
    reason: str | None
    monotons: Ranges
    first: datetime | None
    last: datetime | None
    unreadable: Ranges = field(default_factory=Ranges)

    def _view(self) -> ObjectView:
        facts = {
            "origin_queue": self.origin_queue,
            "origin_group": self.origin_group,
            "reason": self.reason,
            "letters": self.monotons.count,
            "first": self.first,
            "last": self.last,
        }
        return ObjectView("groups of dead letters", "", facts, {"monotons": str(self.monotons)})


def read_letter(monoton: int, headers: Headers) -> DeadLetter:
    """Read the headers of a message as Arrow returns them.

    >>> read_letter(7, [("cassieq.origin-queue", "orders"), ("own", "x")]).origin_queue
    'orders'
    """
    return DeadLetter.of(_Row(monoton, dict(headers or ())))


def redriven_headers(headers: Headers) -> list[tuple[str, str | None]]:
    """The headers of a redriven message: its own, and a count of its redrives.

    >>> redriven_headers([("own", "x"), ("cassieq.reason", "r"), ("cassieq.redrives", "2")])
    [('own', 'x'), ('cassieq.redrives', '3')]
    """
    own = [(name, value) for name, value in headers or () if not name.startswith(RESERVED)]
    return [*own, (REDRIVES, str(_count(dict(headers or ()).get(REDRIVES)) + 1))]


def first_position_text(queue_id: str, monoton: int) -> str:
    """The value of `FIRST_POSITION` of a message at this position.

    >>> first_position_text("orders@1.3", 42)
    'orders@1.3/42'
    """
    return f"{queue_id}/{monoton}"


def group_letters(
    letters: Iterable[DeadLetter], criteria: Filter, *, limit: int | None = None
) -> tuple[DeadLetterGroup, ...]:
    """Group letters by origin and reason.

    Args:
        letters: The letters, in the order of their monotons.
        limit: Maximum number of letters, the first that ``criteria`` match; None for all.
    """
    groups: dict[tuple[str | None, str | None, str | None], _Gathered] = {}
    for letter in islice(filter(criteria.takes, letters), limit):
        key = (letter.origin_queue, letter.origin_group, letter.reason)
        groups.setdefault(key, _Gathered()).add(letter)
    in_order = sorted(groups.items(), key=lambda group: [part or "" for part in group[0]])
    return tuple(gathered.as_group(*key) for key, gathered in in_order)


@dataclass(slots=True)
class _Gathered:
    """A group that is not complete; its runs are pairs of start and stop."""

    runs: list[list[int]] = field(default_factory=list)
    instants: list[datetime] = field(default_factory=list)
    unreadable: list[Range] = field(default_factory=list)

    def add(self, letter: DeadLetter) -> None:
        if self.runs and self.runs[-1][1] == letter.monoton:
            self.runs[-1][1] += 1
        else:
            self.runs.append([letter.monoton, letter.monoton + 1])
        if letter.dead_lettered_at is not None:
            instants = [*self.instants, letter.dead_lettered_at]
            self.instants = [min(instants), max(instants)]
        if letter.is_unreadable:
            self.unreadable.append(Range(letter.monoton, letter.monoton + 1))

    def as_group(
        self, origin: str | None, group: str | None, reason: str | None
    ) -> DeadLetterGroup:
        monotons = Ranges(tuple(Range(start, stop) for start, stop in self.runs))
        first, last = self.instants or (None, None)
        unreadable = Ranges.of(*self.unreadable)
        return DeadLetterGroup(origin, group, reason, monotons, first, last, unreadable)


def _first_of(text: str | None) -> tuple[str, Position] | tuple[None, None]:
    """The queue and the position in the header `FIRST_POSITION`."""
    queue_id, _, monoton = (text or "").rpartition("/")
    is_monoton = monoton.isascii() and monoton.isdecimal() and len(monoton) <= _LONGEST_MONOTON
    try:
        queue, version, partition = parts_of_id(queue_id)
    except ValueError:
        return None, None
    if not is_monoton:
        return None, None
    return queue, Position(int(monoton), partition or 0, version)


def _count(text: str | None) -> int:
    """The number in a header; 0 if there is none."""
    digits = text or ""
    is_count = digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST_COUNT
    return int(digits) if is_count else 0


def _instant(text: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return instant if instant.tzinfo else None
