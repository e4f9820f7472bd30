"""How far the schedules of queues are, so that an error in one queue does not hide the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from cassieq_spark.errors import CassieqError, ConnectError, MissingSchemaError, QueueStateError
from cassieq_spark.queues.record import Records
from cassieq_spark.schedules.changes import readable_schedules
from cassieq_spark.schedules.progress import ScheduleProgress, progress_of_all
from cassieq_spark.store.protocol import Store


class SchedulesRead(NamedTuple):
    """The schedules of queues.

    Attributes:
        found: How far each is, by queue and name, without its next ticks.
        errors: The errors of queues whose schedules could not be read, by name.
    """

    found: tuple[ScheduleProgress, ...] = ()
    errors: Mapping[str, CassieqError] = {}


def read_schedules_of(store: Store, records: Records, names: Collection[str]) -> SchedulesRead:
    """Read how far schedules are. One read per queue partition that has some; no LWT.

    Args:
        store: Where the queues are kept.
        records: The records of all queues.
        names: Names of the queues; empty for all active ones.

    Raises:
        ConnectError: No node answers.
    """
    found: list[ScheduleProgress] = []
    errors: dict[str, CassieqError] = {}
    for name, record in records.readable.items():
        if names and name not in names:
            continue
        try:
            found += progress_of_all(store, record.definition, readable_schedules(record), 0)
        except (ConnectError, MissingSchemaError):
            raise
        except QueueStateError:
            continue  # Purged or deleted meanwhile.
        except CassieqError as error:
            errors[name] = error
    return SchedulesRead(tuple(found), errors)
