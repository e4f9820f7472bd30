"""Reads and changes the row of a queue, which has the queue's definition and status."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import (
    ContentionError,
    InvariantError,
    NotFoundError,
    OutcomeUnknownError,
    QueueStateError,
    in_doubt,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import (
    Order,
    QueueDefinition,
    QueueId,
    id_of,
    parts_of_id,
    validate_name,
)
from cassieq_spark.queues.definition import (
    Counts,
    count_of,
    parse_counts,
    validate_settings,
    validate_versions,
)
from cassieq_spark.schemas.ddl import parse_stored, to_stored
from cassieq_spark.settings.queue import (
    MOST_PARTITIONS,
    columns_of_settings,
    settings_from_columns,
)
from cassieq_spark.store.decoded import decoded
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Row,
    Store,
    Update,
    Values,
    When,
    partition_of_queue,
)
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: The row of a queue can't be read; the other queues are listed without it.
UNREADABLE = "queue.unreadable"
#: How long a program uses the row of a queue that it has read.
CACHED_FOR = timedelta(milliseconds=100)


class Status(StrEnum):
    """The status of a queue."""

    ACTIVE = "active"
    #: The version is new and not open yet; the version before may not be closed yet.
    PURGING = "purging"
    #: Deleted, but the repair has yet to delete its messages.
    DELETING = "deleting"
    DELETED = "deleted"


#: The end of the column ``on_dead`` of a queue that earlier releases must not use: they refuse a
#: value that they do not know. Otherwise, their readers would lease messages that they can't read,
#: until the messages are dead.
_NOT_FOR_EARLIER = "+unique"
_GONE = frozenset({Status.DELETING, Status.DELETED})


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """The row of a queue, which may be deleted.

    Attributes:
        definition: Its last definition.
        status: Its status.
        retired: The last retired version; of it and all earlier ones, only ledger heads are left.
        change: Token of the last change; None if an earlier release made it.
        counts: The number of partitions of each version.
        attributes: The column that `attributes_of` decodes.
        schedules: The schedules, as text; see `schedules.stored`.
    """

    definition: QueueDefinition
    status: Status
    retired: int
    change: UUID | None
    counts: Counts = ()
    attributes: str = ""
    schedules: str = ""

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self.definition.name

    @property
    def version(self) -> int:
        """The version of the queue; while ``PURGING``, the next version."""
        return self.definition.version

    @property
    def is_gone(self) -> bool:
        """True if the queue is deleted, so that a queue of this name can be created."""
        return self.status in _GONE

    @property
    def obsolete(self) -> int:
        """The last version that is not needed any more; 0 if all are needed.

        A purge still reads the version before the new one.
        """
        if self.is_gone:
            return self.version
        return max(0, self.version - (2 if self.status is Status.PURGING else 1))

    def has_left(self, version: int) -> bool:
        """True if a purge or a deletion has left this version, or is about to."""
        return version < self.version or (version == self.version and self.is_gone)

    @property
    def to_retire(self) -> tuple[QueueId, ...]:
        """The versions that are not needed and not retired, in order; see `mark_retired`."""
        versions = range(self.retired + 1, self.obsolete + 1)
        return tuple(id_of(self.name, version) for version in versions)

    def of_version(self, version: int) -> tuple[QueueDefinition, ...]:
        """The definition of each partition of a version."""
        count = count_of(self.counts, version)
        return replace(self.definition, version=version, partitions=count).by_partition


@dataclass(frozen=True, slots=True)
class Records:
    """The rows of all queues, deleted ones too.

    Attributes:
        readable: The rows that can be read, by name and in the order of names.
        unreadable: The errors of rows that can't be read, by name.
    """

    readable: Mapping[str, QueueRecord]
    unreadable: Mapping[str, InvariantError]


class QueueNames(NamedTuple):
    """Names of queues.

    Attributes:
        used: Names of queues that exist.
        deleted: Names of deleted queues. Their rows stay, so that no id is used twice.
        schedules: How many schedules they have.
    """

    used: frozenset[str]
    deleted: frozenset[str]
    schedules: int


def read_record(store: Store, name: str, *, serial: bool = False) -> QueueRecord | None:
    """Read the row of a queue, deleted or not; None if the queue never existed. One read.

    Raises:
        InvariantError: The row can't be read.
    """
    rows = store.read_rows(partition_of_queue(name), serial=serial).rows
    return record_of(rows[0]) if rows else None


def read_queue(store: Store, name: str) -> QueueDefinition:
    """Read a queue's definition. One read; a second one if the queue seems not to be active.

    Raises:
        OptionError: The name is not valid.
        QueueStateError: There is no active queue of that name.
    """
    return read_active(store, name).definition


def read_active(store: Store, name: str) -> QueueRecord:
    """Read the row of an active queue; see `read_queue`."""
    validate_name("queue", name)
    record = read_record(store, name)
    if record is None or record.is_gone:
        # A program that lost the race to create the queue knows that it exists; a plain read may
        # still miss it.
        record = read_record(store, name, serial=True)
    return active(name, record)


def open_ledgers(store: Store, name: str) -> list[Ledger]:
    """The ledger of each partition of an active queue. One read; see `read_queue`."""
    return ledgers_of(store, read_queue(store, name))


def ledgers_of(store: Store, queue: QueueDefinition) -> list[Ledger]:
    """The ledger of each partition of a queue. No read."""
    return [Ledger(store, each.queue_id) for each in queue.by_partition]


def list_queues(store: Store, prefix: str = "") -> list[QueueDefinition]:
    """List the active queues by name. Reads the whole table of queues.

    Queues whose names do not begin with ``prefix`` are not decoded: they may belong to others, and
    be many, with large schemas.
    """
    found = list_records(store, prefix)
    return [each.definition for each in found if each.status is Status.ACTIVE]


def list_records(store: Store, prefix: str = "", *, having: str = "") -> list[QueueRecord]:
    """List all queues by name, deleted ones too. Reads the whole table of queues.

    A queue whose row can't be read is left out, and logged; see `read_records`.
    """
    records = read_records(store, prefix, having=having)
    for name, error in records.unreadable.items():
        extra = {"action": UNREADABLE, "queue": name}
        logger.warning("queue %a is left out: %s", name, error, extra=extra)
    return list(records.readable.values())


def read_records(store: Store, prefix: str = "", *, having: str = "") -> Records:
    """Read the whole table of queues. A row that can't be read does not affect the others.

    Other rows are not decoded than those whose names begin with ``prefix`` and, if ``having`` is a
    column, in which that column is neither null nor empty.
    """
    readable: dict[str, QueueRecord] = {}
    unreadable: dict[str, InvariantError] = {}
    for row in sorted(store.scan(Table.QUEUE), key=lambda row: str(row["name"])):
        name = str(row["name"])
        if not name.startswith(prefix) or (having and not row[having]):
            continue
        try:
            readable[name] = record_of(row)
        except InvariantError as error:
            unreadable[name] = error
    return Records(readable, unreadable)


def read_names(store: Store, prefix: str = "") -> QueueNames:
    """Read the names of all queues that begin with ``prefix``. Reads the whole table of queues.

    No row is decoded. A queue whose status can't be read counts as one that exists; schedules that
    can't be read do not count.
    """
    names: dict[bool, set[str]] = {True: set(), False: set()}
    schedules = 0
    for row in store.scan(Table.QUEUE):
        name = str(row["name"])
        if name.startswith(prefix):
            is_gone = row["status"] in _GONE
            names[is_gone].add(name)
            with suppress(ValueError, RecursionError, TypeError):
                schedules += 0 if is_gone else len(json.loads(str(row["schedules"] or "{}")))
    return QueueNames(frozenset(names[False]), frozenset(names[True]), schedules)


def known(name: str, record: QueueRecord | None) -> QueueRecord:
    """Return the record of a queue; raise `NotFoundError` if it is deleted, or never existed."""
    if record is None or record.is_gone:
        raise no_queue(name)
    return record


def no_queue(name: str) -> NotFoundError:
    """The error for a queue that is deleted, or never existed."""
    return NotFoundError(
        f"there is no queue {name!r}; create it with: cassieq queue create {name}"
    )


def active(name: str, record: QueueRecord | None) -> QueueRecord:
    """Return the record of an active queue; raise `QueueStateError` if it is not active."""
    found = known(name, record)
    if found.status is Status.PURGING:
        raise QueueStateError(
            f"queue {name!r} is being purged; try again in a moment, or, if that broke off, "
            f"finish it: cassieq queue purge {name}"
        )
    return found


def read_mended(store: Store, name: str, *, serial: bool = False) -> QueueRecord | None:
    """Read the row of a queue, and guess unreadable columns, so that the queue can be deleted.

    One read; if the row can't be read, another read and a scan of the heads of all ledgers. The
    version is then taken from the last ledger, and the bucket size from the row if its value is
    possible, else it is the default; a repair run with a scan finds buckets that are missed so.
    """
    try:
        return read_record(store, name, serial=serial)
    except InvariantError:
        rows = store.read_rows(partition_of_queue(name), serial=serial).rows
    return _mended(store, name, rows[0]) if rows else None


def change(
    store: Store,
    name: str,
    decide: Callable[[QueueRecord | None], Values | None],
    *,
    read: Callable[..., QueueRecord | None] = read_record,
) -> QueueRecord | None:
    """Change the row of a queue. One LWT and two serial reads.

    Each change writes a new token, conditioned on the token that was read. So a request that
    arrives late is refused, and the token in the row shows whether a change without an answer was
    applied.

    Args:
        decide: Returns the columns to write, given the row; None: none. ``decide`` may take steps
            that must come before, and may be called again.
        read: Reads the row, as `read_record` does.

    Returns:
        The row after the change.

    Raises:
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: No read showed whether the change was applied.
    """
    token = uuid4()
    doubtful: list[UUID] = []
    with in_doubt(f"queue {name!r}", doubtful):
        for _ in attempts():
            found = read(store, name, serial=True)
            if found is not None and found.change == token:
                return found
            try:
                values = decide(found)
                if values is None:
                    return found
                values = {**values, "change": token}
                op: Op = Insert((), values, if_absent=True)
                if found is not None:
                    op = Update((), values, when=(When("change", "=", found.change),))
                may_be_applied = store.cas(partition_of_queue(name), [op])
            except OutcomeUnknownError:
                may_be_applied = True
            if may_be_applied:
                doubtful.append(token)
        raise ContentionError(f"queue {name!r} could not be changed; try again")


@decoded
def record_of(row: Row) -> QueueRecord:
    """Decode a row; columns that an earlier release did not write count as not set.

    Raises:
        InvariantError: Another program wrote the row, or somebody changed it by hand.
    """
    return _record_of(tuple(row.items()))


@lru_cache(maxsize=128)
def _record_of(columns: tuple[tuple[str, Any], ...]) -> QueueRecord:
    """Decode the columns of a row.

    Cached: each put and each receive reads the row of its queue, which seldom changes.
    """
    values = dict(columns)
    if values["on_dead"]:
        values["on_dead"] = values["on_dead"].removesuffix(_NOT_FOR_EARLIER)
    definition = QueueDefinition(
        name=values["name"],
        version=values["version"],
        created_at=values["created_at"],
        schemas=parse_stored(values["schema_versions"]) if values["schema_versions"] else (),
        **settings_from_columns(values),
    )
    counts = parse_counts(values["partitions"] or "")
    partitions = count_of(counts, definition.version)
    definition = replace(definition, partitions=partitions, order=_order_of(values, partitions))
    validate_settings(definition)
    retired = values["retired"] or 0
    validate_versions(definition.version, retired)
    return QueueRecord(
        definition,
        Status(values["status"]),
        retired,
        values["change"],
        counts,
        values["attributes"] or "",
        values["schedules"] or "",
    )


def settings_of(queue: QueueDefinition) -> Values:
    """The columns of a definition, except name, version and time of creation."""
    columns = columns_of_settings(queue)
    if queue.deduplicate is not None:
        columns["on_dead"] = f"{columns['on_dead']}{_NOT_FOR_EARLIER}"
    return {
        **columns,
        "strict_fifo": queue.is_ordered,
        "schema_versions": to_stored(queue.schemas) if queue.schemas else "",
    }


def order_of_version(queue: QueueDefinition, version: int) -> Values:
    """The column that says that a version of a queue is ordered by key.

    Earlier releases take a queue with this order and one partition for a strictly ordered one,
    which keeps the order of each key, too.
    """
    return {"by_key": version if queue.order is Order.KEY else 0}


def _order_of(values: Any, partitions: int) -> Order:
    if not values["strict_fifo"]:
        return Order.NONE
    # An earlier release that creates the queue anew leaves the column as it was.
    by_key = partitions > 1 or values["by_key"] == values["version"]
    return Order.KEY if by_key else Order.STRICT


def _mended(store: Store, name: str, row: Any) -> QueueRecord:
    found = _partitions_found(store, name)
    counts = tuple(sorted(found.items()))
    version = max(found, default=1)
    size = row["bucket_size"]
    plain = QueueDefinition(name, version, partitions=count_of(counts, version))
    if size is not None and size > 0:
        plain = replace(plain, bucket_size=size, chunk_size=1)
    retired = row["retired"] or 0
    possible = range(max(0, version - 1))
    status = Status.DELETING if row["status"] == Status.DELETING else Status.ACTIVE
    retired = retired if retired in possible else 0
    return QueueRecord(plain, status, retired, row["change"], counts)


def _partitions_found(store: Store, name: str) -> dict[int, int]:
    """The versions of a queue that have a ledger, and the number of partitions of each."""
    found: dict[int, int] = {}
    for row in store.scan(Table.LEDGER, ("head",)):
        with suppress(ValueError):
            queue, version, partition = parts_of_id(str(row["queue_id"]))
            if queue == name:
                count = 1 if partition is None else min(partition + 1, MOST_PARTITIONS)
                found[version] = max(found.get(version, 1), count)
    return found
