"""Two readings of all queues as the lines of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cassieq_spark.monitoring.rates import rates
from cassieq_spark.monitoring.snapshot import Snapshot
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
