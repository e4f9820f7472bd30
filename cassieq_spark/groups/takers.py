"""Who gets what: the messages of a lease, for receivers that settle them one by one.

This module is about messages only; `plan_lease` makes the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cassieq_spark.groups.deliveries import most_messages
from cassieq_spark.groups.lanes import ANY_LANE, NO_LANE, ByLane
from cassieq_spark.groups.state import Slot, Waiting
from cassieq_spark.model import Range, Ranges

#: One lease takes messages from at most this many rows: each is one or two rows of its LWT.
MOST_ROWS = 64

_NO_END = 2**62
_NOTHING = Ranges()

#: Where messages are: in a row of the group's state, or, if None, beyond the pointer.
Source = Slot | Waiting | None
#: Messages, by where they are.
Parts = list[tuple[Source, Ranges]]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which messages are handed out.

    Attributes:
        lanes_of: The lanes of the messages of a row.
        max_deliveries: Deliveries after which a message is dead; 0 for never.
        prefer_fresh: True if messages that nobody has had go before those of other lanes.
    """

    lanes_of: Callable[[Slot | Waiting], ByLane]
    max_deliveries: int
    prefer_fresh: bool = False

    def suspect(self, source: Source) -> Slot | Waiting | None:
        """The row, if its messages are suspect: they failed together, as far as is known."""
        if source is None or _is_new(source):
            return None
        return None if isinstance(source, Waiting) and source.by_receipts else source

    def most_of(self, suspect: Slot | Waiting) -> int:
        """How many messages of a row may be handed out together."""
        count, delivery = suspect.monotons.count, suspect.deliveries + 1
        return most_messages(count, delivery=delivery, max_deliveries=self.max_deliveries)


@dataclass(slots=True, eq=False)
class Taker:
    """A receiver, and the messages that it gets.

    Attributes:
        room: How many more messages the receiver takes.
        taken: The messages that the receiver gets, by where they are.
        suspect: The row from which all these messages are, if they are suspect.
    """

    room: int
    taken: dict[Source, Ranges] = field(default_factory=dict)
    suspect: Slot | Waiting | None = None

    @property
    def monotons(self) -> Ranges:
        """All messages that the receiver gets."""
        return Ranges.union(self.taken.values())

    def takes(self, suspect: Slot | Waiting | None, most: int) -> int:
        """How many more messages the receiver takes from a row; if suspect, ``most`` in all."""
        if self.taken and self.suspect is not suspect:
            return 0
        if suspect is None:
            return self.room
        return min(self.room, most - self.taken.get(suspect, _NOTHING).count)

    def take(self, parts: Parts, suspect: Slot | Waiting | None) -> None:
        """Add these messages to those that the receiver gets."""
        for source, monotons in parts:
            self.suspect = suspect
            self.taken[source] = Ranges.union([self.taken.get(source, _NOTHING), monotons])
            self.room -= monotons.count


def hand_out(
    takers: Sequence[Taker],
    due: Sequence[Slot | Waiting],
    held: Sequence[Slot | Waiting],
    fresh: ByLane,
    rules: Rules,
) -> None:
    """Give each receiver its messages: the lowest ones first, and each lane to one receiver.

    - No message of a lane is given before earlier ones of the lane (I11), except for those that
      the same receiver gets by the same lease. Messages in no lane block no other message.
    - Messages that failed together are suspect: one of them may make its receiver fail again. So
      a receiver that gets such messages gets nothing else, and no more than their delivery may
      have; see `most_messages`. Messages that were given back one by one, and messages that
      nobody has had, are handed out together.

    Args:
        takers: The receivers, in order; their messages are added to them.
        due: The rows whose messages may be handed out.
        held: The rows of other messages that were handed out, or wait.
        fresh: The messages beyond the pointer that may be handed out.
        rules: The rules.
    """
    rows: set[Source] = set()
    for line in _in_turn(_lines(due, held, fresh, rules), rules):
        hungry = [taker for taker in takers if taker.room > 0]
        if not hungry or len(rows) >= MOST_ROWS:
            return
        suspect = rules.suspect(line.foremost)
        most = rules.most_of(suspect) if suspect is not None else 0
        offered = line.offered(rules, most_rows=MOST_ROWS - len(rows))
        for taker in hungry:
            room = taker.takes(suspect, most)
            if room <= 0 or not offered:
                continue
            got, rest = Ranges.union(part for _, part in offered).split(room)
            taker.take(_within(offered, got), suspect)
            rows.update(taker.taken)
            offered = [] if line.is_lane else _within(offered, rest)


def _in_turn(lines: Iterable[_Line], rules: Rules) -> list[_Line]:
    """The lines with a message that may be handed out, in their turn."""
    return sorted(
        (line for line in lines if line.start < line.below),
        key=lambda line: (rules.prefer_fresh and not _is_new(line.foremost), line.start),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """The messages of a lane, which go out in order; or some messages in no lane.

    Attributes:
        parts: The messages, by where they are, the lowest ones first; at least one.
        is_lane: True if the messages are of a lane, so that one receiver gets them.
        below: Only messages below this may be handed out.
    """

    parts: Parts
    is_lane: bool = False
    below: int = _NO_END

    @property
    def start(self) -> int:
        """The lowest message."""
        return self.parts[0][1].start

    @property
    def foremost(self) -> Source:
        """Where the lowest message is."""
        return self.parts[0][0]

    def offered(self, rules: Rules, most_rows: int) -> Parts:
        """The messages that may be handed out together, from the lowest one on."""
        suspect = rules.suspect(self.foremost)
        mine: Parts = []
        others = [self.below]
        for where, part in self.parts:
            if rules.suspect(where) is suspect and len(mine) < most_rows:
                mine.append((where, part))
            else:
                others.append(part.start)
        return _within(mine, Ranges.of(Range(0, min(others))))


def _lines(
    due: Sequence[Slot | Waiting], held: Sequence[Slot | Waiting], fresh: ByLane, rules: Rules
) -> Iterator[_Line]:
    starts: dict[int, int] = {}
    for row in held:
        for lane, monotons in rules.lanes_of(row).items():
            starts[lane] = min(starts.get(lane, _NO_END), monotons.start)
    parts: dict[int, Parts] = {}
    sources: list[tuple[Source, ByLane]] = [(row, rules.lanes_of(row)) for row in due]
    for source, by_lane in (*sources, (None, fresh)):
        for lane, monotons in by_lane.items():
            if monotons:
                parts.setdefault(lane, []).append((source, monotons))
    for those in parts.values():
        those.sort(key=_start_of)
    yield from (_Line([each]) for each in parts.pop(NO_LANE, []))
    starts.pop(NO_LANE, None)
    # Messages of which the lane is not known may be of any.
    unknown = parts.pop(ANY_LANE, [])
    first_unknown = min((part.start for _, part in unknown), default=_NO_END)
    every = min(first_unknown, starts.get(ANY_LANE, _NO_END))
    for lane, those in parts.items():
        yield _Line(those, is_lane=True, below=min(every, starts.get(lane, _NO_END)))
    if unknown:
        others = [part.start for those in parts.values() for _, part in those]
        yield _Line(unknown, is_lane=True, below=min([*others, *starts.values(), _NO_END]))


def _start_of(part: tuple[Source, Ranges]) -> int:
    return part[1].start


def _within(parts: Parts, monotons: Ranges) -> Parts:
    """The parts, restricted to these messages."""
    shared = ((where, part & monotons) for where, part in parts)
    return [(where, part) for where, part in shared if part]


def _is_new(source: Source) -> bool:
    """True if nobody has had the messages."""
    return source is None or not source.deliveries
