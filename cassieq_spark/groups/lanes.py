"""Lanes: in a queue ordered by key, what must stay in order within a partition.

A lane has all messages of its keys: which lane a key belongs to follows from the key alone. A
message that is held, or that waits, holds up the later ones of its lane only. Messages without a
key are in no lane, and hold up nothing.

Rows of a group's state have the lanes of their messages as text, so that nobody needs to read
these messages to know what they hold up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from cassieq_spark.errors import InvariantError
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.decoded import OF_DECODING

#: How many lanes a partition has. Keys of one lane hold each other up, and stay in order.
LANES = 1 << 16
#: The lane of messages without a key: none holds up another message.
NO_LANE = LANES
#: The lane of messages whose lane is unknown, such as a batch of Spark's: they hold up all others.
ANY_LANE = -1

#: The messages of each lane.
ByLane = Mapping[int, Ranges]


@dataclass(frozen=True, slots=True)
class Window:
    """The lanes of messages that were never offered, from a monoton on.

    Attributes:
        start: The monoton of the first message.
        lanes: The lane of each message.
        fitting: Maximum number of messages to lease, by their bytes; None for no limit.
    """

    start: int
    lanes: Sequence[int]
    fitting: int | None = None

    @property
    def stop(self) -> int:
        """The end of the messages that the window knows."""
        return self.start + len(self.lanes)

    def beyond(self, pointer: int, *, stop: int, most: int) -> Range:
        """The known messages of ``[pointer, stop)``, at most ``most`` of them."""
        first = max(self.start, pointer)
        return Range(first, max(first, min(self.stop, stop, first + most)))

    def by_lane(self, monotons: Ranges) -> dict[int, Ranges]:
        """The lanes of those of these messages that the window knows.

        Takes time for these messages only.
        """
        known = monotons & Ranges.of(Range(self.start, self.stop))
        found: defaultdict[int, list[Range]] = defaultdict(list)
        for part in known:
            _add_runs(
                found, part.start, self.lanes[part.start - self.start : part.stop - self.start]
            )
        return _ranges_by_lane(found)


def by_lane(start: int, lanes: Sequence[int]) -> dict[int, Ranges]:
    """The messages of each lane, given the lane of each from ``start`` on.

    >>> {lane: str(monotons) for lane, monotons in by_lane(10, [7, 7, 3, 7]).items()}
    {7: '10-12,13-14', 3: '12-13'}
    """
    found: defaultdict[int, list[Range]] = defaultdict(list)
    _add_runs(found, start, lanes)
    return _ranges_by_lane(found)


def _add_runs(found: defaultdict[int, list[Range]], start: int, lanes: Sequence[int]) -> None:
    """Add a range for each run of one lane, given the lane of each message from ``start`` on."""
    begun, before = start, None
    for at, lane in enumerate(lanes, start):
        if lane != before:
            if before is not None:
                found[before].append(Range(begun, at))
            begun, before = at, lane
    if before is not None:
        found[before].append(Range(begun, start + len(lanes)))


def _ranges_by_lane(found: Mapping[int, Sequence[Range]]) -> dict[int, Ranges]:
    return {lane: Ranges(tuple(parts)) for lane, parts in found.items()}


def encode_lanes(lanes: ByLane) -> str:
    """The lanes of some messages as text: their ranges, and a run for each change of lane.

    Messages of `ANY_LANE` are left out: without a text, they are read as `ANY_LANE`.

    >>> encode_lanes({7: Ranges.parse("10-12,13-14"), 3: Ranges.parse("12-13")})
    '10-14|7*2,3,7'
    """
    known = {lane: it for lane, it in lanes.items() if lane != ANY_LANE}
    pieces = sorted((part.start, part.stop, lane) for lane, it in known.items() for part in it)
    runs = _encode_runs(
        (lane, sum(stop - start for start, stop, _ in run))
        for lane, run in groupby(pieces, itemgetter(2))
    )
    return f"{Ranges.union(known.values())}|{runs}" if runs else ""


def decode_lanes(text: str | None) -> dict[int, Ranges]:
    """Read what `encode_lanes` writes; empty if there is no text.

    Raises:
        InvariantError: The text is not one of `encode_lanes`.
    """
    return dict(_decoded(text or "")[0])


@lru_cache(maxsize=256)
def _decoded(text: str) -> tuple[ByLane, Ranges]:
    """The messages of each lane, and all of them.

    Cached: most rows are as they were when the group was read last.
    """
    ranges, _, runs = text.partition("|")
    try:
        monotons = Ranges.parse(ranges)
        found: dict[int, list[Range]] = {}
        left = _Parts(monotons)
        for lane, count in _decode_runs(runs):
            found.setdefault(lane, []).extend(left.take(count))
        left.check_empty()
    except OF_DECODING as error:
        raise InvariantError(f"lanes {text[:100]!r} can't be read: {error}") from error
    return {lane: Ranges.of(*parts) for lane, parts in found.items()}, monotons


def encode_lane_of_each(lanes: Sequence[int]) -> str:
    """The lanes of messages in a row as text: a run for each change of lane.

    >>> encode_lane_of_each([7, 7, 3, 7])
    '7*2,3,7'
    """
    return _encode_runs((lane, len([*run])) for lane, run in groupby(lanes))


def decode_lane_of_each(text: str, count: int) -> list[int] | None:
    """Read what `encode_lane_of_each` writes; None if the text is not that of ``count`` messages.

    >>> decode_lane_of_each("7*2,3,7", 4)
    [7, 7, 3, 7]
    """
    lanes: list[int] = []
    try:
        for lane, length in _decode_runs(text):
            if not 1 <= length <= count - len(lanes):
                return None
            lanes += [lane] * length
    except ValueError:
        return None
    return lanes if len(lanes) == count else None


def _encode_runs(runs: Iterable[tuple[int, int]]) -> str:
    """The text of runs, each with its lane and its number of messages."""
    return ",".join(f"{lane}*{count}" if count > 1 else f"{lane}" for lane, count in runs)


def _decode_runs(text: str) -> Iterator[tuple[int, int]]:
    for run in text.split(",") if text else ():
        lane, _, count = run.partition("*")
        yield _checked(int(lane)), int(count or 1)


class _Parts:
    """The parts of ranges, from the lowest on."""

    def __init__(self, monotons: Ranges) -> None:
        self._parts = list(reversed(monotons.parts))

    def take(self, count: int) -> Iterator[Range]:
        """The next ``count`` monotons."""
        if count < 1:
            raise ValueError(f"a run of {count}")
        while count:
            if not self._parts:
                raise ValueError("more lanes than messages")
            part = self._parts.pop()
            taken = Range(part.start, min(part.stop, part.start + count))
            count -= len(taken)
            if taken.stop < part.stop:
                self._parts.append(Range(taken.stop, part.stop))
            yield taken

    def check_empty(self) -> None:
        if self._parts:
            raise ValueError("fewer lanes than messages")


def _checked(lane: int) -> int:
    if not 0 <= lane <= NO_LANE:
        raise ValueError(f"there is no lane {lane}")
    return lane


def lanes_within(text: str | None, monotons: Ranges) -> str | None:
    """The text for a part of the messages; None if the text has no lane for them."""
    return encode_lanes(restrict(decode_lanes(text), monotons)) or None


def restrict(lanes: ByLane, monotons: Ranges) -> dict[int, Ranges]:
    """The part of ``lanes`` that concerns these messages."""
    parts = ((lane, it & monotons) for lane, it in lanes.items())
    return {lane: part for lane, part in parts if part}


def lanes_of(text: str | None, monotons: Ranges) -> dict[int, Ranges]:
    """The lanes of the messages of a row; `ANY_LANE` for those that its text does not name.

    The lane of a message never changes, and earlier releases write a row without updating its
    text. So the text may name too many messages or too few, but none in a wrong lane.
    """
    known, every = _decoded(text or "")
    if every == monotons:
        return dict(known)
    lanes = restrict(known, monotons)
    if unknown := monotons - Ranges.union(lanes.values()):
        lanes[ANY_LANE] = unknown
    return lanes


def join_lanes(every: Iterable[ByLane]) -> dict[int, Ranges]:
    """The messages of each lane, of all of ``every`` together."""
    joined: dict[int, list[Ranges]] = {}
    for each in every:
        for lane, monotons in each.items():
            joined.setdefault(lane, []).append(monotons)
    return {lane: Ranges.union(parts) for lane, parts in joined.items()}
