"""Creates, lists, alters, pauses, resumes and deletes the schedules of queues.

They are in the row of their queue, and change with it by compare-and-set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Unpack
from uuid import uuid4

from cassieq_spark.errors import ExistsError, InvariantError, NotFoundError
from cassieq_spark.model import QueueDefinition, validate_name
from cassieq_spark.producer.new_message import check_message
from cassieq_spark.queues import (
    QueueRecord,
    Status,
    check_delayable,
    list_records,
)
from cassieq_spark.queues.record import active, change, no_queue, read_active
from cassieq_spark.schedules.due import Tick
from cassieq_spark.schedules.publish import end_generations_before, message_of
from cassieq_spark.schedules.schedule import Schedule, altered_schedule, make_schedule, whole
from cassieq_spark.schedules.stored import from_stored, to_stored
from cassieq_spark.settings.schedule import (
    ScheduleChanges,
    ScheduledValue,
    ScheduleSettings,
    check_settings,
)
from cassieq_spark.store.protocol import Store, Values, partition_of_queue

logger = logging.getLogger(__name__)

#: The schedules of a queue can't be read; those of other queues are served.
UNREADABLE = "schedule.unreadable"

_Schedules = dict[str, Schedule]


def create_schedule(
    store: Store,
    queue: str,
    name: str,
    message: ScheduledValue,
    **settings: Unpack[ScheduleSettings],
) -> Schedule:
    """Create a schedule of a queue. One LWT and three serial reads.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        message: The body of its messages; see `make_schedule`, also for the settings.
        settings: By name.

    Raises:
        OptionError: A setting is not valid, or contradicts another one; or the queue would have
            too many schedules.
        MessageError, SchemaError: The queue does not take such messages.
        ExistsError: The queue has a schedule of that name.
        QueueStateError: There is no such queue.
    """
    validate_name("schedule", name)
    now = _present(store, queue)
    made = make_schedule(queue, name, message, identity=uuid4().hex, now=now, **settings)

    def create(record: QueueRecord, found: _Schedules) -> _Schedules:
        if name in found and found[name].identity == made.identity:
            return found  # Created by an attempt whose answer was lost.
        return _with(made, record, found)

    return _change(store, queue, create)[name]


def plan_schedule(
    store: Store,
    queue: str,
    name: str,
    message: ScheduledValue,
    *,
    now: datetime,
    **settings: Unpack[ScheduleSettings],
) -> tuple[Schedule, QueueDefinition]:
    """The schedule that `create_schedule` would create, and its queue. One read; nothing changes.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        message: The body of its messages.
        now: The present.
        settings: By name.

    Raises:
        CassieqError: As `create_schedule` does.
    """
    validate_name("schedule", name)
    record = read_active(store, queue)
    made = make_schedule(queue, name, message, identity="", now=now, **settings)
    to_stored(_with(made, record, _schedules_of(record)).values())
    return made, record.definition


def read_schedules(store: Store, queue: str) -> tuple[list[Schedule], QueueDefinition]:
    """The schedules of a queue, by name, and the queue. One read.

    See `read_queue` for the errors.

    Raises:
        InvariantError: They can't be read.
    """
    record = read_active(store, queue)
    return list(_schedules_of(record).values()), record.definition


def read_schedule(store: Store, queue: str, name: str) -> tuple[Schedule, QueueDefinition]:
    """A schedule and its queue. One read; see `read_queue` for the errors.

    Raises:
        NotFoundError: The queue has no such schedule.
    """
    validate_name("schedule", name)
    record = read_active(store, queue)
    return _one(queue, name, _schedules_of(record)), record.definition


def list_schedules(store: Store, prefix: str = "") -> list[tuple[Schedule, QueueDefinition]]:
    """All schedules of the active queues, with their queues. Reads the whole table of queues.

    Schedules that can't be read are left out, and logged.
    """
    return [
        (each, record.definition)
        for record in list_records(store, prefix, having="schedules")
        for each in readable_schedules(record)
    ]


def readable_schedules(record: QueueRecord) -> list[Schedule]:
    """The schedules of an active queue, by name; none, and a log record, if they can't be read."""
    if record.status is not Status.ACTIVE:
        return []
    try:
        return list(_schedules_of(record).values())
    except InvariantError as error:
        extra = {"action": UNREADABLE, "queue": record.name}
        logger.warning("%s", error, extra=extra)
        return []


