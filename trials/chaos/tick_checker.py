"""The verdict on the schedule of a chaos run: each tick once, and in order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from cassieq_spark.schedules import Schedule


@dataclass(frozen=True, slots=True)
class TickVerdict:
    """The verdict on the messages of a schedule.

    Attributes:
        ticks: Ticks that were published.
        ticks_lost: Ticks up to the last one that was published, without a message.
        ticks_doubled: Messages of a tick that has another message before.
        ticks_reordered: Messages that come after a message of a later tick.
        ticks_invented: Messages that are of no tick.
    """

    ticks: int
    ticks_lost: int
    ticks_doubled: int
    ticks_reordered: int
    ticks_invented: int

    @property
    def is_fine(self) -> bool:
        wrong = (self.ticks_lost, self.ticks_doubled, self.ticks_reordered, self.ticks_invented)
        return self.ticks > 0 and not any(wrong)


def ticks_until(schedule: Schedule, last: datetime | None) -> list[str]:
    """The bodies of all messages of a schedule up to a tick."""
    if last is None:
        return []
    ticks = schedule.ticks_after(schedule.since)
    return [schedule.value_of(tick) for tick in takewhile(lambda tick: tick <= last, ticks)]


def judge_ticks(expected: Sequence[str], found: Sequence[str]) -> TickVerdict:
    """Compare the bodies of messages in the order of the queue with those that must be there.

    Args:
        expected: A body for each tick, in order; no two are the same.
        found: The bodies.
    """
    number = {body: at for at, body in enumerate(expected)}
    seen: set[int] = set()
    doubled = reordered = invented = 0
    for body in found:
        at = number.get(body)
        if at is None:
            invented += 1
        elif at in seen:
            doubled += 1
        else:
            reordered += bool(seen) and at < max(seen)
            seen.add(at)
    return TickVerdict(len(seen), len(expected) - len(seen), doubled, reordered, invented)
