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
        queue: Name of the queue.
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


def lines(before: Snapshot | None, now: Snapshot) -> list[Line]:
    """The lines of all queues, by name of queue and group."""
    found = [*_of_queues(before, now)]
    found += [Line(queue=name, error=str(error)) for name, error in now.errors.items()]
    return sorted(found, key=lambda line: (line.queue, line.group.group if line.group else ""))


def _of_queues(before: Snapshot | None, now: Snapshot) -> Iterator[Line]:
    was = {queue.name: queue for queue in before.queues} if before else {}
    for queue in now.queues:
        change = rates(was.get(queue.name), queue)
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
