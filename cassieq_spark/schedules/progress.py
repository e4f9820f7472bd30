"""How far a schedule is, and a message of it at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from cassieq_spark.arguments import check_count
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import CassieqError
from cassieq_spark.ledger.publish import Published
from cassieq_spark.model import Position
from cassieq_spark.producer.new_message import check_message
from cassieq_spark.producer.partitioned import put_messages
from cassieq_spark.producer.publisher import Written
from cassieq_spark.schedules.changes import read_schedule
from cassieq_spark.schedules.due import Tick
from cassieq_spark.schedules.publish import message_of, read_progress
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.store.protocol import Store

_MOST_SHOWN = 1000


@dataclass(frozen=True, slots=True, repr=False)
class ScheduleProgress(Displayed):
    """How far a schedule is.

    Attributes:
        schedule: The schedule.
        last: The last tick that was published; None if none was.
        next: The next ticks, as far as there are any; none if it is paused.
        lag: How long the oldest tick is overdue that came after the last one; None if there is
            none.
    """

    schedule: Schedule
    last: datetime | None
    next: tuple[datetime, ...]
    lag: timedelta | None

    def _view(self) -> ObjectView:
        it = self.schedule
        upcoming = self.next[0] if self.next else None
        facts = {"name": it.name, "last": self.last, "next": upcoming, "lag": self.lag}
        return ObjectView("schedules", it.queue, facts)


def read_schedule_progress(
    store: Store, queue: str, name: str, *, ticks: int = 5
) -> ScheduleProgress:
    """Read a schedule, and how far it is. Two reads.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        ticks: How many of the next ticks are computed.

    Raises:
        NotFoundError: There is no such queue or schedule.
        OptionError: ``ticks`` is out of range.
    """
    check_count("ticks", ticks, least=0, most=_MOST_SHOWN)
    schedule, definition = read_schedule(store, queue, name)
    last, now = read_progress(store, definition, schedule)
    return progress_of(schedule, last, now, ticks)


def progress_of(
    schedule: Schedule, last: datetime | None, now: datetime, ticks: int
) -> ScheduleProgress:
    """How far a schedule is at an instant, given its last tick."""
    if schedule.paused:
        return ScheduleProgress(schedule, last, (), None)
    first = next(schedule.ticks_after(schedule.since if last is None else last), None)
    due_at = None if first is None else schedule.due_at(first)
    lag = None if due_at is None or due_at > now else now - due_at
    upcoming = tuple(islice(schedule.ticks_after(now if last is None else max(now, last)), ticks))
    return ScheduleProgress(schedule, last, upcoming, lag)


def run_now(
    store: Store, queue: str, name: str, publish: Callable[[Sequence[Written]], Published]
) -> Position:
    """Put a message of a schedule now, also if it is paused; its ticks stay as they are.

    The message is that of a tick at this second. Costs what a put costs.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        publish: Publishes what was written to one partition.

    Raises:
        NotFoundError: There is no such queue or schedule.
        MessageError, SchemaError: The queue does not take the message any more.
        OutcomeUnknownError: The answer was lost, and no read can tell the outcome any more.
        StoreError: Cassandra failed.
    """
    schedule, definition = read_schedule(store, queue, name)
    now = datetime.now(UTC).replace(microsecond=0)
    checked = check_message(message_of(schedule, Tick(now, now)), definition)
    (outcome,) = put_messages(store, definition, [checked], publish)
    if isinstance(outcome, CassieqError):
        raise outcome
    return outcome
