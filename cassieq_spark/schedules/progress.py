"""How far a schedule is, and a message of it at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice

from cassieq_spark.arguments import check_count
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import CassieqError, QueueStateError
from cassieq_spark.ledger.publish import Published
from cassieq_spark.model import Position, QueueDefinition
from cassieq_spark.producer.new_message import check_message
from cassieq_spark.producer.partitioned import put_messages
from cassieq_spark.producer.publisher import Written
from cassieq_spark.schedules.changes import list_schedules, read_schedule, read_schedules
from cassieq_spark.schedules.due import Tick, next_ticks, oldest_overdue
from cassieq_spark.schedules.publish import message_of, read_all_progress
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
            none. Of a schedule that catches up nothing, ticks that are late do not count.
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
    return progress_of_all(store, definition, [schedule], ticks)[0]


def read_schedules_progress(store: Store, queue: str, *, ticks: int = 1) -> list[ScheduleProgress]:
    """Read the schedules of a queue, by name, and how far they are.

    One read, and one per partition that has schedules.

    Args:
        store: The store.
        queue: Name of the queue.
        ticks: How many of the next ticks of each are computed.

    Raises:
        InvariantError: The schedules can't be read.
        QueueStateError: There is no such queue, or it was purged meanwhile.
    """
    schedules, definition = read_schedules(store, queue)
    return progress_of_all(store, definition, schedules, ticks)


def list_progress(store: Store, *, ticks: int = 1) -> list[ScheduleProgress]:
    """Read all schedules of the active queues, and how far they are.

    Reads the whole table of queues, and once per partition that has schedules.
    """
    found: list[ScheduleProgress] = []
    by_queue = groupby(list_schedules(store), key=lambda each: each[1])
    for queue, schedules in by_queue:
        # A queue that is purged or deleted meanwhile has none.
        with suppress(QueueStateError):
            found += progress_of_all(store, queue, [each for each, _ in schedules], ticks)
    return found


def progress_of_all(
    store: Store, queue: QueueDefinition, schedules: Sequence[Schedule], ticks: int
) -> list[ScheduleProgress]:
    """Read how far schedules of a queue are. One read per partition that has some.

    Raises:
        QueueStateError: The queue was purged or deleted meanwhile.
    """
    found = read_all_progress(store, queue, schedules)
    return [
        progress_of(each, it.last, it.now, ticks)
        for each, it in zip(schedules, found, strict=True)
    ]


def progress_of(
    schedule: Schedule, last: datetime | None, now: datetime, ticks: int
) -> ScheduleProgress:
    """How far a schedule is at an instant, given its last tick."""
    if schedule.paused:
        return ScheduleProgress(schedule, last, (), None)
    due_at = oldest_overdue(schedule, last, now)
    upcoming = tuple(islice(next_ticks(schedule, last, now), ticks))
    return ScheduleProgress(schedule, last, upcoming, None if due_at is None else now - due_at)


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
