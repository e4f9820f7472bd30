"""The lines of ``cassieq top``, with rates from two readings of all queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cassieq_spark.monitoring.snapshot import QueueSnapshot, Snapshot
from cassieq_spark.queues.stats import GroupStats


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLine:
    """A group of a queue, a queue without groups, or a queue that could not be read.

    Attributes:
        queue: Name of the queue, or label of a queue partition.
        paused: True if the queue is paused.
        published: Messages published per second; None if unknown.
        group: The figures of the group; None if the queue has none.
        settled: Messages that the group settled per second; None if unknown.
        readers: Leases of the group that have not run out.
        holders: The names of the readers that have these leases.
        error: Why the queue could not be read.
        has_dead_letters: True if other queues send dead letters to this queue.
    """

    queue: str
    paused: bool = False
    published: float | None = None
    group: GroupStats | None = None
    settled: float | None = None
    readers: int = 0
    holders: tuple[str, ...] = ()
    error: str | None = None
    has_dead_letters: bool = False

    @property
    def is_stuck(self) -> bool:
        """True if messages wait, and no reader takes them. Dead letters wait for a person."""
        owed = self.group is not None and self.group.depth > self.group.waiting
        return owed and not (self.readers or self.settled or self.has_dead_letters or self.paused)


def lines(
    before: Snapshot | None, now: Snapshot, *, by_partition: bool = False
) -> list[BoardLine]:
    """The lines of all queues, by name of queue and group.

    Args:
        before: An earlier reading, for the rates.
        now: The reading to show.
        by_partition: True if each of several queue partitions has lines of its own.
    """
    targets = {queue.name for queue in now.queues if queue.dead_letters is not None}
    was = {part.name: part for _, part in _parts(before, by_partition=by_partition)}
    found = [
        (place, line)
        for place, part in _parts(now, by_partition=by_partition)
        for line in _of_queue(was.get(part.name), part, has_dead_letters=place[0] in targets)
    ]
    errors = now.errors.items()
    found += [((name, 0), BoardLine(queue=name, error=str(error))) for name, error in errors]
    found.sort(key=lambda each: (each[0], each[1].group.group if each[1].group else ""))
    return [line for _, line in found]


def _parts(
    snapshot: Snapshot | None, *, by_partition: bool
) -> Iterator[tuple[tuple[str, int], QueueSnapshot]]:
    """The queues or queue partitions that have lines of their own, with their sort keys."""
    for queue in snapshot.queues if snapshot else ():
        parts = by_partition and queue.partitions
        for number, part in enumerate(parts or (queue,)):
            yield (queue.name, number), part


def _of_queue(
    before: QueueSnapshot | None, queue: QueueSnapshot, *, has_dead_letters: bool
) -> Iterator[BoardLine]:
    change = rates(before, queue)
    published = change.published if change else None
    for group in queue.stats.groups:
        yield BoardLine(
            queue=queue.name,
            paused=queue.paused,
            published=published,
            group=group,
            settled=change.settled[group.group] if change else None,
            readers=queue.leases.get(group.group, 0),
            holders=queue.holders.get(group.group, ()),
            has_dead_letters=has_dead_letters,
        )
    if not queue.stats.groups:
        yield BoardLine(
            queue=queue.name,
            paused=queue.paused,
            published=published,
            has_dead_letters=has_dead_letters,
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages published and settled per second between two readings of a queue.

    ``settled`` is by group; None if the group is new or was moved back.
    """

    published: float
    settled: dict[str, float | None]


def rates(before: QueueSnapshot | None, now: QueueSnapshot) -> Rates | None:
    """The rates; None if the queue is new or was purged, or no time has passed."""
    if before is None or before.stats.queue_id != now.stats.queue_id:
        return None
    seconds = now.read_at - before.read_at
    if seconds <= 0:
        return None
    was = {group.group: settled(before, group) for group in before.stats.groups}
    gone = {
        group.group: settled(now, group) - was[group.group] if group.group in was else -1
        for group in now.stats.groups
    }
    return Rates(
        (now.stats.next - before.stats.next) / seconds,
        {name: count / seconds if count >= 0 else None for name, count in gone.items()},
    )


def settled(queue: QueueSnapshot, group: GroupStats) -> int:
    """Messages of the queue that the group has settled, or that precede its start."""
    return queue.stats.next - group.depth