def alter_schedule(
    store: Store, queue: str, name: str, **changes: Unpack[ScheduleChanges]
) -> Schedule:
    """Alter a schedule; settings that are not given stay. Two LWTs, three serial reads, one read.

    1. Row: the changes, and the next generation. From now on runners that read the queues publish
       ticks of this generation, once they have done the next step if nobody has.
    2. Ledger: the sink gets the next generation, and keeps its last tick. From now on no runner
       publishes a tick of an earlier one, whatever it has planned.

    If the call breaks off between the two, runners that have not read the queues since may publish
    by the old settings, until one with the new ones does the second step: for about ten seconds.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        changes: By name; see `altered_schedule`.

    Raises:
        OptionError: A setting is not valid, can't be altered or contradicts another one; or the
            schedule would never tick again.
        MessageError, SchemaError: The queue does not take such messages.
        NotFoundError: There is no such queue or schedule.
        QueueStateError: The queue was purged meanwhile; repeat the call.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    validate_name("schedule", name)
    check_settings(changes, alters=True)
    now = _present(store, queue)

    def alter_row(record: QueueRecord) -> Values | None:
        found = _schedules_of(record)
        old = _one(queue, name, found)
        new = altered_schedule(old, changes, now)
        if new is old:
            return None
        _check_fits(new, record.definition)
        return {"schedules": to_stored((found | {name: new}).values())}

    record = active(queue, change(store, queue, lambda row: alter_row(active(queue, row))))
    altered = _one(queue, name, _schedules_of(record))
    if altered.generation:
        end_generations_before(store, record.definition, altered)
    return altered


def plan_alter(
    store: Store, queue: str, name: str, *, now: datetime, **changes: Unpack[ScheduleChanges]
) -> tuple[Schedule, Schedule, QueueDefinition]:
    """A schedule as it is, as `alter_schedule` would make it, and its queue.

    One read; nothing changes.

    Args:
        store: The store.
        queue: Name of the queue.
        name: Name of the schedule.
        now: The present.
        changes: By name.

    Raises:
        CassieqError: As `alter_schedule` does.
    """
    validate_name("schedule", name)
    record = read_active(store, queue)
    found = _schedules_of(record)
    old = _one(queue, name, found)
    new = altered_schedule(old, changes, now)
    _check_fits(new, record.definition)
    to_stored((found | {name: new}).values())
    return old, new, record.definition


def pause_schedule(store: Store, queue: str, name: str) -> bool:
    """Pause a schedule; False if it was paused. One LWT and two serial reads.

    A runner that has begun a tick publishes it; a runner learns of the pause when it reads the
    queues again.

    Raises:
        NotFoundError: There is no such queue or schedule.
    """
    return _update(store, queue, name, resumed=None)


def resume_schedule(store: Store, queue: str, name: str) -> bool:
    """Resume a schedule; False if it was not paused. One LWT and three serial reads.

    The ticks of the time in which it was paused are not published.

    Raises:
        NotFoundError: There is no such queue or schedule.
    """
    return _update(store, queue, name, resumed=_present(store, queue))


def delete_schedule(store: Store, queue: str, name: str) -> None:
    """Delete a schedule; messages that were put stay. One LWT and two serial reads.

    The row in the ledger that has its last tick stays, so no tick is ever published again.

    Raises:
        NotFoundError: There is no such queue or schedule.
    """
    validate_name("schedule", name)
    ours: set[str] = set()

    def delete(_: QueueRecord, found: _Schedules) -> _Schedules:
        if ours and (name not in found or found[name].identity not in ours):
            return found  # Deleted by an attempt whose answer was lost.
        ours.add(_one(queue, name, found).identity)
        return {each: it for each, it in found.items() if each != name}

    _change(store, queue, delete)


def _update(store: Store, queue: str, name: str, *, resumed: datetime | None) -> bool:
    """Resume a schedule at an instant, or pause it; False if there was nothing to do."""
    validate_name("schedule", name)
    paused, changed = resumed is None, False

    def update(_: QueueRecord, found: _Schedules) -> _Schedules:
        nonlocal changed
        old = _one(queue, name, found)
        if old.paused == paused:
            return found
        changed = True
        since = old.since if resumed is None else max(old.since, whole(resumed))
        return found | {name: replace(old, paused=paused, since=since)}

    _change(store, queue, update)
    return changed


def _present(store: Store, queue: str) -> datetime:
    """The present: the earlier of the server's clock and that of this process. One serial read.

    From a time that is too late on, ticks would be missing.
    """
    validate_name("queue", queue)
    found = store.read_rows(partition_of_queue(queue), serial=True)
    if found.now is None or found.here is None:
        raise no_queue(queue)
    return min(found.now, found.here)


def _change(
    store: Store, queue: str, decide: Callable[[QueueRecord, _Schedules], _Schedules]
) -> _Schedules:
    """Change the schedules of a queue; see `change` of the queue's row."""
    validate_name("queue", queue)

    def change_row(found: QueueRecord | None) -> Values | None:
        record = active(queue, found)
        before = _schedules_of(record)
        after = decide(record, before)
        return None if after == before else {"schedules": to_stored(after.values())}

    return _schedules_of(active(queue, change(store, queue, change_row)))


def _schedules_of(record: QueueRecord) -> _Schedules:
    return from_stored(record.name, record.schedules)


def _one(queue: str, name: str, found: _Schedules) -> Schedule:
    if name not in found:
        raise NotFoundError(
            f"queue {queue!r} has no schedule {name!r}; to list all: cassieq schedule list"
        )
    return found[name]


def _with(made: Schedule, record: QueueRecord, found: _Schedules) -> _Schedules:
    """The schedules of a queue and a new one, which the queue must take."""
    if made.name in found:
        raise ExistsError(
            f"queue {made.queue!r} has a schedule {made.name!r} already; to replace it, delete it "
            f"first: cassieq schedule delete {made.name} --queue {made.queue}"
        )
    _check_fits(made, record.definition)
    return found | {made.name: made}


def _check_fits(schedule: Schedule, queue: QueueDefinition) -> None:
    """Refuse a schedule whose messages the queue does not take."""
    if schedule.ahead:
        check_delayable(queue)
    first = next(schedule.ticks_after(schedule.since), schedule.since)
    check_message(message_of(schedule, Tick(first, first)), queue)
