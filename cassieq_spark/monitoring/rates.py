"""Messages per second, from the differences of exact figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cassieq_spark.monitoring.snapshot import QueueFigures
from cassieq_spark.queues.stats import GroupStats


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


def rates(before: QueueFigures | None, now: QueueFigures) -> Rates | None:
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


def settled(queue: QueueFigures, group: GroupStats) -> int:
    """Messages of the queue that the group is not owed: it has settled them, or began later."""
    return queue.stats.next - group.depth
