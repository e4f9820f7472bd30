"""The console's readings of a queue over the last hours, and rates computed from them.

A *track* is a figure over time: exact where it was read, and a straight line between two readings.
So the messages of a bin of a chart are the difference of two points of a track.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from cassieq_spark.model import LedgerBlock, QueueId
from cassieq_spark.monitoring.board import settled
from cassieq_spark.monitoring.snapshot import QueueSnapshot

#: How long figures are kept.
KEPT = timedelta(hours=3)
#: A rate "now" is the mean over this time, or over the last two readings if they are further
#: apart.
RECENT = timedelta(minutes=1)
#: How many points are dropped at once, so that dropping them costs little.
_DROPPED_TOGETHER = 64


class Track:
    """A figure over time, in 16 bytes per point; equal figures in a row are two points."""

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._times)

    @property
    def begins_at(self) -> float | None:
        """The time of the first point; None if there is none."""
        return self._times[0] if self._times else None

    @property
    def last(self) -> int | None:
        """The value of the last point."""
        return self._values[-1] if self._values else None

    def add(self, at: float, value: int) -> None:
        """Add a point; a point older than the last one is left out.

        Args:
            at: Seconds since 1970.
            value: The figure then.
        """
        times, values = self._times, self._values
        if times and at <= times[-1]:
            return
        if len(values) > 1 and values[-1] == values[-2] == value:
            times[-1] = at
        else:
            times.append(at)
            values.append(value)

    def precede(self, points: Sequence[tuple[float, int]]) -> None:
        """Put points before the first one, in order of time; two points of one time are a step."""
        begins_at = self.begins_at
        older = [each for each in points if begins_at is None or each[0] < begins_at]
        self._times = array("d", [at for at, _ in older]) + self._times
        self._values = array("q", [value for _, value in older]) + self._values

    def forget(self, before: float) -> None:
        """Drop points before a time, except the last of them, where a line begins."""
        count = bisect.bisect_right(self._times, before) - 1
        if count >= _DROPPED_TOGETHER:
            del self._times[:count]
            del self._values[:count]

    def at(self, time: float) -> float | None:
        """The value at a time; None before the first point and after the last."""
        times, values = self._times, self._values
        if not times or not times[0] <= time <= times[-1]:
            return None
        after = bisect.bisect_right(times, time)
        if after == len(times):
            return float(values[-1])
        before = after - 1
        span = times[after] - times[before]
        part = (time - times[before]) / span if span else 0.0
        return values[before] + part * (values[after] - values[before])

    def levels(self, edges: Sequence[float]) -> list[float | None]:
        """The value at the end of each bin."""
        return [self.at(min(edge, self._end(edges))) for edge in edges[1:]]

    def rates(self, edges: Sequence[float]) -> list[float | None]:
        """The rate per second in each bin; None where it is unknown, or where the figure fell.

        Args:
            edges: Where the bins begin and end, in order. The last bin may be cut short.
        """
        found: list[float | None] = []
        for start, stop in pairwise(edges):
            end = min(stop, self._end(edges))
            one, other = self.at(start), self.at(end)
            known = one is not None and other is not None and end > start and other >= one
            found.append((other - one) / (end - start) if known and one is not None else None)  # type: ignore[operator]
        return found

    def rate(self, over: timedelta = RECENT) -> float | None:
        """The recent rate per second, over ``over`` or the last two points, whichever is longer.

        Returns:
            None if the figure was read only once, or fell.
        """
        times, values = self._times, self._values
        if len(times) < 2:  # noqa: PLR2004 (a rate takes two points)
            return None
        start = max(times[0], min(times[-1] - over.total_seconds(), times[-2]))
        began = self.at(start)
        if began is None or times[-1] <= start or values[-1] < began:
            return None
        return (values[-1] - began) / (times[-1] - start)

    def _end(self, edges: Sequence[float]) -> float:
        """The end of the known part of the last bin."""
        last = self._times[-1] if self._times else edges[-1]
        return max(last, edges[-2])


@dataclass(slots=True)
class GroupHistory:
    """The readings of a group.

    Attributes:
        settled: Messages of the queue that the group is not owed.
        depth: Messages that the group is owed.
    """

    settled: Track = field(default_factory=Track)
    depth: Track = field(default_factory=Track)


@dataclass(slots=True)
class QueueHistory:
    """The readings of a queue; they begin anew when the queue is purged or created again.

    Attributes:
        queue_id: Id of the version that was read.
        published: Messages published.
        groups: The groups that existed at the last reading, by name.
        began_at: When the queue was read first, in seconds since 1970; what is earlier follows
            from the blocks of its ledger.
        has_blocks: True if these blocks were read.
    """

    queue_id: QueueId
    published: Track = field(default_factory=Track)
    groups: dict[str, GroupHistory] = field(default_factory=dict)
    began_at: float | None = None
    has_blocks: bool = False

    def add(self, at: float, queue: QueueSnapshot) -> None:
        """Add a reading.

        Args:
            at: The time, in seconds since 1970.
            queue: The figures that were read.
        """
        if self.began_at is None:
            self.began_at = at
        self.published.add(at, queue.stats.next)
        self.groups = {
            group.group: self.groups.get(group.group) or GroupHistory()
            for group in queue.stats.groups
        }
        for group in queue.stats.groups:
            self.groups[group.group].settled.add(at, settled(queue, group))
            self.groups[group.group].depth.add(at, group.depth)
        self._forget(at - KEPT.total_seconds())

    def add_blocks(self, partitions: Iterable[tuple[int, Sequence[LedgerBlock]]]) -> None:
        """Add what was published before the first reading, as far as blocks are known.

        Args:
            partitions: For each partition, how many blocks were requested, and the last blocks
                that it has, in order.
        """
        self.has_blocks = True
        blocks: list[LedgerBlock] = []
        known_from = 0.0
        for limit, found in partitions:
            blocks += found
            # Of earlier ones it is not known whether there were any.
            begins = bool(found) and found[0].monotons.start == 0
            if found and (len(found) >= limit or not begins):
                known_from = max(known_from, found[0].published_at.timestamp())
        began_at, total = self.began_at, self.published.at(self.began_at or 0.0)
        if began_at is None or total is None:
            return
        count, points = int(total), []
        for block in sorted(blocks, key=lambda block: block.published_at, reverse=True):
            at = block.published_at.timestamp()
            if not known_from <= at < began_at:
                continue
            points += [(at, count), (at, count - len(block.monotons))]
            count -= len(block.monotons)
        self.published.precede([*reversed(points)])

    def _forget(self, before: float) -> None:
        self.published.forget(before)
        for group in self.groups.values():
            group.settled.forget(before)
            group.depth.forget(before)


def edges_until(now: datetime, span: timedelta, bins: int) -> list[float]:
    """Where the bins of a chart begin and end: at multiples of their length, so they stand still.

    >>> from datetime import UTC
    >>> edges_until(datetime(1970, 1, 1, 0, 1, 1, tzinfo=UTC), timedelta(seconds=60), 3)
    [20.0, 40.0, 60.0, 80.0]
    """
    width = span.total_seconds() / bins
    last = (now.timestamp() // width + 1) * width
    return [last - (bins - number) * width for number in range(bins + 1)]
