"""Two readings of all queues as the lines of a table, with messages per second. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cassieq_spark.monitoring.snapshot import QueueSnapshot, Snapshot
from cassieq_spark.queues.stats import GroupStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A group of a queue; or a queue that has none, or that could not be read.

    Attributes:
        queue: Name of the queue, or label of a partition of it.
        paused: Whether its readers pause.
        published: Messages published per second; None if not known.
        group: What the group is owed; None if the queue has none.
        settled: Messages that the group settled per second; None if not known.
        readers: Leases of the group that run.
        error: Why the queue could not be read.
    """

    queue: str
    paused: bool = False
    published: float | None = None
    group: GroupStats | None = None
    settled: float | None = None
    readers: int = 0
    error: str | None = None


def lines(before: Snapshot | None, now: Snapshot, *, by_partition: bool = False) -> list[Line]:
    """The lines of all queues, by name of queue and group.

    Args:
        before: An earlier reading; None: there are no rates.
        now: What is shown.
        by_partition: Whether a queue with several partitions has the lines of each instead.
    """
    was = {part.name: part for _, part in _parts(before, by_partition=by_partition)}
    found = [
        (place, line)
        for place, part in _parts(now, by_partition=by_partition)
        for line in _of_queue(was.get(part.name), part)
    ]
    errors = now.errors.items()
    found += [((name, 0), Line(queue=name, error=str(error))) for name, error in errors]
    found.sort(key=lambda each: (each[0], each[1].group.group if each[1].group else ""))
    return [line for _, line in found]


def _parts(
    snapshot: Snapshot | None, *, by_partition: bool
) -> Iterator[tuple[tuple[str, int], QueueSnapshot]]:
    """What has lines of its own, and where they are: by queue, and number of partition."""
    for queue in snapshot.queues if snapshot else ():
        parts = by_partition and queue.partitions
        for number, part in enumerate(parts or (queue,)):
            yield (queue.name, number), part


def _of_queue(before: QueueSnapshot | None, queue: QueueSnapshot) -> Iterator[Line]:
    change = rates(before, queue)
    published = change.published if change else None
    for group in queue.stats.groups:
        yield Line(
            queue=queue.name,
            paused=queue.paused,
            published=published,
            group=group,
            settled=change.settled[group.group] if change else None,
            readers=queue.leases.get(group.group, 0),
        )
    if not queue.stats.groups:
        yield Line(queue=queue.name, paused=queue.paused, published=published)


@dataclass(frozen=True, slots=True)
class Rates:
    """What came and went between two readings of a queue, per second.

    Attributes:
        published: Messages published.
        settled: Messages settled, by group; None where that is not known: the group is new, or
            was moved back.
    """

    published: float
    settled: dict[str, float | None]


def rates(before: QueueSnapshot | None, now: QueueSnapshot) -> Rates | None:
    """None where nothing can be said: the queue is new, was purged, or is read again too soon."""
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
    """Messages of the queue that the group is not owed: it has settled them, or began later."""
    return queue.stats.next - group.depth
